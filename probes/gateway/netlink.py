"""The three things that a network namespace needs from rtnetlink(7): addresses and routes, in as many messages.

pyroute2 would do the same, and its import alone takes longer than a whole trial's start.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg
_ROUTE = struct.Struct("=8BI")  # struct rtmsg
_ERROR = struct.Struct("=i")

_RTM_NEWADDR, _RTM_NEWROUTE = 20, 24
_REQUEST, _ACK, _CREATE = 1, 4, 0x400
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_IFA_F_NODAD = 2
_RTA_OIF, _RTA_PREFSRC = 4, 7
_TABLE_LOCAL, _PROTOCOL_BOOT, _SCOPE_HOST, _TYPE_LOCAL = 255, 3, 254, 2
_NLMSG_ERROR = 2


def add_address(family: socket.AddressFamily, packed: bytes, interface: int) -> None:
    """Give one address, by itself, to an interface; usable at once."""
    body = _ADDRESS.pack(family, len(packed) * 8, 0, 0, interface)
    flags = _attribute(_IFA_FLAGS, struct.pack("=I", _IFA_F_NODAD)) if family == socket.AF_INET6 else b""
    _ask(_RTM_NEWADDR, body + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed) + flags)


def make_all_local(family: socket.AddressFamily, source: bytes, interface: int) -> None:
    """Make every address of a family local (``ip route add local default``), reached from ``source``."""
    body = _ROUTE.pack(family, 0, 0, 0, _TABLE_LOCAL, _PROTOCOL_BOOT, _SCOPE_HOST, _TYPE_LOCAL, 0)
    _ask(_RTM_NEWROUTE, body + _attribute(_RTA_OIF, struct.pack("=I", interface)) + _attribute(_RTA_PREFSRC, source))


def _attribute(kind: int, value: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(size, kind) + value + bytes(-size % 4)


def _ask(kind: int, body: bytes) -> None:
    message = _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _ACK | _CREATE, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(message)
        answer = netlink.recv(4096)
    _, answered, _, _, _ = _HEADER.unpack_from(answer)
    number = -_ERROR.unpack_from(answer, _HEADER.size)[0] if answered == _NLMSG_ERROR else 0
    if number and number != errno.EEXIST:
        raise OSError(number, os.strerror(number))
