"""One set of programs for all trials: made by the first, taken away by the last, or by whoever comes after a death."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from witness_builder import WitnessLab

from probes.kernel import libbpf, pins
from supervisor.errors import MachineError
from supervisor.events import ProcessExited
from supervisor.launch.cgroup import Cgroup, find_root

pytestmark = pytest.mark.kernel("witness")

HERE = Path(__file__).parent
HOLDER = """
import sys
sys.path[:0] = sys.argv[1:3]
from witness_builder import WitnessLab
with WitnessLab() as lab:
    print(lab.cgroup.path, flush=True)
    sys.stdin.read()
"""
RACER = """
import sys
sys.path[:0] = sys.argv[1:3]
from supervisor.events import ProcessExited
from witness_builder import WitnessLab
for _ in range(5):
    with WitnessLab(ring_bytes=1 << 16) as lab:
        seen = lab.finish(lab.start("/bin/sh", "-c", "exit 4"))
        assert [e.exit_code for e in seen.of(ProcessExited)] == [4], seen.events
        assert lab.counters().losses == ()
print("done")
"""


def ours() -> list[Path]:
    """Give the directories of pins of this version."""
    found = [base / f"supervise-{pins.digest()}" for base in (pins.SYSTEM_BPFFS, pins.OWN_BPFFS)]
    return [path for path in found if path.exists()]


def hold(code: str) -> subprocess.Popen[str]:
    """Start another supervisor, so far as pins are concerned."""
    arguments = (str(HERE), str(HERE.parent.parent))
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=pipe, stdout=pipe, text=True)


def identity(directory: Path) -> tuple[int, ...]:
    """Give what differs when a set is made anew."""
    return tuple(sorted(path.stat().st_ino for path in directory.iterdir()))


def test_trials_share_one_set_and_the_last_takes_it_away() -> None:
    """The second witness loads nothing, goes on when the first has ended, and leaves nothing behind."""
    with WitnessLab() as second:
        with WitnessLab() as first:
            (directory,) = ours()
            made = identity(directory)
            assert first.finish(first.start("/bin/true")).of(ProcessExited)
        assert [identity(path) for path in ours()] == [made]
        assert second.finish(second.start("/bin/true")).one(ProcessExited).exit_code == 0
    assert ours() == []


def test_a_trial_is_watched_on_when_somebody_takes_the_pins_away() -> None:
    """The next one makes a set of its own, and both are gone at the end."""
    with WitnessLab() as first:
        (directory,) = ours()
        pins.remove(directory)
        assert first.finish(first.start("/bin/sh", "-c", "exit 3")).one(ProcessExited).exit_code == 3
        with WitnessLab() as second:
            assert second.finish(second.start("/bin/sh", "-c", "exit 5")).one(ProcessExited).exit_code == 5
    assert ours() == []


def test_trials_are_told_apart() -> None:
    """What one trial does is told to its own witness alone."""
    with WitnessLab() as one, WitnessLab() as other:
        for lab, code in ((one, "exit 1"), (other, "exit 2")):
            lab.start("/bin/sh", "-c", code).communicate()
        codes = [[e.exit_code for e in lab.drain() if isinstance(e, ProcessExited)] for lab in (one, other)]
    assert codes == [[1], [2]]


def test_killed_supervisor_is_cleaned_up_after() -> None:
    """What a killed holder left pinned stays while its cgroup is there, and goes at the next look after that."""
    with hold(HOLDER) as holder:
        assert holder.stdout is not None
        cgroup = Cgroup.at(Path(holder.stdout.readline().strip()))
        holder.send_signal(signal.SIGKILL)
    pins.collect_garbage(find_root())
    assert len(ours()) == 1
    cgroup.remove()
    pins.collect_garbage(find_root())
    assert ours() == []


def test_trial_of_a_dead_supervisor_does_not_end_with_another() -> None:
    """A set that a dead supervisor's trial still uses outlives the trial of somebody else."""
    with hold(HOLDER) as holder:
        assert holder.stdout is not None
        cgroup = Cgroup.at(Path(holder.stdout.readline().strip()))
        holder.send_signal(signal.SIGKILL)
    with WitnessLab() as lab:
        assert lab.finish(lab.start("/bin/true")).of(ProcessExited)
    assert len(ours()) == 1
    cgroup.remove()
    pins.collect_garbage(find_root())
    assert ours() == []


ELSEWHERE = """
import contextlib, os
from probes.kernel import pins
from supervisor.launch import libc
from supervisor.launch.cgroup import find_root
with contextlib.suppress(OSError):
    libc.umount2(os.fsencode(pins.OWN_BPFFS))
pins.collect_garbage(find_root())
"""


def test_another_mount_namespace_takes_no_pins_away() -> None:
    """Who does not see the bpffs, since its mount namespace is older, leaves the place where it is mounted alone."""
    with WitnessLab() as lab:
        words = ("unshare", "--mount", "--propagation", "private", sys.executable, "-c", ELSEWHERE)
        subprocess.run(words, check=True)
        assert lab.finish(lab.start("/bin/true")).of(ProcessExited)
        assert len(ours()) == 1


HIDDEN = """
import sys
sys.path[:0] = sys.argv[1:3]
from supervisor.events import ProcessExited
from witness_builder import WitnessLab
with WitnessLab(ring_bytes=1 << 16) as lab:
    assert lab.finish(lab.start("/bin/true")).of(ProcessExited)
"""


def test_a_bpffs_that_another_mount_hides_is_not_taken_for_ours() -> None:
    """It is listed in mountinfo all the same; a set of one's own is made in what is shown."""
    with WitnessLab() as lab:
        script = f'mount -t tmpfs none {pins.OWN_BPFFS.parent.parent}; exec "$@"'
        words = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", sys.executable)
        subprocess.run((*words, "-c", HIDDEN, str(HERE), str(HERE.parent.parent)), check=True)
        assert lab.finish(lab.start("/bin/true")).of(ProcessExited)


@pytest.mark.usefixtures("_alone")
def test_parent_that_was_made_again_is_watched() -> None:
    """When ``supervise/`` went and came back under another id, a set that was left for the old one is replaced."""
    lab = WitnessLab()
    lab.__enter__()
    lab.cgroup.remove()
    old = find_root() / "supervise"
    assert not old.exists()
    with WitnessLab() as again:
        assert again.finish(again.start("/bin/true")).one(ProcessExited).exit_code == 0
    lab.witness.close()
    assert ours() == []


@pytest.fixture
def _alone() -> None:
    """Have no other trial's cgroup beside: then ``supervise/`` goes with ours."""
    parent = find_root() / "supervise"
    if parent.exists() and any(entry.is_dir() for entry in parent.iterdir()):
        pytest.xfail("another trial runs on this machine")


def test_interrupted_load_leaves_no_half_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a program cannot be attached, nothing stays pinned, and the next watch starts afresh."""
    attach = libbpf.BpfObject.attach_pinned
    calls = iter(range(100))

    def failing(*arguments: Any, **options: Any) -> None:
        if next(calls) == 5:
            raise MachineError("attaching link_x failed")
        attach(*arguments, **options)

    monkeypatch.setattr(libbpf.BpfObject, "attach_pinned", failing)
    with pytest.raises(MachineError, match="link_x"), WitnessLab():
        pass
    assert ours() == []
    with WitnessLab() as lab:
        assert lab.finish(lab.start("/bin/true")).of(ProcessExited)


def test_set_without_its_mark_is_made_anew() -> None:
    """A directory that a loader left when it was killed half-way is no set."""
    with WitnessLab() as lab:
        (directory,) = ours()
        (directory / "ready").rmdir()
        with WitnessLab() as other:
            assert (directory / "ready").exists()
            assert other.finish(other.start("/bin/true")).of(ProcessExited)
        assert lab.witness.ring.fill() == 0
    assert ours() == []


def test_many_supervisors_start_and_stop_at_once() -> None:
    """Twenty witnesses that come and go in four processes all see their trial, and nothing is left."""
    racers = [hold(RACER) for _ in range(4)]
    said = [racer.communicate(timeout=120)[0] for racer in racers]
    assert said == ["done\n"] * 4
    assert ours() == []


def descriptors() -> set[str]:
    """Name the open descriptors, but for the one that is looking."""
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


def test_closing_gives_back_every_descriptor() -> None:
    """A witness that was closed leaves no descriptor open."""
    with WitnessLab():
        pass
    before = descriptors()
    with WitnessLab() as lab:
        lab.finish(lab.start("/bin/true"))
    assert descriptors() == before


def test_missing_object_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the built object the error names it and says what to do."""
    monkeypatch.setattr(pins, "OBJECT", tmp_path / "none.o")
    with pytest.raises(MachineError, match="object is missing") as caught, WitnessLab():
        pass
    assert "make" in (caught.value.hint or "")
