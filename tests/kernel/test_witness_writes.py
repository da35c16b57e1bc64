"""The first write through a descriptor is told, the rest as totals: none is hidden, and none counted twice."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from witness_builder import Seen, WitnessLab, witnessed, witnessed_c

from supervisor.events import FileChanged, FileEvent, FileTruncated, FileWritten

pytestmark = pytest.mark.kernel("witness")

IN_PLACE = """
os.chdir(sys.argv[1])
new = lambda name: os.open(name, os.O_CREAT | os.O_RDWR, 0o644)
"""


def writes(seen: Seen) -> list[FileWritten]:
    """Give the writes that belong to the test."""
    return seen.of(FileWritten, lambda event: b"cgroup.procs" not in event.path)


def summary(seen: Seen) -> list[tuple[bytes, bool, int, int]]:
    """Give name, whether totals, calls and bytes of each."""
    return [(e.path.rsplit(b"/")[-1], e.totals, e.count, e.size_bytes) for e in writes(seen)]


@pytest.mark.parametrize(
    ("act", "how", "size_bytes"),
    [
        ("os.write(fd, b'abc')", "write", 3),
        ("os.pwrite(fd, b'abc', 5)", "pwrite64", 3),
        ("os.writev(fd, [b'ab', b'c'])", "writev", 3),
        ("call(296, fd, struct.pack('QQ', ctypes.addressof(buf), 3), 1, 0, 0)", "pwritev", 3),
        ("os.pwritev(fd, [b'abc'], 0, os.RWF_DSYNC)", "pwritev2", 3),
        ("os.sendfile(fd, src, 0, 3)", "sendfile", 3),
        ("os.copy_file_range(src, fd, 3)", "copy_file_range", 3),
        ("r, w = os.pipe(); os.write(w, b'abc'); os.splice(r, fd, 3)", "splice", 3),
        ("os.lseek(fd, 0, 2); os.write(fd, b'abc')", "write", 3),
    ],
)
def test_every_call_that_writes_is_told(act: str, how: str, size_bytes: int, tmp_path: Path) -> None:
    """Each call of the write family is told with the file's path, identity and bytes."""
    (tmp_path / "src").write_bytes(b"source")
    code = f"buf = ctypes.create_string_buffer(b'abc'); src = os.open('src', os.O_RDONLY); fd = new('f'); {act}"
    (written,) = writes(witnessed(IN_PLACE + code, tmp_path))
    assert (written.how, written.size_bytes, written.path) == (how, size_bytes, bytes(tmp_path / "f"))
    assert written.inode == (tmp_path / "f").stat().st_ino


def test_failed_clone_is_a_refused_write(tmp_path: Path) -> None:
    """An ioctl FICLONE that fails is told as a write with its errno."""
    code = "src, fd = new('s'), new('f'); print(call(16, fd, 0x40049409, src))"
    seen = witnessed(IN_PLACE + code, tmp_path)
    (written,) = writes(seen)
    assert (written.how, written.path) == ("clone", bytes(tmp_path / "f"))
    assert written.error == (-int(seen.out) or None)


@pytest.mark.parametrize(
    ("request_number", "kind"),
    [(0x40305828, FileTruncated), (0x4030582B, FileTruncated), (0x40305839, FileTruncated), (0x401C5820, FileChanged)],
)
def test_an_ioctl_that_changes_a_file_is_told(request_number: int, kind: type[FileEvent], tmp_path: Path) -> None:
    """RESVSP, UNRESVSP64 and ZERO_RANGE are fallocate() by other names, FSSETXATTR sets flags; failed ones too."""
    (tmp_path / "f").write_bytes(b"x" * 4096)
    code = f"""
room = ctypes.create_string_buffer(struct.pack('hhxxxxqqiI16x', 0, 0, 0, 10, 0, 0))
for flags in (os.O_RDWR, os.O_RDONLY): print(call(16, os.open('f', flags), {request_number}, room))
"""
    seen = witnessed(IN_PLACE + "import struct\n" + code, tmp_path)
    told = seen.of(kind, lambda e: e.path == bytes(tmp_path / "f"))
    assert [event.error for event in told] == [-int(answer) or None for answer in seen.out.split()]


def test_an_ioctl_that_nobody_knows_may_have_written(tmp_path: Path) -> None:
    """Where it worked on a file that was open for writing, and did not only ask; one that asks changes nothing."""
    code = """
fd = new('f')
for number, argument in ((0x40086604, 7), (0x80086601, 0), (0xC020660B, 0), (0x5451, 0), (2, 0), (0x660C, 0)):
    room = ctypes.create_string_buffer(argument.to_bytes(8, 'little') + bytes(64))
    print(number, call(16, fd, number, room))
"""
    seen = witnessed(IN_PLACE + code, tmp_path)
    worked = {int(line.split()[0]) for line in seen.out.splitlines() if line.endswith(" 0")}
    assert {0x80086601, 0x5451, 2} <= worked
    assert len(seen.of(FileChanged)) == (0x40086604 in worked)
    assert [event.how for event in writes(seen)] == ["ioctl"] * (0x660C in worked)


def test_failed_write_is_told(tmp_path: Path) -> None:
    """A write that fails is told with its errno, each time."""
    (tmp_path / "f").touch()
    code = "fd = os.open('f', os.O_RDONLY)\nfor _ in range(3): call(1, fd, b'x', 1)"
    assert [event.error for event in writes(witnessed(IN_PLACE + code, tmp_path))] == [errno.EBADF] * 3


def test_writes_to_pipes_and_sockets_are_not_told() -> None:
    """What keeps no content is no file write."""
    code = "r, w = os.pipe(); os.write(w, b'x'); a, b = socket.socketpair(); a.send(b'x'); os.write(a.fileno(), b'y')"
    assert writes(witnessed(code)) == []


def test_first_write_is_told_and_the_rest_at_close(tmp_path: Path) -> None:
    """A hundred writes are two events: the first one, and totals that count it again."""
    code = "fd = new('f')\nfor _ in range(100): os.write(fd, b'ab')\nos.close(fd)"
    assert summary(witnessed(IN_PLACE + code, tmp_path)) == [(b"f", False, 1, 2), (b"", True, 100, 200)]


def test_one_write_has_no_totals(tmp_path: Path) -> None:
    """Where the first write was the only one, the close has nothing to add."""
    assert summary(witnessed(IN_PLACE + "fd = new('f'); os.write(fd, b'a'); os.close(fd)", tmp_path)) == [
        (b"f", False, 1, 1)
    ]


def test_descriptors_by_turns_are_added_up_each_by_itself(tmp_path: Path) -> None:
    """Three files written by turns are three first writes and three totals, however often one makes room."""
    code = """
fds = [new(name) for name in 'abc']
for turn in range(4):
    for size, fd in enumerate(fds, 1): os.write(fd, bytes(size))
for fd in fds: os.close(fd)
"""
    assert summary(witnessed(IN_PLACE + code, tmp_path)) == [
        (b"a", False, 1, 1),
        (b"b", False, 1, 2),
        (b"c", False, 1, 3),
        (b"", True, 4, 4),
        (b"", True, 4, 8),
        (b"", True, 4, 12),
    ]


def test_what_is_written_once_again_and_again_is_told_each_time(tmp_path: Path) -> None:
    """The same name opened, written once and closed is a first write every time, with nothing to add up."""
    code = "for _ in range(5): fd = new('f'); os.write(fd, b'ab'); os.close(fd)"
    assert summary(witnessed(IN_PLACE + code, tmp_path)) == [(b"f", False, 1, 2)] * 5


def test_a_second_descriptor_of_a_file_that_was_written_once_is_another_one(tmp_path: Path) -> None:
    """The first write through a duplicate is told, also while the original was written once."""
    code = "fd = new('f'); os.write(fd, b'a'); two = os.dup(fd); os.write(two, b'b'); os.write(fd, b'c'); os.close(fd)"
    assert summary(witnessed(IN_PLACE + code, tmp_path)) == [
        (b"f", False, 1, 1),
        (b"f", False, 1, 1),
        (b"", True, 2, 2),
    ]


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(0)",
        "os.dup2(new('other'), fd)",
        "os.dup2(new('other'), fd, inheritable=False)",
        "os.closerange(fd, fd + 10)",
        "call(436, fd, 0xffffffff, 0)",
        "os.kill(os.getpid(), 9)",
        "os.execv('/bin/true', ['true'])",
        "new('x'); threading.Thread(target=os.close, args=(fd,)).start()",
    ],
)
def test_totals_are_told_however_the_descriptor_ends(end: str, tmp_path: Path) -> None:
    """Exit, dup2, dup3, close_range, death, exec: each tells what was written, once, before the process' end."""
    code = f"fd = new('f')\nfor _ in range(5): os.write(fd, b'ab')\n{end}"
    seen = witnessed(IN_PLACE + code, tmp_path)
    assert summary(seen) == [(b"f", False, 1, 2), (b"", True, 5, 10)]
    assert seen.events[-1].kind == "process.exited"


def test_closing_on_exec_only_ends_nothing(tmp_path: Path) -> None:
    """close_range with CLOSE_RANGE_CLOEXEC closes nothing: the count goes on."""
    code = """
fd = new('f')
for _ in range(5): os.write(fd, b'ab')
call(436, 3, 100, 4)
os.write(fd, b'ab')
"""
    assert summary(witnessed(IN_PLACE + code, tmp_path)) == [(b"f", False, 1, 2), (b"", True, 6, 12)]


def test_inherited_descriptor_is_told_by_each_process(tmp_path: Path) -> None:
    """Another process that writes through an inherited descriptor tells a first write of its own."""
    code = """
fd = new('f')
for _ in range(3): os.write(fd, b'a')
fork(lambda: [os.write(fd, b'bb') for _ in range(4)])
"""
    seen = witnessed(IN_PLACE + code, tmp_path)
    assert summary(seen) == [(b"f", False, 1, 1), (b"f", False, 1, 2), (b"", True, 4, 8), (b"", True, 3, 3)]
    assert len({event.process for event in writes(seen)}) == 2


def test_boundary_tells_totals_and_then_first_writes_anew(tmp_path: Path) -> None:
    """At a boundary what was written is told once, and the next write through the same descriptor is a first one."""
    code = """
fd = new('f')
for _ in range(4): os.write(fd, b'a')
print(flush=True); sys.stdin.readline()
for _ in range(3): os.write(fd, b'b')
"""
    with WitnessLab() as lab:
        process = lab.python("sys.stdin = open(sys.argv[2])\n" + IN_PLACE + code, tmp_path, _fifo(tmp_path))
        with (tmp_path / "go").open("w") as go:
            assert process.stdout is not None
            process.stdout.readline()
            lab.witness.next_epoch()
            lab.drain()
            lab.slabs.append(lab.witness.pending_totals())
            assert lab.witness.pending_totals() == (b"", 0)
            go.write("go\n")
        seen = lab.finish(process)
    told = [entry for entry in summary(seen) if entry[0] in {b"f", b""}]
    assert told == [(b"f", False, 1, 1), (b"", True, 4, 4), (b"f", False, 1, 1), (b"", True, 3, 3)]


def _fifo(directory: Path) -> Path:
    os.mkfifo(directory / "go")
    return directory / "go"


def test_counters_survive_a_boundary() -> None:
    """Crossing a boundary writes nothing back over the counters."""
    with WitnessLab(ring_bytes=4096) as lab:
        process = lab.python("for _ in range(200): call(83, b'/nowhere/x', 0)")
        process.communicate(timeout=60)
        lost = lab.counters().lost
        lab.witness.next_epoch()
        assert lab.counters().lost == lost > 0


REUSE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (chdir(argv[argc - 1])) return 1;
    for (int i = 0; i < 200; i++) {
        char name[16];
        sprintf(name, "f%d", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0644);
        for (int j = 0; j < 3; j++) if (write(fd, "x", 1) != 1) return 2;
        unlink(name);
        if (i % 3 == 0) close(fd);
        else if (i % 3 == 1) syscall(SYS_close_range, fd, fd, 0);
        else { int null = open("/dev/null", O_RDONLY); dup2(null, fd); close(null); close(fd); }
    }
    return 0;
}"""


def test_reused_descriptors_and_files_hide_no_first_write(tmp_path: Path) -> None:
    """Whatever kernel structures and inode numbers are used again, the first write to each file is told."""
    seen = witnessed_c(REUSE, tmp_path, tmp_path)
    assert seen.status == 0
    firsts = [event.path for event in writes(seen) if not event.totals]
    assert firsts == [bytes(tmp_path / f"f{i}") for i in range(200)]
    assert [(e.count, e.size_bytes) for e in writes(seen) if e.totals] == [(3, 3)] * 200


def test_threads_count_together(tmp_path: Path) -> None:
    """Threads that write through one descriptor lose no count."""
    code = """
fd = new('f'); os.write(fd, b'a')
def run():
    for _ in range(2000): os.pwrite(fd, b'a', 0)
threads = [threading.Thread(target=run) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
os.close(fd)
"""
    assert summary(witnessed(IN_PLACE + code, tmp_path)) == [(b"f", False, 1, 1), (b"", True, 8001, 8001)]


def test_write_to_a_memory_file_is_unreachable() -> None:
    """A memfd is written like a file, and lies below no root."""
    code = "os.write(os.memfd_create('secret'), b'x')"
    (written,) = writes(witnessed(code))
    assert not written.reachable
    assert b"secret" in written.path


def test_asynchronous_submissions_are_a_loss(tmp_path: Path) -> None:
    """A write that io_submit carries out is not read: it counts as lost where no box refuses it."""
    code = """
ctx = ctypes.c_ulong(0); call(206, 1, ctypes.byref(ctx))
fd = new('f'); buf = ctypes.create_string_buffer(b'abc')
iocb = ctypes.create_string_buffer(struct.pack('QIiHhIQQqQII', 0, 0, 0, 1, 0, fd, ctypes.addressof(buf), 3, 0, 0, 0, 0))
print(call(209, ctx.value, 1, struct.pack('Q', ctypes.addressof(iocb))))
"""
    with WitnessLab() as lab:
        seen = lab.finish(lab.python(IN_PLACE + code, tmp_path))
        losses = lab.counters().losses
    assert int(seen.out) == 1
    assert [(loss.hook, loss.count) for loss in losses] == [("syscall", 1)]
