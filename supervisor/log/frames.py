"""The frame: what a log is made of, byte by byte. Values in, bytes out, and back; no files here.

Laws of LOG_VERSION 1 (all integers little-endian):
    1. A log is frames, back to back, in segments ``log/000000.seg``, ``log/000001.seg``, …; no frame crosses segments.
    2. A frame is a header of 64 bytes and a payload of ``length`` bytes::

           offset  size  field
                0     4  magic     ``SVFR``
                4     2  version   1
                6     2  type      1 kernel slab, 2 JSON record, 3 seal
                8     4  length    of the payload, at most MAX_PAYLOAD of its type
               12     4  events    in it: a slab's records, 1 for JSON, 0 for the seal
               16     4  number    of this frame, from 0, without a gap
               20     8  first     number of its first event = the sum of all ``events`` before
               28    32  link      leaf hash of the frame before; of frame 0: SHA-256 of ``manifest.json``
               60     4  crc       CRC-32 of the 60 bytes above and the payload

    3. The leaf hash of a frame is RFC 6962's, SHA-256(0x00 || header || payload): one hash serves link and tree.
    4. The link is the proof, the CRC only says *where*: a frame whose CRC is wrong is bad itself; one whose CRC is
       right may still have been replaced, which the link of the next frame shows.
    5. A kernel slab is the witness' ring-buffer records as they were, whole ones. A JSON record is one event.
    6. The last two frames are the JSON record ``trial.sealed`` and the seal, whose payload is exactly
       ``{"events":E,"frames":F,"root":"sha256:…"}`` over the F frames before it. Nothing follows.
    7. From the frame that ``trial.sealed`` names as the end of the evidence up to that record there are JSON records
       only, at most MAX_AFTERMATH: no witnessed event comes after the evidence was closed.

Whoever can write all files can write another log that keeps these laws: that is what signed checkpoints
(``log/checkpoints``, beside the segments) are for. A later version gets a converter from the one before it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

from supervisor.errors import LogError

LOG_VERSION = 1
MAGIC = b"SVFR"
_BODY = struct.Struct("<4sHHIIIQ32s")
_CRC = struct.Struct("<I")
HEADER_BYTES = _BODY.size + _CRC.size
MAX_AFTERMATH = 1024
MAX_FRAMES = 2**32


class FrameType(IntEnum):
    """What a payload is."""

    KERNEL = 1
    JSON = 2
    SEAL = 3


MAX_PAYLOAD: Mapping[int, int] = {FrameType.KERNEL: 1 << 20, FrameType.JSON: 16 << 20, FrameType.SEAL: 1 << 10}
"""The longest payload of each type in bytes: it bounds what a reader must hold."""


class Header(NamedTuple):
    """The fields of a header, magic and version checked and left out. A tuple: a log may have millions."""

    type: int
    length: int
    events: int
    number: int
    first_event: int
    link: bytes
    crc: int


class Frame(NamedTuple):
    """One whole frame as it was read; ``leaf`` is its leaf hash."""

    header: Header
    payload: bytes
    leaf: bytes


def bad_frame(number: int, message: str, *, hint: str | None = None) -> LogError:
    """Make the error that names a bad frame: ``frame 17: expected X, got Y``."""
    return LogError(message, frame=number, place=f"frame {number}", hint=hint)


def sha256_text(digest: bytes) -> str:
    """Write a digest as it stands in every document: ``sha256:`` and hexadecimal."""
    return f"sha256:{digest.hex()}"


def parse_sha256(text: str) -> bytes:
    """Read what `sha256_text` wrote.

    Raises:
        LogError: it is not such a digest.
    """
    name, _, digits = text.partition(":")
    if name != "sha256" or len(digits) != 64 or digits.strip("0123456789abcdef"):  # noqa: PLR2004 - 256 bits
        message = f"digest: expected sha256: and 64 hexadecimal digits, got {text[:100]!r}"
        raise LogError(message)
    return bytes.fromhex(digits)


def pack_header(
    frame_type: FrameType, payload: bytes | memoryview, *, count: int, number: int, first: int, link: bytes
) -> bytes:
    """Write the header of a payload."""
    body = _BODY.pack(MAGIC, LOG_VERSION, frame_type, len(payload), count, number, first, link)
    return body + _CRC.pack(crc32(payload, crc32(body)))


def parse_header(data: bytes, number: int) -> Header:
    """Read the header found where frame ``number`` is expected. Everything that bounds the reading is checked here.

    Raises:
        LogError: it is cut, is no header, or is of another version.
    """
    if len(data) != HEADER_BYTES:
        raise bad_frame(number, f"expected {HEADER_BYTES} bytes of header, got {len(data)}: the log is cut here")
    magic, version, frame_type, *fields = _BODY.unpack_from(data)
    if magic != MAGIC:
        raise bad_frame(number, f"expected a frame beginning with {MAGIC!r}, got {magic!r}")
    if version != LOG_VERSION:
        hint = "a newer supervise may have written it"
        raise bad_frame(number, f"expected log version {LOG_VERSION}, got {version}", hint=hint)
    limit = MAX_PAYLOAD.get(frame_type)
    if limit is None:
        raise bad_frame(number, f"expected a frame of type 1, 2 or 3, got {frame_type}")
    header = Header(frame_type, *fields, *_CRC.unpack_from(data, _BODY.size))
    if header.length > limit:
        raise bad_frame(number, f"expected at most {limit} bytes of payload, got {header.length}")
    return header


def check_crc(data: bytes, payload: bytes, header: Header, number: int) -> None:
    """Check that header and payload are as they were written, accidents assumed.

    Raises:
        LogError: the payload is cut, or a bit of either is another one.
    """
    if len(payload) != header.length:
        message = f"expected {header.length} bytes of payload, got {len(payload)}: the log is cut here"
        raise bad_frame(number, message)
    got = crc32(payload, crc32(memoryview(data)[: _BODY.size]))
    if got != header.crc:
        raise bad_frame(number, f"expected checksum {header.crc:08x}, got {got:08x}: its bytes were changed")


def seal_payload(*, frames: int, events: int, root: bytes) -> bytes:
    """Give the one payload that a seal over these frames can have."""
    return b'{"events":%d,"frames":%d,"root":"%s"}' % (events, frames, sha256_text(root).encode())
