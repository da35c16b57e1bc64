"""The ground a trial's network stands on: a namespace in which every address is local, and the sockets that serve it.

In: the calling process, which leaves its network namespace for a moment. Out: a descriptor of the new namespace, and
sockets that were made in it. The laws:

* The namespace has nothing but ``lo``: whatever the trial does, nothing leaves but what the gateway dials.
* No firewall rule, no NAT, no setting of the host: routes and one small program of the namespace's own do it all.
* The box has one documentation address per family, since without one getaddrinfo gives up before it asks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from probes.gateway import netlink
from probes.kernel import libbpf
from supervisor.launch import libc
from supervisor.launch.namespaces import bring_up, enter_network
from supervisor.values import dataclass

OBJECT = Path(__file__).with_name("divert.bpf.o")
OWN = {socket.AF_INET: "192.0.2.2", socket.AF_INET6: "2001:db8::2"}
"""The box's own addresses, as in witness.h: traffic to them stays inside."""
LISTENING = {socket.AF_INET: "192.0.2.54", socket.AF_INET6: "2001:db8::54"}
"""What the listeners are bound to, so that they take no port of the trial's loopback."""

_PORT = 443
_DNS_PORT = 53
_BACKLOG = 65535
_SO_RCVBUFFORCE, _SO_MEMINFO, _DROPS = 33, 55, 8  # <asm-generic/socket.h>, <linux/sock_diag.h>
SO_TIMESTAMPNS = 64
"""SO_TIMESTAMPNS_NEW of <asm-generic/socket.h>, since Linux 5.1: seconds and nanoseconds of 64 bits everywhere."""
_RESOLVER_BYTES = 16 << 20
_SETTINGS = (
    ("net/ipv4/tcp_fastopen", "0"),  # data in a SYN would be sent by a call that is no connect
    ("net/mptcp/enabled", "0"),  # programs fall back to TCP
    ("net/core/somaxconn", str(_BACKLOG)),
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/lo/disable_ipv6", "0"),
)
_FREEBIND = {socket.AF_INET: (socket.IPPROTO_IP, 15), socket.AF_INET6: (socket.IPPROTO_IPV6, 78)}
_KEYS = {socket.AF_INET: 0, socket.AF_INET6: 1}  # of the map in divert.bpf.c

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What was made: the sockets are not blocking."""

    listeners: tuple[socket.socket, ...]
    resolvers: tuple[socket.socket, ...]
    program: libbpf.BpfObject


def in_new_namespace(work: Callable[[int], T]) -> T:
    """Make a network namespace, do ``work`` in it (it gets a descriptor of it), and come back."""
    with open("/proc/self/ns/net", "rb") as home:  # noqa: PTH123 - a descriptor
        enter_network()
        inside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return work(inside)
        finally:
            os.close(inside)
            libc.setns(home.fileno(), libc.CloneFlag.NEWNET)


def prepare(namespace: int) -> Ground:
    """Lay the ground in the network namespace of the calling process, which is ``namespace``.

    Raises:
        OSError: the kernel refused.
        MachineError: the program cannot be loaded or attached.
    """
    bring_up(b"lo")
    for name, value in _SETTINGS:
        _set(name, value)
    families = [socket.AF_INET, *([socket.AF_INET6] if Path("/proc/net/if_inet6").exists() else [])]
    listeners, resolvers = [], []
    interface = socket.if_nametoindex("lo")
    for family in families:
        own = socket.inet_pton(family, OWN[family])
        netlink.add_address(family, own, interface)
        netlink.make_all_local(family, own, interface)
        listeners.append(_listen(family))
        resolvers.append(_answer(family))
    program = libbpf.BpfObject(OBJECT)
    entries = program.map_fd("listeners")
    for listener in listeners:
        libbpf.update_map(
            entries, _KEYS[listener.family].to_bytes(4, "little"), listener.fileno().to_bytes(8, "little")
        )
    for _, _, handle in program.programs():
        program.attach_to_namespace(handle, namespace)
    return Ground(listeners=tuple(listeners), resolvers=tuple(resolvers), program=program)


def _set(name: str, value: str) -> None:
    try:
        Path("/proc/sys", name).write_bytes(value.encode())
    except OSError:  # a kernel without it, or a host whose /proc/sys is read-only: none of them is what safety rests on
        return


def _listen(family: socket.AddressFamily) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # The address is nobody's; for IPv6 a route that makes it local does not count.
    listener.setsockopt(*_FREEBIND[family], 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # whoever is accepted has it from here
    listener.bind((LISTENING[family], _PORT))
    listener.listen(_BACKLOG)
    return listener


def _answer(family: socket.AddressFamily) -> socket.socket:
    """Give a socket for questions to whatever address, which tells them, and when each was sent."""
    resolver = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    resolver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    if family == socket.AF_INET6:
        resolver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        resolver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        resolver.setsockopt(*_FREEBIND[family], 1)  # to answer from the address that was asked
    else:
        resolver.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    with contextlib.suppress(PermissionError):  # without the right to, it stays as small as the machine has it
        resolver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RESOLVER_BYTES)
    resolver.bind(("" if family == socket.AF_INET else "::", _DNS_PORT))
    return resolver


def lost_datagrams(resolver: socket.socket) -> int:
    """Tell how many datagrams there was no room for."""
    counters = resolver.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64)
    return int.from_bytes(counters[4 * _DROPS : 4 * _DROPS + 4], sys.byteorder)


IP_PKTINFO = 8
"""<linux/in.h>; Python before 3.12 has no name for it."""
