"""The system calls Python does not offer, under their own names: the one module that binds libc.

Everything here raises `OSError` with the errno of the call and the path it was about; nothing is retried.
Constants are those of the kernel's ``uapi`` headers and are the same on every architecture we run on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from enum import IntFlag

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock during a call


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


NO_FLAGS = MountFlag(0)


class CloneFlag(IntFlag):
    """``CLONE_*`` of <linux/sched.h>: the namespaces."""

    NEWNS = 0x00020000
    NEWCGROUP = 0x02000000
    NEWUTS = 0x04000000
    NEWIPC = 0x08000000
    NEWUSER = 0x10000000
    NEWPID = 0x20000000
    NEWNET = 0x40000000


CLONE_FS = 0x00000200  # a root and working directory of its own: no namespace, and every thread is made with it
MNT_DETACH = 2
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
_MAX_HANDLE = 128
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX = struct.Struct("=I76xqI164x")  # stx_mask, stx_btime: tv_sec and tv_nsec
_SYS_OPEN_TREE = 428  # the same on every architecture, as all from 424 on
_SYS_FSOPEN, _SYS_FSCONFIG = 430, 431
_SYS_MOUNT_SETATTR = 442
_FSOPEN_CLOEXEC, _FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_CMD_CREATE = 1, 0, 1, 6
_OPEN_TREE_CLONE = 1
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SYS_CLONE3 = 435  # the same on every architecture
_CLONE_INTO_CGROUP = 0x200000000
_CLONE_ARGS = struct.Struct("11Q")  # flags, pidfd, child_tid, parent_tid, exit_signal, …, cgroup is the last


def _check(result: int, path: bytes | None = None) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path and os.fsdecode(path))


def mount(source: bytes, target: bytes, fstype: bytes, flags: MountFlag, options: bytes = b"") -> None:
    """Mount a filesystem, or change a mount. ``options`` must be shorter than a page."""
    _check(_libc.mount(source, target, fstype or None, ctypes.c_ulong(flags), options or None), target)


def umount2(target: bytes, flags: int = MNT_DETACH) -> None:
    """Unmount, lazily unless told otherwise."""
    _check(_libc.umount2(target, flags), target)


class _MountAttr(ctypes.Structure):
    """``struct mount_attr`` of <linux/mount.h>."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def make_readonly(target: bytes) -> None:
    """mount_setattr(2) MOUNT_ATTR_RDONLY of a mount and all below it, at once: EBUSY while anybody can still write."""
    attributes = _MountAttr(attr_set=_MOUNT_ATTR_RDONLY)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _check(_libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, target, _AT_RECURSIVE, ctypes.byref(attributes), size), target)


def clone_readonly(fd: int) -> int:
    """Give a mount of its own, read-only and attached nowhere, of the file behind a descriptor (open_tree(2)).

    Only for files on a mount of our own mount namespace; EINVAL otherwise.
    """
    flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | os.O_CLOEXEC
    mounted = int(_libc.syscall(_SYS_OPEN_TREE, fd, b"", ctypes.c_uint(flags)))
    _check(mounted)
    attributes = _MountAttr(attr_set=_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    try:
        _check(_libc.syscall(_SYS_MOUNT_SETATTR, mounted, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size))
    except OSError:
        os.close(mounted)
        raise
    return mounted


def born_ns(fd: int) -> int:
    """statx(2) STATX_BTIME: when the file behind a descriptor was made, wall clock; 0 where that is not kept."""
    answer = ctypes.create_string_buffer(_STATX.size)
    _check(_libc.statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, answer))
    mask, seconds, nanoseconds = _STATX.unpack(answer.raw)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else 0


def fsopen(fstype: bytes) -> int:
    """Begin to make a file system that is mounted nowhere; it goes with the descriptor (fsopen(2), since Linux 5.2)."""
    made = int(_libc.syscall(_SYS_FSOPEN, fstype, _FSOPEN_CLOEXEC))
    _check(made)
    return made


def fsconfig_set(fd: int, key: bytes, value: bytes | None = None) -> None:
    """Set a parameter of a file system that is being made, to less than 256 bytes if it has a value (fsconfig(2))."""
    command = _FSCONFIG_SET_FLAG if value is None else _FSCONFIG_SET_STRING
    _check(_libc.syscall(_SYS_FSCONFIG, fd, command, key, value, 0))


def fsconfig_create(fd: int) -> None:
    """Make the file system (fsconfig(2), FSCONFIG_CMD_CREATE)."""
    _check(_libc.syscall(_SYS_FSCONFIG, fd, _FSCONFIG_CMD_CREATE, None, None, 0))


def renameat2(source: int, name: bytes | str, target: int, new_name: bytes | str, flags: int) -> None:
    """Rename between two open directories, ``RENAME_*`` (renameat2(2)); EINVAL where the file system cannot."""
    names = os.fsencode(name), os.fsencode(new_name)
    _check(_libc.renameat2(source, names[0], target, names[1], ctypes.c_uint(flags)), names[1])


def open_by_handle_at(mount: int, handle: tuple[int, bytes]) -> int:
    """Open what a handle of `name_to_handle_at` names, as a path only; ESTALE when it is gone."""
    kind, data = handle
    wanted = _FileHandle(handle_bytes=len(data), handle_type=kind)
    ctypes.memmove(wanted.f_handle, data, min(len(data), _MAX_HANDLE))
    opened = int(_libc.open_by_handle_at(mount, ctypes.byref(wanted), os.O_PATH | os.O_CLOEXEC))
    _check(opened)
    return opened


def unshare(flags: int) -> None:
    """Move the calling thread into new namespaces."""
    _check(_libc.unshare(int(flags)))


def setns(fd: int, flags: int = 0) -> None:
    """Move the calling thread into the namespace of a descriptor."""
    _check(_libc.setns(fd, int(flags)))


def forgo_privileges() -> None:
    """Never gain privileges by exec, and let nobody of the same user look in (prctl(2))."""
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0)):
        _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def die_with_parent() -> None:
    """Be killed when the thread that forked us ends; look afterwards whether it has already (prctl(2))."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0))


def syncfs(fd: int) -> None:
    """Write back the filesystem that a descriptor is on."""
    _check(_libc.syncfs(fd))


def fork_into_cgroup(cgroup: int) -> int:
    """Fork, the child being born in the cgroup of a directory descriptor; give 0 in the child.

    To move a process into a cgroup afterwards costs a grace period of RCU (10 ms and more); to be born there costs
    nothing, and no instant of the child's life is outside (clone3(2), CLONE_INTO_CGROUP, since Linux 5.7).

    Only for a process with a single Python thread: the child runs a few bytecodes before the interpreter knows of the
    fork, and a waiting thread's request for the lock would make it wait for that thread, which it does not have.
    """
    arguments = _CLONE_ARGS.pack(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, cgroup)
    _python.PyOS_BeforeFork()
    pid = int(_python.syscall(ctypes.c_long(_SYS_CLONE3), arguments, ctypes.c_size_t(len(arguments))))
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return 0
    number = ctypes.get_errno()
    _python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


class _FileHandle(ctypes.Structure):
    """``struct file_handle`` of name_to_handle_at(2)."""

    _fields_ = (
        ("handle_bytes", ctypes.c_uint),
        ("handle_type", ctypes.c_int),
        ("f_handle", ctypes.c_ubyte * _MAX_HANDLE),
    )


def name_to_handle_at(directory: int, name: bytes) -> tuple[int, bytes] | None:
    """Give type and bytes of the handle of an entry (name_to_handle_at(2)); None when its file system has none."""
    handle = _FileHandle(handle_bytes=_MAX_HANDLE)
    mount_id = ctypes.c_int()
    if _libc.name_to_handle_at(directory, name, ctypes.byref(handle), ctypes.byref(mount_id), 0):
        return None
    return handle.handle_type, bytes(handle.f_handle[: handle.handle_bytes])
