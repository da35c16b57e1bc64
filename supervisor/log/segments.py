"""The files of a log: ``000000.seg``, ``000001.seg``, …, written frame by frame and read in order.

Writing law: a frame is written whole or not at all. One ``pwritev`` a frame at a known offset; when the disk refuses,
what was written of the frame is cut off again, and everything before it stays. What was written survives the death of
this process at once (page cache), and that of the machine once `SegmentWriter.flush` has returned.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from supervisor.errors import LogError, LogFullError, LogUnreadableError
from supervisor.log.frames import HEADER_BYTES, Frame, FrameType, bad_frame, check_crc, parse_header
from supervisor.log.merkle import leaf_hash

SEGMENT_BYTES = 64 << 20
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says when a disk is full, or a quota used up: the same may work later."""

_MAX_UNSYNCED = 4
_READ_BYTES = 1 << 20


def segment_name(index: int) -> str:
    """Give the file name of a segment, counted from 0."""
    return f"{index:06d}.seg"


class SegmentWriter:
    """Appends to segments. The caller holds a lock; only `flush` may run beside the others.

    Attributes:
        broken: why nothing can be written any more, or None.
    """

    def __init__(self, log_dir: Path, segment_bytes: int) -> None:
        """Begin with no segment: the first one is made by the first frame."""
        self._dir = log_dir
        self._limit = segment_bytes
        self._next = 0
        self._fd = -1
        self._size = 0
        self._full: list[int] = []
        self.broken: str | None = None

    @property
    def path(self) -> Path:
        """The segment that is being written."""
        return self._dir / segment_name(max(self._next - 1, 0))

    def write(self, header: bytes, payload: bytes | memoryview) -> None:
        """Append one frame.

        Raises:
            LogFullError: there is no room; the log ends with the frame before, and the same may be tried again.
            LogError: the disk refused; the log ends with the frame before.
        """
        if self.broken is not None:
            raise LogError(self.broken, place=str(self.path))
        try:
            self._make_room(len(header) + len(payload))
            self._write_all(header, payload)
        except OSError as err:
            place = str(self.path)
            self._cut_back()
            message = f"expected to append a frame of {len(header) + len(payload)} bytes, got: {err.strerror}"
            hint = "nothing logged before is lost; look for space, quota and health of the disk with the run directory"
            kind = LogFullError if err.errno in NO_ROOM else LogError
            raise kind(message, place=place, hint=hint) from err
        self._size += len(header) + len(payload)

    def take_unsynced(self) -> list[int]:
        """Hand over descriptors of what `flush` must still bring to the disk; it closes them."""
        taken, self._full = self._full, []
        return [*taken, os.dup(self._fd)] if self._fd >= 0 else taken

    def flush(self, descriptors: list[int]) -> None:
        """Bring the segments behind these descriptors and their names to the disk. Needs no lock.

        Raises:
            LogError: the disk refused; what is on it is not known any more, so nothing more will be written.
        """
        try:
            for fd in descriptors:
                os.fsync(fd)
            self._sync_names()
        except OSError as err:
            self.broken = f"expected the log on the disk, got: {err.strerror}"
            raise LogError(self.broken, place=str(self._dir)) from err
        finally:
            for fd in descriptors:
                os.close(fd)

    def close(self) -> None:
        """Close the files, without bringing them to the disk."""
        descriptors, self._full, self._fd = [*self._full, self._fd], [], -1
        for fd in descriptors:
            if fd >= 0:
                os.close(fd)
        self.broken = self.broken or "expected an open log, got one that was closed"

    def _make_room(self, frame_bytes: int) -> None:
        if self._fd >= 0 and (not self._size or self._size + frame_bytes <= self._limit):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        fd = os.open(self._dir / segment_name(self._next), flags, 0o600)
        if self._fd >= 0:
            self._full.append(self._fd)
        self._fd, self._size, self._next = fd, 0, self._next + 1
        # Full segments wait for the next sync, so that appending does not wait for the disk; only so many.
        while len(self._full) > _MAX_UNSYNCED:
            self.flush([self._full.pop(0)])

    def _write_all(self, header: bytes, payload: bytes | memoryview) -> None:
        total = len(header) + len(payload)
        written = os.pwritev(self._fd, [header, payload], self._size)
        if written == total:
            return
        rest = memoryview(header + payload)
        while written < total:
            step = os.pwrite(self._fd, rest[written:], self._size + written)
            if not step:
                raise OSError(0, "nothing more is taken")
            written += step

    def _cut_back(self) -> None:
        try:
            if self._fd >= 0 and self._size:
                os.ftruncate(self._fd, self._size)
            elif self._fd >= 0:
                # An empty segment would look like one that lost its frames.
                self.path.unlink()
                os.close(self._fd)
                self._fd, self._next = -1, self._next - 1
        except OSError as err:
            self.broken = f"expected to cut off half a frame, got: {err.strerror}"

    def _sync_names(self) -> None:
        fd = os.open(self._dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def list_segments(log_dir: Path) -> list[str]:
    """Name every file that calls itself a segment, in order.

    Raises:
        LogUnreadableError: there is no such directory, or it cannot be read.
    """
    try:
        return sorted(name for name in os.listdir(log_dir) if name.endswith(".seg"))  # noqa: PTH208 - names
    except OSError as err:
        message = f"expected a log directory, got: {err.strerror}"
        raise LogUnreadableError(message, place=str(log_dir)) from err


def _open_segment(path: Path) -> BinaryIO:
    # Neither a link to another log nor a pipe that never ends may pose as a segment.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as err:
        message = f"expected a segment, got: {err.strerror}"
        raise LogUnreadableError(message, place=str(path)) from err
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        message = "expected a segment, got something that is no regular file"
        raise LogError(message, place=str(path))
    with suppress(OSError):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    return os.fdopen(fd, "rb", buffering=_READ_BYTES)


def read_raw(log_dir: Path) -> Iterator[Frame]:
    """Read whole frames in the order of the files, one at a time; their order among themselves is not checked here.

    An empty last segment is no damage: whoever writes makes a segment first and its first frame a moment later, and may
    die in between. After a seal there is no such moment.

    Raises:
        LogError: a segment is missing or empty, or a frame is cut or damaged. All frames before were given.
    """
    number, sealed = 0, False
    names = list_segments(log_dir)
    for index, name in enumerate(names):
        if name != segment_name(index):
            raise bad_frame(number, f"expected segment {segment_name(index)}, got {name}")
        begin = number
        with _open_segment(log_dir / name) as file:
            while data := file.read(HEADER_BYTES):
                header = parse_header(data, number)
                payload = file.read(header.length)
                check_crc(data, payload, header, number)
                yield Frame(header, payload, leaf_hash(data, payload))
                number += 1
                sealed = header.type == FrameType.SEAL
        if number == begin and (sealed or index + 1 < len(names)):
            raise bad_frame(number, f"expected a frame in segment {name}, got an empty file")
