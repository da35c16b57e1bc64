"""Requests read inside TLS: paired with their answers in any order, streams and failures beside them."""

from __future__ import annotations

from itertools import permutations

from supervisor.events import Event, InspectionFailed, ProcessKey, RequestAnswered, RequestSent, StreamDigested
from supervisor.evidence.requests import Request, RequestFold, Unread

WHO = ProcessKey(7, 70)
COMMON = {"time_ns": 1, "process": WHO, "connection": 3}
EVENTS = (
    RequestSent(
        n=10, request=0, host="api.test", port=443, method="POST", url="https://api.test/a", size_bytes=4,
        digest="sha256:1", **COMMON,
    ),
    RequestAnswered(n=11, request=0, status=200, size_bytes=5, digest="sha256:2", **COMMON),
    RequestSent(
        n=12, request=1, host="api.test", port=443, method="GET", url="https://api.test/b", size_bytes=0,
        digest="sha256:0", **COMMON,
    ),
    StreamDigested(
        n=13, host="api.test", port=443, bytes_out=1, digest_out="sha256:3", bytes_in=2, digest_in="sha256:4", **COMMON
    ),
)  # fmt: skip
FAILED = InspectionFailed(n=14, host="api.test", port=443, side="client", reason="it pins", **COMMON)


def fold(events: tuple[Event, ...]) -> tuple[tuple[Request, ...], tuple[Unread, ...]]:
    """Feed events to a fold."""
    made = RequestFold()
    handlers = made.handlers()
    for event in events:
        handlers[type(event)](event)
    return made.finish()


def test_a_request_has_its_answer() -> None:
    """Both events are cited; one without an answer is not complete."""
    (first, second, stream), unread = fold((*EVENTS, FAILED))
    assert (first.status, first.bytes_in, first.complete, first.events) == (200, 5, True, (10, 11))
    assert (second.status, second.complete, second.events) == (None, False, (12,))
    assert (stream.method, stream.bytes_out, stream.bytes_in) == (None, 1, 2)
    assert unread == (Unread(host="api.test", port=443, side="client", reason="it pins", process=WHO, events=(14,)),)


def test_the_order_of_delivery_changes_nothing() -> None:
    """An answer may be told before its request."""
    whole = fold(EVENTS)
    assert all(fold(events) == whole for events in permutations(EVENTS))
