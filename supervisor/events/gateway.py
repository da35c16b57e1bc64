"""What the gateway saw and did: names that were asked for, connections, and its own beginning and end.

Times are when it happened there; when the trial did its part is in the fields of `FlowTold`. ``process`` is whoever the
kernel saw begin to send from ``source``: None when that is not known any more. A connection is followed by its number:
what is allowed or sinkholed ends with a `ConnectionClosed`.
"""

from __future__ import annotations

from supervisor.events.base import Event, Origin
from supervisor.events.sockets import FlowTold


class NameAsked(FlowTold, frozen=True, kw_only=True):
    r"""A name was looked up.

    Attributes:
        name: whole, as RFC 1035 writes names (5.1: bytes that are no letters as ``\DDD``), without the final dot.
        record: what was asked for: ``A``, ``AAAA``, ``HTTPS``, ``PTR``, …
        decision: ``answered``, ``refused``, ``sinkholed`` (answered with addresses that lead nowhere), ``local`` (a
            name of the box itself), ``withheld`` (allowed, but it leads to an address out of reach), ``failed``
            (allowed, but the resolver of the host could not tell) or ``malformed``.
        answers: addresses, or the name that an address was an answer for.
        ip, port: the server that was asked, as the trial called it; None where that is not known.
        data: the first bytes of what could not be read as a question.
    """

    origin: Origin = Origin.GATEWAY
    name: str
    record: str
    decision: str
    rule: str | None = None
    reason: str | None = None
    would_allow: str | None = None
    answers: tuple[str, ...] = ()
    transport: str = "udp"
    ip: str | None = None
    port: int | None = None
    source: str | None = None
    data: bytes = b""


class ConnectionTold(FlowTold, frozen=True, kw_only=True):
    """What every account of a connection has: its number at the gateway, and the trial's end of it, ``IP:PORT``."""

    origin: Origin = Origin.GATEWAY
    connection: int
    source: str | None = None


class ConnectionPlaced(ConnectionTold, frozen=True, kw_only=True):
    """What the accounts of its course have too: where it went.

    Attributes:
        ip, port: what the trial connected to.
        host: the name that it goes by, None for an address.
    """

    transport: str = "tcp"
    ip: str
    port: int
    host: str | None = None


class ConnectionAllowed(ConnectionPlaced, frozen=True, kw_only=True):
    """A connection was let through to ``dialled``.

    Attributes:
        speaks: ``tls``, ``http``, ``http2`` or ``other``; None when the client said nothing before the server did.
        encrypted_hello: the TLS hello hides another name (ECH): it was decided by the outer one.
        declined: what the client offered to speak inside TLS and the server was not asked for, since it cannot be read.
    """

    rule: str | None = None
    speaks: str | None = None
    encrypted_hello: bool = False
    declined: tuple[str, ...] = ()
    dialled: str | None = None


class ConnectionSinkholed(ConnectionPlaced, frozen=True, kw_only=True):
    """A connection was accepted by the gateway itself, which passes nothing on."""

    rule: str | None = None
    reason: str | None = None
    would_allow: str | None = None


class ConnectionClosed(ConnectionPlaced, frozen=True, kw_only=True):
    """A connection that was allowed or sinkholed came to its end.

    Attributes:
        decision: ``allowed`` or ``sinkholed``; the other fields as they were when that was decided.
        bytes_out: what was passed on to the server.
        bytes_in: what was passed back.
        passed_ns: when the last of ``bytes_out`` was passed on.
        kept_bytes: what the client sent and was not passed on; what was refused then is told by `ConnectionBlocked`.
        data_out: of a sinkholed connection, the first 4 KiB that the client sent.
        error: why it ended, when that was not the wish of either end.
    """

    decision: str
    bytes_out: int = 0
    bytes_in: int = 0
    kept_bytes: int = 0
    opened_ns: int = 0
    passed_ns: int | None = None
    data_out: bytes = b""
    error: str | None = None


class GatewayStarted(Event, frozen=True, kw_only=True):
    """The gateway serves the trial's network."""

    origin: Origin = Origin.GATEWAY


class GatewayStopped(Event, frozen=True, kw_only=True):
    """The gateway came to its end as it was told to; what it counted is held against the kernel's own counters.

    Attributes:
        connections: that it accepted.
        questions: that it was asked by datagram.
        received_bytes: that it took from the trial, over connections and in questions.
        lost: questions by datagram that came faster than they were read, and that nobody knows.
    """

    origin: Origin = Origin.GATEWAY
    connections: int
    questions: int
    received_bytes: int
    lost: int = 0


class GatewayDied(Event, frozen=True, kw_only=True):
    """The gateway ended before it was told to: from then on everything was refused, and what it saw last is lost."""

    origin: Origin = Origin.SUPERVISOR
    problem: str
