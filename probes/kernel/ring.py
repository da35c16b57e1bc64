"""One trial's ring, mapped: whole records are taken out as a slab of bytes, without looking inside them.

Layout of the mapping: Documentation/bpf/ringbuf.rst of the kernel. A record has a header of 8 bytes (length with bit 31
busy and bit 30 discarded) and is padded to 8; the data pages are mapped twice, so that a slab never wraps.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

HEADER_BYTES = 8
BUSY = 1 << 31
DISCARDED = 1 << 30
_LENGTH = DISCARDED - 1
_PAGE = mmap.PAGESIZE
#: What is put into one frame at most.
SLAB_MAX_BYTES = 1 << 20

_read_u32 = struct.Struct("<I").unpack_from


def count_records(slab: bytes | memoryview) -> int:
    """Count the records of a slab."""
    offset, count = 0, 0
    while offset < len(slab):
        offset += HEADER_BYTES + ((_read_u32(slab, offset)[0] & _LENGTH) + 7 & ~7)
        count += 1
    return count


class Ring:
    """The consumer's side of a ring. Not thread-safe: one consumer owns it."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        """Map the ring behind ``fd`` (which stays the caller's)."""
        self.size_bytes = size_bytes
        self._consumer = mmap.mmap(fd, _PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._producer = mmap.mmap(fd, _PAGE + 2 * size_bytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=_PAGE)
        self._data = memoryview(self._producer)
        # Positions are read and written as one word (struct's "<Q" goes byte by byte, and the kernel would see a torn
        # position: it then takes the ring for full and a record is lost).
        self._consumed = memoryview(self._consumer).cast("Q")
        self._produced = self._data[:_PAGE].cast("Q")
        self._words = self._data.cast("I")

    def close(self) -> None:
        """Unmap both sides."""
        for view in (self._consumed, self._produced, self._words, self._data):
            view.release()
        self._producer.close()
        self._consumer.close()

    @property
    def produced(self) -> int:
        """Up to where records were made, in bytes since the beginning."""
        return self._produced[0]

    @property
    def consumed(self) -> int:
        """Up to where records were taken."""
        return self._consumed[0]

    def fill(self) -> float:
        """Give the share of the ring that waits to be taken, 0 to 1."""
        return (self._produced[0] - self._consumed[0]) / self.size_bytes

    def drain(self, take: Callable[[memoryview, int], object]) -> int:
        """Hand the whole records of now to ``take`` in slabs with their count; returns how many records there were.

        What is made meanwhile waits for the next call: running after it would mean many slabs of few records.
        Room is given back to the kernel only after ``take`` returned: when it raises, nothing is lost.
        """
        total, goal = 0, self._produced[0]
        while self._consumed[0] < goal and (count := self._drain_slab(take)):
            total += count
        return total

    def _drain_slab(self, take: Callable[[memoryview, int], object]) -> int:
        consumed = self._consumed[0]
        waiting = self._produced[0] - consumed
        start = _PAGE + consumed % self.size_bytes
        end, count = start, 0
        limit = start + min(waiting, SLAB_MAX_BYTES)
        words = self._words  # of 4 bytes: one index is the cheapest read that Python has
        while end < limit:
            header = words[end >> 2]
            if header & BUSY:
                break
            after = end + HEADER_BYTES + ((header & _LENGTH) + 7 & ~7)
            if after > limit and count:
                break
            end = after
            count += 1
        if count:
            slab = self._data[start:end]
            try:
                take(slab, count)
            finally:
                # The traceback of a failed take keeps the slab, which would keep the ring from being unmapped.
                slab.release()
            self._consumed[0] = consumed + end - start
        return count
