"""Where controllers are found, and what limits write, on hosts of all three kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.types import Limits, Memory
from supervisor.errors import MachineError
from supervisor.launch.cgroup import Cgroup
from supervisor.launch.controllers import Controller, find_controllers
from supervisor.launch.limits import Effect, Limit, LimitedCgroup, Reached, Resource, plan_limits, resolve_memory
from supervisor.launch.view.mounts import parse_mountinfo

HYBRID = (
    b"40 31 0:37 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    b"42 31 0:39 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    b"43 31 0:40 /inner /elsewhere rw - cgroup cgroup rw,memory\n"
    b"44 31 0:37 / /again/pids rw - cgroup cgroup rw,pids\n"
)


def v2_root(base: Path, controllers: str) -> Path:
    """Make what the root of a v2 tree shows; the real one makes the files of a new cgroup itself."""
    (base / "cgroup.controllers").write_text(controllers)
    (base / "cgroup.subtree_control").write_text("")
    run = base / "supervise" / "r1"
    run.mkdir(parents=True)
    (run.parent / "cgroup.subtree_control").write_text("")
    for name in ("pids.max", "memory.max", "cpu.max"):
        (run / name).write_text("max")
    return base


def test_a_hybrid_host_has_v1_controllers(tmp_path: Path) -> None:
    """A hierarchy counts when it is mounted whole, by its first mount; one of two controllers is found for each."""
    found = find_controllers(v2_root(tmp_path, "hugetlb\n"), parse_mountinfo(HYBRID))
    assert found == {
        "pids": Controller(name="pids", top=Path("/sys/fs/cgroup/pids"), legacy=True),
        "cpu": Controller(name="cpu", top=Path("/sys/fs/cgroup/cpu,cpuacct"), legacy=True),
    }


def test_a_unified_host_has_them_in_the_tree(tmp_path: Path) -> None:
    """What the v2 root offers is used there."""
    found = find_controllers(v2_root(tmp_path, "cpuset cpu io memory pids\n"), ())
    assert set(found) == {"pids", "memory", "cpu"}
    assert not any(controller.legacy or controller.top != tmp_path for controller in found.values())


def test_limits_of_a_unified_host_are_written_into_the_trials_own_cgroup(tmp_path: Path) -> None:
    """The box's two processes come on top; nothing further is to be joined; a kernel without swap files is no error."""
    root = v2_root(tmp_path, "cpu memory pids\n")
    limits = Limits(pids=100, memory=Memory(size_bytes=100 << 20), cpu=0.5)
    planned = plan_limits(limits, root)
    cgroup = Cgroup.at(root / "supervise" / "r1")
    (cgroup.path / "memory.swap.max").write_text("max")
    limited = LimitedCgroup.create(cgroup, planned)
    read = {name: (cgroup.path / name).read_text() for name in ("pids.max", "memory.max", "memory.swap.max", "cpu.max")}
    assert limited.joins == ()
    assert read == {"pids.max": "102", "memory.max": "104857600", "memory.swap.max": "0", "cpu.max": "50000 100000"}
    assert [limit.describe()["by"] for limit in planned] == ["cgroup v2"] * 3


def test_what_the_limits_did_is_read_in_the_form_of_v2(tmp_path: Path) -> None:
    """Kills are told, and reclaim only where nobody was killed; a limit that was not met is not told."""
    root = v2_root(tmp_path, "cpu memory pids\n")
    cgroup = Cgroup.at(root / "supervise" / "r1")
    limited = LimitedCgroup.create(cgroup, plan_limits(Limits(cpu=1.0, memory=Memory(size_bytes=1 << 30)), root))
    (cgroup.path / "pids.events").write_text("max 0\n")
    (cgroup.path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 0\n")
    (cgroup.path / "cpu.stat").write_text("usage_usec 5\nnr_periods 7\nnr_throttled 3\n")
    assert limited.reached() == (
        Reached(resource=Resource.MEMORY, limit=1 << 30, effect=Effect.KILLED, times=2),
        Reached(resource=Resource.CPU, limit=1.0, effect=Effect.THROTTLED, times=3),
    )
    (cgroup.path / "memory.events").write_text("max 9\noom_kill 0\n")
    assert limited.reached()[0] == Reached(resource=Resource.MEMORY, limit=1 << 30, effect=Effect.RECLAIMED, times=9)


def test_a_missing_controller_is_a_limit_that_says_so(tmp_path: Path) -> None:
    """It is in the manifest with a note, and changes nothing else."""
    limit = Limit(resource=Resource.PIDS, amount=5, controller=None)
    assert limit.describe() == {"limit": 5, "by": None, "note": "not enforced: no pids controller here"}
    limited = LimitedCgroup.create(Cgroup.at(v2_root(tmp_path, "") / "supervise" / "r1"), [limit])
    assert (limited.joins, limited.reached()) == ((), ())


def test_a_limit_that_cannot_be_set_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    """Never a trial that only seems to be limited."""
    top = tmp_path / "pids"
    top.write_text("no directory")
    limit = Limit(resource=Resource.PIDS, amount=5, controller=Controller(name="pids", top=top, legacy=True))
    with pytest.raises(MachineError, match="limit of pids cannot be set") as caught:
        LimitedCgroup.create(Cgroup.at(v2_root(tmp_path, "") / "supervise" / "r1"), [limit])
    assert caught.value.hint is not None
    assert "--pids none" in caught.value.hint


def test_a_share_of_the_memory_is_whole_mebibytes_and_less_than_all() -> None:
    """A hundred percent is the machine; half is half of it."""
    whole, half = resolve_memory(Memory(percent=100)), resolve_memory(Memory(percent=50))
    assert whole is not None
    assert half is not None
    assert whole % (1 << 20) == 0
    assert abs(whole - 2 * half) <= 2 << 20
    assert resolve_memory(None) is None
