"""What the kernel says beside a datagram: when it was sent, and where to."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from probes.gateway.datagrams import sent_ns, sent_to
from probes.gateway.ground import IP_PKTINFO, SO_TIMESTAMPNS
from probes.gateway.loop import boottime_ns

SECOND = 1_000_000_000


def stamp(at_ns: int) -> list[tuple[int, int, bytes]]:
    """Give what the kernel says of a datagram that came at a time of day."""
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("=qq", *divmod(at_ns, SECOND)))]


def test_a_datagram_was_sent_when_it_was_sent_and_not_when_it_is_read() -> None:
    """Over loopback, by the clock of all events."""
    with socket.socket(type=socket.SOCK_DGRAM) as reader, socket.socket(type=socket.SOCK_DGRAM) as sender:
        reader.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        reader.bind(("127.0.0.1", 0))
        time.sleep(0.05)  # the kernel begins to note times a moment after it is asked to
        before_ns = boottime_ns()
        sender.sendto(b"asked", reader.getsockname())
        after_ns = boottime_ns()
        time.sleep(0.05)
        _, ancillary, _, _ = reader.recvmsg(100, 100)
        found_ns = sent_ns(ancillary)
    assert found_ns is not None
    assert before_ns - 1_000_000 <= found_ns <= after_ns + 1_000_000  # two clocks are read, one after the other


@pytest.mark.parametrize("ago_s", [-5, 3600])
def test_a_time_of_day_that_was_set_meanwhile_says_nothing(ago_s: int) -> None:
    """Neither later than now nor longer ago than anything waits."""
    assert sent_ns(stamp(time.time_ns() - ago_s * SECOND)) is None


@pytest.mark.parametrize(
    ("family", "level", "kind", "address"),
    [
        (socket.AF_INET, socket.IPPROTO_IP, IP_PKTINFO, "127.0.0.7"),
        (socket.AF_INET6, socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, "::1"),
    ],
)
def test_the_server_that_was_asked_is_the_one_that_the_datagram_was_for(
    family: socket.AddressFamily, level: int, kind: int, address: str
) -> None:
    """Of either family, whatever address the reader is bound to."""
    with socket.socket(family, socket.SOCK_DGRAM) as reader, socket.socket(family, socket.SOCK_DGRAM) as sender:
        reader.setsockopt(level, kind, 1)
        reader.bind(("", 0) if family == socket.AF_INET else ("::", 0))
        sender.sendto(b"asked", (address, reader.getsockname()[1]))
        _, ancillary, _, _ = reader.recvmsg(100, 100)
    assert sent_to(ancillary) == address
    assert sent_to([]) is None


def test_a_moment_ago_by_one_clock_is_a_moment_ago_by_the_other() -> None:
    """And without a stamp nothing is said."""
    found_ns = sent_ns(stamp(time.time_ns() - SECOND))
    assert found_ns is not None
    assert 0 <= boottime_ns() - SECOND - found_ns < SECOND
    assert sent_ns([]) is None
