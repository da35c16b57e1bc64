"""The bodies of a client's requests of HTTP/1 that the connection shows otherwise: in chunks, or compressed.

In: what the client sends, as it is cut. Out: what those bodies hold. The laws:

1. It only reads along: nothing that it meets changes what becomes of the connection. No HTTP/1 ends the reading.
2. It is bounded: of one connection `MOST_BYTES` are unpacked, `PIECE` at a time, through `MOST_CODINGS` codings.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from probes.gateway.http_body import HttpError, Payload, field_tokens
from probes.gateway.http_head import RequestHead, RequestReader

MOST_BYTES = 32 << 20
MOST_CODINGS = 3
PIECE = 65_536
HOW = ("chunked", "compressed")
_HEADER = 2
_WITH_HEADER = zlib.MAX_WBITS | 32
_GZIP = b"\x1f\x8b"
_CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})


class SentBodies:
    """Reads along on one connection."""

    def __init__(self) -> None:
        """Begin before its first byte."""
        self._reader: RequestReader | None = RequestReader()
        self._chunked = False
        self._codings: list[_Coding] = []
        self._left = MOST_BYTES

    def feed(self, data: bytes) -> Iterator[tuple[bytes, str]]:
        """Take the next bytes; gives what bodies hold, and which of `HOW` they are."""
        if self._reader is None:
            return
        try:
            for piece in self._reader.feed(data):
                if isinstance(piece, RequestHead):
                    self._begin(piece, self._reader)
                elif isinstance(piece, Payload) and piece.content:
                    yield from self._content(piece.content)
        except HttpError:
            self._reader = None

    def _begin(self, head: RequestHead, reader: RequestReader) -> None:
        if head.switches:  # what follows may be requests all the same: of CONNECT, or after a switch that was declined
            reader.go_on()
        named = [token for value in head.values(b"content-encoding") for token in field_tokens(value)]
        packed = [name for name in named if name != b"identity"]
        known = len(packed) <= MOST_CODINGS and _CODINGS.issuperset(packed)
        # A file may have been packed before it was sent, which nothing says.
        self._codings = [_Coding() for _ in packed] if packed and known else [_Coding(if_gzip=True)]
        self._chunked = bool(head.values(b"transfer-encoding"))

    def _content(self, content: bytes) -> Iterator[tuple[bytes, str]]:
        if self._chunked:
            yield content, "chunked"
        if self._codings:
            for unpacked in self._unpack(content, self._codings):
                yield unpacked, "compressed"

    def _unpack(self, content: bytes, codings: list[_Coding]) -> Iterator[bytes]:
        """Undo the codings, the last one first."""
        *others, last = codings
        for unpacked in last.feed(content):
            self._left -= len(unpacked)
            if self._left < 0:
                self._codings = []
                return
            if others:
                yield from self._unpack(unpacked, others)
            else:
                yield unpacked


class _Coding:
    """Undoes one compression: gzip, or either of the two forms that deflate is sent in (RFC 9110, 8.4.1.2)."""

    def __init__(self, *, if_gzip: bool = False) -> None:
        self._packed: zlib._Decompress | None = None
        self._if_gzip = if_gzip
        self._begun = b""
        self._over = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._packed is None and not self._over:
            self._begun += data
            if len(self._begun) < _HEADER:
                return
            data, self._begun = self._begun, b""
            self._over = self._if_gzip and not data.startswith(_GZIP)
            self._packed = zlib.decompressobj(_WITH_HEADER if _has_header(data) else -zlib.MAX_WBITS)
        unpacked = b""
        while self._packed is not None and (data or len(unpacked) == PIECE) and not self._over:
            try:
                unpacked = self._packed.decompress(data, PIECE)
            except zlib.error:
                self._over = True
                return
            if unpacked:
                yield unpacked
            data = self._packed.unconsumed_tail
            if self._packed.eof:
                data = self._packed.unused_data
                self._packed = zlib.decompressobj(_WITH_HEADER)  # gzip may go on with another member


def _has_header(data: bytes) -> bool:
    """Tell gzip, and deflate in its usual form (RFC 1950, 2.2), from deflate that some send bare."""
    return data.startswith(_GZIP) or (data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0)
