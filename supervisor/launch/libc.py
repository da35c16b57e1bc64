"""The system calls Python does not offer, under their own names: the one module that binds libc.

Everything here raises `OSError` with the errno of the call and the path it was about; nothing is retried.
Constants are those of the kernel's ``uapi`` headers and are the same on every architecture we run on.
"""

from __future__ import annotations

import ctypes
import os
from enum import IntFlag

_libc = ctypes.CDLL(None, use_errno=True)


class MountFlag(IntFlag):
    """``MS_*`` of <sys/mount.h>."""

    RDONLY = 1
    NOSUID = 2
    NODEV = 4
    NOEXEC = 8
    REMOUNT = 32
    NOATIME = 1024
    BIND = 4096
    REC = 16384
    PRIVATE = 1 << 18


class CloneFlag(IntFlag):
    """``CLONE_*`` of <linux/sched.h>: the namespaces."""

    NEWNS = 0x00020000
    NEWCGROUP = 0x02000000
    NEWUTS = 0x04000000
    NEWIPC = 0x08000000
    NEWUSER = 0x10000000
    NEWPID = 0x20000000
    NEWNET = 0x40000000


MNT_DETACH = 2
_AT_FDCWD = -100
_PR_SET_NAME = 15


def _check(result: int, path: bytes | None = None) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path and os.fsdecode(path))


def mount(source: bytes, target: bytes, fstype: bytes, flags: MountFlag, options: bytes = b"") -> None:
    """mount(2). ``options`` must be shorter than a page."""
    _check(_libc.mount(source, target, fstype or None, ctypes.c_ulong(flags), options or None), target)


def umount2(target: bytes, flags: int = MNT_DETACH) -> None:
    """umount2(2), lazily unless told otherwise."""
    _check(_libc.umount2(target, flags), target)


def unshare(flags: CloneFlag) -> None:
    """unshare(2) of the calling thread."""
    _check(_libc.unshare(int(flags)))


def setns(fd: int, flags: CloneFlag = CloneFlag(0)) -> None:
    """setns(2) of the calling thread."""
    _check(_libc.setns(fd, int(flags)))


def set_process_name(name: bytes) -> None:
    """prctl(2) PR_SET_NAME; the kernel keeps 15 bytes."""
    _check(_libc.prctl(_PR_SET_NAME, name, 0, 0, 0))
