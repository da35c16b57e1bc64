"""What was held and accepted is sent: one connection after the other, as the supervisor asks for it.

Nothing of the trial is alive by then and nobody else is served, so that everything here waits for what it does. Words
come over the control socket: ``reach N`` dials and keeps the connection open, ``send N`` sends and reads the answers,
anything else is the end. Each is answered with events, and with ``done`` or ``!`` and what went wrong.

A request of HTTP is sent once the answer to the one before it is there, and over a new connection where the server
closed that. Anything else is sent whole, and what comes back is read to its end, or until nothing came for `QUIET_S`.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from policies.addresses import Address, plain_address
from policies.hosts import written
from policies.network import Action, NetworkRules
from probes.gateway.holding import HeldItem, Hold, url_of
from probes.gateway.http_body import Payload
from probes.gateway.http_head import RequestHead, RequestReader
from probes.gateway.inspecting import Inspecting
from probes.gateway.loop import boottime_ns
from probes.gateway.service import Service, ask_host
from probes.gateway.wire import NONE, pack_batch, pack_told
from supervisor.events import ConnectionReleased, Event, RequestAnswered, RequestSent

DIAL_S = 30.0
ANSWER_S = 30.0
QUIET_S = 5.0
_PIECE_BYTES = 65536
_MOST_BACK = 64 << 20

_Failure = (OSError, http.client.HTTPException)


class Releaser:
    """Sends what a gateway holds."""

    def __init__(self, hold: Hold, rules: NetworkRules, inspecting: Inspecting | None, control: socket.socket) -> None:
        """Take over what is held, once nothing more comes."""
        self._hold, self._rules, self._inspecting, self._control = hold, rules, inspecting, control
        codecs.lookup("idna")  # a name is looked up with it, and by then nothing more can be read
        self._reached: dict[int, tuple[socket.socket, str]] = {}

    def serve(self) -> None:
        """Obey until the supervisor says something else, or is gone."""
        self._control.setblocking(True)  # noqa: FBT003 - the call's own form
        while True:
            verb, _, number = self._control.recv(64).partition(b" ")
            item = self._hold.items.get(int(number)) if number.isdigit() else None
            if verb not in (b"reach", b"send") or item is None:
                return
            problem = self._reach(item) if verb == b"reach" else self._send(item)
            self._control.send(b"done" if problem is None else b"!" + problem.encode(errors="replace"))

    def _tell(self, event: Event) -> None:
        self._control.send(pack_batch([pack_told(event, None, NONE)]))

    # -- dialling --------------------------------------------------------------------------------------------------

    def _reach(self, item: HeldItem) -> str | None:
        """Connect, and greet a server of TLS; gives why that failed."""
        try:
            self._reached[item.number] = self._dial(item)
        except _Failure as err:
            return f"{_where(item)} cannot be reached: {_words(err)}"
        return None

    def _dial(self, item: HeldItem) -> tuple[socket.socket, str]:
        address, port = self._find(item)
        sock = socket.create_connection((str(address), port), timeout=DIAL_S)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(ANSWER_S)
            if item.tls and self._inspecting is not None:
                host = item.host or str(plain_address(item.place.address))
                protocols = ("http/1.1",) if item.speaks == "http" else ()
                sock = self._inspecting.upstream(protocols).wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return sock, written(str(address), port)

    def _find(self, item: HeldItem) -> tuple[Address, int]:
        """Find where a held connection leads, within what the rules allow.

        Raises:
            OSError: nowhere.
        """
        place, port = item.place, item.place.port
        mapping = self._rules.target(item.host or str(plain_address(place.address)), port)
        if mapping is not None:
            return ip_address(mapping.to_address), mapping.to_port
        found: Iterator[Address] = iter((plain_address(place.address),))
        if item.host is not None and item.host in place.names:
            found = _look_up(item.host)
        for address in found:
            allowed = self._rules.decide(item.host, address, port).action is Action.ALLOWED
            if allowed and not Service.is_own(address):
                return address, port
        raise OSError(0, "it leads to no address within reach")

    # -- sending ---------------------------------------------------------------------------------------------------

    def _send(self, item: HeldItem) -> str | None:
        """Send what is held, and tell of it; gives why not all of it was sent or answered."""
        exchange = _Exchange(item)
        problem = None
        sock, dialled = self._reached.pop(item.number, (None, None))
        try:
            if sock is None:
                sock, dialled = self._dial(item)
            for data, method, events in _parts(item, self._hold.read(item)):
                if sock is None:
                    sock, dialled = self._dial(item)
                exchange.send(sock, data)
                for event in events:
                    self._tell(event)
                if method is None:
                    exchange.read_all(sock)
                else:
                    answered, lasting = exchange.read_answer(sock, method)
                    self._tell(answered)
                    sock = _kept(sock, lasting=lasting)
        except _Failure as err:
            problem = _words(err)
        finally:
            if sock is not None:
                sock.close()
        self._tell(
            ConnectionReleased(
                n=-1, time_ns=boottime_ns(), connection=item.number, dialled=dialled, bytes_out=exchange.bytes_out,
                bytes_in=exchange.bytes_in, digest_in=f"sha256:{exchange.digest_in.hexdigest()}", error=problem,
            )
        )  # fmt: skip
        return None if problem is None else f"{_where(item)}: {problem}"


class _Exchange:
    """What went each way over one held connection."""

    def __init__(self, item: HeldItem) -> None:
        self._item = item
        self.bytes_out = self.bytes_in = self._answers = 0
        self.digest_in = hashlib.sha256()

    def send(self, sock: socket.socket, data: bytes) -> None:
        """Send all of it, counting what went."""
        view = memoryview(data)
        while view:
            sent = sock.send(view)
            self.bytes_out += sent
            view = view[sent:]

    def read_answer(self, sock: socket.socket, method: str) -> tuple[RequestAnswered, bool]:
        """Read the answer to one request; tells too whether the server will take another one."""
        answer = http.client.HTTPResponse(sock, method=method)
        digest, size = hashlib.sha256(), 0
        try:
            answer.begin()
            while data := answer.read(_PIECE_BYTES):
                digest.update(data)
                self._count(data)
                size += len(data)
            lasting = not answer.will_close
        finally:
            answer.close()
        event = RequestAnswered(
            n=-1, time_ns=boottime_ns(), connection=self._item.number, request=self._answers, status=answer.status,
            size_bytes=size, digest=f"sha256:{digest.hexdigest()}",
        )  # fmt: skip
        self._answers += 1
        return event, lasting

    def read_all(self, sock: socket.socket) -> None:
        """Say that nothing more comes, and read what is said to it."""
        if not isinstance(sock, ssl.SSLSocket):
            sock.shutdown(socket.SHUT_WR)
        sock.settimeout(QUIET_S)
        with contextlib.suppress(TimeoutError):  # a server that keeps the connection open has said what it had to say
            while data := sock.recv(_PIECE_BYTES):
                self._count(data)

    def _count(self, data: bytes) -> None:
        self.digest_in.update(data)
        self.bytes_in += len(data)
        if self.bytes_in > _MOST_BACK:
            raise OSError(0, f"more than {_MOST_BACK >> 20} MiB came back")


def _parts(item: HeldItem, data: bytes) -> Iterator[tuple[bytes, str | None, tuple[Event, ...]]]:
    """Give what is sent before something is read: each request with its method, anything else whole."""
    if item.speaks != "http":
        yield data, None, ()
        return
    requests: list[tuple[RequestHead, list[bytes], list[bytes]]] = []
    before: list[bytes] = []
    for piece in RequestReader().feed(data):
        if isinstance(piece, RequestHead):
            requests.append((piece, [*before, piece.forward], []))
            before = []
        elif requests:
            requests[-1][1].append(piece.forward)
            if isinstance(piece, Payload):
                requests[-1][2].append(piece.content)
        else:
            before.append(piece.forward)  # empty lines before the first request
    for number, (head, forward, body) in enumerate(requests):
        method, _, url = url_of(head, item).partition(" ")
        content = b"".join(body)
        common: dict[str, Any] = {"n": -1, "time_ns": boottime_ns(), "connection": item.number, "request": number}
        sent = RequestSent(
            host=head.host or item.host or str(plain_address(item.place.address)), port=item.place.port,
            method=method, url=url, size_bytes=len(content), digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
            **common,
        )  # fmt: skip
        yield b"".join(forward), method, (sent,)


def _kept(sock: socket.socket, *, lasting: bool) -> socket.socket | None:
    if lasting:
        return sock
    sock.close()
    return None


def _look_up(host: str) -> Iterator[Address]:
    for family in (socket.AF_INET, socket.AF_INET6):
        yield from ask_host(host, family) or ()


def _where(item: HeldItem) -> str:
    return written(item.host or str(plain_address(item.place.address)), item.place.port)


def _words(err: Exception) -> str:
    if isinstance(err, ssl.SSLCertVerificationError):
        return str(err.verify_message)
    if isinstance(err, OSError) and err.strerror:
        return err.strerror.lower()
    return str(err).lower() or type(err).__name__
