"""Sockets of every family and attempts to reach somebody, as the kernel saw them."""

from __future__ import annotations

from supervisor.events.base import Event


class SocketCreated(Event, frozen=True, kw_only=True):
    """A socket was made, or refused with ``error``."""

    family: int
    socket_type: int
    protocol: int
    error: int | None = None


class SocketBound(Event, frozen=True, kw_only=True):
    """A socket was given a local address."""

    transport: str
    ip: str | None
    port: int | None
    path: bytes | None = None
    error: int | None = None


class ConnectionAttempted(Event, frozen=True, kw_only=True):
    """A connection to loopback, to a unix socket, or to an address outside that the gateway then decides about.

    ``outside``: the peer is no process of this trial: a route to a service that this box does not hold. ``device`` and
    ``inode`` are then of the socket file that it listens at, as the kernel knows it (0 where there is none): ``path``
    is how the caller called it.
    """

    transport: str
    ip: str | None = None
    port: int | None = None
    path: bytes | None = None
    outside: bool = False
    error: int | None = None
    device: int = 0
    inode: int = 0


class FlowTold(Event, frozen=True, kw_only=True):
    """What is told of a flow after it began: when the trial acted, which is before anybody who serves it says so.

    Times are the kernel's, CLOCK_BOOTTIME; None where they are not known, or had not come when this was told.

    Attributes:
        attempted_ns: the connection was asked for.
        said_ns: something that the trial said over it last left.
        left_ns: the last process that held it closed it, or ended. What it had said by then may go on later.
    """

    attempted_ns: int | None = None
    said_ns: int | None = None
    left_ns: int | None = None


class ConnectionBlocked(FlowTold, frozen=True, kw_only=True):
    """A connection to an address outside was refused.

    By the kernel at the call, before anything was sent, or by the gateway (``origin``), which then says why.

    Attributes:
        connection: its number at the gateway.
        host: the name that it went by, or that was said on it.
        rule, reason: what refused it.
        would_allow: an option that would let it through.
        kept_bytes: what the client had sent, which was passed on to nobody.
        source: the trial's end, ``IP:PORT``.
    """

    transport: str
    ip: str
    port: int
    connection: int | None = None
    host: str | None = None
    rule: str | None = None
    reason: str | None = None
    would_allow: str | None = None
    kept_bytes: int = 0
    source: str | None = None


class DatagramBlocked(Event, frozen=True, kw_only=True):
    """A datagram to an address outside was refused at the call."""

    transport: str
    ip: str
    port: int


class DescriptorPassed(Event, frozen=True, kw_only=True):
    """A descriptor was sent (or received) over a unix socket. ``outside`` as for connections."""

    received: bool
    outside: bool
    path: bytes | None = None
