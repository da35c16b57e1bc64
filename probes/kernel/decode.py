"""Kernel slabs to events. Pure: bytes in, events out.

It keeps the rule that nothing is dropped: a record of an unknown kind raises, since our own programs wrote it.
A path of the kernel is turned round; a path of a caller is joined to where it starts from and normalised by its letters
only (a symlink in it is not followed: device and inode, or the final state, say what was meant).
"""

from __future__ import annotations

import ipaddress
import posixpath
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from typing import Any

from probes.kernel import syscalls
from probes.kernel.abi import RECORD, RECORD_PID_AT, Lock, RecordFlag, RecordKind
from probes.kernel.ring import HEADER_BYTES
from supervisor import events as ev
from supervisor.errors import LogError
from supervisor.events import Event, Kind, ProcessKey

_KERNEL = int(RecordFlag.KERNEL)
_TRUNCATED = int(RecordFlag.TRUNCATED)
_PRIVATE = int(RecordFlag.PRIVATE)
_UNREACHABLE = int(RecordFlag.UNREACHABLE)
_UNLINKED = int(RecordFlag.UNLINKED)
_SHARED = int(RecordFlag.SHARED)
_NOFOLLOW = int(RecordFlag.NOFOLLOW)

_LENGTH = (1 << 30) - 1
_LOW = (1 << 32) - 1
_FMODE_READ, _FMODE_WRITE, _FMODE_CREATED = 1, 2, 1 << 20
_O_TRUNC, _O_CREAT, _O_ACCMODE, _O_TMPFILE = 0o1000, 0o100, 0o3, 0o20000000
_AT_SYMLINK_FOLLOW = 0x400
_AT_REMOVEDIR = 0x200
_RENAME_EXCHANGE, _RENAME_WHITEOUT = 2, 4
_CACHE_MAX = 65536
_read_u32 = struct.Struct("<I").unpack_from

_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFBLK: Kind.DEVICE,
    stat.S_IFCHR: Kind.DEVICE,
}
_TRANSPORTS = {
    (socket.SOCK_STREAM, 0): "tcp",
    (socket.SOCK_STREAM, socket.IPPROTO_TCP): "tcp",
    (socket.SOCK_DGRAM, 0): "udp",
    (socket.SOCK_DGRAM, socket.IPPROTO_UDP): "udp",
    (socket.SOCK_DGRAM, socket.IPPROTO_ICMP): "icmp",
    (socket.SOCK_STREAM, 132): "sctp",
    (socket.SOCK_STREAM, 262): "mptcp",
}
_ATTRIBUTES = {
    "chmod": "mode", "fchmod": "mode", "fchmodat": "mode", "fchmodat2": "mode", "chown": "owner", "lchown": "owner",
    "fchown": "owner", "fchownat": "owner", "utime": "times", "utimes": "times", "futimesat": "times",
    "utimensat": "times", "ioctl": "flags", "file_setattr": "flags",
}  # fmt: skip
_DELETING = frozenset({"unlink", "rmdir", "unlinkat"})
_RENAMING = frozenset({"rename", "renameat", "renameat2"})
_LINKING = frozenset({"link", "linkat"})
_SYMLINKING = frozenset({"symlink", "symlinkat"})
_ITSELF = frozenset({"lchown", "lsetxattr", "lremovexattr"})
_OPENING = frozenset({"open", "openat", "openat2", "creat"})
_LISTING = frozenset({"getdents", "getdents64"})
_ASKING = frozenset(
    {"fstat", "newfstatat", "statx", "fstatfs", "fgetxattr", "flistxattr", "lseek", "flock", "fcntl", "getxattrat",
     "listxattrat", "file_getattr", "faccessat2", "readlinkat", "name_to_handle_at", "fanotify_mark", "statfs"}
)  # fmt: skip
_FCNTL = {1026: "dnotify", 5: "getlk", 36: "getlk"}
_FL_FLOCK, _FL_OFDLCK = 2, 1024
_LOCKS = {0: "shared", 1: "exclusive", 2: "unlocked"}
_CLONING = frozenset({0x40049409, 0x4020940D})
_RANGES = frozenset(0x40305800 | number for number in (40, 41, 42, 43, 57))
"""FS_IOC_RESVSP, UNRESVSP and their 64-bit forms, ZERO_RANGE: fallocate() by its older name."""
_FLAGGING = frozenset({0x40086602, 0x401C5820, 0x40087602, 0x40086604, 0x40806685, 0x40047211})
"""FS_IOC_SETFLAGS, FSSETXATTR, SETVERSION (of ext4 too) and ENABLE_VERITY, FAT_IOCTL_SET_ATTRIBUTES."""


class Raw:
    """One record, taken apart; ``text`` holds all its text parts."""

    __slots__ = (
        "device", "error", "flags", "inode", "kind", "len0", "len1", "machine", "n", "number0", "number1", "pid",
        "start_ns", "text", "time_ns",
    )  # fmt: skip

    def __init__(self, payload: bytes, offset: int, length: int, n: int, machine: str) -> None:
        """Unpack the record of ``length`` bytes at ``offset``."""
        (
            self.time_ns, self.start_ns, self.pid, self.kind, self.flags, error, self.device, self.len0, self.len1,
            self.inode, self.number0, self.number1,
        ) = RECORD.unpack_from(payload, offset)  # fmt: skip
        self.error = error or None
        self.text = payload[offset + RECORD.size : offset + length]
        self.n = n
        self.machine = machine

    @property
    def process(self) -> ProcessKey:
        """The actor."""
        return ProcessKey(self.pid, self.start_ns)

    @property
    def call(self) -> str:
        """The name of the call, where number[1] carries it."""
        return syscalls.name_of(self.number1, self.machine)


_paths: dict[bytes, bytes] = {}


def _climbed(components: bytes) -> bytes:
    r"""Turn ``leaf\0parent\0`` into ``/parent/leaf``."""
    path = _paths.get(components)
    if path is None:
        if len(_paths) >= _CACHE_MAX:
            _paths.clear()
        names = components.split(b"\0")
        names.reverse()
        path = _paths[components] = b"/".join(names) if len(names) > 1 else b"/"
    return path


def _whole(base: bytes, given: bytes) -> bytes:
    """Give a caller's name as it was given, from the root on, where it goes up (``..``); else nothing."""
    if b".." not in given:
        return b""
    whole = given if given.startswith(b"/") else _climbed(base) + b"/" + given
    return whole if b"/.." in whole else b""


def _joined(base: bytes, given: bytes) -> bytes:
    """Join a caller's path to the directory it starts from."""
    whole = given if given.startswith(b"/") else _climbed(base) + b"/" + given
    if b"//" in whole or b"/." in whole or whole.endswith(b"/"):
        whole = posixpath.normpath(whole)
        return whole[1:] if whole.startswith(b"//") else whole
    return whole


def _callers_path(raw: Raw) -> bytes:
    end = raw.len0 + raw.len1
    return _joined(raw.text[: raw.len0], raw.text[raw.len0 : end])


def _callers_second(raw: Raw) -> dict[str, Any]:
    rest = raw.text[raw.len0 + raw.len1 :]
    cut = rest.rfind(b"\0") + 1
    return {"new_path": _joined(rest[:cut], rest[cut:]), "new_given": _whole(rest[:cut], rest[cut:])}


def _started(raw: Raw) -> Event:
    parent_pid, inside = raw.number1 >> 32, raw.number1 & _LOW
    return ev.ProcessStarted(
        n=raw.n, time_ns=raw.time_ns, process=raw.process,
        parent=ProcessKey(parent_pid, raw.number0) if parent_pid else None,
        pid_inside=inside, uid=raw.device,
    )  # fmt: skip


def _executed(raw: Raw) -> Event:
    end = raw.len0 + raw.len1
    argv = raw.text[end:].split(b"\0")
    if argv[-1] == b"":
        argv.pop()
    return ev.ProcessExecuted(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, exe=_climbed(raw.text[: raw.len0]),
        cwd=_climbed(raw.text[raw.len0 : end]), argv=tuple(argv), argv_truncated=len(raw.text) - end < raw.number0,
        device=raw.device, inode=raw.inode, path_truncated=bool(raw.flags & _TRUNCATED),
    )  # fmt: skip


def _exited(raw: Raw) -> Event:
    status = raw.number0
    signal = status & 0x7F
    return ev.ProcessExited(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, exit_code=None if signal else status >> 8 & 0xFF,
        signal=signal or None,
    )  # fmt: skip


def _exec_failed(raw: Raw) -> Event:
    return ev.ProcessExecFailed(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, path=_callers_path(raw), error=raw.error or 0,
        verified=bool(raw.flags & _PRIVATE),
    )  # fmt: skip


def _reached(raw: Raw) -> Event:
    return ev.ProcessReached(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, target_inside=raw.number0 & _LOW, how=raw.call,
        error=raw.error,
    )  # fmt: skip


def _signal(raw: Raw) -> Event:
    target = ProcessKey(raw.number1 >> 32, raw.number0)
    return ev.SignalSent(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, target=target, signal=raw.number1 & _LOW,
        inside=bool(raw.device), error=raw.error,
    )  # fmt: skip


def _left(raw: Raw) -> Event:
    return ev.MembershipLeft(n=raw.n, time_ns=raw.time_ns, process=raw.process, cgroup=raw.number0)


def _refused(raw: Raw) -> Event:
    return ev.SyscallRefused(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, name=raw.call, arguments=(raw.number0, raw.inode),
        error=raw.error or 0,
    )  # fmt: skip


def _opened(raw: Raw) -> Event:
    flags, mode, f_mode = raw.number0 >> 32, raw.number1 & _LOW, raw.number1 >> 32
    return ev.FileOpened(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, path=_climbed(raw.text), device=raw.device, inode=raw.inode,
        reads=bool(f_mode & _FMODE_READ), writes=bool(f_mode & _FMODE_WRITE),
        created=bool(f_mode & _FMODE_CREATED) or flags & _O_TMPFILE == _O_TMPFILE, truncates=bool(flags & _O_TRUNC),
        flags=flags, what=_KINDS.get(mode, Kind.UNKNOWN), path_truncated=bool(raw.flags & _TRUNCATED),
        reachable=not raw.flags & _UNREACHABLE, unlinked=bool(raw.flags & _UNLINKED),
    )  # fmt: skip


def _written(raw: Raw) -> Event:
    return ev.FileWritten(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, path=_climbed(raw.text), device=raw.device, inode=raw.inode,
        count=1, size_bytes=raw.number0, last_ns=raw.time_ns, how=raw.call, error=raw.error,
        path_truncated=bool(raw.flags & _TRUNCATED), reachable=not raw.flags & _UNREACHABLE,
        unlinked=bool(raw.flags & _UNLINKED),
    )  # fmt: skip


def _totals(raw: Raw) -> Event:
    return ev.FileWritten(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, path=b"", device=raw.device, inode=raw.inode,
        count=raw.number1, size_bytes=raw.number0, last_ns=raw.time_ns, totals=True,
    )  # fmt: skip


def _mapped(raw: Raw) -> Event:
    return ev.FileMapped(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, path=_climbed(raw.text), device=raw.device, inode=raw.inode,
        size_bytes=raw.number0, path_truncated=bool(raw.flags & _TRUNCATED), reachable=not raw.flags & _UNREACHABLE,
        unlinked=bool(raw.flags & _UNLINKED),
    )  # fmt: skip


def _kept(raw: Raw) -> Event:
    end = raw.len0 + raw.len1
    return ev.FileKept(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, path=_climbed(raw.text[: raw.len0]), device=raw.device,
        inode=raw.inode, content=raw.text[raw.len0 : end], offset=raw.number0, size_bytes=raw.number1 & _LOW,
        how=syscalls.name_of(raw.number1 >> 32, raw.machine), verified=bool(raw.flags & _PRIVATE),
        path_truncated=bool(raw.flags & _TRUNCATED), reachable=not raw.flags & _UNREACHABLE,
    )  # fmt: skip


def _through_descriptor(raw: Raw) -> Event:
    call, extra = raw.call, raw.number0
    common: dict[str, Any] = {
        "n": raw.n, "time_ns": raw.time_ns, "process": raw.process, "path": _climbed(raw.text), "device": raw.device,
        "inode": raw.inode, "error": raw.error, "path_truncated": bool(raw.flags & _TRUNCATED),
        "verified": not raw.flags & _SHARED, "reachable": not raw.flags & _UNREACHABLE,
        "unlinked": bool(raw.flags & _UNLINKED),
    }  # fmt: skip
    if call == "ioctl" and extra & _LOW in _RANGES:
        return ev.FileTruncated(size_bytes=0, how=call, **common)
    if call == "ioctl" and extra & _LOW not in _FLAGGING:  # one that is not known may have changed content
        how = "clone" if extra & _LOW in _CLONING else call
        return ev.FileWritten(count=1, size_bytes=0, last_ns=raw.time_ns, how=how, **common)
    if call in ("ftruncate", "fallocate"):
        return ev.FileTruncated(size_bytes=extra if call == "ftruncate" else 0, how=call, **common)
    if call == "bind":
        return ev.FileCreated(what=Kind.SOCKET, **common)
    return ev.FileChanged(attribute=_ATTRIBUTES.get(call, "xattr"), value=extra, **common)


def _by_name(raw: Raw) -> Event:  # noqa: PLR0911 - one row a family of calls
    """A call that was given names: what it is depends on which one it was."""
    call, extra = raw.call, raw.number0
    common: dict[str, Any] = {
        "n": raw.n, "time_ns": raw.time_ns, "process": raw.process, "error": raw.error,
        "path_truncated": bool(raw.flags & _TRUNCATED), "verified": bool(raw.flags & _PRIVATE),
        "unlinked": bool(raw.flags & _UNLINKED),
    }  # fmt: skip
    if call in _SYMLINKING:
        text = raw.text[raw.len0 : raw.len0 + raw.len1]
        return ev.FileLinked(path=text, **_callers_second(raw), symbolic=True, **common)
    path = _callers_path(raw)
    common["given"] = _whole(raw.text[: raw.len0], raw.text[raw.len0 : raw.len0 + raw.len1])
    if call in _OPENING:
        return ev.FileOpened(
            path=path, reads=extra & _O_ACCMODE != 1, writes=bool(extra & (_O_ACCMODE | _O_CREAT | _O_TRUNC)),
            truncates=bool(extra & _O_TRUNC), flags=extra, what=Kind.UNKNOWN, **common,
        )  # fmt: skip
    if call in _DELETING:
        gone = Kind.DIRECTORY if call == "rmdir" or (call == "unlinkat" and extra & _AT_REMOVEDIR) else Kind.UNKNOWN
        return ev.FileDeleted(path=path, what=gone, **common)
    if call in _RENAMING:
        flags = extra if call == "renameat2" else 0
        exchange, whiteout = bool(flags & _RENAME_EXCHANGE), bool(flags & _RENAME_WHITEOUT)
        return ev.FileRenamed(path=path, **_callers_second(raw), exchange=exchange, whiteout=whiteout, **common)
    if call in _LINKING:
        follows = call == "linkat" and bool(extra & _AT_SYMLINK_FOLLOW)
        return ev.FileLinked(
            path=path, device=raw.device, inode=raw.inode, **_callers_second(raw), follows=follows, **common,
        )  # fmt: skip
    if call in ("mkdir", "mkdirat"):
        return ev.FileCreated(path=path, what=Kind.DIRECTORY, **common)
    if call in ("mknod", "mknodat"):
        return ev.FileCreated(
            path=path, what=_KINDS.get(stat.S_IFMT(extra & 0xFFFF) or stat.S_IFREG, Kind.UNKNOWN), **common
        )
    if call == "truncate":
        return ev.FileTruncated(path=path, size_bytes=extra, **common)
    follows = call not in _ITSELF and not raw.flags & _NOFOLLOW
    return ev.FileChanged(
        path=path, attribute=_ATTRIBUTES.get(call, "xattr"), value=extra, follows=follows, **common
    )  # fmt: skip


def _read(raw: Raw) -> Event:
    """A look through a descriptor."""
    call = raw.call
    common = {
        "n": raw.n, "time_ns": raw.time_ns, "process": raw.process, "path": _climbed(raw.text), "device": raw.device,
        "inode": raw.inode, "error": raw.error, "path_truncated": bool(raw.flags & _TRUNCATED),
        "reachable": not raw.flags & _UNREACHABLE, "how": call,
    }  # fmt: skip
    if call in _LISTING:
        return ev.FileListed(**common)
    if call in _ASKING:
        if call == "fcntl":
            common["how"] = _FCNTL.get(raw.number0, call)
        return ev.FileLookedUp(**common)
    return ev.FileRead(size_bytes=raw.number0, **common)


def _locked(raw: Raw) -> Event:
    flags, answer = raw.number0 >> 32, raw.number1 & _LOW
    return ev.FileLocked(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, path=_climbed(raw.text), device=raw.device, inode=raw.inode,
        error=raw.error, path_truncated=bool(raw.flags & _TRUNCATED), reachable=not raw.flags & _UNREACHABLE,
        how="flock" if flags & _FL_FLOCK else "description" if flags & _FL_OFDLCK else "process",
        lock=_LOCKS.get(raw.number0 & _LOW, "unlocked"), waits=bool(answer & Lock.WAITS), holder=raw.number1 >> 32,
        inside=bool(answer & Lock.INSIDE), each=bool(answer & Lock.EACH),
    )  # fmt: skip


def _looked_up(raw: Raw) -> Event:
    return ev.FileLookedUp(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, path=_callers_path(raw), device=raw.device, inode=raw.inode,
        error=raw.error, path_truncated=bool(raw.flags & _TRUNCATED), verified=bool(raw.flags & _PRIVATE), how=raw.call,
    )  # fmt: skip


def _socket(raw: Raw) -> Event:
    return ev.SocketCreated(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, family=raw.number0 >> 32, socket_type=raw.number0 & 0xF,
        protocol=raw.number1, error=raw.error,
    )  # fmt: skip


def _transport(raw: Raw) -> str:
    kind, protocol = raw.number1 >> 32, raw.number1 & _LOW
    return _TRANSPORTS.get((kind, protocol)) or f"type {kind} protocol {protocol}"


def _ip(packed: bytes) -> str:
    try:
        address = ipaddress.IPv6Address(packed)
    except ipaddress.AddressValueError as err:
        raise LogError(f"a kernel record's address: expected 16 bytes, got {len(packed)}") from err
    return str(address.ipv4_mapped or address)


def _unix_name(raw: Raw) -> bytes:
    """A path, or ``@name`` for an abstract address as netstat writes it."""
    name = raw.text[: raw.len0]
    return b"@" + name[1:] if name.startswith(b"\0") else name.split(b"\0", 1)[0]


def _address(raw: Raw) -> dict[str, object]:
    return {
        "n": raw.n, "time_ns": raw.time_ns, "process": raw.process, "transport": _transport(raw),
        "ip": _ip(raw.text[:16]), "port": raw.number0 & _LOW,
    }  # fmt: skip


def _connecting(raw: Raw) -> Event:
    if raw.number0 >> 32 != socket.AF_UNIX:
        return ev.ConnectionAttempted(**_address(raw))  # type: ignore[arg-type]
    return ev.ConnectionAttempted(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, transport="unix", path=_unix_name(raw),
        outside=bool(raw.device), error=raw.error, device=raw.number1 & _LOW, inode=raw.inode,
    )  # fmt: skip


def _bound(raw: Raw) -> Event:
    if raw.number0 >> 32 != socket.AF_UNIX:
        return ev.SocketBound(**_address(raw))  # type: ignore[arg-type]
    return ev.SocketBound(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, transport="unix", ip=None, port=None, path=_unix_name(raw),
        error=raw.error,
    )  # fmt: skip


def _passed(raw: Raw) -> Event:
    return ev.DescriptorPassed(
        n=raw.n, time_ns=raw.time_ns, process=raw.process, received=bool(raw.number0), outside=bool(raw.device)
    )


_DECODERS: dict[int, Callable[[Raw], Event]] = {
    RecordKind.PROC_STARTED: _started,
    RecordKind.PROC_EXECUTED: _executed,
    RecordKind.PROC_EXITED: _exited,
    RecordKind.PROC_EXEC_FAILED: _exec_failed,
    RecordKind.PROC_REACHED: _reached,
    RecordKind.SIGNAL_SENT: _signal,
    RecordKind.MEMBERSHIP_LEFT: _left,
    RecordKind.SYSCALL_REFUSED: _refused,
    RecordKind.FILE_OPENED: _opened,
    RecordKind.FILE_WRITTEN: _written,
    RecordKind.FILE_TOTALS: _totals,
    RecordKind.FILE_PATH: _by_name,
    RecordKind.FILE_FD: _through_descriptor,
    RecordKind.FILE_MAPPED: _mapped,
    RecordKind.FILE_KEPT: _kept,
    RecordKind.FILE_READ: _read,
    RecordKind.FILE_LOOKED: _looked_up,
    RecordKind.FILE_LOCKED: _locked,
    RecordKind.SOCK_CREATED: _socket,
    RecordKind.SOCK_BOUND: _bound,
    RecordKind.CONN_ATTEMPTED: _connecting,
    RecordKind.CONN_BLOCKED: lambda raw: ev.ConnectionBlocked(**_address(raw)),  # type: ignore[arg-type]
    RecordKind.DGRAM_BLOCKED: lambda raw: ev.DatagramBlocked(**_address(raw)),  # type: ignore[arg-type]
    RecordKind.DESC_PASSED: _passed,
}


def decode_slab(
    payload: bytes, first_n: int, machine: str = "x86_64", *, only_pid: int | None = None
) -> Iterator[Event]:
    """Yield the events of one slab.

    Args:
        payload: whole records, back to back, as the ring held them.
        first_n: the number of the first event.
        machine: whose system call numbers the records carry (``uname -m``).
        only_pid: leave out the events of every other process.

    Raises:
        LogError: a record does not fit its slab, or has a kind that this version does not know.
    """
    offset, n, size = 0, first_n, len(payload)
    while offset < size:
        begin = offset + HEADER_BYTES
        length = _read_u32(payload, offset)[0] & _LENGTH if begin <= size else 0
        offset = begin + (length + 7 & ~7)
        if length < RECORD.size or offset > size:
            raise LogError(f"a kernel record of event {n} is cut: expected {length} bytes, got {size - begin}")
        if only_pid is not None and _read_u32(payload, begin + RECORD_PID_AT)[0] != only_pid:
            n += 1
            continue
        raw = Raw(payload, begin, length, n, machine)
        decoder = _DECODERS.get(raw.kind)
        if decoder is None:
            raise LogError(f"a kernel record of event {n} has kind {raw.kind}, which this version does not know")
        yield decoder(raw)
        n += 1
