"""What the host does while a commit is at a step: before its look, between look and rename, after, and at its death."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from staged_trial import Trial, everything

GIVEN = "given"
pytestmark = pytest.mark.kernel("overlay")

WAYS = pytest.mark.parametrize("way", ["copied", GIVEN])
"""Whether the stage gives its files away: the result is the same."""

HOSTS = "the host's\n"


def make(path: Path) -> bool:
    """Make a file where there is none; tells whether that was done."""
    with suppress(FileExistsError), path.open("x", encoding="ascii") as file:
        file.write(HOSTS)
        return True
    return False


def replace(path: Path) -> bool:
    """Put another file in the place of one."""
    beside = path.with_name("beside")
    beside.write_text(HOSTS, encoding="ascii")
    beside.rename(path)
    return True


def write(path: Path) -> bool:
    """Write a file in place; a new one, where there is none."""
    path.write_text(HOSTS, encoding="ascii")
    return True


def fill(path: Path) -> bool:
    """Make a directory with a file in it, where there is none."""
    with suppress(FileExistsError):
        path.mkdir()
        (path / "inner").write_text(HOSTS, encoding="ascii")
        return True
    return False


BOTH = "a new directory where the host makes one"
MADE = {
    "a new file": ("true", "echo 2 > n", make),
    "a new symlink": ("true", "ln -s away n", make),
    "a new fifo": ("true", "mkfifo n", make),
    "a new directory": ("true", "mkdir n; echo 2 > n/a", make),
    BOTH: ("true", "mkdir n; echo 2 > n/a", fill),
    "a new directory with something that is copied": ("true", "mkdir n; echo 2 > n/a; ln n/a n/b", make),
    "a moved directory": ("mkdir d; echo 1 > d/a", "mv d n", make),
    "a moved directory where the host makes one": ("mkdir d; echo 1 > d/a", "mv d n", fill),
    "a changed file that is replaced": ("echo 1 > n", "echo 2 > n", replace),
    "a changed file that is written": ("echo 1 > n", "echo 2 > n", write),
    "a file that became a symlink": ("echo 1 > n", "rm n; ln -s away n", replace),
    "a removed file that is replaced": ("echo 1 > n", "rm n", replace),
    "a removed file that is written": ("echo 1 > n", "rm n", write),
}  # fmt: skip


class Faults:
    """Lets the host act when a commit comes to its step number ``at``, and dies some steps later, if that is asked."""

    def __init__(self, act: Callable[[], bool], at: int, dies_after: int | None = None) -> None:
        """Begin at the first step."""
        self.act, self.at, self.dies_after, self.step = act, at, dies_after, 0
        self.acted = False

    def __call__(self) -> None:
        """Be at a step."""
        if self.step == self.at:
            self.acted = self.act()
        if self.dies_after is not None and self.step == self.at + self.dies_after:
            os.kill(os.getpid(), signal.SIGKILL)
        self.step += 1


def is_the_hosts(path: Path) -> bool:
    """Tell whether the host's content is at a path, or in a directory there."""
    file = path / "inner" if path.is_dir() else path
    return file.is_file() and not file.is_symlink() and file.read_text(encoding="ascii") == HOSTS


@WAYS
@pytest.mark.parametrize("case", MADE)
def test_what_the_host_puts_there_at_any_instant_stays(tmp_path: Path, case: str, way: str) -> None:
    """Whatever the commit was doing; and what it could not do then is told, and done when forced."""
    begin, act, host = MADE[case]
    told = at = 0
    while True:
        trial = Trial(tmp_path / str(at), script=begin)
        trial.write(act)
        faults = Faults(lambda trial=trial: host(trial.host / "n"), at)  # type: ignore[misc]
        with trial.stage as stage:
            result = stage.commit(everything, gives=way == GIVEN, fault=faults)
            if faults.step <= at:
                break
            if faults.acted:
                assert is_the_hosts(trial.host / "n"), at
            told += bool(result.against)
            assert not list(trial.host.glob(".supervise-*")), at
            if result.against:
                assert stage.commit(everything, force=True).against == ()
                assert not is_the_hosts(trial.host / "n")
        at += 1
    assert told or case == BOTH  # copied, a directory that both make is one


@WAYS
@pytest.mark.parametrize("case", MADE)
def test_and_stays_when_the_commit_dies_then(tmp_path: Path, case: str, way: str) -> None:
    """SIGKILL at that step, or at one of the next two: going on with the commit loses nothing of the host's either."""
    begin, act, host = MADE[case]
    for at in range(99):
        came = False
        for later in range(3):
            trial = Trial(tmp_path / f"{at}-{later}", script=begin)
            trial.write(act)
            with trial.stage as stage:
                faults = Faults(lambda trial=trial: _noting(trial, host), at, later)  # type: ignore[misc]
                killed = _commit_aside(partial(stage.commit, everything, gives=way == GIVEN, fault=faults))
                stage.commit(everything, gives=way == GIVEN)
            if (trial.path / "acted").exists():
                assert is_the_hosts(trial.host / "n"), (at, later)
            assert not list(trial.host.glob(".supervise-*")), (at, later)
            came |= killed
        if not came:
            break
    assert at > 3


def _noting(trial: Trial, host: Callable[[Path], bool]) -> bool:
    acted = host(trial.host / "n")
    if acted:
        (trial.path / "acted").touch()
    return acted


def _commit_aside(commit: Callable[[], object]) -> bool:
    """Commit in a child; tells whether it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            commit()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@WAYS
def test_what_the_host_removes_at_any_instant_stays_removed(tmp_path: Path, way: str) -> None:
    """A changed file does not come back where the host has just deleted the old one."""
    at, told = 0, 0
    while True:
        trial = Trial(tmp_path / str(at), script="echo 1 > n")
        trial.write("echo 2 > n")
        faults = Faults(lambda trial=trial: (trial.host / "n").unlink() is None, at)  # type: ignore[misc]
        with trial.stage as stage:
            result = stage.commit(everything, gives=way == GIVEN, fault=faults)
        if faults.step <= at:
            break
        assert not (trial.host / "n").exists(), at
        told += bool(result.against)
        at += 1
    assert told > 1


@WAYS
def test_another_directory_is_not_moved_in_the_place_of_the_one_that_was(tmp_path: Path, way: str) -> None:
    """The host moves the directory away and makes another one: that one stays where it is."""

    def another(top: Path) -> bool:
        with suppress(FileNotFoundError):
            (top / "d").rename(top / "away")
            (top / "d").mkdir()
            return make(top / "d/inner")
        return False

    at, acted = 0, 0
    while True:
        trial = Trial(tmp_path / str(at), script="mkdir d; echo 1 > d/a")
        trial.write("mv d n")
        faults = Faults(lambda trial=trial: another(trial.host), at)  # type: ignore[misc]
        with trial.stage as stage:
            stage.commit(everything, gives=way == GIVEN, fault=faults)
        if faults.step <= at:
            break
        assert not faults.acted or is_the_hosts(trial.host / "d"), at
        acted += faults.acted
        at += 1
    assert acted > 1


RACING = """
import os, sys
top, count = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    try:
        os.close(os.open(f"{top}/new{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        print(f"new{number}")
    except FileExistsError:
        pass
    open(f"{top}/beside", "w").close()
    os.rename(f"{top}/beside", f"{top}/old{number}")
    print(f"old{number}")
    open(f"{top}/beside", "w").close()
    os.rename(f"{top}/beside", f"{top}/gone{number}")
    print(f"gone{number}")
"""


@WAYS
def test_a_host_that_races_through_the_workspace_keeps_what_it_made(tmp_path: Path, way: str) -> None:
    """Another process makes and replaces the very files that are being committed: its files, empty, are there."""
    count = 300
    trial = Trial(tmp_path / "t", script=f"for i in $(seq 0 {count - 1}); do echo 1 > old$i; echo 1 > gone$i; done")
    trial.act(script=f"for i in $(seq 0 {count - 1}); do echo 2 > old$i; echo 2 > new$i; rm gone$i; done")
    words = [sys.executable, "-c", RACING, trial.host, count]
    with (
        subprocess.Popen([*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as racer,
        trial.stage as stage,
    ):
        assert racer.stdout is not None
        assert racer.stdin is not None
        assert racer.stdout.readline() == "ready\n"
        started = iter([racer.stdin])

        def fault() -> None:
            if (pipe := next(started, None)) is not None:
                pipe.write("\n")
                pipe.flush()

        result = stage.commit(everything, gives=way == GIVEN, fault=fault)
        made = racer.communicate()[0].split()
    assert [name for name in made if (trial.host / name).stat().st_size] == []
    assert {os.fsdecode(left.path) for left in result.against} <= set(made)


def test_a_file_system_without_such_renames_gets_plain_ones(tmp_path: Path) -> None:
    """Where renameat2 is refused as a file system does that cannot, the commit looks first, and ends the same."""
    trial = Trial(tmp_path / "t", script="echo 1 > a; echo 1 > b; echo 1 > c; mkdir d; echo 1 > d/x")
    seen = trial.act(script="echo 2 > a; rm b; echo 2 > new; mv d e; echo 2 > c")
    (trial.host / "c").write_text(HOSTS, encoding="ascii")

    def commit() -> None:
        import pyseccomp  # noqa: PLC0415 - only the child is to have the filter

        refusing = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
        refusing.add_rule(pyseccomp.ERRNO(errno.EINVAL), "renameat2")
        refusing.load()
        with trial.stage as stage:
            stage.commit(everything)

    assert not _commit_aside(commit)
    with trial.stage as stage:
        assert [left.path for left in stage.commit(everything).against] == [b"c"]
    found = trial.looks()
    assert found.keys() == seen["merged"].keys()
    texts = {name: (trial.host / name).read_text(encoding="ascii") for name in ("a", "c", "new", "e/x")}
    assert texts == {"a": "2\n", "c": HOSTS, "new": "2\n", "e/x": "1\n"}
