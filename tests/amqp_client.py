"""As much of a client of AMQP 0-9-1 as tests of a broker need: declare, publish, get, and acknowledge later.

The frames are those of the specification (amqp-0-9-1.pdf, 2.3): type, channel, size, payload, 0xCE.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, 0xCE


class AmqpClient:
    """One connection with one channel, as guest."""

    def __init__(self, port: int) -> None:
        """Connect, and open the channel."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(10, 10)
        self._call(0, 10, 11, _table() + _short(b"PLAIN") + _long(b"\0guest\0guest") + _short(b"en_US"))
        tune = self._expect(10, 30)
        self._call(0, 10, 31, tune[:6] + struct.pack(">H", 0))
        self._call(0, 10, 40, _short(b"/") + _short(b"") + b"\0")
        self._expect(10, 41)
        self._call(1, 20, 10, _short(b""))
        self._expect(20, 11)

    def __enter__(self) -> Self:
        """Give the client."""
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        """Go away without a word: what was not acknowledged is ready again."""
        self._socket.close()

    def declare(self, queue: bytes) -> None:
        """Make a queue."""
        self._call(1, 50, 10, b"\0\0" + _short(queue) + b"\0" + _table())
        self._expect(50, 11)

    def publish(self, queue: bytes, body: bytes) -> None:
        """Put a message into a queue."""
        self._call(1, 60, 40, b"\0\0" + _short(b"") + _short(queue) + b"\0")
        self._send(_HEADER, 1, struct.pack(">HHQH", 60, 0, len(body), 0))
        self._send(_BODY, 1, body)

    def get(self, queue: bytes) -> int:
        """Take a message without acknowledging it; gives its delivery tag."""
        self._call(1, 60, 70, b"\0\0" + _short(queue) + b"\0")
        (tag,) = struct.unpack_from(">Q", self._expect(60, 71))
        self._receive(), self._receive()
        return int(tag)

    def acknowledge(self, tag: int) -> None:
        """Say that a message was taken care of."""
        self._call(1, 60, 80, struct.pack(">QB", tag, 0))

    def _call(self, channel: int, kind: int, method: int, arguments: bytes) -> None:
        self._send(_METHOD, channel, struct.pack(">HH", kind, method) + arguments)

    def _send(self, sort: int, channel: int, payload: bytes) -> None:
        self._socket.sendall(struct.pack(">BHI", sort, channel, len(payload)) + payload + bytes([_END]))

    def _expect(self, kind: int, method: int) -> bytes:
        payload = self._receive()
        got = struct.unpack_from(">HH", payload)
        assert got == (kind, method), f"expected method {kind}.{method}, got {got}: {payload!r}"
        return payload[4:]

    def _receive(self) -> bytes:
        head = self._exactly(7)
        return self._exactly(struct.unpack(">BHI", head)[2] + 1)[:-1]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def _table() -> bytes:
    return _long(b"")
