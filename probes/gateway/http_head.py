"""The requests of an HTTP/1 client, read as they come: which host each of them names.

The bytes of the client go in, in pieces of any size; the same bytes come out, parted into heads of requests (to be
judged before they are passed on) and what lies between them. Laws:

1. What comes out, joined, is what went in, but for an offer of HTTP/2 that is taken out of a head.
2. How the bytes are cut never changes which heads come out.
3. What two readers could understand in two ways is refused: bare line feeds, folded lines, spaces before a colon, two
   hosts, two lengths, a length beside a transfer coding. A server must not see another request than we do.
4. Nothing is kept beyond `MAX_HEAD` bytes, whatever comes; bodies are passed through.
5. After a request that may turn the connection into something else (CONNECT, Upgrade) the bytes are held until the
   server's answer is known (`RequestReader.answered`).

h11 reads the same grammar, but it is made for an end of a connection: it takes bare line feeds and leading empty lines,
hides the bytes that it read, and wants every answer before it reads the next of the pipelined requests. The tests hold
the two against each other. Source: RFC 9110, RFC 9112; 6.3 for lengths, 11.2 for what smuggling is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum, auto
from functools import lru_cache

from policies.addresses import parse_address, plain_address
from policies.hosts import normal_name
from probes.gateway.http_body import (
    MAX_LINE,
    TOKEN,
    BodyReader,
    Field,
    HeadTaker,
    HttpError,
    Opaque,
    Payload,
    body_of,
    field_tokens,
    parse_field,
    take,
)
from supervisor.values import dataclass

MAX_HEAD = HeadTaker.MAX_HEAD
_MAX_EMPTY = 64

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""How a client begins that knows beforehand that the server speaks HTTP/2 (RFC 9113, 3.4).

The names of its requests are compressed against all earlier ones. On a connection without TLS it is refused, unless
only one name can be meant there; inside TLS nothing is read without ``network.inspect``."""

_SPACE = rb"[\t\x0b\x0c\r\x1c-\x1f \x85\xa0]"
"""What lenient servers part the first line by (RFC 9112, 3, and Python's ``str.split``)."""
_LONG_METHOD = 1024
_BEGINNING = re.compile(_SPACE + rb"*(?:" + TOKEN + rb"(?:" + _SPACE + rb"[^\n]*)?)?\Z")
_METHOD = re.compile(_SPACE + rb"*" + TOKEN + rb"\Z")
_CLAIMS_HTTP = re.compile(
    _SPACE + rb"HTTP" + _SPACE + rb"*/"
    # HTTP/0.9 has no version: what a proxy would take for one is told by its target
    rb"|\A" + _SPACE + rb"*(?:" + TOKEN + _SPACE + rb"+(?:https?|wss?|ftp)://"
    rb"|CONNECT" + _SPACE + rb"+[^{\n]*:[0-9]+" + _SPACE + rb"*\Z"
    rb"|PROXY" + _SPACE + rb"+(?:TCP[46]|UNKNOWN))",
    re.IGNORECASE,
)
_PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n"
"""How a balancer tells a server whose connection it passes on; the request comes behind, as behind ``PROXY TCP4``."""
_REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])")
_AUTHORITY = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/?#\\ ]+)(?::([0-9]{0,5}))?")
_ABSOLUTE = re.compile(rb"(https?|wss?)://([^/?#\\]*)", re.IGNORECASE)
_PORTS = {b"http": 80, b"ws": 80, b"https": 443, b"wss": 443}
_MAX_PORT = 65535
_MAX_AUTHORITY = 262
"""Of the longest name (RFC 1035, 2.3.4) with a dot at its end, in brackets or not, and a port."""


class Protocol(StrEnum):
    """What the first bytes of a client are."""

    HTTP1 = auto()
    HTTP2 = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of one request.

    Attributes:
        method: as sent.
        target: as sent.
        host: the host that is named, a name or an address in its one spelling; None when none is, or the text is no
            host (then no rule can be about it).
        host_text: the same as sent; None when none is named, which HTTP/1.0 may.
        port: the port that is named with it; None when none is.
        fields: names in lower case, and values.
        switches: the connection may become something else: CONNECT, or an Upgrade.
        forward: the bytes to pass on.
    """

    method: bytes
    target: bytes
    host: str | None
    host_text: bytes | None
    port: int | None
    fields: tuple[Field, ...]
    switches: bool
    forward: bytes

    def values(self, name: bytes) -> tuple[bytes, ...]:
        """Give every value of a field, by its name in lower case."""
        return tuple(value for field, value in self.fields if field == name)


Piece = RequestHead | Payload | Opaque


def protocol_of(first: bytes) -> Protocol | None:
    """Say what the first bytes of a client are, None while more are needed.

    Whatever a lenient server could take for HTTP/1 is HTTP/1 here; `RequestReader` then refuses what is not strictly
    so. With None the bytes are not to be passed on, however long the client is silent: the rest could make them HTTP.
    """
    text = first.lstrip(b"\r\n")
    if not text or _PROXY_V2.startswith(first):
        return None if len(first) <= _MAX_EMPTY else Protocol.HTTP1
    if text.startswith(HTTP2_PREFACE[:16]):
        return Protocol.HTTP2
    if HTTP2_PREFACE.startswith(text):
        return None
    return Protocol.HTTP1 if first.startswith(_PROXY_V2) else _protocol_of_line(text)


def _protocol_of_line(text: bytes) -> Protocol | None:
    line, ended, _ = text[: MAX_LINE + 1].partition(b"\n")
    if not _BEGINNING.match(line.rstrip(b"\r")):
        return Protocol.OTHER
    if ended:
        return Protocol.HTTP1 if _CLAIMS_HTTP.search(line) else Protocol.OTHER
    if len(line) > _LONG_METHOD and _METHOD.match(line):
        return Protocol.OTHER  # the rest of the line is for `FirstLine` to watch
    return Protocol.HTTP1 if len(line) > MAX_LINE else None


class FirstLine:
    """Watches the first line of what began with a word too long to wait for: it may turn out to have been a method."""

    MAX = 1 << 17
    """Longer than the first line that any server takes."""

    def __init__(self, first: bytes) -> None:
        """Begin with the bytes that were let through."""
        self._tail = b""
        self._left = self.MAX
        self.done = _METHOD.match(first) is None
        self.feed(first)

    def feed(self, data: bytes) -> None:
        """Take the next bytes, before they go on; sets ``done`` at the end of the line.

        Raises:
            HttpError: it was a request.
        """
        if self.done:
            return
        line, ended, _ = (self._tail + data).partition(b"\n")
        if _CLAIMS_HTTP.search(line, 1):
            raise HttpError("a method longer than any")
        self._left -= len(data)
        self._tail = line[-_LONG_METHOD:]
        self.done = bool(ended) or self._left < 0


class RequestReader:
    """Reads the requests of one connection."""

    def __init__(self) -> None:
        """Begin before the first request."""
        self._kept = bytearray()
        self._heads = HeadTaker()
        self._body: BodyReader | None = None
        self._switching = False
        self._opaque = False

    @property
    def holding(self) -> bool:
        """Tell whether bytes are held back until `answered` is called."""
        return self._switching and self._body is None

    @property
    def in_body(self) -> bool:
        """Tell whether more of the request that was given last follows."""
        return self._body is not None

    @property
    def between(self) -> bool:
        """Tell whether the last request was whole, and the next one has not begun."""
        return self._body is None and not self._kept

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Take the next bytes, give the pieces that are whole. Each is to be judged before the next is asked for.

        Raises:
            HttpError: what follows must not be passed on; the pieces before it were good.
        """
        self._kept += data
        while self._kept and (piece := self._step()) is not None:
            yield piece

    def answered(self, *, switched: bool) -> Iterator[Piece]:
        """Say how the server answered a head that `switches`: 101, or 2xx to CONNECT, is a switch, all else is not.

        Raises:
            HttpError: as for `feed`, for the bytes that were held.
        """
        if self.holding:
            self._switching = False
            self._opaque = switched
            yield from self.feed(b"")

    def go_on(self) -> None:
        """Wait for no answer to the head that was given last: for whoever only reads along."""
        self._switching = False

    def _step(self) -> Piece | None:
        if self._body is not None:
            piece = self._body.step(self._kept)
            if self._body.ended:
                self._body = None
            return piece
        if self._opaque:
            return Opaque(take(self._kept, len(self._kept))) if self._kept else None
        if self._switching:
            if len(self._kept) > MAX_HEAD:
                raise HttpError(f"more than {MAX_HEAD} bytes were sent before the answer to a switch")
            return None
        return self._head()

    def _head(self) -> RequestHead | Payload | None:
        """Take a head off the front; an empty line before it passes (RFC 9112, 2.2)."""
        if self._kept.startswith(b"\r\n"):
            return Payload(take(self._kept, 2))
        if self._kept.startswith(HTTP2_PREFACE[:16]):
            raise HttpError("HTTP/2 without TLS, whose names cannot be read")
        text = self._heads.take(self._kept)
        if text is None:
            return None
        head = parse_head(text)
        self._body = body_of(head.fields, http_1_0=text.partition(b"\r\n")[0].endswith(b"1.0"))
        if self._body is not None and head.method == b"CONNECT":
            raise HttpError("CONNECT with a body")
        if self._body is not None and self._body.ended:
            self._body = None
        self._switching = head.switches
        return head


def parse_head(head: bytes) -> RequestHead:
    """Read the head of a request, the empty line at its end included.

    Raises:
        HttpError: it is not strictly a head, or names two hosts.
    """
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise HttpError("the first line is no request of HTTP/1")
    method, target, minor = line[1], line[2], line[3]
    fields = tuple(map(parse_field, lines))
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1:
        raise HttpError("more than one Host")
    if not hosts and minor == b"1":
        raise HttpError("no Host in a request of HTTP/1.1")
    authority, default_port = _authority(method, target)
    if authority is not None and hosts and not _same(authority, hosts[0], default_port):
        raise HttpError("the target and Host name two hosts")
    named = authority if authority is not None else (hosts[0] if hosts else None)
    host, port = (None, None) if not named else _split_authority(named)
    dropped = [token for name, value in fields if name == b"connection" for token in field_tokens(value)]
    if not {b"host", b"content-length", b"transfer-encoding"}.isdisjoint(dropped):
        raise HttpError("a field that says whose or how long the request is, is to be dropped on the way")
    upgrades = [token for name, value in fields if name == b"upgrade" for token in field_tokens(value)]
    http2 = any(token.partition(b"/")[0] == b"h2c" for token in upgrades)
    return RequestHead(
        method=method,
        target=target,
        host=host,
        host_text=named or None,
        port=port if port is not None else default_port,
        fields=fields,
        switches=method == b"CONNECT" or (bool(upgrades) and not http2),
        forward=_without_upgrade(first, lines) if http2 else head,
    )


def _authority(method: bytes, target: bytes) -> tuple[bytes | None, int | None]:
    """Give the host and port in a target as text, and the port that its scheme means; None for what is not there."""
    if method == b"CONNECT":
        found = _AUTHORITY.fullmatch(target)
        if found is None or not found[2]:
            raise HttpError("CONNECT to what is no host and port")
        return target, None
    if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return None, None
    absolute = _ABSOLUTE.match(target)
    if absolute is None:
        raise HttpError("a target that is neither a path nor a URL of HTTP")
    return absolute[2], _PORTS[absolute[1].lower()]


def _split_authority(text: bytes) -> tuple[str | None, int | None]:
    """Read ``HOST[:PORT]`` into one spelling; a host that is none gives None."""
    return _split_short(text) if len(text) <= _MAX_AUTHORITY else (None, None)


@lru_cache(maxsize=1024)
def _split_short(text: bytes) -> tuple[str | None, int | None]:
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None, None
    port = int(found[2]) if found[2] else None
    if port is not None and not 0 < port <= _MAX_PORT:
        return None, None
    bracketed = found[1].startswith(b"[")
    shown = found[1].strip(b"[]").decode("latin-1")
    address = parse_address(shown)
    if address is not None and (address.version == 4 or bracketed):  # noqa: PLR2004  (the family's name)
        return str(plain_address(address)), port
    return (None if bracketed else normal_name(shown)), port


def _same(authority: bytes, host: bytes, default_port: int | None) -> bool:
    """Tell whether the target and the Host field name one host and one port."""
    one, other = _split_authority(authority), _split_authority(host)
    if one[0] is None or other[0] is None:
        return authority.lower() == host.lower()
    # A Host without a port beside a target with one is common, and names no other host.
    ports_agree = other[1] is None or (one[1] or default_port) == (other[1] or default_port)
    return one[0] == other[0] and ports_agree


def _without_upgrade(first: bytes, lines: list[bytes]) -> bytes:
    """Take the offer of HTTP/2 out of a head: the answer stays HTTP/1, where every request names its host."""
    kept = [line for line in lines if parse_field(line)[0] not in {b"upgrade", b"http2-settings", b"connection"}]
    rest = [
        token
        for name, value in map(parse_field, lines)
        if name == b"connection"
        for token in field_tokens(value)
        if token not in {b"upgrade", b"http2-settings"}
    ]
    if rest:
        kept.append(b"Connection: " + b", ".join(rest))
    return b"\r\n".join([first, *kept, b"", b""])
