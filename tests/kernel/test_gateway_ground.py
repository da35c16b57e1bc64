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
from probes.gateway.datagrams import sent_ns
from probes.gateway.ground import Ground
from probes.kernel.abi import Network
from supervisor.events import ConnectionAttempted, ConnectionBlocked, DatagramBlocked, ProcessStarted

pytestmark = pytest.mark.kernel("witness", "gateway")

TCP, UDP = 6, 17
SOON_NS = 20_000_000
"""Between a call and the packet that it sends, also on a machine that is busy."""
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
        dial = lab.witness.find_dial(TCP, packed(source[0]), source[1])
        counters = lab.counters()
    assert went == meant
    assert source[1] == int(seen.out)
    attempted = seen.one(ConnectionAttempted)
    assert dial is not None
    assert (attempted.ip, attempted.port, attempted.process) == (*meant, dial.process)
    assert dial.begun_ns == attempted.time_ns
    assert dial.begun_ns <= dial.said_ns <= dial.left_ns <= seen.exits[dial.process]
    assert (counters.gateway_starts, counters.gateway_bytes, counters.egress_packets) == (1, 5, 0)


HELD = """
def now(): return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
def kept(host='203.0.113.7'):
    global s
    s = socket.socket(); s.connect((host, 80)); s.send(b"12345"); return s.getsockname()[1]
attempt(kept)
"""


@pytest.mark.parametrize(
    ("act", "by"),
    [
        ("print(now()); s.close(); print(now()); time.sleep(0.05)", "a call"),
        ("s.shutdown(socket.SHUT_RDWR); time.sleep(0.05); print(now()); s.close(); print(now())", "a call"),
        ("time.sleep(0.05); os._exit(0)", "its end"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "its end"),
        ("os.fork() or time.sleep(0.1); os._exit(0)", "the end of its child"),
        ("""
os.set_inheritable(s.fileno(), True)
if not os.fork(): os.execv('/bin/sleep', ['sleep', '0.1'])
s.close()
""", "the end of its child"),
    ],
)  # fmt: skip
def test_a_connection_is_left_when_its_last_holder_closes_it_or_ends(
    served: tuple[int, Ground], act: str, by: str
) -> None:
    """To the nanosecond the end of whoever ended with it, however long others lived; to shut it down leaves nothing."""
    namespace, laid = served
    with WitnessLab(network=Network.PASS) as lab:
        seen = run(lab, namespace, HELD + act)
        _, source = accept(laid, socket.AF_INET)
        dial = lab.witness.find_dial(TCP, packed(source[0]), source[1])
    assert dial is not None
    own_end_ns = seen.exits.pop(dial.process)
    if by == "a call":
        *_, before_ns, after_ns = map(int, seen.out.split())
        assert before_ns <= dial.left_ns <= after_ns < own_end_ns
    elif by == "its end":
        assert dial.left_ns == own_end_ns
    else:
        assert dial.left_ns in seen.exits.values()
        assert dial.left_ns > own_end_ns


def test_what_leaves_once_nobody_holds_the_socket_was_said_before(served: tuple[int, Ground]) -> None:
    """A client may end with more in its socket than the other side takes; its end is not put off by that."""
    namespace, laid = served
    with WitnessLab(network=Network.PASS) as lab:
        code = "s = socket.socket(); s.setblocking(True); s.connect(('203.0.113.7', 80)); s.setblocking(False)\n"
        seen = run(lab, namespace, code + "s.send(bytes(1 << 22)); os._exit(0)")
        (listener,) = (one for one in laid.listeners if one.family == socket.AF_INET)
        sock, peer = listener.accept()
        sock.setblocking(True)  # noqa: FBT003 - the call's own form
        before = lab.counters().gateway_bytes
        with sock:
            while sock.recv(1 << 20):
                pass
        dial = lab.witness.find_dial(TCP, packed(peer[0]), peer[1])
        assert lab.counters().gateway_bytes > before
    assert dial is not None
    assert dial.said_ns <= dial.left_ns == seen.exits[dial.process]


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
for server in ('198.51.100.9', '127.0.0.53'): s.sendto(b'asked', (server, 53)); time.sleep(0.05)
"""
    with WitnessLab(network=Network.PASS) as lab:
        seen = run(lab, namespace, code)
        for server in ("198.51.100.9", "127.0.0.53"):
            data, ancillary, _, peer = resolver.recvmsg(100, 100)
            assert data == b"asked"
            (to,) = [value for _, kind, value in ancillary if kind == ground.IP_PKTINFO]
            assert socket.inet_ntoa(to[8:12]) == server
            sent = seen.one(ConnectionAttempted, lambda event, server=server: event.ip == server)
            assert abs(sent_ns(ancillary) - sent.time_ns) < SOON_NS
            dial = lab.witness.find_dial(UDP, packed(peer[0]), peer[1])
            assert dial is not None
            assert dial.process in {event.process for event in seen.of(ProcessStarted)}
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
