"""A connection that is swallowed: what it said is kept, and nothing that it does makes the gateway keep more."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

from listening_builder import Listening

from policies.network import NetworkRules
from policies.types import NetworkDefault
from probes.gateway.side import UNREAD
from probes.gateway.sinkhole import KEPT, SinkholedConnection
from probes.gateway.speech import find_place
from supervisor.events import ConnectionClosed, ConnectionSinkholed

RULES = NetworkRules.from_texts(NetworkDefault.SINKHOLE)
PLACE = find_place(RULES, ip_address("203.0.113.9"), 443, ("upload.test",))


class Answering:
    """Stands for what reads inside TLS: it answers each piece that it hears with so many bytes."""

    pending = b""

    def __init__(self, size: int) -> None:
        """Answer with ``size`` bytes."""
        self._size = size

    def swallow(self, _: str) -> Answering:
        """Begin."""
        return self

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Take what was said, give an answer and the text."""
        return bytes(self._size), data


def swallow(said: bytes, *, answers: int | None = None, times: int = 1) -> tuple[ConnectionClosed, socket.socket]:
    """Say something on one connection, and give its account; the client reads nothing and ends nothing itself."""
    service: Any = Listening(inspecting=None if answers is None else Answering(answers))
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)  # noqa: FBT003 - the call's own form
    SinkholedConnection(service, 1, theirs, source=("192.0.2.2", 1), place=PLACE).begin()
    for _ in range(times):
        ours.sendall(said)
        service.loop.turn()
    if answers is None:
        ours.shutdown(socket.SHUT_WR)
        service.loop.run()
    sinkholed, closed = service.told
    assert isinstance(sinkholed, ConnectionSinkholed)
    assert isinstance(closed, ConnectionClosed)
    return closed, ours


def test_what_was_said_is_counted_and_its_beginning_kept() -> None:
    """The first bytes are evidence; the host that they name is told."""
    head = b"PUT /a HTTP/1.1\r\nHost: upload.test\r\nContent-Length: 8000\r\n\r\n"
    closed, ours = swallow(head + bytes(8000))
    ours.close()
    assert (closed.decision, closed.kept_bytes, closed.error) == ("sinkholed", len(head) + 8000, None)
    assert closed.data_out == (head + bytes(8000))[:KEPT]
    assert closed.host == "upload.test"


def test_a_client_that_reads_nothing_of_its_answers_is_let_go() -> None:
    """What waits to be sent to it is bounded, however much it has the gateway answer."""
    closed, ours = swallow(b"hello", answers=1 << 20)
    ours.close()
    assert closed.error == "it reads nothing of what it is answered"
    assert UNREAD < 1 << 20


def test_a_client_that_reads_its_answers_is_heard_further() -> None:
    """An answer that fits is sent, and what comes behind it is heard."""
    service: Any = Listening(inspecting=Answering(8192))
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)  # noqa: FBT003 - the call's own form
    SinkholedConnection(service, 1, theirs, source=("192.0.2.2", 1), place=PLACE).begin()
    for _ in range(64):
        ours.sendall(b"more")
        service.loop.turn()
        assert len(ours.recv(1 << 16)) == 8192
    ours.close()
    service.loop.run()
    assert service.told[-1].kept_bytes == 64 * 4
    assert service.told[-1].error is None
