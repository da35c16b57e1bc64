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
    """A connection to loopback, or to a unix socket.

    ``outside``: the peer is no process of this trial: a route to a service that this box does not hold.
    """

    transport: str
    ip: str | None = None
    port: int | None = None
    path: bytes | None = None
    outside: bool = False
    error: int | None = None


class ConnectionBlocked(Event, frozen=True, kw_only=True):
    """A connection to an address outside was refused at the call, before anything was sent."""

    transport: str
    ip: str
    port: int


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
