"""The ground of a served network, and the witness's account of what goes to whoever serves it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from witness_builder import PRELUDE, Seen, WitnessLab

from probes.gateway import ground
from probes.gateway.ground import Ground
from probes.kernel.abi import Network
from supervisor.events import ConnectionAttempted, ConnectionBlocked, DatagramBlocked, ProcessStarted

pytestmark = pytest.mark.kernel("witness", "gateway")

TCP, UDP = 6, 17
TRY = """
def attempt(act):
    try: print(act())
    except OSError as error: print(errno.errorcode[error.errno])
def dialled(host, port, family=socket.AF_INET):
    s = socket.socket(family); s.connect((host, port)); s.send(b"12345"); return s.getsockname()[1]
"""


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[int, Ground]]:
    """A namespace that this process serves, and does nothing with but what a test says."""

    def lay(namespace: int) -> tuple[int, Ground]:
        return os.dup(namespace), ground.prepare(namespace)

    namespace, laid = ground.in_new_namespace(lay)
    yield namespace, laid
    for sock in (*laid.listeners, *laid.resolvers):
        sock.close()
    laid.program.close()
    os.close(namespace)


def run(lab: WitnessLab, namespace: int, code: str) -> Seen:
    """Run a program in the namespace, watched."""
    inside = ("nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace}", sys.executable, "-I", "-S", "-c")
    seen = lab.finish(lab.start(*inside, PRELUDE + TRY + code))
    assert not seen.err, seen.err
    return seen


def accept(laid: Ground, family: socket.AddressFamily) -> tuple[tuple[str, int], tuple[str, int]]:
    """Take one connection; gives where it was meant to go, and where it came from."""
    (listener,) = (one for one in laid.listeners if one.family == family)
    sock, peer = listener.accept()
    with sock:
        meant = sock.getsockname()
        return (meant[0], meant[1]), (peer[0], peer[1])


@pytest.mark.parametrize(
    ("act", "family", "meant"),
    [
        ("dialled('203.0.113.7', 80)", socket.AF_INET, ("203.0.113.7", 80)),
        ("dialled('2001:db8::7', 8443, socket.AF_INET6)", socket.AF_INET6, ("2001:db8::7", 8443)),
        ("dialled('::ffff:203.0.113.8', 22, socket.AF_INET6)", socket.AF_INET, ("203.0.113.8", 22)),
    ],
)
def test_every_connection_comes_to_the_listener_as_it_was_meant(
    served: tuple[int, Ground], act: str, family: socket.AddressFamily, meant: tuple[str, int]
) -> None:
    """Its address is that which was dialled; the kernel knows whose it is by the port it came from, and counts it."""
    namespace, laid = served
    with WitnessLab(network=Network.PASS) as lab:
        seen = run(lab, namespace, f"attempt(lambda: {act})")
        went, source = accept(laid, family)
        owner = lab.witness.owner(TCP, packed(source[0]), source[1])
        counters = lab.counters()
    assert went == meant
    assert source[1] == int(seen.out)
    attempted = seen.one(ConnectionAttempted)
    assert (attempted.ip, attempted.port, attempted.process) == (*meant, owner)
    assert (counters.gateway_starts, counters.gateway_bytes, counters.egress_packets) == (1, 5, 0)


def packed(ip: str) -> bytes:
    """Give the 16 bytes of an address, one of IPv4 in its mapped form."""
    address = ip_address(ip)
    return address.packed if address.version == 6 else ip_address(f"::ffff:{ip}").packed


@pytest.mark.parametrize(
    ("act", "ip"),
    [
        ("s.sendto(b'x', ('203.0.113.9', 4433))", "203.0.113.9"),
        ("(s.connect(('203.0.113.9', 4433)), s.send(b'x'), s.send(b'x'))", "203.0.113.9"),
        ("(six.connect(('2001:db8::9', 4433)), six.send(b'x'))", "2001:db8::9"),
    ],
)
def test_a_datagram_is_refused_where_it_is_sent_and_told_once(served: tuple[int, Ground], act: str, ip: str) -> None:
    """Named in the call or before, it fails there, and whoever sent it is told."""
    sockets = "s = socket.socket(type=socket.SOCK_DGRAM); six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
    with WitnessLab(network=Network.PASS) as lab:
        seen = run(lab, served[0], f"{sockets}attempt(lambda: {act})")
        counters = lab.counters()
    assert seen.out == "EPERM\n"
    blocked = seen.one(DatagramBlocked)
    assert (blocked.transport, blocked.ip, blocked.port) == ("udp", ip, 4433)
    assert blocked.process in {event.process for event in seen.of(ProcessStarted)}
    assert (counters.gateway_packets, counters.egress_packets) == (0, 0)


def test_to_connect_a_datagram_socket_alone_is_no_refused_attempt(served: tuple[int, Ground]) -> None:
    """Whoever looks for its own address does it (getaddrinfo); nothing is sent."""
    code = "s = socket.socket(type=socket.SOCK_DGRAM); attempt(lambda: s.connect(('203.0.113.9', 443)))"
    with WitnessLab(network=Network.PASS) as lab:
        seen = run(lab, served[0], code)
    assert seen.out == "None\n"
    assert seen.of(ConnectionBlocked) == []


def test_a_question_comes_to_the_resolver_with_whose_it_is(served: tuple[int, Ground]) -> None:
    """To whatever server, loopback among them; it is counted like all that goes to the gateway."""
    namespace, laid = served
    (resolver,) = (one for one in laid.resolvers if one.family == socket.AF_INET)
    code = """
s = socket.socket(type=socket.SOCK_DGRAM)
for server in ('198.51.100.9', '127.0.0.53'): s.sendto(b'asked', (server, 53))
"""
    with WitnessLab(network=Network.PASS) as lab:
        seen = run(lab, namespace, code)
        for server in ("198.51.100.9", "127.0.0.53"):
            data, ancillary, _, peer = resolver.recvmsg(100, 100)
            assert data == b"asked"
            assert socket.inet_ntoa(ancillary[0][2][8:12]) == server
            owner = lab.witness.owner(UDP, packed(peer[0]), peer[1])
            assert owner in {event.process for event in seen.of(ProcessStarted)}
        assert lab.counters().gateway_bytes == 2 * len(b"asked")


def test_the_box_reaches_itself(served: tuple[int, Ground]) -> None:
    """Loopback and its own address stay inside, and count for nothing."""
    code = """
def own(host):
    listener = socket.create_server((host, 0)); c = socket.create_connection(listener.getsockname(), 5)
    return c.getpeername()[0]
for host in ('127.0.0.1', '192.0.2.2'): attempt(lambda: own(host))
"""
    with WitnessLab(network=Network.PASS) as lab:
        seen = run(lab, served[0], code)
        assert lab.counters().gateway_starts == 0
    assert seen.out.split() == ["127.0.0.1", "192.0.2.2"]


def test_when_nobody_serves_any_more_connections_are_refused() -> None:
    """The listeners leave the map as they close."""

    def lay(namespace: int) -> tuple[int, Ground]:
        return os.dup(namespace), ground.prepare(namespace)

    namespace, laid = ground.in_new_namespace(lay)
    for sock in (*laid.listeners, *laid.resolvers):
        sock.close()
    try:
        with WitnessLab(network=Network.PASS) as lab:
            seen = run(lab, namespace, "attempt(lambda: dialled('203.0.113.7', 80))")
    finally:
        laid.program.close()
        os.close(namespace)
    assert seen.out == "ECONNREFUSED\n"
