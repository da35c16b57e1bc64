"""One connection that is passed on: what waits is bounded, whichever side does not read or does not answer."""

from __future__ import annotations

import contextlib
import socket
from ipaddress import ip_address
from typing import Any

from inspection_builder import RUN, trusting
from listening_builder import Listening

from policies.network import NetworkRules
from policies.types import NetworkDefault
from probes.gateway.inspecting import Inspecting
from probes.gateway.loop import boottime_ns
from probes.gateway.relay import HELD, Connection
from probes.gateway.speech import find_place
from probes.gateway.tls_end import TlsEnd
from supervisor.events import ConnectionBlocked, ConnectionClosed

FLOOD = bytes(64 * 1024)
SOCKET_BYTES = 8 << 20
"""More than the kernel keeps of a connection over loopback in both its buffers."""


def begin(port: int, *, inspecting: Inspecting | None = None) -> tuple[Listening, socket.socket, Connection]:
    """Begin a connection to api.test, which is the server on a port of loopback."""
    rules = NetworkRules.from_texts(
        NetworkDefault.DENY, allow=["api.test:443"], maps=[f"api.test:443=127.0.0.1:{port}"]
    )
    service = Listening(rules=rules, inspecting=inspecting)
    place = find_place(rules, ip_address("198.18.0.1"), 443, ("api.test",), synthetic=True)
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)  # noqa: FBT003 - the call's own form
    as_service: Any = service
    return service, ours, Connection(as_service, 1, theirs, source=("192.0.2.2", 1), place=place)


def turn(service: Listening) -> None:
    """Let the gateway do what there is, or wait a moment for it."""
    service.loop.later(0.01, lambda: None)
    service.loop.turn()


def flood(service: Listening, client: socket.socket) -> None:
    """Have the client send as long as anybody takes it."""
    for _ in range(2000):
        try:
            client.send(FLOOD)
        except BlockingIOError:
            before = service.received_bytes
            for _ in range(3):
                turn(service)
            if service.received_bytes == before:
                return


def hello() -> bytes:
    """Give what a client of TLS says first."""
    client = TlsEnd(trusting(RUN), server_side=False, server_hostname="api.test")
    client.handshake()
    return client.outgoing()


def test_a_client_waits_for_a_server_that_reads_nothing() -> None:
    """What waits for the server is bounded; the client is not read meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        service, client, connection = begin(server.getsockname()[1])
        client.send(b"raw bytes that name nobody\n")
        connection.begin()
        flood(service, client)
        assert HELD <= service.received_bytes < SOCKET_BYTES + 2 * HELD
        connection.close()
        client.close()


def test_what_a_server_was_never_sent_counts_as_kept() -> None:
    """A server that refuses was told nothing, so that nothing another run could meet is left there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    service, client, connection = begin(port)
    client.send(b"raw bytes that name nobody\n")
    connection.begin()
    for _ in range(20):
        if isinstance(service.told[-1], ConnectionClosed):
            break
        turn(service)
    closed = service.told[-1]
    assert isinstance(closed, ConnectionClosed)
    assert (closed.bytes_out, closed.kept_bytes) == (0, 27)
    assert closed.error is not None
    client.close()


def test_what_is_refused_after_an_allowed_stretch_is_kept_once() -> None:
    """The two accounts add up to what the client sent: the one of the close has what went on, the other the rest."""
    allowed = b"GET /a HTTP/1.1\r\nHost: api.test\r\n\r\n"
    refused = b"GET /b HTTP/1.1\r\nHost: other.test\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        service, client, connection = begin(server.getsockname()[1])
        client.send(allowed)
        connection.begin()
        peer, _ = server.accept()
        with peer:
            peer.settimeout(10)
            turn(service)
            assert peer.recv(4096) == allowed
            client.send(refused)
            turn(service)
    closed, blocked = service.told[-2:]
    assert isinstance(closed, ConnectionClosed)
    assert isinstance(blocked, ConnectionBlocked)
    assert (closed.bytes_out, closed.kept_bytes) == (len(allowed), 0)
    assert blocked.kept_bytes == len(refused)
    client.close()


def test_what_was_refused_before_anything_went_on_is_kept_once() -> None:
    """Its one account has all of it."""
    refused = b"GET /b HTTP/1.1\r\nHost: other.test\r\n\r\n"
    service, client, connection = begin(9)
    client.send(refused)
    connection.begin()
    (blocked,) = [event for event in service.told if isinstance(event, ConnectionBlocked | ConnectionClosed)]
    assert isinstance(blocked, ConnectionBlocked)
    assert blocked.kept_bytes == len(refused)
    client.close()


def test_the_last_that_was_passed_on_is_told_by_when_it_was_and_not_by_the_end_of_the_connection() -> None:
    """A client's bytes go on at once; that it is closed may come much later. Where nothing went on there is no time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        service, client, connection = begin(server.getsockname()[1])
        before_ns = boottime_ns()
        client.send(b"raw bytes that name nobody\n")
        connection.begin()
        peer, _ = server.accept()
        with peer:
            for _ in range(4):
                turn(service)
            assert peer.recv(100) == b"raw bytes that name nobody\n"
            passed_ns = boottime_ns()
            turn(service)
            connection.close()
        closed = service.told[-1]
        assert isinstance(closed, ConnectionClosed)
        assert closed.passed_ns is not None
        assert before_ns < closed.passed_ns < passed_ns < closed.time_ns
        client.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        service, client, connection = begin(server.getsockname()[1])
        connection.begin()
        connection.close()
        unused = service.told[-1]
        assert isinstance(unused, ConnectionClosed)
        assert unused.passed_ns is None
        client.close()


def test_a_client_of_an_inspected_server_that_never_answers_waits() -> None:
    """Until the server has proved who it is nothing goes on, and what is kept meanwhile is bounded."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        inspecting = Inspecting(run="run-1", authority=RUN)
        service, client, connection = begin(server.getsockname()[1], inspecting=inspecting)
        client.send(hello())
        connection.begin()
        peer, _ = server.accept()
        with peer:
            for _ in range(4):
                turn(service)
            assert peer.recv(1) == b"\x16"  # it was greeted
            flood(service, client)
            assert HELD <= service.received_bytes < 2 * HELD
        connection.close()
        client.close()


def test_a_client_that_has_the_gateway_answer_and_reads_nothing_is_not_read_either() -> None:
    """Of TLS 1.3 each request for a new key is answered: a client that reads no answer is heard no further."""
    context = RUN.context("api.test", None)
    inspecting = Inspecting(run="run-1", authority=RUN, trusted=(RUN.certificate.decode(),))
    with socket.create_server(("127.0.0.1", 0)) as server:
        service, client, connection = begin(server.getsockname()[1], inspecting=inspecting)
        ends = TlsEnd(trusting(RUN), server_side=False, server_hostname="api.test")
        ends.handshake()
        client.send(ends.outgoing())
        connection.begin()
        peer, _ = server.accept()
        peer.setblocking(False)  # noqa: FBT003 - the call's own form
        outside = TlsEnd(context, server_side=True)
        with peer:
            for _ in range(50):
                move(peer, outside)
                move(client, ends)
                turn(service)
            assert ends.established
            connection._client.waiting += bytes(SOCKET_BYTES)  # as if so much had been answered
            heard = service.received_bytes
            flood(service, client)
            assert service.received_bytes == heard
        connection.close()
        client.close()


def move(sock: socket.socket, end: TlsEnd) -> None:
    """Carry bytes between a socket and an end of TLS."""
    with contextlib.suppress(BlockingIOError):
        end.receive(sock.recv(1 << 16))
    end.handshake()
    if data := end.outgoing():
        sock.send(data)
