"""Requests that were read inside TLS, each with its answer, and connections that could not be read. Pure.

In: what the gateway told, in any order. Out: `Request` and `Unread` values, in the order of their events.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.events import Event, InspectionFailed, ProcessKey, RequestAnswered, RequestSent, StreamDigested
from supervisor.evidence.bounded import bounded
from supervisor.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that was passed on. Digests are of bodies, ``sha256:…``.

    Attributes:
        method: None for what was no HTTP: a whole stream, whose digests are those of all its bytes.
        status: of the answer; None when there was none.
        complete: both were seen to their ends.
    """

    host: str
    port: int
    method: str | None
    url: str | None
    status: int | None
    bytes_out: int
    bytes_in: int
    digest_out: str
    digest_in: str | None
    complete: bool
    process: ProcessKey | None
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """One connection that was ended because a side (``client`` or ``server``) did not agree to be read."""

    host: str
    port: int
    side: str
    reason: str
    process: ProcessKey | None
    events: tuple[int, ...]


class RequestFold:
    """Brings requests and answers together."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._sent: dict[tuple[int, int], RequestSent] = {}
        self._answered: dict[tuple[int, int], RequestAnswered] = {}
        self._streams: list[StreamDigested] = []
        self._failed: list[InspectionFailed] = []

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return dict.fromkeys((RequestSent, RequestAnswered, StreamDigested, InspectionFailed), self._take)

    def _take(self, event: Event) -> None:
        match event:
            case RequestSent():
                self._sent[event.connection, event.request] = event
            case RequestAnswered():
                self._answered[event.connection, event.request] = event
            case StreamDigested():
                self._streams.append(event)
            case InspectionFailed():
                self._failed.append(event)
            case _:
                pass

    def finish(self) -> tuple[tuple[Request, ...], tuple[Unread, ...]]:
        """Build them; of very many the first and the last are kept, the log has all."""
        made = [_request(sent, self._answered.get(key)) for key, sent in self._sent.items()]
        made += map(_stream, self._streams)
        unread = [
            Unread(host=one.host, port=one.port, side=one.side, reason=one.reason, process=one.process, events=(one.n,))
            for one in self._failed
        ]
        return (
            tuple(bounded(sorted(made, key=lambda one: one.events))),
            tuple(bounded(sorted(unread, key=lambda one: one.events))),
        )


def _request(sent: RequestSent, answered: RequestAnswered | None) -> Request:
    return Request(
        host=sent.host,
        port=sent.port,
        method=sent.method,
        url=sent.url,
        status=answered.status if answered else None,
        bytes_out=sent.size_bytes,
        bytes_in=answered.size_bytes if answered else 0,
        digest_out=sent.digest,
        digest_in=answered.digest if answered else None,
        complete=sent.complete and answered is not None and answered.complete,
        process=sent.process,
        events=(sent.n, answered.n) if answered else (sent.n,),
    )


def _stream(seen: StreamDigested) -> Request:
    return Request(
        host=seen.host,
        port=seen.port,
        method=None,
        url=None,
        status=None,
        bytes_out=seen.bytes_out,
        bytes_in=seen.bytes_in,
        digest_out=seen.digest_out,
        digest_in=seen.digest_in,
        complete=True,
        process=seen.process,
        events=(seen.n,),
    )
