"""Whose arguments are believed: only those of a caller who was alone with them from the beginning of the call."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from witness_builder import WitnessLab, compile_c, witnessed, witnessed_c

from supervisor.events import FileChanged, FileDeleted

pytestmark = pytest.mark.kernel("witness")

CLONE_FS, CLONE_FILES = 0x200, 0x400

SHARING = """
os.chdir(sys.argv[1])
def share(flags):
    pid = call(56, flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
def thread():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
tasks = os.open("/proc/self/task", 0)
def wait_alone():
    while len(os.listdir(tasks)) > 1:
        time.sleep(0.001)
"""


def believed(act: str, where: Path) -> list[bool]:
    """Tell which of three removals are believed: before an act, after it, and once more."""
    code = f"{SHARING}os.unlink('1')\n{act}\nwait_alone()\nos.unlink('2'); os.unlink('3')"
    for name in "123":
        (where / name).touch()
    return [event.verified for event in witnessed(code, where).of(FileDeleted)]


@pytest.mark.parametrize("act", ["thread()", f"share({CLONE_FS})", f"share({CLONE_FILES})"])
def test_the_first_call_after_somebody_shared_is_not_believed(act: str, tmp_path: Path) -> None:
    """Who shared may have ended within the call; the next call is the caller's alone."""
    assert believed(act, tmp_path) == [True, False, True]


@pytest.mark.parametrize(
    "act",
    [
        "fork()",
        "import subprocess; subprocess.run(['/bin/true'])",
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
        "os.system('true')",
    ],
)
def test_a_child_that_is_waited_for_changes_nothing(act: str, tmp_path: Path) -> None:
    """A fork shares nothing; after vfork the parent sleeps for as long as the child has its memory."""
    assert believed(act, tmp_path) == [True, True, True]


def test_any_call_that_is_told_comes_between(tmp_path: Path) -> None:
    """A program that ended its threads and opened a file since is believed by its first removal."""
    assert believed("thread(); wait_alone(); os.close(os.open('4', os.O_CREAT | os.O_RDWR))", tmp_path) == [True] * 3


def test_a_program_that_is_executed_is_alone_again(tmp_path: Path) -> None:
    """Memory and descriptors are new then."""
    (tmp_path / "f").touch()
    code = SHARING + "thread(); wait_alone(); os.execv('/bin/rm', ['rm', 'f'])"
    assert witnessed(code, tmp_path).one(FileDeleted).verified


@pytest.mark.parametrize(("act", "shared"), [("pass", False), (f"share({CLONE_FILES})", True)])
def test_a_descriptor_of_a_shared_table_may_have_been_another_file(act: str, *, shared: bool, tmp_path: Path) -> None:
    """The number of a descriptor is an argument too: fchmod is believed of who has his descriptors to himself."""
    (tmp_path / "f").touch()
    code = f"{SHARING}fd = os.open('f', 0)\n{act}\nos.fchmod(fd, 0o600); os.fchmod(fd, 0o644)"
    changed = witnessed(code, tmp_path).of(FileChanged)
    assert [event.verified for event in changed] == [not shared, True]


MAPPED_TEXT = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static int make(const char *name, const char *text) {
    int fd = open(name, O_CREAT | O_RDWR, 0644);
    if (write(fd, text, strlen(text) + 1) < 1 || ftruncate(fd, 4096)) _exit(2);
    return fd;
}
static char *map(const char *name) {
    int fd = open(name, O_RDONLY);
    char *text = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    return text;
}
/* A process that is younger than the file removes what the file says, after the file was written again or not. */
static void in_a_new_process(const char *name, int rewrite) {
    usleep(50000);
    if (!fork()) {
        char *text = map(name);
        if (rewrite) {
            int fd = open(name, O_RDWR);
            if (pwrite(fd, text, 1, 0) != 1) _exit(3);
            close(fd);
        }
        unlink(text);
        _exit(0);
    }
    wait(0);
}
int main(int argc, char **argv) {
    if (chdir(argv[argc - 1])) return 1;
    close(make("text 1", "quiet"));
    in_a_new_process("text 1", 0);
    close(make("text 2", "rewritten"));
    in_a_new_process("text 2", 1);
    int fd = make("text 3", "stored");
    mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    munmap(0, 4096);
    in_a_new_process("text 3", 0);
    in_a_new_process("text 1", 0);
    return 0;
}"""


def test_a_text_in_a_file_is_believed_when_the_file_was_quiet(tmp_path: Path) -> None:
    """Written since the process began, or stored into at a time that nobody knows, a mapped file proves nothing."""
    deleted = witnessed_c(MAPPED_TEXT, tmp_path, tmp_path).of(FileDeleted)
    assert [(event.path.rsplit(b"/")[-1], event.verified) for event in deleted] == [
        (b"quiet", True), (b"rewritten", False), (b"stored", False), (b"quiet", False),
    ]  # fmt: skip


def test_a_text_in_a_program_of_before_is_believed(tmp_path: Path) -> None:
    """Names that stand in a program's file are the usual case; a mapping that somebody shares takes nothing from it."""
    source = """
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (chdir(argv[argc - 1])) return 1;
    unlink("one");
    mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open("two", O_CREAT | O_RDWR, 0644), 0);
    unlink("two");
    return 0;
}"""
    program = compile_c(source, tmp_path)
    time.sleep(0.05)  # so that it is older than the trial, by more than the clock of a file system can tell
    with WitnessLab() as lab:
        deleted = lab.finish(lab.start(program, tmp_path)).of(FileDeleted)
    assert [event.verified for event in deleted] == [True, True]
