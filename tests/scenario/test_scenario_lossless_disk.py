"""The disk of the log is full: the trial stands still, the operator is told, and nothing that was logged is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_lab import PATIENCE_S, Lab, runs_on_host, wait_until
from scenario_load import fill, load, small_disk, trial_cgroups

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

SIZE_BYTES = 8 << 20

RUN_AND_FILL = """
import os, sys
from pathlib import Path
import supervisor
from scenario_load import fill
from supervisor.errors import SuperviseError
disk, phase, leave = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def on_progress(progress):
    if progress.phase == phase and not (disk / "filler").exists():
        fill(disk, leave_bytes=leave)
try:
    supervisor.run(["sh", "-c", "echo 1 > out"], cwd=sys.argv[4], period="endpoint", outcome="out",
                   room_wait_s=0.3, on_progress=on_progress, on_notice=lambda lines: print(*lines, sep="\\\\n"))
except SuperviseError as err:
    print(type(err).__name__, err)
    print(err.hint)
"""
"""Runs a trial, and fills the disk but so much when it comes to a phase."""


@pytest.fixture
def full_lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab whose home is on a disk of its own, which is soon full; what other trials leave is not its fault."""
    work = tmp_path / "work"
    work.mkdir()
    with small_disk(tmp_path / "home", SIZE_BYTES) as home:
        yield Lab(home, work, {"SUPERVISE_WAIT_FOR_ROOM": "2s"})


def runs(lab: Lab) -> list[Path]:
    """The directories of all runs."""
    return sorted((lab.home / "runs").iterdir())


def expect_unsealed(lab: Lab) -> None:
    """The last run is told as what it is: whole as far as it goes, unsealed, and unresolved in every verdict."""
    verified = lab.call("verify", "last")
    assert verified.returncode == 1
    assert b"never sealed" in verified.stderr
    shown = lab.call("show", "last").stdout
    assert all(
        f"{name} unresolved".encode() in b" ".join(shown.split()) for name in ("finality", "separation", "scope")
    )
    assert b" unsealed " in lab.call("ls").stdout
    assert lab.call("events", "last").returncode == 0
    assert not trial_cgroups() & {run.name for run in runs(lab)}


def test_full_disk_ends_the_run_unresolved_and_keeps_what_was_logged(full_lab: Lab) -> None:
    """No room comes: the operator was told what is full and what to do, and all of the trial is gone."""
    ended = full_lab.call("--", "sh", "-c", f"sleep 73.1 & {load(full_lab)} 2000000 1")
    told = ended.stderr.decode()
    assert ended.returncode == 125
    assert f"supervise: {full_lab.home} (" in told
    assert "the trial is frozen; make room there and it goes on by itself, else it is ended in 2 s" in told
    assert "its verdicts are unresolved" in told
    assert not runs_on_host("sleep", "73.1")
    # What was written is there to the last whole frame, and says when it ends.
    assert len(full_lab.call("events", "last", "--kind", "file.deleted").stdout.splitlines()) > 80_000
    expect_unsealed(full_lab)


def test_room_that_is_made_in_time_lets_the_trial_go_on(full_lab: Lab) -> None:
    """The trial stands frozen until there is room, and then ends as if nothing had been: nothing is lost."""
    full_lab.environ["SUPERVISE_WAIT_FOR_ROOM"] = "60s"
    program = load(full_lab)
    filler = fill(full_lab.home, leave_bytes=4 << 20)
    with full_lab.start("--", program, "70000", "1") as trial:
        assert trial.stderr is not None
        first, second = (trial.stderr.readline() for _ in range(2))
        filler.unlink()
        out, err = trial.communicate(timeout=PATIENCE_S)
    assert b"no room for the log" in first
    assert b"ended in 60 s" in second
    assert b"there is room again after" in err
    assert (trial.returncode, out) == (0, b"")
    report = full_lab.report()
    assert report["log"]["lost"] == 0
    assert report["log"]["events"] > 70_000
    (waited,) = full_lab.events("log.waited")
    assert waited["first_ns"] < waited["last_ns"]
    assert full_lab.call("verify", "last").returncode == 0
    assert report["finality"]["verdict"] == "final"


def test_operator_need_not_wait_for_room(full_lab: Lab) -> None:
    """Whoever interrupts a run that waits for room ends it at once."""
    full_lab.environ["SUPERVISE_WAIT_FOR_ROOM"] = "10m"
    with full_lab.start("--", load(full_lab), "2000000", "1") as trial:
        assert trial.stderr is not None
        assert b"no room for the log" in trial.stderr.readline()
        trial.send_signal(signal.SIGINT)
        trial.communicate(timeout=20)
    assert trial.returncode == 125
    expect_unsealed(full_lab)


def test_full_disk_is_noticed_while_the_trial_does_nothing(full_lab: Lab) -> None:
    """A trial that sleeps meets the full disk at its next step, and what it staged before can be committed later."""
    program = load(full_lab)
    with full_lab.start("--", "sh", "-c", f"echo staged > out; sleep 1; {program} 500 1; sleep 73.2") as trial:
        assert wait_until(lambda: any(full_lab.home.glob("runs/*/stage/upper/out")))
        filler = fill(full_lab.home)
        trial.communicate(timeout=PATIENCE_S)
    assert trial.returncode == 125
    assert not runs_on_host("sleep", "73.2")
    filler.unlink()
    expect_unsealed(full_lab)
    assert not (full_lab.work / "out").exists()
    assert full_lab.call("commit", "last").returncode == 0
    assert (full_lab.work / "out").read_text() == "staged\n"


@pytest.mark.parametrize(
    ("phase", "leave_kib"), [("settled", 0), *(("judging", leave_kib) for leave_kib in (0, 8, 12, 16, 20, 24, 32))]
)
def test_disk_that_fills_up_while_the_run_is_concluded(full_lab: Lab, phase: str, leave_kib: int) -> None:
    """Wherever it is met (end of the log, commit, completion, seal): sealed or clearly not, never half committed."""
    driver = [sys.executable, "-c", RUN_AND_FILL, str(full_lab.home), phase, str(leave_kib << 10), str(full_lab.work)]
    environ = os.environ | {"SUPERVISE_HOME": str(full_lab.home), "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(driver, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    sealed = full_lab.call("verify", "last").returncode == 0
    assert sealed == ("LogFullError" not in ended.stdout)
    assert not list(full_lab.home.glob("runs/*/.completion*"))
    (full_lab.home / "filler").unlink()
    if not sealed:
        assert "with room again" in ended.stdout
        expect_unsealed(full_lab)
    if sealed and (full_lab.work / "out").exists():
        assert json.loads((runs(full_lab)[-1] / "completion.json").read_bytes())["finality"]["verdict"] == "final"
        return
    committed = full_lab.call("commit", "last")
    assert committed.returncode == 0, committed.stderr
    assert (full_lab.work / "out").read_text() == "1\n"


def test_disk_that_is_full_from_the_start_starts_nothing(full_lab: Lab) -> None:
    """Before anything runs it is said that there is no room, and nothing is left behind."""
    fill(full_lab.home)
    ended = full_lab.call("--", "sh", "-c", "echo ran")
    assert ended.returncode == 125
    assert ended.stdout == b""
    assert b"No space left on device" in ended.stderr
    assert b"Traceback" not in ended.stderr
