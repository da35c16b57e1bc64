"""Records as the programs write them, and the events that they become."""

from __future__ import annotations

import errno
import os
import stat
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.kernel.abi import RECORD, RecordFlag, RecordKind
from probes.kernel.decode import decode_slab
from probes.kernel.ring import BUSY, count_records
from supervisor import events as ev
from supervisor.errors import LogError
from supervisor.events import Event, Kind, ProcessKey

ACTOR = ProcessKey(412, 7_000)
CALLS = {
    "open": 2, "creat": 85, "openat": 257, "openat2": 437, "unlink": 87, "rmdir": 84, "unlinkat": 263, "rename": 82,
    "renameat2": 316, "link": 86, "symlink": 88, "mkdir": 83, "mknod": 133, "truncate": 76, "ftruncate": 77,
    "fallocate": 285, "chmod": 90, "fchmod": 91, "fchown": 93, "setxattr": 188, "utimensat": 280, "ioctl": 16,
    "write": 1, "ptrace": 101, "mount": 165,
}  # fmt: skip


def record(
    kind: int,
    *,
    text: bytes = b"",
    lengths: tuple[int, int] = (0, 0),
    numbers: tuple[int, int] = (0, 0),
    flags: int = 0,
    error: int = 0,
    device: int = 0,
    inode: int = 0,
) -> bytes:
    """Build one record as it stands in a slab."""
    body = RECORD.pack(9_000, ACTOR.start_ns, ACTOR.pid, kind, flags, error, device, *lengths, inode, *numbers) + text
    return struct.pack("<II", len(body), 3) + body + bytes(-len(body) % 8)


def decoded(kind: int, **fields: object) -> Event:
    """Build one record and decode it."""
    (event,) = decode_slab(record(kind, **fields), 5)  # type: ignore[arg-type]
    assert (event.n, event.time_ns, event.origin) == (5, 9_000, ev.Origin.KERNEL)
    return event


def by_name(call: str, base: bytes, given_path: bytes, *, second: bytes = b"", **fields: object) -> Event:
    """Decode a record about a caller's path."""
    extra = fields.pop("extra", 0)
    return decoded(
        RecordKind.FILE_PATH,
        text=base + given_path + second,
        lengths=(len(base), len(given_path)),
        numbers=(extra, CALLS[call]),
        **fields,
    )


def wanted(event: Event, **fields: object) -> None:
    """Compare some fields."""
    assert {name: getattr(event, name) for name in fields} == fields


def test_events_of_others_are_left_out_and_counted_all_the_same() -> None:
    """Whoever looks for one process' acts need not pay for those of the rest, and gets them with their own numbers."""
    mine = record(RecordKind.PROC_EXITED)
    other = mine.replace(struct.pack("<I", ACTOR.pid), struct.pack("<I", ACTOR.pid + 1))
    found = decode_slab(other + mine + other + mine, 5, only_pid=ACTOR.pid)
    assert [(event.n, event.process) for event in found] == [(6, ACTOR), (8, ACTOR)]


def test_birth_names_child_and_creator() -> None:
    """A birth is the child's, with its creator and its pid inside."""
    event = decoded(RecordKind.PROC_STARTED, numbers=(6_000, 400 << 32 | 12), device=1000)
    assert isinstance(event, ev.ProcessStarted)
    wanted(event, process=ACTOR, parent=ProcessKey(400, 6_000), pid_inside=12, uid=1000)


def test_joining_has_no_parent() -> None:
    """A birth without a parent's pid is a process that joined."""
    wanted(decoded(RecordKind.PROC_STARTED, numbers=(0, 12)), parent=None, pid_inside=12)


@pytest.mark.parametrize(
    ("argv", "size", "truncated"),
    [
        ((b"a", b"", b"\xff"), None, False),
        ((b"",), None, False),
        ((), 0, False),
        ((b"a", b"bc"), 99, True),
    ],
)
def test_program_has_its_arguments(argv: tuple[bytes, ...], size: int | None, *, truncated: bool) -> None:
    """The arguments are parted at its NULs, and is truncated when the kernel had more."""
    words = b"".join(word + b"\0" for word in argv)
    exe, cwd = b"true\0bin\0", b"work\0"
    event = decoded(
        RecordKind.PROC_EXECUTED,
        text=exe + cwd + words,
        lengths=(len(exe), len(cwd)),
        numbers=(len(words) if size is None else size, 0),
        flags=RecordFlag.KERNEL,
    )
    wanted(event, exe=b"/bin/true", cwd=b"/work", argv=argv, argv_truncated=truncated, path_truncated=False)


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [(0, 0, None), (7 << 8, 7, None), (255 << 8, 255, None), (9, None, 9), (11 | 0x80, None, 11)],
)
def test_end_is_a_code_or_a_signal(status: int, code: int | None, signal: int | None) -> None:
    """A wait status is an exit code, or the signal without its core bit."""
    wanted(decoded(RecordKind.PROC_EXITED, numbers=(status, 0)), exit_code=code, signal=signal)


def test_signal_names_its_target() -> None:
    """A signal has a target, a number, and whether it is inside."""
    event = decoded(RecordKind.SIGNAL_SENT, numbers=(6_500, 413 << 32 | 15), device=1)
    wanted(event, target=ProcessKey(413, 6_500), signal=15, inside=True, error=None)


def test_calls_carry_their_name() -> None:
    """Reaches and refused calls are named by their number."""
    wanted(decoded(RecordKind.PROC_REACHED, numbers=(12, CALLS["ptrace"])), how="ptrace", target_inside=12)
    refused = decoded(RecordKind.SYSCALL_REFUSED, numbers=(1, CALLS["mount"]), inode=2, error=errno.EPERM)
    wanted(refused, name="mount", arguments=(1, 2), error=errno.EPERM)
    wanted(decoded(RecordKind.SYSCALL_REFUSED, numbers=(0, 499), error=1), name="syscall_499")


def test_kernel_path_is_turned_round() -> None:
    """Components stand leaf first; none is the root."""
    opened = {"numbers": (0, stat.S_IFREG), "flags": RecordFlag.KERNEL}
    text = b"leaf\0a b\0\xff\0"
    wanted(decoded(RecordKind.FILE_OPENED, text=text, lengths=(len(text), 0), **opened), path=b"/\xff/a b/leaf")
    wanted(decoded(RecordKind.FILE_OPENED, **opened), path=b"/")


@pytest.mark.parametrize(
    ("flags", "f_mode", "fields"),
    [
        (os.O_RDONLY, 1, {"reads": True, "writes": False, "created": False, "truncates": False}),
        (
            os.O_RDWR | os.O_CREAT | os.O_TRUNC,
            3 | 1 << 20,
            {"reads": True, "writes": True, "created": True, "truncates": True},
        ),
        (os.O_WRONLY | os.O_CREAT, 2, {"reads": False, "writes": True, "created": False}),
        (os.O_TMPFILE | os.O_WRONLY, 2, {"created": True}),
        (os.O_PATH, 1 << 14, {"reads": False, "writes": False}),
    ],
)
def test_open_says_what_it_did(flags: int, f_mode: int, fields: dict[str, object]) -> None:
    """Reading, writing and creation are the kernel's own mode; truncation is the flag."""
    event = decoded(RecordKind.FILE_OPENED, numbers=(flags << 32, f_mode << 32 | stat.S_IFREG), inode=77, device=3)
    wanted(event, verified=True, inode=77, device=3, what=Kind.FILE, error=None, **fields)


@pytest.mark.parametrize(
    ("flag", "fields"),
    [
        (RecordFlag.TRUNCATED, {"path_truncated": True, "reachable": True}),
        (RecordFlag.UNREACHABLE, {"path_truncated": False, "reachable": False}),
        (RecordFlag.UNLINKED, {"path_truncated": False, "reachable": True}),
    ],
)
@pytest.mark.parametrize(
    "kind", [RecordKind.FILE_OPENED, RecordKind.FILE_WRITTEN, RecordKind.FILE_MAPPED, RecordKind.FILE_FD]
)
def test_flags_of_a_path_are_fields(kind: int, flag: RecordFlag, fields: dict[str, object]) -> None:
    """Truncation and unreachability are told with every event that has the kernel's path."""
    wanted(decoded(kind, flags=RecordFlag.KERNEL | flag, numbers=(0, CALLS["fchmod"])), **fields)


def test_totals_count_again() -> None:
    """Totals have no path: the file's identity and the process name what they complete."""
    event = decoded(RecordKind.FILE_TOTALS, numbers=(4096, 8), inode=7, device=2)
    wanted(event, totals=True, count=8, size_bytes=4096, path=b"", inode=7, device=2, last_ns=9_000)


@pytest.mark.parametrize(
    ("base", "given_path", "path"),
    [
        (b"w\0", b"f", b"/w/f"),
        (b"w\0", b"../x/./y//z/", b"/x/y/z"),
        (b"", b"/a/../b", b"/b"),
        (b"", b"//a", b"/a"),
        (b"", b"f", b"/f"),
        (b"w\0", b"", b"/w"),
        (b"w\0", b".hidden", b"/w/.hidden"),
        (b"w\0", b"..", b"/"),
        (b"", b"../../x", b"/x"),
    ],
)
def test_callers_path_is_joined_and_normalised(base: bytes, given_path: bytes, path: bytes) -> None:
    """A caller's path is absolute in the event, whatever it started from."""
    wanted(by_name("unlink", base, given_path), path=path)


@pytest.mark.parametrize(("flags", "verified"), [(0, False), (RecordFlag.PRIVATE, True)])
def test_callers_path_is_verified_only_when_private(flags: int, *, verified: bool) -> None:
    """Without the flag a caller's string proves nothing."""
    wanted(by_name("unlink", b"", b"/f", flags=flags), verified=verified)
    failed = decoded(RecordKind.PROC_EXEC_FAILED, text=b"/f", lengths=(0, 2), flags=flags, error=errno.ENOENT)
    wanted(failed, verified=verified, error=errno.ENOENT, path=b"/f")


@pytest.mark.parametrize(
    ("call", "extra", "kind", "fields"),
    [
        ("unlink", 0, ev.FileDeleted, {"what": Kind.UNKNOWN}),
        ("rmdir", 0, ev.FileDeleted, {"what": Kind.DIRECTORY}),
        ("unlinkat", 0x200, ev.FileDeleted, {"what": Kind.DIRECTORY}),
        ("unlinkat", 0, ev.FileDeleted, {"what": Kind.UNKNOWN}),
        ("mkdir", 0o755, ev.FileCreated, {"what": Kind.DIRECTORY}),
        ("mknod", stat.S_IFIFO | 0o600, ev.FileCreated, {"what": Kind.FIFO}),
        ("mknod", 0o600, ev.FileCreated, {"what": Kind.FILE}),
        ("truncate", 12, ev.FileTruncated, {"size_bytes": 12, "how": "truncate"}),
        ("chmod", 0o600, ev.FileChanged, {"attribute": "mode", "value": 0o600}),
        ("setxattr", 0, ev.FileChanged, {"attribute": "xattr"}),
        ("utimensat", 0, ev.FileChanged, {"attribute": "times"}),
        ("openat", os.O_RDONLY, ev.FileOpened, {"reads": True, "writes": False}),
        ("open", os.O_WRONLY, ev.FileOpened, {"reads": False, "writes": True}),
        ("creat", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, ev.FileOpened, {"writes": True, "truncates": True}),
        ("openat2", os.O_RDWR, ev.FileOpened, {"reads": True, "writes": True}),
    ],
)
def test_calls_by_name_become_their_events(call: str, extra: int, kind: type[Event], fields: dict[str, object]) -> None:
    """Each call that takes a path becomes the event of what it does, with its error."""
    event = by_name(call, b"", b"/f", extra=extra, error=errno.EACCES)
    assert type(event) is kind
    wanted(event, path=b"/f", error=errno.EACCES, **fields)


@pytest.mark.parametrize(("extra", "exchange"), [(0, False), (2, True)])
def test_rename_has_two_paths(extra: int, *, exchange: bool) -> None:
    """The second path has a start of its own, before its text."""
    event = by_name("renameat2", b"a\0", b"f", second=b"b\0c\0g", extra=extra)
    wanted(event, path=b"/a/f", new_path=b"/c/b/g", exchange=exchange)


def test_second_path_may_be_absolute() -> None:
    """Without components before it the second path is absolute."""
    wanted(by_name("link", b"a\0", b"f", second=b"/g"), path=b"/a/f", new_path=b"/g", symbolic=False)


def test_symlink_text_is_as_given() -> None:
    """The text of a symlink is no path of ours: it is not touched."""
    wanted(by_name("symlink", b"w\0", b"../a//b", second=b"w\0l"), path=b"../a//b", new_path=b"/w/l", symbolic=True)


@pytest.mark.parametrize(
    ("call", "extra", "kind", "fields"),
    [
        ("ftruncate", 9, ev.FileTruncated, {"size_bytes": 9, "how": "ftruncate"}),
        ("fallocate", 3, ev.FileTruncated, {"size_bytes": 0, "how": "fallocate"}),
        ("fchmod", 0o600, ev.FileChanged, {"attribute": "mode", "value": 0o600}),
        ("fchown", 1, ev.FileChanged, {"attribute": "owner"}),
        ("ioctl", 0x40049409, ev.FileWritten, {"how": "clone"}),
        ("ioctl", 0x40086602, ev.FileChanged, {"attribute": "flags"}),
    ],
)
def test_calls_by_descriptor_become_their_events(
    call: str, extra: int, kind: type[Event], fields: dict[str, object]
) -> None:
    """Each call that takes a descriptor becomes the event of what it does."""
    event = decoded(RecordKind.FILE_FD, text=b"f\0", lengths=(2, 0), numbers=(extra, CALLS[call]), flags=1)
    assert type(event) is kind
    wanted(event, path=b"/f", verified=True, **fields)


V4 = bytes(10) + b"\xff\xff" + bytes([192, 0, 2, 1])
V6 = bytes.fromhex("20010db8000000000000000000000001")


@pytest.mark.parametrize(
    ("kind", "event_type"),
    [
        (RecordKind.CONN_ATTEMPTED, ev.ConnectionAttempted),
        (RecordKind.CONN_BLOCKED, ev.ConnectionBlocked),
        (RecordKind.DGRAM_BLOCKED, ev.DatagramBlocked),
        (RecordKind.SOCK_BOUND, ev.SocketBound),
    ],
)
@pytest.mark.parametrize(("packed", "ip"), [(V4, "192.0.2.1"), (V6, "2001:db8::1")])
def test_addresses_have_one_form(kind: int, event_type: type[Event], packed: bytes, ip: str) -> None:
    """IPv4 is told as such, also when it came mapped into IPv6."""
    event = decoded(kind, text=packed, lengths=(16, 0), numbers=(2 << 32 | 443, 1 << 32 | 6))
    assert type(event) is event_type
    wanted(event, transport="tcp", ip=ip, port=443)


@pytest.mark.parametrize(
    ("pair", "transport"), [((2, 17), "udp"), ((2, 0), "udp"), ((2, 1), "icmp"), ((3, 255), "type 3 protocol 255")]
)
def test_transport_is_named(pair: tuple[int, int], transport: str) -> None:
    """A socket's type and protocol are one word, or both numbers."""
    numbers = (2 << 32 | 9, pair[0] << 32 | pair[1])
    wanted(decoded(RecordKind.CONN_BLOCKED, text=V4, lengths=(16, 0), numbers=numbers), transport=transport)


@pytest.mark.parametrize(
    ("name", "path"), [(b"/run/s\0junk", b"/run/s"), (b"\0abstract\0x", b"@abstract\0x"), (b"", b"")]
)
@pytest.mark.parametrize("kind", [RecordKind.CONN_ATTEMPTED, RecordKind.SOCK_BOUND])
def test_unix_names_are_bytes(kind: int, name: bytes, path: bytes) -> None:
    """A unix address is a path up to its NUL, or an abstract name with all of its bytes."""
    event = decoded(kind, text=name, lengths=(len(name), 0), numbers=(1 << 32, 1 << 32), error=errno.ECONNREFUSED)
    wanted(event, transport="unix", path=path, error=errno.ECONNREFUSED)


def test_peers_outside_are_marked() -> None:
    """A contact with outside is marked for connections and for descriptors."""
    connected = decoded(RecordKind.CONN_ATTEMPTED, text=b"/s", lengths=(2, 0), numbers=(1 << 32, 1 << 32), device=1)
    wanted(connected, outside=True)
    wanted(decoded(RecordKind.DESC_PASSED, numbers=(1, 0), device=1), received=True, outside=True)


def test_socket_has_a_plain_type() -> None:
    """The flags that socket() takes with its type are no part of it."""
    flags = 0o2000000 | 0o4000
    event = decoded(RecordKind.SOCK_CREATED, numbers=(10 << 32 | 2 | flags, 17), error=errno.EPERM)
    wanted(event, family=10, socket_type=2, protocol=17, error=errno.EPERM)


def test_numbers_are_those_of_the_machine() -> None:
    """On arm64 the same number is another call."""
    slab = record(RecordKind.FILE_PATH, text=b"/d", lengths=(0, 2), numbers=(0, 34))
    (event,) = decode_slab(slab, 0, "aarch64")
    assert isinstance(event, ev.FileCreated)


def test_events_are_numbered_from_the_first() -> None:
    """The records of a slab are numbered one after the other."""
    slab = record(RecordKind.PROC_EXITED) * 3
    assert [event.n for event in decode_slab(slab, 40)] == [40, 41, 42]
    assert count_records(slab) == 3


@pytest.mark.parametrize("cut", [1, 8, 20, 56, 60, 63])
def test_cut_slab_is_an_error_that_names_the_event(cut: int) -> None:
    """A slab that ends in the middle of a record is damaged, and the event is named."""
    slab = record(RecordKind.PROC_EXITED) * 2
    with pytest.raises(LogError, match="event 1"):
        list(decode_slab(slab[:-cut], 0))


def test_unknown_kind_is_an_error() -> None:
    """A kind that our own programs never write is not passed over."""
    with pytest.raises(LogError, match="kind 99"):
        list(decode_slab(record(99), 0))


def test_impossible_length_is_an_error() -> None:
    """A record that is shorter than its fixed part is damaged."""
    slab = struct.pack("<II", 8, 0) + bytes(8)
    with pytest.raises(LogError, match="event 3"):
        list(decode_slab(slab, 3))
    assert BUSY


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 400), st.integers(0, 70))
def test_decoding_raises_nothing_but_log_errors(text: bytes, first: int, second: int, kind: int) -> None:
    """Whatever bytes stand in a record, it becomes an event that can be encoded, or a LogError."""
    slab = record(kind, text=text, lengths=(first, second), numbers=(first << 32 | second, second))
    try:
        (event,) = decode_slab(slab, 0)
    except LogError:
        return
    assert msgspec.json.encode(event.n) == b"0"
