"""What the gateway keeps back: whole, bounded, and sent request by request."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import pytest
from listening_builder import Listening

from policies.network import NetworkRules
from policies.types import NetworkDefault
from probes.gateway import holding
from probes.gateway.holding import HeldConnection, HeldItem, Hold
from probes.gateway.releasing import Releaser
from probes.gateway.speech import Place, Refused, find_place
from probes.gateway.wire import read_batch
from supervisor.events import ConnectionBlocked, ConnectionHeld, ConnectionReleased, Event, RequestSent

RULES = NetworkRules.from_texts(NetworkDefault.HOLD, allow=("api.test:80",), maps=("api.test:80=127.0.0.1:9",))
ADDRESS = ip_address("198.18.0.1")
PLACE: Place = find_place(RULES, ADDRESS, 80, ("api.test",), synthetic=True)


@contextmanager
def memory() -> Iterator[Hold]:
    """Give an empty store."""
    fd = os.memfd_create("held")
    try:
        yield Hold(fd)
    finally:
        os.close(fd)


def hear(hold: Hold, *parts: bytes, end: bool = True) -> Event:
    """Say something on one connection, and give its account."""
    service: Any = Listening(rules=RULES)
    ours, theirs = socket.socketpair()
    with ours:
        theirs.settimeout(0)
        held = HeldConnection(service, hold, len(hold.items) + 1, theirs, source=("192.0.2.2", 1), place=PLACE)
        for part in parts:
            ours.sendall(part)
        if end:
            ours.shutdown(socket.SHUT_WR)
        held.begin()
        service.loop.run()
        (event,) = service.told
        assert isinstance(event, Event)
        return event


def request(path: str, body: bytes = b"", *more: str) -> bytes:
    """Write a request."""
    lines = (f"POST {path} HTTP/1.1", "Host: api.test", f"Content-Length: {len(body)}", *more, "", "")
    return "\r\n".join(lines).encode() + body


def test_requests_are_held_whole() -> None:
    """What is held is what was said, with its digest and its requests."""
    with memory() as hold:
        said = request("/a", b"one") + request("/b", b"two")
        event = hear(hold, said[:20], said[20:])
        assert isinstance(event, ConnectionHeld)
        assert (event.requests, event.count, event.speaks) == (
            ("POST http://api.test/a", "POST http://api.test/b"),
            2,
            "http",
        )
        assert hold.read(hold.items[1]) == said


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (request("/a", b"one")[:-1], "never whole"),
        (request("/a")[:-2], "never whole"),
        (b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "was no answer for"),
        (b"GET / HTTP/1.1\r\nHost: api.test\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "cannot be held"),
        (b"\x16\x03\x01\x00\x05", "never whole"),
    ],
)
def test_what_cannot_be_sent_later_is_refused_now(said: bytes, reason: str) -> None:
    """Half a request, another host, a switch of protocols, half a hello of TLS."""
    with memory() as hold:
        event = hear(hold, said)
        assert isinstance(event, ConnectionBlocked)
        assert reason in (event.reason or "")
        assert not hold.items


def test_a_client_that_waits_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers it: what it said whole is held all the same."""
    monkeypatch.setattr(holding, "ANSWER_S", 0.01)
    with memory() as hold:
        event = hear(hold, request("/a"), end=False)
        assert isinstance(event, ConnectionHeld)
        assert event.ended is not None


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is for everything together, and a connection that is refused gives its room back."""
    monkeypatch.setattr(holding, "MOST_BYTES", 150)
    with memory() as hold:
        assert isinstance(hear(hold, request("/a", b"x" * 10)), ConnectionHeld)
        assert isinstance(hear(hold, request("/b", b"x" * 100)), ConnectionBlocked)
        assert hold.open_bytes == 0
        assert isinstance(hear(hold, request("/c")), ConnectionHeld)
        with pytest.raises(Refused):
            hold.reserve(150)


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more connections are held than a run may hold."""
    monkeypatch.setattr(holding, "MOST", 1)
    with memory() as hold:
        assert isinstance(hear(hold, b"\x00 one"), ConnectionHeld)
        assert isinstance(hear(hold, b"\x00 two"), ConnectionBlocked)


def release(
    hold: Hold, item: HeldItem, words: tuple[bytes, ...], *, rules: NetworkRules = RULES
) -> tuple[list[bytes], list[Event]]:
    """Have a releaser obey some words; gives its answers, and what it told."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    answers: list[bytes] = []
    told: list[Event] = []
    with ours, theirs:
        for word in words:
            ours.sendall(word % item.number)
        ours.sendall(b"enough")
        Releaser(hold, rules, None, theirs).serve()
        ours.settimeout(0)
        try:
            while message := ours.recv(1 << 17):
                if message.startswith(b"\xff"):
                    told += [one.event for one in read_batch(message)]
                else:
                    answers.append(message)
        except BlockingIOError:
            pass
    return answers, told


def test_a_server_that_is_not_there_is_told_of() -> None:
    """Reaching fails with words; sending then tells that nothing was sent."""
    with memory() as hold:
        hear(hold, request("/a"))
        answers, told = release(hold, hold.items[1], (b"reach %d", b"send %d"))
        assert all(answer.startswith(b"!") for answer in answers)
        assert len(answers) == 2
        assert [type(event) for event in told] == [ConnectionReleased]
        assert isinstance(told[0], ConnectionReleased)
        assert (told[0].bytes_out, told[0].error) == (0, "connection refused")


def test_a_request_whose_answer_never_comes_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account counts what went out, and says what went wrong; the request behind it is not sent."""
    with memory() as hold, socket.create_server(("127.0.0.1", 0)) as server:
        rules = NetworkRules.from_texts(
            NetworkDefault.HOLD,
            allow=("api.test:80",),
            maps=(f"api.test:80=127.0.0.1:{server.getsockname()[1]}",),
        )
        monkeypatch.setattr("probes.gateway.releasing.ANSWER_S", 0.05)
        first, second = request("/a", b"one"), request("/b", b"two")
        hear(hold, first + second)
        answers, told = release(hold, hold.items[1], (b"reach %d", b"send %d"), rules=rules)
        assert answers[0] == b"done"
        assert answers[1].startswith(b"!")
        assert [type(event) for event in told] == [RequestSent, ConnectionReleased]
        assert isinstance(told[1], ConnectionReleased)
        assert told[1].bytes_out == len(first)
