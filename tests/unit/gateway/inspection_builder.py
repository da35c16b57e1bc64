"""A client and a server around an `Inspection`, all in memory: the bytes are moved until nobody has any."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from probes.gateway.authority import Authority
from probes.gateway.client_hello import HelloReader
from probes.gateway.http_head import RequestHead
from probes.gateway.inspection import Inspection, Record
from probes.gateway.tls_end import TlsEnd, TlsError

NOW = datetime.now(UTC)
RUN = Authority("run-1", now=NOW)
OUTSIDE = Authority("outside", now=NOW)
"""Who vouches for the servers of the tests."""


def trusting(authority: Authority) -> ssl.SSLContext:
    """Make a client's context that trusts one authority."""
    return ssl.create_default_context(cadata=authority.certificate.decode())


def same_host(head: RequestHead) -> str | None:
    """Refuse a request to another host than api.test."""
    return None if head.host == "api.test" else f"a request to {head.host}"


@dataclass
class Wire:
    """The two ends and what lies between."""

    client: TlsEnd
    server: TlsEnd
    inspection: Inspection
    serve: Callable[[bytes], bytes]
    records: list[Record] = field(default_factory=list)
    text_out: bytes = b""
    received: bytes = b""
    served: bytes = b""
    closed: bool = False
    broken: str | None = None

    def run(self, send: bytes) -> None:
        """Shake hands, send plain text, and go on until nothing moves any more."""
        self._handshake()
        reader = HelloReader()
        first = self.client.outgoing()
        hello = reader.feed(first)
        assert hello is not None
        self._do(self.inspection.start(hello, first))
        sent = False
        for _ in range(60):
            self._serve()
            if self._handshake() and not sent:
                self.client.write(send)
                sent = True
            if (data := self.client.outgoing()) and not self.closed:
                self._do(self.inspection.from_client(data))
        if self.client.established:
            self.received += self._read(self.client)

    def end(self) -> None:
        """Let the server close."""
        self.server.close()
        self._do(self.inspection.from_server(self.server.outgoing()))
        self._do(self.inspection.server_ended())
        self.received += self._read(self.client)

    def _handshake(self) -> bool:
        try:
            return self.broken is None and self.client.handshake()
        except TlsError as err:
            self.broken = err.reason
            return False

    def _serve(self) -> None:
        try:
            if self.server.handshake() and (data := self.server.read()):
                self.served += data
                self.server.write(self.serve(data))
        except TlsError:
            return
        finally:
            if (data := self.server.outgoing()) and not self.closed:
                self._do(self.inspection.from_server(data))

    def _do(self, step: object) -> None:
        self.records += step.records  # type: ignore[attr-defined]
        self.text_out += b"".join(step.text_out)  # type: ignore[attr-defined]
        self.client.receive(step.to_client)  # type: ignore[attr-defined]
        self.server.receive(step.to_server)  # type: ignore[attr-defined]
        if self.client.established:
            self.received += self._read(self.client)
        self.closed |= step.end_client  # type: ignore[attr-defined]

    @staticmethod
    def _read(end: TlsEnd) -> bytes:
        try:
            return end.read()
        except TlsError:
            return b""


def wire(
    serve: Callable[[bytes], bytes],
    *,
    host: str = "api.test",
    server: Authority = OUTSIDE,
    server_name: str | None = None,
    server_protocol: str | None = None,
    client: ssl.SSLContext | None = None,
    alpn: list[str] | None = None,
    judge: Callable[[RequestHead], str | None] = same_host,
) -> Wire:
    """Make a client that trusts the run, a server that the host trusts, and an inspection between them."""
    context = client or trusting(RUN)
    if alpn:
        context.set_alpn_protocols(alpn)

    def upstream(protocols: tuple[str, ...]) -> ssl.SSLContext:
        made = trusting(OUTSIDE)
        if protocols:
            made.set_alpn_protocols(list(protocols))
        return made

    return Wire(
        client=TlsEnd(context, server_side=False, server_hostname=host),
        server=TlsEnd(server.context(server_name or host, server_protocol), server_side=True),
        inspection=Inspection(host, 443, authority=RUN, upstream=upstream, judge=judge),
        serve=serve,
    )
