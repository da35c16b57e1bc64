"""A supervisor that is killed, and a machine that loses power: what was logged is read, and is never called sealed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_lab import PATIENCE_S, Lab, runs_on_host, wait_until
from scenario_load import load, trial_cgroups

from probes.kernel.decode import decode_slab
from supervisor.errors import LogError, LogUnsealedError
from supervisor.events import Event
from supervisor.log.frames import Frame, FrameType
from supervisor.log.reader import read_events, read_frames
from supervisor.log.records import decode_record
from supervisor.log.verify import verify_log

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

KILLS = 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of one sealed run with some thousands of events."""
    base = tmp_path_factory.mktemp("whole")
    lab = Lab(base / "home", base / "work")
    lab.home.mkdir(mode=0o700)
    lab.work.mkdir()
    assert lab.run("--", load(lab), "3000", "1").finality == "final"
    (run,) = (lab.home / "runs").iterdir()
    return run


def told(run: Path) -> tuple[list[Event], LogError | None]:
    """Read every event that can be had, and what ended the reading."""
    damage: list[LogError] = []
    events = list(read_events(run / "log", decode_slab, on_damage=damage.append))
    return events, damage[0] if damage else None


def killed_at(lab: Lab, program: str, delay_s: float) -> None:
    """Kill a supervisor at some moment of a trial at full rate."""
    with lab.start("-q", "--status-fd", "2", "--", "sh", "-c", f"sleep 74.1 & {program} 5000000 2") as trial:
        assert trial.stderr is not None
        assert any(b'"held"' in line for line in trial.stderr)
        time.sleep(delay_s)
        trial.kill()
        trial.communicate(timeout=PATIENCE_S)


def test_supervisor_killed_at_any_moment_leaves_a_log_that_can_be_read(lab: Lab) -> None:
    """20 times under load: nothing of the trial lives on, each frame that was written is whole, and none is sealed."""
    program = load(lab)
    for turn in range(KILLS):
        killed_at(lab, program, 0.4 * turn / KILLS)
        run = max((lab.home / "runs").iterdir())
        assert wait_until(lambda: run.name not in trial_cgroups())  # noqa: B023 - called in this turn
        assert not runs_on_host("sleep", "74.1")
        damage: list[LogError] = []
        frames = list(read_frames(run / "log", on_damage=damage.append))
        assert [error.frame for error in damage] in ([], [len(frames)])
        assert all(frame.header.events == len(list(events_in(frame))) for frame in frames[-3:])
        assert lab.call("verify", run.name).returncode == 1
        assert b"never judged" in lab.call("show", run.name).stdout
        shutil.rmtree(run)
    # The next start finds nothing to complain about, and is judged.
    assert lab.sh("true").finality == "final"


def frames_of(run: Path) -> Iterator[Frame]:
    """The whole frames of a run."""
    return read_frames(run / "log", on_damage=lambda _: None)


def events_in(frame: Frame) -> Iterator[Event]:
    """The events of one frame."""
    if frame.header.type == FrameType.JSON:
        yield decode_record(frame)
    else:
        yield from decode_slab(frame.payload, frame.header.first_event, os.uname().machine)


def test_log_that_is_cut_at_any_byte_gives_all_whole_frames(whole: Path, tmp_path: Path) -> None:
    """The end of the last segment is lost with the power: what is whole before it is told, and it is never sealed."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    segment = run / "log" / "000000.seg"
    data = segment.read_bytes()
    ends = [0]
    for frame in read_frames(whole / "log"):
        ends.append(ends[-1] + 64 + len(frame.payload))
    cuts = {*ends[:-1], *(end - 1 for end in ends[1:]), *(end + 1 for end in ends[:-1])}
    cuts |= set(range(0, len(data), len(data) // 50))
    for cut in sorted(cuts):
        segment.write_bytes(data[:cut])
        frames = list(frames_of(run))
        kept = max(number for number, end in enumerate(ends) if end <= cut)
        assert len(frames) == kept
        _, damage = told(run)
        assert (damage is None) == (cut in ends)
        assert damage is None or damage.frame == kept
        with pytest.raises(LogError) as caught:
            verify_log(run)
        assert caught.value.frame == kept
        assert cut not in ends or isinstance(caught.value, LogUnsealedError)


def test_log_whose_end_became_zeros_gives_all_whole_frames(whole: Path, tmp_path: Path) -> None:
    """A file system may keep the length of a file and lose its end: that is damage, at its place."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    segment = run / "log" / "000000.seg"
    data = segment.read_bytes()
    for cut in (64, 1000, len(data) // 2, len(data) - 1):
        segment.write_bytes(data[:cut].ljust(len(data), b"\0"))
        kept = len(list(frames_of(run)))
        _, damage = told(run)
        assert damage is not None
        assert damage.frame == kept
        with pytest.raises(LogError):
            verify_log(run)
