"""The answers of an HTTP/1 server, read as they come: their status, and whether the connection turned into another.

A server that was allowed is not out to deceive, so this is less strict than what reads the client; what is still no
HTTP raises, and the caller passes the bytes on as what they are. Which request an answer is for must be said by
`expect`, in the order of the requests, because the length of an answer depends on it (RFC 9112, 6.3).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from probes.gateway.http_body import (
    BodyReader,
    Field,
    HeadTaker,
    HttpError,
    Opaque,
    Payload,
    body_of,
    parse_field,
    take,
)
from supervisor.values import dataclass

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_SWITCHED = 101
_NO_CONTENT = frozenset({204, 304})
_SUCCESS = range(200, 300)
_INTERIM = range(100, 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """The head of one answer.

    Attributes:
        interim: another answer to the same request follows (100, 103).
        switched: what follows, in both directions, is something else than HTTP/1.
        bodiless: the answer ends with its head.
        forward: the bytes to pass on.
    """

    status: int
    fields: tuple[Field, ...]
    interim: bool
    switched: bool
    bodiless: bool
    forward: bytes


class AnswerReader:
    """Reads the answers of one connection."""

    def __init__(self) -> None:
        """Begin before the first answer."""
        self._kept = bytearray()
        self._heads = HeadTaker()
        self._body: BodyReader | None = None
        self._methods: deque[bytes] = deque()
        self._opaque = False

    def expect(self, method: bytes) -> None:
        """Say that a request was sent, with this method."""
        self._methods.append(method)

    @property
    def until_close(self) -> bool:
        """Tell whether the answer that is read ends with the connection, so that its end is no fault."""
        return self._body is not None and self._body.closes

    def feed(self, data: bytes) -> Iterator[AnswerHead | Payload | Opaque]:
        """Take the next bytes, give the pieces that are whole; joined they are what went in.

        Raises:
            HttpError: this is no HTTP/1; `rest` are the bytes that were not given yet.
        """
        self._kept += data
        while (piece := self._step()) is not None:
            yield piece

    def rest(self) -> bytes:
        """Give up the bytes that were taken and not given."""
        return take(self._kept, len(self._kept))

    def _step(self) -> AnswerHead | Payload | Opaque | None:
        if self._opaque:
            return Opaque(self.rest()) if self._kept else None
        if self._body is None:
            return self._head()
        piece = self._body.step(self._kept)
        if self._body.ended:
            self._body = None
        return piece

    def _head(self) -> AnswerHead | None:
        text = self._heads.take(self._kept)
        if text is None:
            return None
        try:
            return self._read(text)
        except HttpError:
            self._kept[:0] = text
            raise

    def _read(self, text: bytes) -> AnswerHead:
        first, *lines = text.removesuffix(b"\r\n\r\n").split(b"\r\n")
        line = _STATUS_LINE.fullmatch(first)
        if line is None:
            raise HttpError("the first line is no answer of HTTP/1")
        status, fields = int(line[2]), tuple(map(parse_field, lines))
        interim = status in _INTERIM and status != _SWITCHED
        method = self._methods[0] if self._methods else b""
        switched = status == _SWITCHED or (method == b"CONNECT" and status in _SUCCESS)
        body = None
        if not interim and not switched and method != b"HEAD" and status not in _NO_CONTENT:
            body = body_of(fields, http_1_0=line[1] == b"0") or BodyReader.until_close()
        if not interim and self._methods:
            self._methods.popleft()
        self._opaque = switched
        self._body = None if body is None or body.ended else body
        return AnswerHead(
            status=status,
            fields=fields,
            interim=interim,
            switched=switched,
            bodiless=self._body is None,
            forward=text,
        )
