"""The first words of a TLS client, read as they come: which server it names, and what it wants to speak.

Bytes go in, in pieces of any size; a `ClientHello` comes out once it is whole. Laws:

1. How the bytes are cut, into segments or into records, never changes the answer.
2. What two readers could understand in two ways is refused: an extension or a name given twice, a record of another
   kind in between, bytes after the hello in its record. A server must not see another name than we do.
3. Nothing is kept beyond `MAX_HELLO` bytes, whatever comes.

Source: RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3; values that nobody defined (GREASE, RFC 8701) mean nothing.
"""

from __future__ import annotations

from enum import IntEnum

from supervisor.values import dataclass

MAX_HELLO = 65_536
"""Longest hello that is read. With post-quantum keys, tickets and ECH they reach about 4 KiB."""
MAX_RECORD = 16_384
RECORD_HEADER = 5
HANDSHAKE_HEADER = 4

_RECORD_CHANGE_CIPHER = 20
_RECORD_ALERT = 21
_RECORD_HANDSHAKE = 22
_RECORD_DATA = 23
_MESSAGE_CLIENT_HELLO = 1
_MESSAGE_SERVER_HELLO = 2
TLS_1_3 = 0x0304
_TLS_MAJOR = 3
_RANDOM = 32
_MAX_SESSION_ID = 32
_RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""Stands in a server's hello that asks for another one of the client (RFC 8446 section 4.1.3)."""
_MISREAD: dict[int, tuple[int | None, ...]] = {
    _RECORD_CHANGE_CIPHER: (0, 1, 1),
    _RECORD_ALERT: (0, 2, None),
    _RECORD_HANDSHAKE: (None, None, _MESSAGE_CLIENT_HELLO),
}
"""Length and first byte of records that a server may pass over, or read, although no client begins like that."""


class Extension(IntEnum):
    """The extensions that are looked at; all others are passed over."""

    SERVER_NAME = 0
    ALPN = 16
    EARLY_DATA = 42
    SUPPORTED_VERSIONS = 43
    ENCRYPTED_CLIENT_HELLO = 0xFE0D


class NotTlsError(ValueError):
    """The bytes do not begin like TLS: some other protocol speaks."""


class HelloError(ValueError):
    """It begins like TLS, but no server should take it. The message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """What a client said.

    Attributes:
        server_name: as sent; None when it named none. `policies.hosts.normal_name` gives its one spelling.
        alpn: the protocols that it offered, in its order (``h2``, ``http/1.1``).
        encrypted: an encrypted hello (ECH, RFC 9849) came with it: ``server_name`` is the outer name, the inner one is
            hidden. Clients send a meaningless one too (GREASE ECH), which cannot be told apart.
        early_data: bytes for the server may follow before it has answered.
        versions: that it offered, newest form (``0x0304`` is TLS 1.3); without the extension the one in the hello.
        size_bytes: of the records that carried it.
    """

    server_name: bytes | None
    alpn: tuple[bytes, ...] = ()
    encrypted: bool = False
    early_data: bool = False
    versions: tuple[int, ...] = ()
    size_bytes: int = 0


def may_be_tls(first: bytes) -> bool:
    """Tell whether bytes, at least one, can be the beginning of a TLS record with a hello."""
    return first[0] == _RECORD_HANDSHAKE and first[1:2] in {b"", bytes([_TLS_MAJOR])}


class HelloReader:
    """Reads one hello out of the stream of a client."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._records = bytearray()
        self._message = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> ClientHello | None:
        """Take the next bytes; give the hello when it is whole, None while more is needed.

        Bytes after the records of the hello (early data) are left alone. Not to be called again after an answer.

        Raises:
            NotTlsError: this is no TLS. Only ever raised before a whole record was seen.
            HelloError: this is a hello that must not be passed on.
        """
        self._records += data
        while (record := self._next_record()) is not None:
            self._message += record
            hello = self._whole()
            if hello is not None:
                return hello
        return None

    def _next_record(self) -> bytes | None:
        """Take one handshake record off the front, or None when it is not whole yet."""
        records = self._records
        if records and not may_be_tls(bytes(records[:2])):
            if self._size:
                raise HelloError("a record of another kind lies between the parts of the hello")
            raise NotTlsError("no handshake record of TLS")
        if len(records) < RECORD_HEADER:
            return None
        length = int.from_bytes(records[3:RECORD_HEADER], "big")
        if not 0 < length <= MAX_RECORD:
            raise HelloError(f"expected a record of 1 to {MAX_RECORD} bytes, got {length}")
        end = RECORD_HEADER + length
        if self._size + end > MAX_HELLO:
            raise HelloError(f"the hello is longer than {MAX_HELLO} bytes")
        if len(records) < end:
            return None
        record = bytes(records[RECORD_HEADER:end])
        del records[:end]
        self._size += end
        return record

    def _whole(self) -> ClientHello | None:
        message = self._message
        if message[0] != _MESSAGE_CLIENT_HELLO:
            raise HelloError(f"expected a client hello, got handshake message {message[0]}")
        if len(message) < HANDSHAKE_HEADER:
            return None
        end = HANDSHAKE_HEADER + int.from_bytes(message[1:HANDSHAKE_HEADER], "big")
        if end > MAX_HELLO:
            raise HelloError(f"the hello is longer than {MAX_HELLO} bytes")
        if len(message) < end:
            return None
        if len(message) > end:
            raise HelloError("bytes lie behind the hello in its record")
        return parse_hello(bytes(message[HANDSHAKE_HEADER:end]), size_bytes=self._size)


class SecondHello:
    """Watches what a client sends after its hello: when the server asks for another one, it must name the same host.

    A server may ask (HelloRetryRequest, RFC 8446 section 4.1.4), and OpenSSL takes the name from the second hello. What
    is held back until that is known is given later; nothing is read any more once there can be no second hello: when
    the server answered in another way, or when the second hello was seen.
    """

    def __init__(self, first: ClientHello) -> None:
        """Begin behind the first hello."""
        self._first = first
        self._kept = bytearray()
        self._answer = bytearray()
        self._asked = False
        self.done = False

    @property
    def holding(self) -> bool:
        """Tell whether bytes are held back until the client says more."""
        return bool(self._kept)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the client; give those that can go on.

        Raises:
            HelloError: the second hello names another host, or is none.
        """
        self._kept += data
        at = 0
        while not self.done and at < len(self._kept):
            size = self._passable(at)
            if size is None:
                break
            at += size
        if self.done:
            at = len(self._kept)
        passed = bytes(self._kept[:at])
        del self._kept[:at]
        return passed

    def answered(self, data: bytes) -> None:
        """Take the next bytes of the server; sets ``done`` when they ask for no other hello."""
        if self._asked or self.done:
            return
        self._answer += data
        asks = _asks_again(self._answer)
        if asks is not None:
            self._asked, self.done = asks, not asks
            self._answer.clear()

    def _passable(self, at: int) -> int | None:
        """Give the size of the record at a place if it can go on, None while more is needed; sets ``done``."""
        kept = self._kept
        kind = kept[at]
        if kind == _RECORD_HANDSHAKE:
            return self._hello(at)
        if kind not in {_RECORD_CHANGE_CIPHER, _RECORD_ALERT, _RECORD_DATA}:
            self.done = True
            return 0
        if len(kept) - at < RECORD_HEADER:
            return None
        size = RECORD_HEADER + int.from_bytes(kept[at + 3 : at + RECORD_HEADER], "big")
        return None if len(kept) - at < size else size

    def _hello(self, at: int) -> int | None:
        """Read a hello; any other message means that the server was content with the first."""
        if len(self._kept) - at <= RECORD_HEADER:
            return None
        self.done = True
        if self._kept[at + RECORD_HEADER] != _MESSAGE_CLIENT_HELLO:
            return 0
        try:
            second = HelloReader().feed(bytes(self._kept[at:]))
        except NotTlsError as err:
            raise HelloError("the second hello is no TLS") from err
        if second is None:
            self.done = False
            return None
        if second.server_name != self._first.server_name:
            raise HelloError("the second hello names another host than the first")
        return second.size_bytes


def _asks_again(answer: bytearray) -> bool | None:
    """Tell whether what a server says first asks for another hello; None while that is not known. Takes alerts off."""
    while answer[:1] == bytes([_RECORD_ALERT]):  # a warning that the name is not known may come before
        size = RECORD_HEADER + int.from_bytes(answer[3:RECORD_HEADER], "big")
        if len(answer) < RECORD_HEADER or len(answer) < size:
            return None
        del answer[:size]
    random = RECORD_HEADER + HANDSHAKE_HEADER + 2
    expected = {0: _RECORD_HANDSHAKE, RECORD_HEADER: _MESSAGE_SERVER_HELLO}
    if any(len(answer) > at and answer[at] != byte for at, byte in expected.items()):
        return False
    if not _RETRY_RANDOM.startswith(answer[random : random + _RANDOM]):
        return False
    return True if len(answer) >= random + _RANDOM else None


def hides_hello(first: bytes) -> bool | None:
    """Tell whether bytes that are no TLS by `may_be_tls` are so to some servers; None while more are needed.

    Go drops warnings before a hello, and takes records of any major version below 16; older libraries take a change of
    ciphers. A hello behind or in them would not be read.
    """
    if first[0] not in _MISREAD or first[1:2] > b"\x0f":
        return False
    rest, known = _MISREAD[first[0]], first[3 : RECORD_HEADER + 1]
    if len(known) < len(rest):
        return None if all(want in (None, got) for want, got in zip(rest, known, strict=False)) else False
    return all(want in (None, got) for want, got in zip(rest, known, strict=True))


def parse_hello(body: bytes, *, size_bytes: int = 0) -> ClientHello:
    """Read the body of a ClientHello message, without the header of the handshake.

    Raises:
        HelloError: it is cut short, too long, or says one thing twice.
    """
    reader = _Reader(body)
    legacy_version = reader.number(2)
    reader.take(_RANDOM)
    if len(reader.vector(1)) > _MAX_SESSION_ID:
        raise HelloError("the session id is too long")
    suites = reader.vector(2)
    if not suites or len(suites) % 2:
        raise HelloError("the list of cipher suites is no list")
    if 0 not in reader.vector(1):
        raise HelloError("the null compression is not offered")
    extensions = _read_extensions(reader.vector(2)) if reader.left else {}
    reader.end()
    versions = extensions.get(Extension.SUPPORTED_VERSIONS)
    server_name = extensions.get(Extension.SERVER_NAME)
    alpn = extensions.get(Extension.ALPN)
    return ClientHello(
        server_name=None if server_name is None else _read_name(server_name),
        alpn=() if alpn is None else _read_alpn(alpn),
        encrypted=Extension.ENCRYPTED_CLIENT_HELLO in extensions,
        early_data=Extension.EARLY_DATA in extensions,
        versions=(legacy_version,) if versions is None else _read_versions(versions),
        size_bytes=size_bytes,
    )


class _Reader:
    """Takes numbers and vectors off the front of bytes; what is missing is an error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise HelloError("the hello is cut short")
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """Take bytes with their length, of ``size`` bytes, before them."""
        return self.take(self.number(size))

    def end(self) -> None:
        if self.left:
            raise HelloError("bytes are left over in the hello")


def _read_extensions(block: bytes) -> dict[int, bytes]:
    reader = _Reader(block)
    found: dict[int, bytes] = {}
    while reader.left:
        kind = reader.number(2)
        if kind in found:
            raise HelloError(f"extension {kind} is given twice")
        found[kind] = reader.vector(2)
    return found


def _read_name(value: bytes) -> bytes:
    """Read the server name: a list which, in all that was ever defined, has one entry of kind 0."""
    outer = _Reader(value)
    entries = _Reader(outer.vector(2))
    outer.end()
    kind, name = entries.number(1), entries.vector(2)
    entries.end()
    if kind != 0 or not name:
        raise HelloError("the server name is no host name")
    return name


def _read_alpn(value: bytes) -> tuple[bytes, ...]:
    outer = _Reader(value)
    entries = _Reader(outer.vector(2))
    outer.end()
    names: list[bytes] = []
    while entries.left:
        names.append(entries.vector(1))
    if not names or b"" in names:
        raise HelloError("the list of protocols has an empty entry")
    return tuple(names)


def _read_versions(value: bytes) -> tuple[int, ...]:
    outer = _Reader(value)
    entries = _Reader(outer.vector(1))
    outer.end()
    versions: list[int] = []
    while entries.left:
        versions.append(entries.number(2))
    return tuple(versions)
