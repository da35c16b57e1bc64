"""What a gateway needs to read inside TLS, and how one connection of it is read.

In: the run's authority, and certificates that are trusted beside the host's. Out: for each
connection an `Inspected`, which turns what its `Inspection` finds into events. Everything is made before the gateway's
process is forked, but the list of the host's authorities, which is read when the first server is greeted.
"""

from __future__ import annotations

import codecs
import ssl
from collections.abc import Iterator
from typing import Any

from probes.gateway.authority import Authority
from probes.gateway.client_hello import ClientHello
from probes.gateway.http_head import RequestHead
from probes.gateway.inspected_text import AnswerRecord, RequestRecord, StreamRecord
from probes.gateway.inspection import NOT_OFFERED, Failure, Inspection, Record, Side, Step
from probes.gateway.speech import Refused, Speech
from probes.gateway.swallow import Swallowed
from supervisor.events import Event, InspectionFailed, RequestAnswered, RequestSent, StreamDigested
from supervisor.values import dataclass, field


@dataclass(slots=True, kw_only=True)
class Inspecting:
    """What all inspected connections of a run share.

    Attributes:
        run: its id.
        authority: vouches for servers inside the trial.
        trusted: certificates in PEM that vouch for servers outside, beside those of the host.
    """

    run: str
    authority: Authority
    trusted: tuple[str, ...] = ()
    _contexts: dict[tuple[str, ...], ssl.SSLContext] = field(default_factory=dict)

    def load(self) -> None:
        """Read and import what will be needed, as long as we may: lists of authorities, how names are encoded."""
        codecs.lookup("idna")
        for protocols in ((), ("http/1.1",)):
            self.upstream(protocols)
        self.authority.context("load.invalid", None)

    def swallow(self, host: str) -> Swallowed:
        """Begin to read a client that is swallowed; ``host`` is who it is answered as, if it names nobody."""
        return Swallowed(self.authority, host)

    def upstream(self, protocols: tuple[str, ...]) -> ssl.SSLContext:
        """Give the context in which a server is verified, by the protocols that it is offered."""
        found = self._contexts.get(protocols)
        if found is None:
            found = ssl.create_default_context()
            for pem in self.trusted:
                found.load_verify_locations(cadata=pem)
            if protocols:
                found.set_alpn_protocols(list(protocols))
            self._contexts[protocols] = found
        return found


class Inspected:
    """One connection that is read.

    Attributes:
        declined: what the client offered to speak and the server is not offered, since it cannot be read.
        failure: why it must end, once it must.
        refusal: what the rules say of the request that it must end for.
    """

    def __init__(self, inspecting: Inspecting, host: str, port: int, speech: Speech) -> None:
        """Begin once the client has named its host, before the server is there.

        Args:
            inspecting: of the run.
            host: that was allowed, a name or an address.
            port: that the trial dialled.
            speech: judges the requests inside like those that are not.
        """
        self._inspecting, self._host, self._port = inspecting, host, port
        self._inspection = Inspection(
            host, port, authority=inspecting.authority, upstream=inspecting.upstream, judge=self._judge
        )
        self._hello: ClientHello | None = None
        self._first = bytearray()
        self._speech = speech
        self.declined: tuple[str, ...] = ()
        self.failure: Failure | None = None
        self.refusal: Refused | None = None

    @property
    def waiting_bytes(self) -> int:
        """How much of the client is kept until the server is there, and has proved who it is."""
        return len(self._first) + self._inspection.waiting_bytes

    def hear(self, hello: ClientHello | None, data: bytes) -> Step:
        """Take bytes of the client; the first time with its hello. What comes before `dialled` waits for it."""
        if hello is not None:
            self._hello = hello
            self.declined = tuple(one.decode() for one in hello.alpn if one in NOT_OFFERED)
        if self._hello is not None:
            self._first += data
            return Step()
        return self._seen(self._inspection.from_client(data))

    def dialled(self) -> Step:
        """Begin, the server being there."""
        hello, self._hello = self._hello, None
        first = bytes(self._first)
        self._first.clear()
        return Step() if hello is None else self._seen(self._inspection.start(hello, first))

    def from_server(self, data: bytes) -> Step:
        """Take bytes of the server."""
        return self._seen(self._inspection.from_server(data))

    def ended(self, *, client: bool) -> Step:
        """Take the end of what one side sends."""
        return self._seen(self._inspection.client_ended() if client else self._inspection.server_ended())

    def broken_off(self) -> Step:
        """Take the end of the connection itself, whatever had been said by then."""
        return self._inspection.broken_off()

    def _judge(self, head: RequestHead) -> str | None:
        try:
            self._speech.judge_request(head)
        except Refused as err:
            self.refusal = err
            return str(err)
        return None

    def _seen(self, step: Step) -> Step:
        self.failure = self.failure or next((one for one in step.records if isinstance(one, Failure)), None)
        return step

    def events(self, step: Step, **common: Any) -> Iterator[Event]:  # noqa: ANN401 - fields of the events
        """Give the events of a step, in order.

        Args:
            step: that was taken.
            common: what all have: ``n``, ``time_ns``, ``source``, ``connection``.
        """
        for record in step.records:
            event = self._event(record, common)
            if event is not None:
                yield event

    def _event(self, record: Record, common: dict[str, Any]) -> Event | None:
        where: dict[str, Any] = {"host": self._host, "port": self._port}
        match record:
            case RequestRecord():
                return RequestSent(
                    request=record.number, method=record.method, url=record.url, cut=record.cut,
                    size_bytes=record.size_bytes, digest=record.digest, complete=record.complete, **where, **common,
                )  # fmt: skip
            case AnswerRecord():
                return RequestAnswered(
                    request=record.number, status=record.status, size_bytes=record.size_bytes, digest=record.digest,
                    complete=record.complete, **common,
                )  # fmt: skip
            case StreamRecord():
                return StreamDigested(
                    bytes_out=record.bytes_out, digest_out=record.digest_out, bytes_in=record.bytes_in,
                    digest_in=record.digest_in, **where, **common,
                )  # fmt: skip
            case Failure(side=Side.REQUEST):
                return None  # the connection is blocked for it, which says it
            case Failure():
                return InspectionFailed(side=record.side.value, reason=record.reason, **where, **common)
