"""One inspected connection: TLS ended on both sides, what lies in between read, recorded and passed on.

Bytes of the client and of the server go in; what comes out is a `Step`: bytes for either side, records, and the wish to
close. No socket, no clock: the gateway moves the bytes. In order:

1. the server is greeted first, and verified; what it agrees to speak is what the client is offered;
2. the client is answered with a certificate of the run's authority;
3. plain text flows. HTTP/1 is read by request and answer, each request judged before a byte of it goes on; all else is
   passed on and digested whole.

A side that does not agree ends the connection with a `Failure` that says which side and why: a client that trusts its
own authorities only, or pins the key of a server, cannot be inspected. HTTP/2 is never agreed to.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from enum import StrEnum, auto

from probes.gateway.authority import Authority
from probes.gateway.client_hello import ClientHello
from probes.gateway.http_body import HttpError
from probes.gateway.http_head import RequestHead
from probes.gateway.inspected_text import InspectedText, TextRecord
from probes.gateway.tls_end import TlsEnd, TlsError
from supervisor.values import dataclass, field

NOT_OFFERED = frozenset({b"h2", b"h3"})
"""Protocols that cannot be read yet."""
_ALERT = b"\x15\x03\x03\x00\x02\x02"
_BAD_CERTIFICATE = 42
_NO_PROTOCOL = 120


class Side(StrEnum):
    """Whose fault a failure is."""

    CLIENT = auto()
    SERVER = auto()
    REQUEST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the connection was ended."""

    side: Side
    reason: str


Record = TextRecord | Failure


@dataclass(slots=True)
class Step:
    """What is to be done now. ``text_out`` is the plain text among what goes to the server: canaries are looked for."""

    to_client: bytes = b""
    to_server: bytes = b""
    records: list[Record] = field(default_factory=list)
    text_out: list[bytes] = field(default_factory=list)
    end_client: bool = False
    end_server: bool = False


class Inspection:
    """One connection to an allowed host."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        authority: Authority,
        upstream: Callable[[tuple[str, ...]], ssl.SSLContext],
        judge: Callable[[RequestHead], str | None],
    ) -> None:
        """Begin before anything was said.

        Args:
            host: the name that was allowed, or the address; what the server must prove to be.
            port: that the trial dialled.
            authority: of the run.
            upstream: gives the context for the server, by the protocols to offer; it verifies.
            judge: why a request must not go on, or None.
        """
        self._host, self._port = host, port
        self._authority, self._upstream, self._judge = authority, upstream, judge
        self._client: TlsEnd | None = None
        self._server: TlsEnd | None = None
        self._waiting = bytearray()
        self._text = InspectedText(self._host, self._port, judge)
        self._over = False

    @property
    def waiting_bytes(self) -> int:
        """How much of the client is kept until the server has agreed."""
        return len(self._waiting)

    def start(self, hello: ClientHello, first: bytes) -> Step:
        """Greet the server.

        Args:
            hello: what the client said.
            first: its bytes, all that came so far.
        """
        step = Step()
        self._waiting += first
        offered = tuple(one.decode("latin-1") for one in hello.alpn if one not in NOT_OFFERED)
        if hello.alpn and not offered:
            step.to_client = _ALERT + bytes([_NO_PROTOCOL])
            names = ", ".join(one.decode("latin-1") for one in hello.alpn)
            return self._fail(step, Side.CLIENT, f"the client speaks only {names}, which cannot be inspected")
        self._server = TlsEnd(self._upstream(offered), server_side=False, server_hostname=self._host)
        return self._go_on(step)

    def from_client(self, data: bytes) -> Step:
        """Take bytes of the client."""
        if self._client is None:
            self._waiting += data
            return Step()
        self._client.receive(data)
        return self._go_on(Step())

    def from_server(self, data: bytes) -> Step:
        """Take bytes of the server."""
        if self._server is not None:
            self._server.receive(data)
        return self._go_on(Step())

    def client_ended(self) -> Step:
        """Take the end of the client's bytes."""
        if self._client is None:
            return self._close(Step())
        self._client.receive_end()
        return self._go_on(Step())

    def server_ended(self) -> Step:
        """Take the end of the server's bytes."""
        if self._server is not None:
            self._server.receive_end()
        return self._go_on(Step())

    def broken_off(self) -> Step:
        """Give the records of what was not complete, where neither side's end was taken before the connection went."""
        return self._close(Step(), cut=True)

    def _go_on(self, step: Step) -> Step:
        if not self._over and self._server is not None and self._greet(step, self._server) and self._client is not None:
            self._flow(step, self._client, self._server)
        for end, side in ((self._client, "to_client"), (self._server, "to_server")):
            if end is not None:
                setattr(step, side, getattr(step, side) + end.outgoing())
        return step

    def _greet(self, step: Step, server: TlsEnd) -> bool:
        """Go on with both handshakes; tell whether both are done."""
        try:
            if not server.handshake():
                return False
        except TlsError as err:
            step.to_client = _ALERT + bytes([_BAD_CERTIFICATE])
            self._fail(step, Side.SERVER, f"{self._host} was not accepted: {err.reason}")
            return False
        if self._client is None:
            self._client = TlsEnd(self._authority.context(self._host, server.protocol), server_side=True)
            self._client.receive(bytes(self._waiting))
            self._waiting.clear()
        try:
            return self._client.handshake()
        except TlsError as err:
            self._fail(step, Side.CLIENT, _client_words(err.reason))
            return False

    def _flow(self, step: Step, client: TlsEnd, server: TlsEnd) -> None:
        """Move the plain text that is there, first the server's, so that an answer is read before what it allows."""
        try:
            self._from_server(step, client, server)
            if not self._over:
                self._from_client(step, client, server)
        except HttpError as err:
            self._fail(step, Side.REQUEST, str(err))

    def _from_client(self, step: Step, client: TlsEnd, server: TlsEnd) -> None:
        try:
            data = client.read()
        except TlsError as err:
            self._fail(step, Side.CLIENT, _client_words(err.reason))
            return
        for part in self._text.out(data, step.records.append):
            step.text_out.append(part)
            self._pass(server, part)
        if client.ended:
            server.close()
            step.end_server = True

    def _from_server(self, step: Step, client: TlsEnd, server: TlsEnd) -> None:
        try:
            data = server.read()
        except TlsError as err:
            self._fail(step, Side.SERVER, f"{self._host} broke off: {err.reason}")
            return
        if data:
            self._pass(client, data)
        for part in self._text.back(data, step.records.append):
            step.text_out.append(part)
            self._pass(server, part)
        if server.ended:
            self._close(step)

    @staticmethod
    def _pass(end: TlsEnd, data: bytes) -> None:
        try:
            end.write(data)
        except TlsError:  # it is gone; its own reading says so
            return

    def _fail(self, step: Step, side: Side, reason: str) -> Step:
        if not self._over:
            self._close(step)
            step.records.append(Failure(side=side, reason=reason))
        return step

    def _close(self, step: Step, *, cut: bool = False) -> Step:
        if not self._over:
            self._over = True
            step.records.extend(self._text.end(cut=cut))
            for end in (self._client, self._server):
                if end is not None:
                    end.close()
        step.end_client = step.end_server = True
        return step


_DISTRUST = ("unknown ca", "bad certificate", "certificate unknown", "unsupported certificate")


def _client_words(reason: str) -> str:
    """Say what a failed handshake of a client means."""
    if any(words in reason for words in _DISTRUST):
        return (
            f"the client does not trust the run's authority ({reason}): it keeps a list of its own, or pins the server"
        )
    return f"the client broke off: {reason}; it may keep a list of authorities of its own, or pin the server"
