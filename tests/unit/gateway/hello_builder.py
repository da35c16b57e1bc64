"""Client hellos: those of a real client, and made ones whose every part can be wrong."""

from __future__ import annotations

import ssl
from itertools import pairwise


def real_hello(name: str | None, alpn: list[str] | None = None) -> bytes:
    """Give the first bytes of OpenSSL's client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    if alpn:
        context.set_alpn_protocols(alpn)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    message = "the client did not wait for an answer"
    raise AssertionError(message)


def vector(size: int, data: bytes) -> bytes:
    """Put a length before bytes."""
    return len(data).to_bytes(size, "big") + data


def extension(kind: int, data: bytes) -> bytes:
    """Make one extension."""
    return kind.to_bytes(2, "big") + vector(2, data)


def named(name: bytes, kind: int = 0) -> bytes:
    """Make the extension with a server name."""
    return extension(0, vector(2, bytes([kind]) + vector(2, name)))


def hello_body(*extensions: bytes) -> bytes:
    """Make the body of a hello."""
    head = b"\x03\x03" + bytes(32) + vector(1, bytes(32)) + vector(2, b"\x13\x01\x0a\x0a") + vector(1, b"\0")
    return head + vector(2, b"".join(extensions))


def message(body: bytes, kind: int = 1) -> bytes:
    """Make a handshake message."""
    return bytes([kind]) + vector(3, body)


def records(data: bytes, *cuts: int, kind: int = 22) -> bytes:
    """Put a message into records, cut at the given places."""
    places = [0, *sorted(set(cuts)), len(data)]
    parts = [data[a:b] for a, b in pairwise(places)]
    return b"".join(bytes([kind]) + b"\x03\x01" + vector(2, part) for part in parts)
