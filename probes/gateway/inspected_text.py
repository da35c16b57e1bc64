"""What flows inside an inspected connection: which protocol it is, its requests and answers, and their records.

Plain text of the client goes in and comes out piece by piece, each request judged before it does. What the server says
goes on as it is, and is only read.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator

from policies.hosts import written
from probes.gateway.http_answer import AnswerHead, AnswerReader
from probes.gateway.http_body import HttpError, Opaque, Payload
from probes.gateway.http_head import Protocol, RequestHead, RequestReader, protocol_of
from supervisor.values import dataclass, field

_MAX_URL = 8192
_HTTPS = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request that was passed on. ``number`` counts from 0 in its connection.

    Attributes:
        url: ``https://HOST[:PORT]/PATH``; cut at 8 KiB, with ``cut`` set.
        size_bytes, digest: of the body as sent, without the framing of chunks.
        complete: its end was seen.
    """

    number: int
    method: str
    url: str
    cut: bool
    size_bytes: int
    digest: str
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """The answer to the request of that number. ``status`` is None when it was no HTTP."""

    number: int
    status: int | None
    size_bytes: int
    digest: str
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """What was no HTTP, or no more, whole: bytes and digests each way."""

    bytes_out: int
    digest_out: str
    bytes_in: int
    digest_in: str


TextRecord = RequestRecord | AnswerRecord | StreamRecord
Recorder = Callable[[TextRecord], None]
"""Takes the records, in the order in which things were seen."""


class _Digest:
    """Counts and digests bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._hash.update(data)

    def __str__(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


@dataclass(slots=True)
class _Message:
    """A request or an answer that is being read."""

    number: int
    method: str = ""
    url: str = ""
    cut: bool = False
    status: int | None = None
    body: _Digest = field(default_factory=_Digest)


class InspectedText:
    """What flows inside: decides which protocol it is, reads it, and keeps the records."""

    def __init__(self, host: str, port: int, judge: Callable[[RequestHead], str | None]) -> None:
        """Begin before anything was said. The arguments are those of `probes.gateway.inspection.Inspection`."""
        self._where = written(host, port).removesuffix(f":{_HTTPS}")
        self._judge = judge
        self._first = bytearray()
        self._protocol: Protocol | None = None
        self._requests, self._answers = RequestReader(), AnswerReader()
        self._asking: _Message | None = None
        self._answering: _Message | None = None
        self._unanswered: deque[int] = deque()
        self._count = 0
        self._switch: bool | None = None
        self._streams: tuple[_Digest, _Digest] | None = None
        self._no_http = False

    def out(self, data: bytes, record: Recorder) -> Iterator[bytes]:
        """Take plain text of the client; give what goes on, piece by piece.

        Raises:
            HttpError: no more may go on.
        """
        if self._protocol is None:
            self._first += data
            self._protocol = protocol_of(bytes(self._first)) if self._first else None
            if self._protocol is None:
                return
            data = bytes(self._first)
            self._first.clear()
        if self._protocol is Protocol.HTTP2:
            raise HttpError("HTTP/2, which was not agreed on")
        if self._protocol is Protocol.OTHER:
            self._stream()[0].add(data)
            yield data
            return
        for piece in self._requests.feed(data):
            yield self._pass_on(piece, record)
        yield from self._resume(record)

    def back(self, data: bytes, record: Recorder) -> Iterator[bytes]:
        """Take plain text of the server, which goes on whole; give what the client is now allowed to send."""
        if data and self._protocol is None:  # who speaks first is no server of HTTP
            self._protocol = Protocol.OTHER
            self._stream()[0].add(bytes(self._first))
            yield bytes(self._first)
            self._first.clear()
        if self._protocol is Protocol.OTHER or self._no_http:
            if data:
                self._stream()[1].add(data)
            return
        try:
            for piece in self._answers.feed(data):
                self._answer(piece, record)
        except HttpError:
            self._no_http = True
            self._stream()[1].add(self._answers.rest())
            if self._unanswered:
                self._answering = self._answering or _Message(number=self._unanswered.popleft())
            self._end_answer(record, complete=False)
        yield from self._resume(record)

    def end(self, *, cut: bool = False) -> list[TextRecord]:
        """Give the records of what was not complete; ``cut``: the end of the connection is not that of an answer."""
        records: list[TextRecord] = []
        self._end_request(records.append, complete=False)
        self._end_answer(records.append, complete=self._answers.until_close and not cut)
        if self._streams is not None:
            out, back = self._streams
            records.append(
                StreamRecord(bytes_out=out.size, digest_out=str(out), bytes_in=back.size, digest_in=str(back))
            )
            self._streams = None
        return records

    def _stream(self) -> tuple[_Digest, _Digest]:
        if self._streams is None:
            self._streams = (_Digest(), _Digest())
        return self._streams

    def _resume(self, record: Recorder) -> Iterator[bytes]:
        """Let go what was held for the answer to a switch, once that is known."""
        if self._switch is not None and self._requests.holding:
            switched, self._switch = self._switch, None
            for piece in self._requests.answered(switched=switched):
                yield self._pass_on(piece, record)

    def _pass_on(self, piece: RequestHead | Payload | Opaque, record: Recorder) -> bytes:
        """Judge and record a piece; give its bytes."""
        match piece:
            case RequestHead():
                refusal = self._judge(piece)
                if refusal is not None:
                    raise HttpError(refusal)
                self._begin_request(piece)
                if not self._requests.in_body:
                    self._end_request(record, complete=True)
            case Payload() if self._asking is not None:
                self._asking.body.add(piece.content)
                if piece.last:
                    self._end_request(record, complete=True)
            case Payload():  # an empty line between requests
                pass
            case Opaque():
                self._stream()[0].add(piece.forward)
        return piece.forward

    def _begin_request(self, head: RequestHead) -> None:
        target = head.target.decode("latin-1")
        url = f"https://{self._where}{target}" if target.startswith("/") else target
        self._asking = _Message(
            number=self._count, method=head.method.decode("latin-1"), url=url[:_MAX_URL], cut=len(url) > _MAX_URL
        )
        self._switch = None
        self._unanswered.append(self._count)
        self._answers.expect(head.method)
        self._count += 1

    def _end_request(self, record: Recorder, *, complete: bool) -> None:
        if self._asking is not None:
            one, self._asking = self._asking, None
            record(
                RequestRecord(
                    number=one.number,
                    method=one.method,
                    url=one.url,
                    cut=one.cut,
                    size_bytes=one.body.size,
                    digest=str(one.body),
                    complete=complete,
                )
            )

    def _answer(self, piece: AnswerHead | Payload | Opaque, record: Recorder) -> None:
        match piece:
            case AnswerHead() if not piece.interim:
                number = self._unanswered.popleft() if self._unanswered else self._count
                self._answering = _Message(number=number, status=piece.status)
                if not self._unanswered:
                    self._switch = piece.switched
                if piece.bodiless:
                    self._end_answer(record, complete=True)
            case Payload() if self._answering is not None:
                self._answering.body.add(piece.content)
                if piece.last:
                    self._end_answer(record, complete=True)
            case Opaque():
                self._stream()[1].add(piece.forward)
            case _:
                pass

    def _end_answer(self, record: Recorder, *, complete: bool) -> None:
        if self._answering is not None:
            one, self._answering = self._answering, None
            record(
                AnswerRecord(
                    number=one.number,
                    status=one.status,
                    size_bytes=one.body.size,
                    digest=str(one.body),
                    complete=complete,
                )
            )
