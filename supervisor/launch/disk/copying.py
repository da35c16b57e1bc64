"""Copies of single entries, with everything that belongs to them: content, holes, owner, mode, attributes, times.

The new entry appears under a name that nothing uses yet, in a directory that only we use; what makes it visible is the
rename that follows.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress

from supervisor.launch.disk.observe import read_xattrs
from supervisor.launch.disk.tree import by_descriptor

_FICLONE = 0x40049409
_CHUNK = 1 << 20
_NO_HOLES = frozenset({errno.EINVAL, errno.ENOTSUP})
_NO_RANGE = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF})


def copy_entry(source: int, name: bytes, target: int, new_name: bytes) -> None:
    """Copy one entry that is no directory.

    Args:
        source: the directory that holds it, as a descriptor.
        name: its name there.
        target: the directory to copy into, as a descriptor.
        new_name: the name in `target`; nothing is there.

    Raises:
        OSError: it cannot be copied; what was made of it is left for the caller to remove.
    """
    found = os.stat(name, dir_fd=source, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode):
        _copy_regular(source, name, target, new_name)
    elif stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), new_name, dir_fd=target)
    else:
        os.mknod(new_name, stat.S_IFMT(found.st_mode) | 0o600, found.st_rdev, dir_fd=target)
    copy_attributes(by_descriptor(source, name), found, by_descriptor(target, new_name))


def copy_attributes(source: bytes, found: os.stat_result, target: bytes, *, times: bool = True) -> None:
    """Give `target` the owner, mode, attributes and times of `source`. Neither path's last component is followed.

    Args:
        source: where the attributes are read.
        found: what stat says about `source`.
        target: what gets them.
        times: also access and modification time.
    """
    os.chown(target, found.st_uid, found.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        # after chown, which clears set-id bits; the target is no symlink, since it was made as what the source is
        os.chmod(target, stat.S_IMODE(found.st_mode))  # noqa: PTH101 - a path through a descriptor
    _copy_xattrs(source, target)
    if times:
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)


def _copy_xattrs(source: bytes, target: bytes) -> None:
    wanted = dict(read_xattrs(source))
    present = dict(read_xattrs(target))
    for name in present.keys() - wanted.keys():
        with suppress(OSError):  # given by the file system itself, such as a security label
            os.removexattr(target, name, follow_symlinks=False)
    for name, value in wanted.items():
        if present.get(name) != value:
            os.setxattr(target, name, value, follow_symlinks=False)


def _copy_regular(source: int, name: bytes, target: int, new_name: bytes) -> None:
    reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
    try:
        writing = os.open(new_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
        try:
            copy_content(reading, writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def copy_content(reading: int, writing: int) -> None:
    """Copy the content of a regular file to an empty one: shared extents where the file system can, else data only."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:
        size = os.fstat(reading).st_size
        os.ftruncate(writing, size)
        _copy_extents(reading, writing, size)


def _copy_extents(reading: int, writing: int, size: int) -> None:
    end = 0
    while end < size:
        try:
            start = os.lseek(reading, end, os.SEEK_DATA)
            end = os.lseek(reading, start, os.SEEK_HOLE)
        except OSError as err:
            if err.errno == errno.ENXIO:  # only a hole is left
                return
            if err.errno not in _NO_HOLES:
                raise
            start, end = end, size
        _copy_range(reading, writing, start, end - start)


def _copy_range(reading: int, writing: int, start: int, length: int) -> None:
    at, left = start, length
    while left > 0:
        try:
            done = os.copy_file_range(reading, writing, left, at, at)
        except OSError as err:
            if err.errno not in _NO_RANGE:
                raise
            done = os.pwrite(writing, os.pread(reading, min(left, _CHUNK), at), at)
        if not done:
            return  # the source became shorter
        at, left = at + done, left - done
