"""Which path a call is told with: long, deep, mounted over, out of reach, or changed by somebody while it is read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from witness_builder import WitnessLab, witnessed, witnessed_c

from supervisor.events import (
    FileCreated,
    FileDeleted,
    FileOpened,
    FileRenamed,
    FileWritten,
)

pytestmark = pytest.mark.kernel("witness")

IN_PLACE = "os.chdir(sys.argv[1])\n"


def test_relative_paths_start_where_the_kernel_started(tmp_path: Path) -> None:
    """A path relative to a descriptor, with `..` in it, is told as the absolute path it meant."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "f").touch()
    code = "fd = os.open('a/b', os.O_RDONLY); os.chdir('/'); os.unlink('../.././f', dir_fd=fd)"
    assert witnessed(IN_PLACE + code, tmp_path).one(FileDeleted).path == bytes(tmp_path / "f")


def test_absolute_paths_need_no_descriptor(tmp_path: Path) -> None:
    """An absolute path is whole even when the descriptor beside it is none."""
    (tmp_path / "f").touch()
    deleted = witnessed("print(call(263, -1, os.fsencode(sys.argv[1]), 0))", tmp_path / "f").one(FileDeleted)
    assert deleted.path == bytes(tmp_path / "f")
    assert not deleted.path_truncated
    assert deleted.error is None


@pytest.mark.parametrize(
    "start", ["/proc/self/cwd/", "/proc/self/cwd//", "/proc/self/fd/%d/", "/dev/fd/%d//", "/proc/self/root%s/"]
)
def test_names_that_begin_where_the_caller_is_are_told_from_there(start: str, tmp_path: Path) -> None:
    """The kernel's own path of a directory or descriptor stands in the place of a name that only points at it."""
    here = tmp_path / "here"
    here.mkdir()
    code = f"""
d = os.open('.', os.O_RDONLY)
start = {start!r}
start = start % (d if '%d' in start else os.getcwd()) if '%' in start else start
os.mkdir(start + 'made'); os.rename(start + 'made', start + 'moved'); os.rmdir(start + '../here/moved')
try: os.mkdir(start + 'no/where')
except OSError: pass
"""
    seen = witnessed(IN_PLACE + code, here)
    assert [event.path for event in seen.of(FileCreated)] == [bytes(here / "made"), bytes(here / "no" / "where")]
    assert [event.new_path for event in seen.of(FileRenamed)] == [bytes(here / "moved")]
    deleted = seen.one(FileDeleted)
    assert deleted.path == bytes(here / "moved")
    assert deleted.verified


@pytest.mark.parametrize("start", ["/proc/self/fd/77/", "/proc/self/cwdx/", "/proc/self/fd/", "/proc/self/fd/x/"])
def test_names_that_only_look_like_it_are_told_as_they_are(start: str, tmp_path: Path) -> None:
    """A descriptor that is not open leads nowhere."""
    code = f"""
try: os.mkdir({start!r} + 'made')
except OSError: pass
"""
    created = witnessed(IN_PLACE + code, tmp_path).one(FileCreated)
    assert created.path == (start + "made").encode()
    assert created.error


def test_long_names_are_whole(tmp_path: Path) -> None:
    """A name of 255 bytes that are no UTF-8 is told whole, opened or deleted."""
    name = b"\xff" * 255
    seen = witnessed(IN_PLACE + r"n = b'\xff' * 255; open(n, 'w').close(); os.unlink(n)", tmp_path)
    assert [type(event) for event in seen.at(Path(os.fsdecode(bytes(tmp_path) + b"/" + name)))] == [
        FileOpened,
        FileDeleted,
    ]


def test_names_of_every_length_are_whole(tmp_path: Path) -> None:
    """Names are read by words of eight letters, above 32 letters otherwise: none is cut or runs into the next."""
    code = """
os.chdir(sys.argv[1])
for size in (1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 255):
    name = bytes(0x41 + i % 50 for i in range(size))
    os.mkdir(name); os.chdir(name); os.close(os.open(b'\\xff' * size, os.O_CREAT | os.O_WRONLY)); os.chdir('..')
"""
    seen = witnessed(code, tmp_path)
    found = {event.path.removeprefix(bytes(tmp_path) + b"/") for event in seen.of(FileOpened) if event.created}
    sizes = (1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 255)
    assert found == {bytes(0x41 + i % 50 for i in range(size)) + b"/" + b"\xff" * size for size in sizes}


def test_a_name_that_changes_meanwhile_is_never_a_mixture(tmp_path: Path) -> None:
    """A file that is renamed to and fro while it is written has one of its two names in every event."""
    code = """
os.chdir(sys.argv[1])
names = ['a' * 29, 'b' * 13]
os.close(os.open(names[0], os.O_CREAT | os.O_WRONLY))
child = os.fork()
while child == 0:
    os.rename(*names); names.reverse()
written = 0
while written < 1000:
    try: fd = os.open(names[0], os.O_WRONLY)
    except FileNotFoundError: continue
    os.write(fd, b'x'); os.close(fd)
    written += 1
os.kill(child, 9); os.waitpid(child, 0)
"""
    seen = witnessed(code, tmp_path)
    names = {event.path.rsplit(b"/")[-1] for event in seen.of(FileWritten) if b"cgroup.procs" not in event.path}
    assert names
    assert names <= {b"a" * 29, b"b" * 13}


def test_paths_beyond_the_limit_are_marked(tmp_path: Path) -> None:
    """Deeper than 4096 bytes a path is told with its end and marked as truncated, opened or deleted."""
    code = """
for _ in range(20):
    os.mkdir('d' * 250); os.chdir('d' * 250)
open('leaf', 'w').close(); os.unlink('leaf')
for _ in range(20):
    os.chdir('..'); os.rmdir('d' * 250)
"""
    seen = witnessed(IN_PLACE + code, tmp_path)
    leaves = seen.of((FileOpened), lambda e: e.path.endswith(b"/leaf"))
    deleted = seen.of(FileDeleted, lambda e: e.path.endswith(b"/leaf"))
    assert len(leaves) == len(deleted) == 1
    assert leaves[0].path_truncated
    assert deleted[0].path_truncated
    assert leaves[0].path.count(b"d" * 250) >= 16


def test_deep_paths_within_the_limit_are_whole(tmp_path: Path) -> None:
    """Hundreds of directories are climbed whole."""
    code = """
for _ in range(700):
    os.mkdir('d'); os.chdir('d')
open('leaf', 'w').close(); os.unlink('leaf')
for _ in range(700):
    os.chdir('..'); os.rmdir('d')
"""
    seen = witnessed(IN_PLACE + code, tmp_path)
    assert [e.path_truncated for e in seen.at(Path(f"{tmp_path}{'/d' * 700}/leaf"))] == [False, False]


@pytest.fixture
def mounts(tmp_path: Path) -> tuple[str, ...]:
    """A command that gives its program a private mount namespace."""
    for name in ("bound", "source"):
        (tmp_path / name).mkdir()
    return ("unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec")


def test_paths_cross_mounts_as_the_trial_sees_them(mounts: tuple[str, ...], tmp_path: Path) -> None:
    """Through a bind mount, and a file system that is mounted in it, the path is the one that was used."""
    script = """
mount --bind "$0/source" "$0/bound"; mkdir "$0/bound/in"; mount -t tmpfs none "$0/bound/in"
echo x > "$0/bound/in/f"; echo y > "$0/bound/g"; rm "$0/bound/in/f"
"""
    with WitnessLab() as lab:
        seen = lab.finish(lab.start(*mounts, script, tmp_path))
    assert not seen.err
    assert [e.path for e in seen.of(FileOpened, lambda e: e.created)] == [
        bytes(tmp_path / "bound" / "in" / "f"),
        bytes(tmp_path / "bound" / "g"),
    ]
    assert seen.one(FileDeleted).path == bytes(tmp_path / "bound" / "in" / "f")


def test_files_from_outside_the_root_are_unreachable(tmp_path: Path) -> None:
    """A file that was inherited from another mount namespace and is below no mount of this one is marked."""
    (tmp_path / "root").mkdir()
    program = """
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <sched.h>
    #include <stdio.h>
    #include <sys/mount.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        char path[4096];
        snprintf(path, sizeof path, "%s/f", argv[argc - 1]);
        int fd = open(path, O_CREAT | O_WRONLY, 0644);
        if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) return 1;
        if (mount("none", argv[argc - 1], "tmpfs", 0, 0) || chdir(argv[argc - 1])) return 2;
        if (syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH)) return 3;
        return write(fd, "x", 1) != 1;
    }"""
    seen = witnessed_c(program, tmp_path, tmp_path / "root")
    assert seen.status == 0
    written = seen.one(FileWritten, lambda e: b"cgroup.procs" not in e.path)
    assert not written.reachable
    assert seen.one(FileOpened, lambda e: e.created).reachable


def test_path_of_a_chrooted_process_is_its_own(tmp_path: Path) -> None:
    """Below a root directory of its own a process is told as it sees its files."""
    seen = witnessed("os.chroot(sys.argv[1]); os.chdir('/'); open('/f', 'w').close(); os.unlink('/f')", tmp_path)
    assert [type(event) for event in seen.at(b"/f")] == [FileOpened, FileDeleted]


SWAPPING = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static char path[64] = "real";
static void *swap(void *_) { for (;;) { memcpy(path, "fake", 4); memcpy(path, "real", 4); } return _; }
int main(int argc, char **argv) {
    pthread_t t;
    if (chdir(argv[argc - 1])) return 1;
    unlink(path);
    pthread_create(&t, 0, swap, 0);
    usleep(20000);
    for (int i = 0; i < 50; i++) unlink(path);
    return 0;
}"""


def test_path_that_another_thread_could_change_is_unverified(tmp_path: Path) -> None:
    """A path that a second thread swaps is marked unverified each time; the same call before it was there is not."""
    first, *rest = witnessed_c(SWAPPING, tmp_path, tmp_path).of(FileDeleted)
    assert first.verified
    assert len(rest) == 50
    assert not any(event.verified for event in rest)


SHARED_TEXT = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (chdir(argv[argc - 1])) return 1;
    char *two = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mmap(two + 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    strcpy(two, "private"); unlink(two);
    strcpy(two + 4096, "shared"); unlink(two + 4096);
    strcpy(two + 4094, "across"); unlink(two + 4094);
    int fd = open("text", O_CREAT | O_RDWR, 0644);
    if (write(fd, "mapped", 7) != 7) return 2;
    char *text = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    unlink(text);
    munmap(text, 4096);
    close(fd);
    fd = open("text", O_RDONLY);
    strcpy(two, "x");
    unlink(mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
    return 0;
}"""


def test_memory_that_others_can_write_is_unverified(tmp_path: Path) -> None:
    """A path in shared memory, or reaching into it, or in a file that was written meanwhile, proves nothing."""
    deleted = witnessed_c(SHARED_TEXT, tmp_path, tmp_path).of(FileDeleted)
    assert [(event.path.rsplit(b"/")[-1], event.verified) for event in deleted] == [
        (b"private", True), (b"shared", False), (b"across", False), (b"mapped", False), (b"mapped", False),
    ]  # fmt: skip


def test_unreadable_path_is_marked_and_counted() -> None:
    """A path that cannot be read is told as truncated and unverified, and counted."""
    with WitnessLab() as lab:
        seen = lab.finish(lab.python("call(87, 8)"))
        assert lab.counters().unreadable == 1
    deleted = seen.one(FileDeleted)
    assert deleted.path_truncated
    assert not deleted.verified
    assert deleted.error == errno.EFAULT
