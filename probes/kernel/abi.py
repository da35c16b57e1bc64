"""The Python mirror of ``witness.h``. A test compares both through the built object's BTF.

Laws: see the header. Sizes are bytes, times CLOCK_BOOTTIME nanoseconds.
"""

from __future__ import annotations

import ctypes
import struct
from enum import IntEnum, IntFlag

ABI = 2
PATH_MAX = 4096
ARGV_MAX = 16384
HOOKS = ("syscall", "fork", "exec", "exit", "signal", "cgroup", "socket", "unused")

#: time_ns, start_ns, pid, kind, flags, error, device, len0, len1, inode, number0, number1
RECORD = struct.Struct("<QQIBBhIHHQQQ")
RECORD_PID_AT = 16
#: struct w_writer: file, object, cgroup, start_ns, inode, count, size_bytes, last_ns, device, epoch, kept, -
WRITER = struct.Struct("<8QII8x")
#: struct w_writer_key: pid, fd
WRITER_KEY = struct.Struct("<II")
#: struct w_member: cgroup, start_ns, leader_ended, files_end, shared, adding, once_fd, once
MEMBER = struct.Struct("<QQIIIIQ80s")
#: struct w_orders: epoch, network, keep, -, began_ns, realtime_offset_ns
ORDERS = struct.Struct("<III4xQq")
#: struct w_port: trial, ip, port, protocol, pad
PORT = struct.Struct("<Q16sHHI")
#: struct w_owner: start_ns, cookie, pid, pad
OWNER = struct.Struct("<QQII")
#: struct w_dial: trial, start_ns, pid, told, begun_ns, said_ns, left_ns
DIAL = struct.Struct("<QQIIQQQ")
#: struct w_looks: flags, pad, filter
LOOKS = struct.Struct("<II16Q")
#: struct w_watched: cgroup, id, sort, pad
WATCHED = struct.Struct("<QQII")
#: W_READ_WINDOW_NS: for so long a read through the same open file is not told again
READ_WINDOW_NS = 10_000_000
#: struct w_settings: parent_id, parent_level, abi
SETTINGS = struct.Struct("<QII")


class RecordKind(IntEnum):
    """``enum w_kind``."""

    PROC_STARTED = 1
    PROC_EXECUTED = 2
    PROC_EXITED = 3
    PROC_EXEC_FAILED = 4
    PROC_REACHED = 5
    SIGNAL_SENT = 6
    MEMBERSHIP_LEFT = 7
    SYSCALL_REFUSED = 8
    FILE_OPENED = 16
    FILE_WRITTEN = 17
    FILE_TOTALS = 18
    FILE_PATH = 19
    FILE_FD = 20
    FILE_MAPPED = 21
    FILE_KEPT = 22
    FILE_READ = 24
    FILE_LOOKED = 25
    FILE_LOCKED = 26
    SOCK_CREATED = 32
    SOCK_BOUND = 33
    CONN_ATTEMPTED = 34
    CONN_BLOCKED = 35
    DGRAM_BLOCKED = 36
    DESC_PASSED = 37


class RecordFlag(IntFlag):
    """``enum w_flag``."""

    KERNEL = 1
    TRUNCATED = 2
    PRIVATE = 4
    UNREACHABLE = 8
    UNLINKED = 16
    SHARED = 32
    NOFOLLOW = 64


class Look(IntFlag):
    """``enum w_look``: what a trial is watched for beside what it changes."""

    MOUNTS = 1
    SHARED = 2
    EVERY = 4
    DEVICES = 8
    NAMES = 16
    HIDDEN = 32


class Watch(IntEnum):
    """``enum w_watch``: what the id of a watched thing is."""

    MOUNT = 1
    DEVICE = 2
    NAME = 3


class Lock(IntFlag):
    """``enum w_lock``: what came of asking for a lock."""

    WAITS = 1
    INSIDE = 2
    EACH = 4


class Network(IntEnum):
    """``enum w_network``: what the socket hooks do with addresses outside."""

    REFUSE = 0
    PASS = 1


class Record(ctypes.Structure):
    """``struct w_record``, for the comparison with BTF; decoding uses `RECORD`, which is faster."""

    _fields_ = (
        ("time_ns", ctypes.c_uint64),
        ("start_ns", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("kind", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("error", ctypes.c_int16),
        ("device", ctypes.c_uint32),
        ("len", ctypes.c_uint16 * 2),
        ("inode", ctypes.c_uint64),
        ("number", ctypes.c_uint64 * 2),
    )


class Trial(ctypes.Structure):
    """``struct w_trial``: the counters of one trial."""

    _fields_ = (
        ("lost", ctypes.c_uint64 * 8),
        ("first_lost_ns", ctypes.c_uint64),
        ("last_lost_ns", ctypes.c_uint64),
        ("egress_packets", ctypes.c_uint64),
        ("egress_bytes", ctypes.c_uint64),
        ("throttled_ns", ctypes.c_uint64),
        ("unreadable", ctypes.c_uint64),
        ("last_error", ctypes.c_uint32),
        ("mapped", ctypes.c_uint32),
        ("gateway_starts", ctypes.c_uint64),
        ("gateway_packets", ctypes.c_uint64),
        ("gateway_bytes", ctypes.c_uint64),
    )
