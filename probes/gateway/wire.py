"""What crosses between the gateway's process and the supervisor: events, each with the flow that it belongs to.

A message is a header (protocol, address in its mapped form, port: the trial's end; protocol 0 for no flow) and the
event as JSON, numbered -1. The gateway reads bytes of the trial, so what it says is read as nothing but events of its
own kinds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Union

import msgspec

from supervisor.events import (
    CanaryLeaked,
    ConnectionAllowed,
    ConnectionBlocked,
    ConnectionClosed,
    ConnectionSinkholed,
    Event,
    GatewayStarted,
    GatewayStopped,
    NameAsked,
)

TCP, UDP, NONE = 6, 17, 0
MESSAGE_BYTES = 1 << 17
KINDS = (
    CanaryLeaked,
    ConnectionAllowed,
    ConnectionBlocked,
    ConnectionClosed,
    ConnectionSinkholed,
    GatewayStarted,
    GatewayStopped,
    NameAsked,
)
"""What a gateway may say. `inspect` adds its own."""

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
    packed = ip_address(source[0].partition("%")[0]).packed
    return _HEADER.pack(protocol, packed.rjust(16, b"\0") if len(packed) == 16 else _MAPPED + packed, source[1]) + (  # noqa: PLR2004
        _encoder.encode(event)
    )


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
