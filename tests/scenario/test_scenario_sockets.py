"""Unix sockets: names of the file system, and a way to whoever listens on them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_lab import Lab, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

SEND = "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.{how}"
PAIR = "import socket; s, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', 'host')"
HOWS = ("sendto(b'x', 'host')", "sendmsg([b'x'], [], 0, 'host')", "connect('host')")


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Hold a datagram socket of the host at a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(0)
        yield sock


def test_a_socket_in_the_workspace_is_a_file_that_was_seen_made(lab: Lab) -> None:
    """It is bound, not opened: without an event of its own it would be a change that nobody explains."""
    code = "import os, socket; os.mkdir('d'); os.chdir('d'); socket.socket(socket.AF_UNIX).bind('../bound')"
    ran = lab.run("--", *python(code))
    assert (lab.work / "bound").is_socket()
    assert ran.files["bound"]["history"] == ["created"]
    assert ran.finality == "final"


@pytest.mark.parametrize("code", [*(SEND.format(how=how) for how in HOWS), PAIR])
def test_a_datagram_to_the_host_is_never_clean(lab: Lab, code: str) -> None:
    """In a workspace that is written in place the host's sockets can be reached; a datagram needs no connection."""
    with listening(lab.work / "host"):
        ran = lab.run("--direct", "--", *python(code))
    assert ran.code == 0, ran.err
    assert ran.scope != "clean"


def test_a_datagram_does_not_leave_a_staged_workspace(lab: Lab) -> None:
    """The overlay's sockets are nodes of its own."""
    with listening(lab.work / "host") as host:
        lab.run("--", *python(SEND.format(how="sendto(b'x', 'host')")))
        with pytest.raises(BlockingIOError):
            host.recv(1)
