"""What the gateway held back, who decided about it, and what became of it.

A connection that is held ends with one `ConnectionHeld`, and has one `ConnectionReleased` or `ConnectionDiscarded` once
it was decided. `ValidationFinished` is on disk before the first byte is sent, and each `ConnectionReleased` before the
next one is begun: of a log that breaks off in between, at most the first connection without either was sent.
"""

from __future__ import annotations

from supervisor.events.base import Event, Origin
from supervisor.events.gateway import ConnectionPlaced


class ConnectionHeld(ConnectionPlaced, frozen=True, kw_only=True):
    """What a client said to an allowed host was kept, and passed on to nobody.

    Attributes:
        speaks: ``http``, ``http2`` or ``other``: of what is inside, where ``tls`` was ended by the gateway.
        size_bytes, digest: of what is held, ``sha256:…``.
        requests: ``METHOD URL`` of the first requests; ``count`` is how many there are.
        offset: where it lies among all that is held.
        ended: what ended it, None when that was the client's wish.
    """

    rule: str | None = None
    speaks: str | None = None
    tls: bool = False
    size_bytes: int
    digest: str
    requests: tuple[str, ...] = ()
    count: int = 0
    offset: int = 0
    opened_ns: int = 0
    ended: str | None = None


class ConnectionReleased(Event, frozen=True, kw_only=True):
    """What was held was sent to ``dialled``, after it was accepted.

    Attributes:
        bytes_out: that were sent; fewer than were held when ``error`` says why.
        bytes_in, digest_in: of the answers, as they came.
        known: False when the gateway ended before it could say: some of it, or all, may have been sent.
    """

    origin: Origin = Origin.GATEWAY
    connection: int
    dialled: str | None
    bytes_out: int
    bytes_in: int
    digest_in: str | None
    error: str | None = None
    known: bool = True


class ConnectionDiscarded(Event, frozen=True, kw_only=True):
    """What was held was thrown away; nothing of it was sent."""

    origin: Origin = Origin.SUPERVISOR
    connection: int
    reason: str


class ValidationStarted(Event, frozen=True, kw_only=True):
    """The validator was told of everything that waits: ``digest`` is that of the description it was given."""

    origin: Origin = Origin.SUPERVISOR
    files: int
    connections: int
    digest: str


class ValidationFinished(Event, frozen=True, kw_only=True):
    """The validator decided.

    Attributes:
        accepted: whether all of it is to be released.
        exit_code: None when it gave none; ``problem`` then says why.
        said: the end of what it wrote.
        log_root: of the log of its own that was kept of it.
    """

    origin: Origin = Origin.SUPERVISOR
    accepted: bool
    exit_code: int | None
    problem: str | None = None
    said: str = ""
    log_root: str | None = None
