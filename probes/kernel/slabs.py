"""Taking values out of a slab of kernel records before it is written. Pure: bytes in, bytes of the same length out.

Only the text of a record is looked at (paths, arguments): its numbers may be equal to anything by chance.
"""

from __future__ import annotations

import struct
from typing import Protocol

from probes.kernel.abi import RECORD
from probes.kernel.ring import HEADER_BYTES

_LENGTH = (1 << 30) - 1
_read_u32 = struct.Struct("<I").unpack_from
WHERE = "kernel"


class Redacts(Protocol):
    """What knows the values: `policies.redaction.Redactor`."""

    def may_hold(self, data: bytes) -> bool:
        """Tell cheaply whether there may be something to take out."""

    def redact(self, data: bytes, *, where: str) -> bytes:
        """Give the data without them, in the same length."""


def redact_slab(slab: bytes, redactor: Redacts) -> bytes:
    """Take the values out of the text of every record.

    Args:
        slab: whole records, back to back, as the ring held them.
        redactor: knows the values.
    """
    if not redactor.may_hold(slab):
        return slab
    parts, offset = [], 0
    while offset < len(slab):
        length = _read_u32(slab, offset)[0] & _LENGTH
        text = offset + HEADER_BYTES + RECORD.size
        end = offset + HEADER_BYTES + length
        following = offset + HEADER_BYTES + (length + 7 & ~7)
        parts += [slab[offset:text], redactor.redact(slab[text:end], where=WHERE), slab[end:following]]
        offset = following
    return b"".join(parts)
