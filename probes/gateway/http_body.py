"""What lies between the heads of HTTP/1 messages: bodies, in the three ways in which they can end.

A `BodyReader` takes its part off the front of the bytes of a connection and leaves the rest. Source: RFC 9112, 6 and 7.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum, auto

from supervisor.values import dataclass

MAX_LINE = 16_384
"""Longest first line that is waited for, and longest line of a chunked body."""

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
BARE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)(?!\Z)")
"""A line feed or a carriage return alone; a return at the very end may still get its line feed."""

_FIELD = re.compile(rb"(" + TOKEN + rb"):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")

Field = tuple[bytes, bytes]
"""Name in lower case, and value."""


class HttpError(ValueError):
    """It is HTTP, or would be to a lenient reader, and must not be passed on. The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes of a body, its framing among them, to pass on.

    Attributes:
        content: the part that is the body itself.
        last: the message ends with them.
    """

    forward: bytes
    content: bytes = b""
    last: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """Bytes of whatever the connection has turned into, after CONNECT or Upgrade."""

    forward: bytes


class _State(StrEnum):
    LENGTH = auto()
    CHUNK_LINE = auto()
    CHUNK_DATA = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    CLOSE = auto()
    ENDED = auto()


class BodyReader:
    """Reads one body. Made by `of_length`, `in_chunks` or `until_close`."""

    def __init__(self, state: _State, left: int = 0) -> None:
        """Begin before the first byte of the body."""
        self._state = state
        self._left = left

    @classmethod
    def of_length(cls, length: int) -> BodyReader:
        """Make a reader of a body of so many bytes; of none it has ended already."""
        return cls(_State.LENGTH if length else _State.ENDED, length)

    @classmethod
    def in_chunks(cls) -> BodyReader:
        """Make a reader of a body in chunks."""
        return cls(_State.CHUNK_LINE)

    @classmethod
    def until_close(cls) -> BodyReader:
        """Make a reader of a body that ends with the connection."""
        return cls(_State.CLOSE)

    @property
    def ended(self) -> bool:
        """Tell whether the body is over."""
        return self._state is _State.ENDED

    @property
    def closes(self) -> bool:
        """Tell whether the body ends with the connection."""
        return self._state is _State.CLOSE

    def step(self, kept: bytearray) -> Payload | None:
        """Take the next piece off the front; None while more bytes are needed, or when the body is over.

        Raises:
            HttpError: the framing is none.
        """
        steps: dict[_State, Callable[[bytearray], Payload | None]] = {
            _State.LENGTH: self._content,
            _State.CHUNK_LINE: self._chunk_line,
            _State.CHUNK_DATA: self._content,
            _State.CHUNK_END: self._chunk_end,
            _State.TRAILERS: self._trailers,
            _State.CLOSE: self._rest,
        }
        return None if self.ended else steps[self._state](kept)

    def _rest(self, kept: bytearray) -> Payload | None:
        content = take(kept, len(kept))
        return Payload(content, content) if content else None

    def _content(self, kept: bytearray) -> Payload | None:
        if not kept:
            return None
        content = take(kept, min(self._left, len(kept)))
        self._left -= len(content)
        last = not self._left and self._state is _State.LENGTH
        if not self._left:
            self._state = _State.ENDED if last else _State.CHUNK_END
        return Payload(content, content, last)

    def _chunk_line(self, kept: bytearray) -> Payload | None:
        line = _line(kept)
        if line is None:
            return None
        size = _CHUNK.fullmatch(line[:-2])
        if size is None:
            raise HttpError("a chunk without a length")
        self._left = int(size[1], 16)
        self._state = _State.CHUNK_DATA if self._left else _State.TRAILERS
        return Payload(line)

    def _chunk_end(self, kept: bytearray) -> Payload | None:
        if not b"\r\n".startswith(kept[:2]):
            raise HttpError("a chunk is longer than its length")
        if len(kept) < len(b"\r\n"):
            return None
        self._state = _State.CHUNK_LINE
        return Payload(take(kept, 2))

    def _trailers(self, kept: bytearray) -> Payload | None:
        line = _line(kept)
        if line is None:
            return None
        if line == b"\r\n":
            self._state = _State.ENDED
            return Payload(line, last=True)
        parse_field(line[:-2])
        return Payload(line)


def body_of(fields: tuple[Field, ...], *, http_1_0: bool = False) -> BodyReader | None:
    """Find how the body that follows a head ends (RFC 9112, 6.3); None when the head does not say.

    Raises:
        HttpError: it says so in two ways, or in one that two readers could understand in two ways.
    """
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if lengths and codings:
        raise HttpError("a length and a transfer coding in one message")
    if codings:
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise HttpError("a transfer coding other than chunked")
        if http_1_0:
            raise HttpError("a transfer coding in HTTP/1.0")
        return BodyReader.in_chunks()
    if lengths:
        if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
            raise HttpError("more than one length, or one that is no number")
        return BodyReader.of_length(int(lengths[0]))
    return None


def parse_field(line: bytes) -> Field:
    """Read one line of a head or a trailer, without its end.

    Raises:
        HttpError: it is none.
    """
    found = _FIELD.fullmatch(line)
    if found is None:
        raise HttpError("a line of the head is no field")
    return found[1].lower(), found[2].rstrip(b" \t")


def field_tokens(value: bytes) -> list[bytes]:
    """Part a list such as that of Connection into its words, in lower case."""
    return [token.strip(b" \t").lower() for token in value.split(b",") if token.strip(b" \t")]


def take(kept: bytearray, count: int) -> bytes:
    """Take bytes off the front."""
    taken = bytes(kept[:count])
    del kept[:count]
    return taken


def _line(kept: bytearray) -> bytes | None:
    end = kept.find(b"\n", 0, MAX_LINE + 1)
    if end < 0:
        if len(kept) > MAX_LINE:
            raise HttpError(f"a line is longer than {MAX_LINE} bytes")
        return None
    line = take(kept, end + 1)
    if BARE_END.search(line):
        raise HttpError("a line does not end with CR LF")
    return line


class HeadTaker:
    """Takes heads, up to and with their empty line, off the front of the bytes of a connection."""

    MAX_HEAD = 65_536

    def __init__(self) -> None:
        """Begin before the first head."""
        self._looked = 0

    def take(self, kept: bytearray) -> bytes | None:
        """Give the next head, None while it is not whole.

        Only what was not looked at yet is searched, or a peer that sends byte by byte costs the square of a head.

        Raises:
            HttpError: it is too long, or a line ends with one of CR and LF alone.
        """
        end = kept.find(b"\r\n\r\n", max(0, self._looked - 3))
        whole = end + 4 if end >= 0 else len(kept)
        if BARE_END.search(kept, max(0, self._looked - 1), whole):
            raise HttpError("a line does not end with CR LF")
        self._looked = whole
        if end > self.MAX_HEAD or (end < 0 and len(kept) > self.MAX_HEAD):
            raise HttpError(f"a head is longer than {self.MAX_HEAD} bytes")
        if end < 0:
            return None
        self._looked = 0
        return take(kept, whole)
