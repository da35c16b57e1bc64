"""Connections, datagrams, sockets and descriptors in messages, as the kernel witness tells them."""

from __future__ import annotations

import contextlib
import errno
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from witness_builder import PRELUDE, WitnessLab, witnessed

from supervisor.events import (
    ConnectionAttempted,
    ConnectionBlocked,
    DatagramBlocked,
    DescriptorPassed,
    SocketBound,
    SocketCreated,
)

pytestmark = pytest.mark.kernel("witness")

TRY = """
def attempt(act):
    try: act(); print(0)
    except OSError as error: print(error.errno)
tcp = lambda family=socket.AF_INET: socket.socket(family, socket.SOCK_STREAM)
udp = lambda family=socket.AF_INET: socket.socket(family, socket.SOCK_DGRAM)
"""
WITH_RIGHTS = """
def right(*fds): return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f'{len(fds)}i', *fds))]
"""


@pytest.mark.parametrize(
    ("act", "ip"),
    [
        ("tcp().connect(('192.0.2.7', 443))", "192.0.2.7"),
        ("tcp(socket.AF_INET6).connect(('2001:db8::7', 443))", "2001:db8::7"),
        ("tcp(socket.AF_INET6).connect(('::ffff:192.0.2.7', 443))", "192.0.2.7"),
        ("tcp().sendto(b'x', socket.MSG_FASTOPEN, ('192.0.2.7', 443))", "192.0.2.7"),
    ],
)
def test_connections_outside_are_refused_and_told(act: str, ip: str) -> None:
    """A connection to an address outside fails with EPERM and is told with the address that the kernel took."""
    seen = witnessed(f"{TRY}attempt(lambda: {act})")
    assert int(seen.out) == errno.EPERM
    blocked = seen.one(ConnectionBlocked)
    assert (blocked.transport, blocked.ip, blocked.port) == ("tcp", ip, 443)


@pytest.mark.parametrize(
    ("act", "ip"),
    [
        ("udp().sendto(b'x', ('198.51.100.9', 53))", "198.51.100.9"),
        ("udp(socket.AF_INET6).sendto(b'x', ('2001:db8::9', 53))", "2001:db8::9"),
        ("udp(socket.AF_INET6).sendto(b'x', ('::ffff:198.51.100.9', 53))", "198.51.100.9"),
        ("udp().sendmsg([b'x'], [], 0, ('198.51.100.9', 53))", "198.51.100.9"),
        ("mmsg()", "198.51.100.9"),
    ],
)
def test_datagrams_outside_are_refused_and_told(act: str, ip: str) -> None:
    """sendto, sendmsg and sendmmsg to an address outside fail with EPERM and are told."""
    mmsg = """
def mmsg():
    s = udp(); name = struct.pack('>HH4s8x', 0, 53, socket.inet_aton('198.51.100.9'))
    name = struct.pack('H', 2) + name[2:]; held = ctypes.create_string_buffer(name)
    text = ctypes.create_string_buffer(b'x')
    vec = ctypes.create_string_buffer(struct.pack('QQ', ctypes.addressof(text), 1))
    head = struct.pack('QI4xQQQQi4xI4x', ctypes.addressof(held), 16, ctypes.addressof(vec), 1, 0, 0, 0, 0)
    result = call(307, s.fileno(), ctypes.create_string_buffer(head), 1, 0)
    if result < 0: raise OSError(-result, 'refused')
"""
    seen = witnessed(f"{TRY}{mmsg}attempt(lambda: {act})")
    assert int(seen.out) == errno.EPERM
    blocked = seen.one(DatagramBlocked)
    assert (blocked.transport, blocked.ip, blocked.port) == ("udp", ip, 53)


def test_connected_datagram_socket_is_a_blocked_connection() -> None:
    """Connecting a UDP socket to an address outside is refused like any other."""
    seen = witnessed(f"{TRY}attempt(lambda: udp().connect(('203.0.113.5', 9)))")
    assert int(seen.out) == errno.EPERM
    assert seen.one(ConnectionBlocked).transport == "udp"


@pytest.mark.parametrize(("family", "address"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
def test_loopback_is_let_through_and_told(family: str, address: str) -> None:
    """A connection to loopback works, and is told with the port it went to."""
    code = f"""{TRY}
s = tcp(socket.{family}); s.bind(('{address}', 0)); s.listen(); port = s.getsockname()[1]
c = tcp(socket.{family}); c.connect(('{address}', port)); print(port)
"""
    seen = witnessed(code)
    attempted = seen.one(ConnectionAttempted)
    assert (attempted.transport, attempted.ip, attempted.port) == ("tcp", address, int(seen.out))
    assert not attempted.outside
    assert seen.of(ConnectionBlocked) == []
    assert [(event.ip, event.port) for event in seen.of(SocketBound)] == [(address, 0)]


def test_nothing_left_by_itself() -> None:
    """The kernel's own account of packets that left stays at zero when all went to loopback or was refused."""
    code = f"""{TRY}
s = udp(); s.bind(('127.0.0.1', 0)); udp().sendto(b'x', s.getsockname())
attempt(lambda: udp().sendto(b'x', ('192.0.2.1', 9)))
"""
    with WitnessLab() as lab:
        lab.finish(lab.python(code))
        assert lab.counters().egress_packets == 0


def test_sockets_are_told_also_refused_ones() -> None:
    """Raw, packet and vsock sockets that are refused are told with family, type and errno."""
    code = f"""{TRY}
os.setuid(65534)
attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt(lambda: socket.socket(17, socket.SOCK_RAW, 0))
attempt(lambda: socket.socket(40, socket.SOCK_STREAM)); udp()
"""
    seen = witnessed(code)
    told = [(event.family, event.socket_type, event.error) for event in seen.of(SocketCreated)]
    refused = [int(line) or None for line in seen.out.split()]
    assert told[:2] == [(2, 3, errno.EPERM), (17, 3, errno.EPERM)]
    assert told[2] == (40, 1, refused[2])
    assert told[3] == (2, 2, None)


def test_unix_sockets_are_told_by_name(tmp_path: Path) -> None:
    """A unix socket's path and its abstract name are told at bind and connect, and the peer is inside."""
    code = """
for name in sys.argv[1] + '/s', '\\0hidden\\0name':
    s = socket.socket(socket.AF_UNIX); s.bind(name); s.listen()
    c = socket.socket(socket.AF_UNIX); c.connect(name); s.accept()
"""
    seen = witnessed(code, tmp_path)
    names = [bytes(tmp_path / "s"), b"@hidden\0name"]
    assert [event.path for event in seen.of(SocketBound)] == names
    assert [(e.path, e.outside, e.transport) for e in seen.of(ConnectionAttempted)] == [
        (name, False, "unix") for name in names
    ]


def test_refused_unix_connection_is_told(tmp_path: Path) -> None:
    """A connection to a socket that is not there is told with its errno."""
    seen = witnessed(f"{TRY}attempt(lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[1]))", tmp_path / "none")
    attempted = seen.one(ConnectionAttempted)
    assert (attempted.path, attempted.error) == (bytes(tmp_path / "none"), errno.ENOENT)


@pytest.mark.parametrize("act", ["s.sendto(b'x', sys.argv[1])", "s.sendmsg([b'x'], [], 0, sys.argv[1])"])
def test_datagram_by_path_is_told(act: str, tmp_path: Path) -> None:
    """A datagram to a unix path needs no connection, and is told with the path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "s"))
        seen = witnessed(f"s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); {act}", tmp_path / "s")
    assert seen.one(ConnectionAttempted).path == bytes(tmp_path / "s")


def test_datagram_peer_outside_is_marked(tmp_path: Path) -> None:
    """A connected datagram socket whose peer was made outside the trial is marked, one from inside is not."""
    code = """
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(sys.argv[1])
t = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); t.bind(sys.argv[1] + '2'); s.connect(sys.argv[1] + '2')
"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "s"))
        seen = witnessed(code, tmp_path / "s")
    assert [event.outside for event in seen.of(ConnectionAttempted)] == [True, False]


@pytest.mark.parametrize(
    "control",
    [
        "right(0)",
        "[(socket.SOL_SOCKET, 2, struct.pack('3i', os.getpid(), os.getuid(), os.getgid()))] + right(0, 1)",
    ],
)
def test_passed_descriptors_are_told_on_both_sides(control: str) -> None:
    """A descriptor in a message is told where it is sent and received, wherever it stands in the control data."""
    sending = f"a.sendmsg([b'x'], {control}); b.recvmsg(9, 999); a.sendmsg([b'x'], [])"
    code = f"{WITH_RIGHTS}a, b = socket.socketpair(); {sending}"
    passed = witnessed(code).of(DescriptorPassed)
    assert [(event.received, event.outside) for event in passed] == [(False, False), (True, False)]


def test_descriptor_in_a_later_message_of_many_is_told() -> None:
    """Both sendmmsg and recvmmsg tell a descriptor that is only in their second message."""
    code = """
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
text = ctypes.create_string_buffer(b'x')
vec = ctypes.create_string_buffer(struct.pack('QQ', ctypes.addressof(text), 1))
rights = ctypes.create_string_buffer(struct.pack('Qiii4x', 20, 1, 1, 0))
def head(size):
    at = ctypes.addressof(rights) if size else 0
    return struct.pack('QI4xQQQQi4xI4x', 0, 0, ctypes.addressof(vec), 1, at, size, 0, 0)
heads = ctypes.create_string_buffer(head(0) + head(24))
print(call(307, a.fileno(), heads, 2, 0), call(299, b.fileno(), heads, 2, 0, None))
"""
    seen = witnessed(code)
    assert seen.out.split() == ["2", "2"]
    assert [event.received for event in seen.of(DescriptorPassed)] == [False, True]


@contextlib.contextmanager
def host_listener(path: Path) -> Iterator[socket.socket]:
    """A server on the host."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield server


def start_in_pid_namespace(lab: WitnessLab, code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start a program in a pid namespace of its own, as a box does."""
    inside = ("unshare", "--pid", "--fork", sys.executable, "-I", "-S", "-c", PRELUDE + code)
    return lab.start(*inside, *arguments)


def test_peer_outside_is_marked(tmp_path: Path) -> None:
    """In a pid namespace, a connection to a server outside and a descriptor sent over it are marked as outside."""
    code = f"{WITH_RIGHTS}s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendmsg([b'x'], right(0))"
    with WitnessLab() as lab, host_listener(tmp_path / "s"):
        seen = lab.finish(start_in_pid_namespace(lab, code, tmp_path / "s"))
    assert not seen.err
    assert seen.one(ConnectionAttempted).outside
    assert seen.one(DescriptorPassed).outside


def test_peer_inside_is_not_marked(tmp_path: Path) -> None:
    """In a pid namespace, a server and a pair of the trial's own are inside."""
    code = f"""{WITH_RIGHTS}
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()
fork(lambda: (c := socket.socket(socket.AF_UNIX), c.connect(sys.argv[1]), c.sendmsg([b'x'], right(0))) and None)
s.accept()[0].recvmsg(9, 999)
a, b = socket.socketpair(); a.sendmsg([b'x'], right(0))
"""
    with WitnessLab() as lab:
        seen = lab.finish(start_in_pid_namespace(lab, code, tmp_path / "s"))
    assert not seen.err
    assert not seen.one(ConnectionAttempted).outside
    assert [(event.received, event.outside) for event in seen.of(DescriptorPassed)] == [
        (False, False),
        (True, False),
        (False, False),
    ]


def test_caller_from_outside_is_told(tmp_path: Path) -> None:
    """When somebody outside connects to a server of the trial, its accept tells a contact with outside."""
    code = "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True); s.accept()"
    with WitnessLab() as lab, socket.socket(socket.AF_UNIX) as client:
        server = start_in_pid_namespace(lab, code, tmp_path / "s")
        assert server.stdout is not None
        server.stdout.readline()
        client.connect(str(tmp_path / "s"))
        seen = lab.finish(server)
    assert seen.one(ConnectionAttempted).outside


def test_sockets_of_others_are_let_through() -> None:
    """A process outside the trial connects as ever, and is not told."""
    with WitnessLab() as lab, socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
        assert lab.drain() == []
