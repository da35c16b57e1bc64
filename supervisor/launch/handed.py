"""What a caller handed over as a standard stream: which file, fifo, pipe or socket it is, and what can be done with it.

In: descriptors of ours; out: values. The rules it keeps: nothing is read from a stream, and no position moves.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
from contextlib import suppress

import msgspec

from supervisor.events import Kind
from supervisor.launch import libc
from supervisor.launch.disk.observe import KINDS
from supervisor.launch.disk.sights import look

MOST_DIGESTED_BYTES = 1 << 18
"""A file is digested up to this size: CMD waits for it. Of a larger one it is not known that it was put back."""

_TOLD = frozenset({Kind.FILE, Kind.FIFO, Kind.SOCKET})


class Handed(msgspec.Struct, frozen=True, kw_only=True):
    """One stream; the fields are those of `supervisor.events.StreamGiven`."""

    what: Kind
    path: bytes
    named: bool
    device: int
    inode: int
    born_ns: int
    names: int
    reads: bool
    writes: bool
    ended: bool
    position: int | None
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    state: str | None


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is now; the fields are those of `supervisor.events.StreamLeft`."""

    position: int | None
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


def look_at(fd: int) -> Handed | None:
    """Tell what is behind a descriptor; None for what nobody else can meet there, as a terminal or ``/dev/null``.

    Raises:
        OSError: it is closed.
    """
    found = os.fstat(fd)
    what = KINDS.get(stat.S_IFMT(found.st_mode), Kind.UNKNOWN)
    if what not in _TOLD:
        return None
    path = os.fsencode(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115 - bytes
    access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    named = _is_at(path, found)
    regular = what is Kind.FILE
    return Handed(
        what=what,
        path=path,
        named=named,
        device=os.major(found.st_dev) << 20 | os.minor(found.st_dev),
        inode=found.st_ino,
        born_ns=libc.born_ns(fd),
        names=found.st_nlink,
        reads=access in {os.O_RDONLY, os.O_RDWR},
        writes=access in {os.O_WRONLY, os.O_RDWR},
        ended=not regular and _is_at_its_end(fd),
        position=_position(fd),
        size_bytes=found.st_size if regular else 0,
        mtime_ns=found.st_mtime_ns if regular else 0,
        ctime_ns=found.st_ctime_ns if regular else 0,
        state=_state(path, found) if regular and named else None,
    )


def look_again(fd: int, *, shared: int) -> Left:
    """Tell how a regular file is now.

    Args:
        fd: of the file.
        shared: the descriptor that CMD was given of it, whose position moved as CMD read.
    """
    found = os.fstat(fd)
    return Left(
        position=_position(shared),
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
    )


def stat_device(device: int) -> int:
    """Give the number that stat(2) has of a device that an event names."""
    return os.makedev(device >> 20, device & 0xFFFFF)


def _is_at(path: bytes, found: os.stat_result) -> bool:
    with suppress(OSError, ValueError):
        there = os.stat(path)  # noqa: PTH116 - a path of bytes
        return path.startswith(b"/") and os.path.samestat(there, found)
    return False


def _is_at_its_end(fd: int) -> bool:
    """Tell whether nothing is there to be read and nothing can come: nobody has it open for writing."""
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    return any(event & select.POLLHUP and not event & select.POLLIN for _, event in waiting.poll(0))


def _position(fd: int) -> int | None:
    try:
        return os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:  # a pipe has none
        return None


def _state(path: bytes, found: os.stat_result) -> str | None:
    if found.st_size > MOST_DIGESTED_BYTES:
        return None
    sight = next(iter(look([path], digests=True)), None)
    same = sight is not None and (sight.inode, sight.size_bytes, sight.ctime_ns) == (
        found.st_ino,
        found.st_size,
        found.st_ctime_ns,
    )
    return sight.state if sight is not None and same else None
