"""Questions as they come: by datagram, with what the kernel says beside each, or over a connection.

The kernel notes the time of day at which a datagram was handed over, which in the trial's namespace is when it was
sent. It becomes a moment of the clock of all events by how long ago that is; where the time of day was set meanwhile
that makes no sense, and nothing is said.
"""

from __future__ import annotations

import socket
import struct
import time

from probes.gateway.ground import IP_PKTINFO, SO_TIMESTAMPNS
from probes.gateway.loop import boottime_ns
from supervisor.values import dataclass

_TIMESPEC = struct.Struct("=qq")
_SECOND = 1_000_000_000
_LATE_NS = 60 * _SECOND
"""Longer than anything waits to be read."""

Ancillary = list[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asked.

    Attributes:
        data: the question, or what should be one.
        source: the trial's end of the flow.
        server: who was asked, by address and port; None when that is not known. Whoever it is, the gateway answers.
        datagram: it came by datagram.
        whole: all of it came.
        said_ns: when it was sent, CLOCK_BOOTTIME; None when that is not known.
    """

    data: bytes
    source: tuple[str, int]
    datagram: bool
    server: tuple[str, int] | None = None
    whole: bool = True
    said_ns: int | None = None


def sent_ns(ancillary: Ancillary) -> int | None:
    """Tell when a datagram was sent, by the clock of all events; None when that is not known."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, rest = _TIMESPEC.unpack_from(data)
            ago_ns = time.time_ns() - (seconds * _SECOND + rest)
            return boottime_ns() - ago_ns if 0 <= ago_ns < _LATE_NS else None
    return None


def sent_to(ancillary: Ancillary) -> str | None:
    """Give the address that a datagram was sent to; None when that is not known."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
            return socket.inet_ntop(socket.AF_INET, data[8:12])
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            return socket.inet_ntop(socket.AF_INET6, data[:16])
    return None


def reply_from(family: int, ancillary: Ancillary) -> Ancillary:
    """Give what makes an answer come from the address that was asked."""
    for level, kind, data in ancillary:
        if family == socket.AF_INET and (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
            return [(level, kind, data[:4] + data[8:12] + data[8:12])]
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            return [(level, kind, data)]
    return []
