"""What crosses between the gateway's process and the supervisor: events, each with the flow that it belongs to.

A message is a header (protocol, address in its mapped form, port: the trial's end; protocol 0 for no flow) and the
event as JSON, numbered -1. The gateway reads bytes of the trial, so what it says is read as nothing but events of its
own kinds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Union

import msgspec

from supervisor.events import (
    CanaryLeaked,
    ConnectionAllowed,
    ConnectionBlocked,
    ConnectionClosed,
    ConnectionHeld,
    ConnectionReleased,
    ConnectionSinkholed,
    Event,
    GatewayStarted,
    GatewayStopped,
    InspectionFailed,
    NameAsked,
    RequestAnswered,
    RequestSent,
    StreamDigested,
)
from supervisor.values import dataclass

TCP, UDP, NONE = 6, 17, 0
MESSAGE_BYTES = 1 << 17
KINDS = (
    CanaryLeaked,
    ConnectionAllowed,
    ConnectionBlocked,
    ConnectionClosed,
    ConnectionHeld,
    ConnectionReleased,
    ConnectionSinkholed,
    GatewayStarted,
    GatewayStopped,
    InspectionFailed,
    NameAsked,
    RequestAnswered,
    RequestSent,
    StreamDigested,
)
"""What a gateway may say."""

BATCH = b"\xff"
"""Begins a message of many; no protocol has this number."""

_LENGTH = struct.Struct("!I")
_HEADER = struct.Struct("!B16sH")
_MAPPED = bytes(10) + b"\xff\xff"
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Any] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """One message: an event, and the trial's end of its flow; protocol 0 when it has none."""

    event: Event
    protocol: int
    ip: bytes
    port: int


def pack_told(event: Event, source: tuple[str, int] | None, protocol: int) -> bytes:
    """Write a message."""
    if source is None:
        return _HEADER.pack(NONE, bytes(16), 0) + _encoder.encode(event)
    return _HEADER.pack(protocol, _mapped(source[0]), source[1]) + _encoder.encode(event)


@lru_cache(maxsize=64)
def _mapped(text: str) -> bytes:
    """Give an address of the trial's own, of which there are a few, in its mapped form."""
    packed = ip_address(text.partition("%")[0]).packed
    return packed if len(packed) == len(_MAPPED) + 4 else _MAPPED + packed


def pack_batch(messages: Sequence[bytes]) -> bytes:
    """Put messages into one, in order: each with its length before it."""
    return BATCH + b"".join(_LENGTH.pack(len(message)) + message for message in messages)


def read_batch(batch: bytes) -> Iterator[Told]:
    """Read the messages of one that began with `BATCH`.

    Raises:
        msgspec.DecodeError, struct.error: it is none.
    """
    at = len(BATCH)
    while at < len(batch):
        (length,) = _LENGTH.unpack_from(batch, at)
        at += _LENGTH.size
        yield read_told(batch[at : at + length])
        at += length


def read_told(message: bytes) -> Told:
    """Read a message.

    Raises:
        msgspec.DecodeError: it is none.
    """
    global _decoder  # noqa: PLW0603 - made once, when the first message comes
    if _decoder is None:
        _decoder = msgspec.json.Decoder(Union[KINDS])  # noqa: UP007 - made of a tuple
    protocol, ip, port = _HEADER.unpack_from(message)
    return Told(_decoder.decode(message[_HEADER.size :]), protocol, ip, port)
