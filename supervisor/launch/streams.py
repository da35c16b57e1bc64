"""CMD's standard streams: what the caller handed over, so that it gives the trial that and nothing else of the host.

A descriptor is more than its stream: ``/proc/self/fd/0`` opens the file behind it anew, through the host's mount and
with whatever rights its owner has. So a file that was handed over for reading is handed on through a mount of its own
that is read-only: nothing written to it, neither content nor mode, reaches the host.

Laws:
    * A file opened for reading cannot be changed through any descriptor that the trial can make of it.
    * What would be a way into the host, a directory or a device, is refused before anything runs.
    * The caller finds the position in its file where CMD left it, as if CMD had read it itself.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import Self

from supervisor.errors import LaunchError
from supervisor.launch import libc
from supervisor.values import dataclass, field

Standard = tuple[int | None, int | None, int | None]

_PIPE_IT = "pipe it instead: cat FILE | supervise …"
_MEMORY_MAJOR = 1
_HARMLESS_MINORS = frozenset({3, 5, 7, 8, 9})
"""null, zero, full, random, urandom (admin-guide/devices.txt); their neighbours are the machine's memory and log."""


@dataclass(slots=True)
class Streams:
    """The three streams of one trial.

    Attributes:
        stdio: descriptors to hand on; None is closed.
    """

    stdio: Standard
    _files: list[_Shown] = field(default_factory=list)

    @classmethod
    def take(cls, stdio: Standard, ttys: frozenset[int] = frozenset()) -> Self:
        """Look at what was handed over and make it safe.

        Args:
            stdio: our descriptors for CMD's 0, 1 and 2.
            ttys: which of them the box replaces by a terminal of its own.

        Raises:
            LaunchError: one of them would be a way out of the box.
        """
        streams = cls((None, None, None))
        try:
            first, second, third = (
                fd if fd is None or number in ttys else streams._safe(number, fd) for number, fd in enumerate(stdio)
            )
        except BaseException:
            streams.close()
            raise
        streams.stdio = (first, second, third)
        return streams

    def _safe(self, number: int, fd: int) -> int:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):  # openat(0, "..") starts from it
            raise _refused(number, "is a directory", "redirect it from a file")
        if _is_device(found):
            raise _refused(number, "is a device", _PIPE_IT)
        if not stat.S_ISREG(found.st_mode) or _status_flags(fd) & os.O_ACCMODE != os.O_RDONLY:
            return fd
        try:
            self._files.append(_Shown.of(fd))
        except OSError as err:
            raise _refused(number, f"is a file that cannot be shown read-only: {err.strerror}", _PIPE_IT) from err
        return self._files[-1].shown

    def close(self) -> None:
        """Leave the caller's files at the positions that CMD reached. Safe to call twice."""
        while self._files:
            self._files.pop().close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A file of the caller, and the same file as the trial gets it."""

    given: int
    shown: int
    start: int

    @classmethod
    def of(cls, fd: int) -> Self:
        mount = libc.clone_readonly(fd)
        try:
            shown = os.open(f"/proc/self/fd/{mount}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(mount)
        start = os.lseek(fd, 0, os.SEEK_CUR)
        os.lseek(shown, start, os.SEEK_SET)
        return cls(given=fd, shown=shown, start=start)

    def close(self) -> None:
        reached = os.lseek(self.shown, 0, os.SEEK_CUR)
        if reached != self.start:  # else somebody who shares the caller's position may have moved it meanwhile
            os.lseek(self.given, reached, os.SEEK_SET)
        os.close(self.shown)


def _status_flags(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETFL)


def _is_device(found: os.stat_result) -> bool:
    if stat.S_ISBLK(found.st_mode):
        return True
    harmless = os.major(found.st_rdev) == _MEMORY_MAJOR and os.minor(found.st_rdev) in _HARMLESS_MINORS
    return stat.S_ISCHR(found.st_mode) and not harmless


def _refused(number: int, why: str, hint: str) -> LaunchError:
    return LaunchError(f"standard stream {number} {why}", step="check standard streams", hint=hint)
