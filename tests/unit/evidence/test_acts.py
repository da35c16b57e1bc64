"""When the trial did what an event tells of, and what a span is where the kernel does not know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor import events as ev
from supervisor.evidence.acts import last_act_ns, when_acted

TOLD = 100
PLACE: dict[str, Any] = {"connection": 1, "ip": "203.0.113.7", "port": 443}
TIMES = st.none() | st.integers(1, 200)


def allowed(**times: int | None) -> ev.Event:
    """A connection was let through."""
    return ev.ConnectionAllowed(n=1, time_ns=TOLD, **PLACE, **times)


def closed(**times: int | None) -> ev.Event:
    """A connection came to its end."""
    return ev.ConnectionClosed(n=1, time_ns=TOLD, decision="allowed", **PLACE, **times)


def asked(**times: int | None) -> ev.Event:
    """A name was asked for."""
    return ev.NameAsked(n=1, time_ns=TOLD, name="a.test", record="A", decision="refused", **times)


def sent(**times: int | None) -> ev.Event:
    """A request was passed on."""
    return ev.RequestSent(
        n=1, time_ns=TOLD, connection=1, request=0, host="a.test", port=443, method="GET", url="https://a.test/",
        size_bytes=0, digest="sha256:0", **times,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("event", "span"),
    [
        (allowed(attempted_ns=7, said_ns=9), (7, 7)),
        (allowed(), (0, TOLD)),
        (closed(attempted_ns=7, said_ns=9, left_ns=11), (11, 11)),
        (closed(attempted_ns=7, said_ns=9), (TOLD, TOLD)),
        (closed(), (0, TOLD)),
        (asked(said_ns=9), (9, 9)),
        (asked(attempted_ns=7, said_ns=TOLD + 1), (7, TOLD)),
        (asked(), (0, TOLD)),
        (sent(attempted_ns=7, said_ns=9), (7, 9)),
        (sent(attempted_ns=7), (7, TOLD)),
    ],
)
def test_what_is_told_was_done_when_the_kernel_says_so(event: ev.Event, span: tuple[int, int]) -> None:
    """Asked for, left, said; a request by the last that was said at the latest."""
    assert when_acted(event) == span


def test_what_the_kernel_tells_itself_was_done_when_it_was_told() -> None:
    """A connection that it refused, and everything that is no flow."""
    refused = ev.ConnectionBlocked(n=1, time_ns=TOLD, transport="tcp", ip="203.0.113.7", port=443)
    for event in (refused, ev.GatewayStarted(n=1, time_ns=TOLD)):
        assert when_acted(event) == (TOLD, TOLD)
    assert last_act_ns(refused) == TOLD


@given(st.sampled_from([allowed, closed, asked, sent]), TIMES, TIMES, TIMES)
def test_nothing_is_done_after_it_is_told(
    make: Any,
    begun_ns: int | None,
    said_ns: int | None,
    left_ns: int | None,
) -> None:
    """And what is known to have been done at all lies among the kernel's own times."""
    if begun_ns is not None:
        begun_ns = min(begun_ns, TOLD)  # a later one is of another flow, and is left out before
    event = make(attempted_ns=begun_ns, said_ns=said_ns, left_ns=left_ns)
    since_ns, until_ns = when_acted(event)
    assert since_ns <= until_ns <= TOLD
    assert last_act_ns(event) in {0, begun_ns, said_ns}
