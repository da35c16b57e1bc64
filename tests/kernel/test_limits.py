"""Limits in the machine's own cgroups: they hold for who joined, are counted, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policies.types import Limits, Memory
from supervisor.launch.cgroup import PARENT, Cgroup, find_root
from supervisor.launch.controllers import (
    companions_of,
    enable,
    find_controllers,
    make_companion,
    remove_orphans,
    remove_parent,
)
from supervisor.launch.leftovers import clean_cgroup, sweep
from supervisor.launch.limits import Effect, LimitedCgroup, Reached, Resource, plan_limits
from supervisor.launch.runs.owner import Owner
from supervisor.launch.runs.state import Home

pytestmark = pytest.mark.kernel("cgroup-v2", "limits")

DYING = """
import os, sys
from policies.types import Limits
from supervisor.launch.cgroup import Cgroup, find_root
from supervisor.launch.guardian import Guardian
from supervisor.launch.limits import LimitedCgroup, plan_limits
from supervisor.launch.runs.state import Home
run = Home.open(os.environ, uid=os.getuid()).create(sys.argv[1])
cgroup = Cgroup.create(find_root(), run.id)
if sys.argv[2] == "guarded":
    Guardian.start(cgroup, run)
limited = LimitedCgroup.create(cgroup, plan_limits(Limits(cpu=1.0), find_root()))
if os.fork() == 0:
    for join in (cgroup.path / "cgroup.procs", *limited.joins):
        join.write_bytes(b"0")
    os.execvp("sleep", ["sleep", "1000"])
while not cgroup.pids():
    pass
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    """Make a cgroup, and leave none."""
    made = Cgroup.create(find_root(), f"test-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    clean_cgroup(made)
    assert companions_of(made.path) == ()


def limit(cgroup: Cgroup, limits: Limits) -> LimitedCgroup:
    """Set limits on this machine."""
    return LimitedCgroup.create(cgroup, plan_limits(limits, find_root()))


def member(cgroup: Cgroup, limited: LimitedCgroup, act: Callable[[], int]) -> int:
    """Let a child join and act; gives its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            for join in (cgroup.path / "cgroup.procs", *limited.joins):
                join.write_bytes(b"0")
            os._exit(act())
        finally:
            os._exit(99)
    return os.waitpid(pid, 0)[1]


def fork_much() -> int:
    """Fork 20 times, never more; gives how many were refused."""
    children, refused = [], 0
    for _ in range(20):
        try:
            child = os.fork()
        except BlockingIOError:
            refused += 1
            continue
        if child == 0:
            signal.pause()
            os._exit(0)
        children.append(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return refused


def eat_much() -> int:
    """Touch 100 MB, never more."""
    held = [bytearray(b"x" * (1 << 20)) for _ in range(100)]
    return len(held)


def gone(run: str) -> bool:
    """Tell whether nothing of a run is in any hierarchy, a moment later at most."""
    tops = {find_root(), *(controller.top for controller in find_controllers(find_root()).values())}
    deadline = time.monotonic() + 10.0
    while any((top / PARENT / run).exists() for top in tops) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any((top / PARENT / run).exists() for top in tops)


def test_forks_above_the_limit_are_refused_and_counted(cgroup: Cgroup) -> None:
    """The two processes of the box are given beside the limit; the kernel's count is the number of refusals."""
    limited = limit(cgroup, Limits(pids=6, memory=None))
    assert os.waitstatus_to_exitcode(member(cgroup, limited, fork_much)) == 13
    assert limited.reached() == (Reached(resource=Resource.PIDS, limit=6, effect=Effect.REFUSED, times=13),)


def test_who_needs_too_much_memory_is_killed_and_counted(cgroup: Cgroup) -> None:
    """By the kernel, which says so."""
    limited = limit(cgroup, Limits(pids=None, memory=Memory(size_bytes=40 << 20)))
    assert os.waitstatus_to_exitcode(member(cgroup, limited, eat_much)) == -signal.SIGKILL
    assert limited.reached() == (Reached(resource=Resource.MEMORY, limit=40 << 20, effect=Effect.KILLED, times=1),)


def test_a_limit_that_is_not_met_is_not_told(cgroup: Cgroup) -> None:
    """Nothing was done to a trial that stayed below."""
    limited = limit(cgroup, Limits(pids=100, memory=Memory(size_bytes=1 << 30), cpu=2.0))
    assert os.waitstatus_to_exitcode(member(cgroup, limited, eat_much)) == 100
    assert limited.reached() == ()


def test_lifted_limits_make_no_cgroup(cgroup: Cgroup) -> None:
    """What is not limited costs nothing."""
    limited = limit(cgroup, Limits(pids=None, memory=None, cpu=None))
    assert (limited.joins, companions_of(cgroup.path)) == ((), ())


def test_removing_the_cgroup_removes_its_companions(cgroup: Cgroup) -> None:
    """In every hierarchy, once nobody is in them."""
    limit(cgroup, Limits(cpu=1.0))
    cgroup.remove()
    assert gone(cgroup.path.name)


@pytest.mark.parametrize("how", ["guarded", "alone"])
def test_a_dead_supervisor_leaves_no_limited_cgroup(how: str, tmp_path: Path) -> None:
    """The guardian removes them, or the next start does."""
    environ = {**os.environ, "SUPERVISE_HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = f"20300101-000000-{how}"
    dead = subprocess.run([sys.executable, "-c", DYING, run, how], env=environ, check=False)
    assert dead.returncode == -signal.SIGKILL
    if how == "alone":
        sweep(Home.open(environ, uid=os.getuid()), find_root())
    assert gone(run)


def test_a_companion_that_is_alone_is_swept(cgroup: Cgroup) -> None:
    """One whose v2 cgroup is gone was left behind; one whose v2 cgroup is there is not touched."""
    legacy = [found for found in find_controllers(find_root()).values() if found.legacy]
    alone = cgroup.path.with_name(f"{cgroup.path.name}-alone")
    for controller in legacy:
        make_companion(controller, cgroup.path)
        make_companion(controller, alone)
    removed = remove_orphans(cgroup.path.parent)
    assert (alone.name in removed) == bool(legacy)
    assert cgroup.path.name not in removed
    assert len(companions_of(cgroup.path)) == len(legacy)
    assert Owner.current().alive()


def test_what_was_switched_on_in_the_v2_tree_is_switched_off_by_the_last_one() -> None:
    """The first run notes what it changed; only the removal of the last one puts it back."""
    root = find_root()
    control = root / "cgroup.subtree_control"
    before = control.read_text().split()
    names = (root / "cgroup.controllers").read_text().split()
    parent = root / f"{PARENT}-test-{os.getpid()}"
    runs = [parent / "a", parent / "b"]
    try:
        for run in runs:
            run.mkdir(parents=True)
            enable(root, parent, names)
        assert set(names) <= set(control.read_text().split())
        assert set(names) <= set((parent / "cgroup.subtree_control").read_text().split())
        runs.pop().rmdir()
        remove_parent(parent)
        assert set(names) <= set(control.read_text().split())
    finally:
        for run in runs:
            run.rmdir()
        remove_parent(parent)
    assert not parent.exists()
    assert control.read_text().split() == before
