"""Cgroups, the guardian and the sweep, on the real kernel, with real deaths."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.launch.cgroup import PARENT, Cgroup, find_root
from supervisor.launch.guardian import Guardian
from supervisor.launch.leftovers import sweep
from supervisor.launch.runs.owner import Owner
from supervisor.launch.runs.state import Home, RunDir

pytestmark = pytest.mark.kernel("cgroup-v2")

SUPERVISOR = """
import os, subprocess, sys, time
from supervisor.launch.cgroup import Cgroup, find_root
from supervisor.launch.guardian import Guardian
from supervisor.launch.runs.state import Home
home = Home.open(os.environ, uid=os.getuid())
run = home.create(sys.argv[1])
cgroup = Cgroup.create(find_root(), run.id)
if sys.argv[2] == "dies-at-once":
    member = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cgroup.add(member.pid)
    print(member.pid, 0, flush=True)
    Guardian.start(cgroup, run)
    os.kill(os.getpid(), 9)
if sys.argv[2] == "guarded":
    guardian = Guardian.start(cgroup, run, on_death=lambda: open(run.path / "unpinned", "w").close())
else:
    guardian = None
run.outside.mkdir(); run.box.mkdir(); run.log.mkdir()
member = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
cgroup.add(member.pid)
cgroup.freeze(1.0) if sys.argv[3] == "frozen" else None
print(member.pid, guardian.pid if guardian else 0, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    """Make a cgroup, and leave none."""
    made = Cgroup.create(find_root(), f"test-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    if made.path.exists():
        made.kill()
        made.wait_empty(5.0)
        made.remove()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Open a home of the test's own."""
    return Home.open({"SUPERVISE_HOME": str(tmp_path / "home")}, uid=os.getuid())


def start_supervisor(home: Home, run_id: str, *how: str) -> tuple[subprocess.Popen[str], int, int]:
    """Start a small supervisor; returns it with the pids of its member and its guardian."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, run_id, *how],
        env={**os.environ, "SUPERVISE_HOME": str(home.path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    member, guardian = map(int, process.stdout.readline().split())
    return process, member, guardian


def end(process: subprocess.Popen[str]) -> str:
    """Kill a supervisor; returns what its stdout still held, which must end at once."""
    process.kill()
    return process.communicate(timeout=10)[0]


def gone(pid: int, *, within_s: float = 5.0) -> bool:
    """Wait until a process that is no child of ours has ended."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if stat.rsplit(b")", 1)[1].split()[0] == b"Z":
            return True
        time.sleep(0.01)
    return False


def missing(path: Path, *, within_s: float = 5.0) -> bool:
    """Wait until a path has gone."""
    deadline = time.monotonic() + within_s
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not path.exists()


def test_a_cgroup_says_who_is_in_it_freezes_and_kills(cgroup: Cgroup) -> None:
    """Membership, freezing, thawing and killing are confirmed by the kernel."""
    assert cgroup.id == cgroup.path.stat().st_ino
    assert not cgroup.populated()
    with subprocess.Popen(["sleep", "1000"]) as member:
        cgroup.add(member.pid)
        assert cgroup.pids() == (member.pid,)
        assert cgroup.populated()
        assert cgroup.freeze(5.0)
        assert cgroup.frozen()
        assert not cgroup.wait_empty(0.05)
        assert cgroup.thaw()
        assert not cgroup.frozen()
        cgroup.kill()
        assert cgroup.wait_empty(5.0)
    assert cgroup.pids() == ()


def test_a_frozen_member_is_killed_without_a_thaw(cgroup: Cgroup) -> None:
    """SIGKILL reaches a frozen cgroup, also one by one as on kernels without cgroup.kill."""
    for kill in (cgroup.kill, cgroup._kill_one_by_one):
        with subprocess.Popen(["sleep", "1000"]) as member:
            cgroup.add(member.pid)
            assert cgroup.freeze(5.0)
            kill()
            assert cgroup.wait_empty(5.0)
            cgroup.thaw()


def test_a_cgroup_that_somebody_removed_is_empty(cgroup: Cgroup) -> None:
    """The kernel removes no other; whoever waits for its end is not left with an error."""
    cgroup.path.rmdir()
    assert not cgroup.pids()
    assert cgroup.wait_empty(1.0)


def test_removal_takes_cgroups_below_and_the_parent_with_the_last_run() -> None:
    """Nothing of ours is left in the hierarchy when the last run has ended."""
    root = find_root()
    first, second = Cgroup.create(root, f"test-{os.getpid()}-a"), Cgroup.create(root, f"test-{os.getpid()}-b")
    (first.path / "container").mkdir()
    assert first.parent_id == second.parent_id
    first.remove()
    assert second.path.exists()
    second.remove()
    assert not first.path.exists()
    others = list((root / PARENT).iterdir()) if (root / PARENT).exists() else None
    assert others is None or any(entry.is_dir() for entry in others)


@pytest.mark.parametrize("state", ["running", "frozen"])
def test_a_killed_supervisor_leaves_nothing_alive(home: Home, state: str) -> None:
    """SIGKILL of the supervisor: members die, cgroup and discarded writes go, the log stays, pins are taken back."""
    process, member, guardian = start_supervisor(home, "20300101-000000-kill", "guarded", state)
    run = RunDir(home.runs / "20300101-000000-kill")
    rest = end(process)
    assert gone(member)
    assert gone(guardian)
    assert missing(find_root() / PARENT / run.id)
    assert not run.outside.exists()
    assert not run.box.exists()
    assert run.log.is_dir()
    assert (run.path / "unpinned").exists()
    assert not any(home.live.iterdir())
    assert rest == ""


def test_the_pipe_of_a_supervisor_ends_with_it_though_its_guardian_lives(home: Home) -> None:
    """The guardian holds none of the supervisor's descriptors and stands in a session of its own."""
    process, _, guardian = start_supervisor(home, "20300101-000000-pipe", "guarded", "running")
    held = {str(entry.readlink()) for entry in Path(f"/proc/{guardian}/fd").iterdir()}
    assert {name.split(":")[0] for name in held} <= {"/dev/null", "pipe", "anon_inode"}
    assert os.getsid(guardian) == guardian
    os.kill(guardian, signal.SIGINT)
    os.kill(guardian, signal.SIGHUP)
    os.kill(guardian, signal.SIGTSTP)
    time.sleep(0.05)
    assert not gone(guardian, within_s=0.05)
    end(process)
    assert gone(guardian)


def test_when_the_guardian_is_killed_too_the_next_start_cleans_up(home: Home) -> None:
    """A sweep empties the cgroup of a dead supervisor and keeps its run; a second one finds nothing to do."""
    process, member, guardian = start_supervisor(home, "20300101-000000-both", "guarded", "running")
    os.kill(guardian, signal.SIGKILL)
    end(process)
    cleaned = sweep(home, find_root())
    assert gone(member)
    assert len(cleaned) == 2
    assert home.find("20300101-000000-both").log.is_dir()
    assert sweep(home, find_root()) == ()


def test_a_sweep_never_touches_a_live_run(home: Home) -> None:
    """The run of a live supervisor is untouched, also when it is swept from another home."""
    process, member, _ = start_supervisor(home, "20300101-000000-live", "unguarded", "running")
    elsewhere = Home.open({"SUPERVISE_HOME": str(home.path.parent / "other")}, uid=os.getuid())
    assert sweep(home, find_root()) == ()
    assert sweep(elsewhere, find_root()) == ()
    assert not gone(member, within_s=0.1)
    end(process)
    assert len(sweep(elsewhere, find_root())) == 1
    assert gone(member)
    assert len(sweep(home, find_root())) == 1


def test_a_released_guardian_does_nothing(cgroup: Cgroup, home: Home) -> None:
    """A released guardian ends and has touched nothing; a second release is harmless, and so is a second reaping."""
    run = home.create("20300101-000000-free")
    run.box.mkdir()
    guardian = Guardian.start(cgroup, run)
    assert guardian.alive()
    guardian.release()
    guardian.release()
    guardian.reap()
    guardian.reap()
    assert not guardian.alive()
    assert cgroup.path.exists()
    assert run.box.exists()


def test_the_owner_on_the_cgroup_is_the_maker(cgroup: Cgroup) -> None:
    """The cgroup itself carries who supervises it."""
    assert cgroup.owner() == Owner.current()
    assert json.loads(os.getxattr(cgroup.path, "trusted.supervise.owner"))["pid"] == os.getpid()


def test_a_supervisor_that_dies_as_it_starts_the_guardian_leaves_nothing(home: Home) -> None:
    """A death right after the fork, before the guardian's first instruction, is seen like any other."""
    process, member, _ = start_supervisor(home, "20300101-000000-fork", "dies-at-once", "running")
    assert process.communicate(timeout=10)[0] == ""
    assert process.returncode == -signal.SIGKILL
    assert gone(member)
    assert missing(find_root() / PARENT / "20300101-000000-fork")


def test_starts_and_ends_that_race_never_fail() -> None:
    """The parent comes and goes with the runs in it, and no start fails because another run has just ended."""
    program = (
        "import os\nfrom supervisor.launch.cgroup import Cgroup, find_root\nroot = find_root()\n"
        "for number in range(300): Cgroup.create(root, f'race-{os.getpid()}-{number}').remove()"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    racers = [subprocess.Popen([sys.executable, "-c", program], env=environ) for _ in range(3)]
    assert [racer.wait() for racer in racers] == [0, 0, 0]
