"""Whatever the rate, whoever stands still, however slow the disk: every event is in the log, and the run is judged."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from scenario_lab import PATIENCE_S, Lab
from scenario_load import load, slow_disk, throttled_disk

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

OURS = 700
"""More events than a trial has that does nothing."""


def test_half_a_million_events_are_all_logged(lab: Lab) -> None:
    """500,000 events as fast as one process makes them: none is lost, the log verifies, and the verdict is given."""
    ran = lab.run("--", load(lab), "500000", "1")
    assert ran.report["log"]["lost"] == 0
    assert 500_000 < ran.report["log"]["events"] < 500_000 + OURS
    assert lab.call("verify", "last").returncode == 0
    assert ran.finality == "final"


def test_sixteen_trials_at_full_rate_lose_nothing(lab: Lab) -> None:
    """16 trials that begin at one moment, each as fast as it can: each has all of its events, and verifies."""
    program = load(lab)
    reading, writing = os.pipe()
    command = ("-q", "--status-fd", "2", "--", program, "30000", "2", "wait")
    trials = [lab.start(*command, stdin=reading, stdout=subprocess.DEVNULL) for _ in range(16)]
    os.close(reading)
    for trial in trials:
        assert trial.stderr is not None
        assert any(b'"released"' in line for line in trial.stderr)
    os.close(writing)
    codes = [(trial.communicate(timeout=4 * PATIENCE_S), trial.returncode)[1] for trial in trials]
    reports = [json.loads(path.read_bytes()) for path in (lab.home / "runs").glob("*/completion.json")]
    assert codes == [0] * 16
    assert [report["log"]["lost"] for report in reports] == [0] * 16
    assert all(60_000 < report["log"]["events"] < 60_000 + OURS for report in reports)
    assert lab.call("verify", *[report["run"] for report in reports]).returncode == 0
    assert {report["finality"]["verdict"] for report in reports} == {"final"}


def test_supervisor_that_is_stopped_for_a_second_loses_nothing(lab: Lab) -> None:
    """All of the supervisor stands still under full load: the trial waits in the kernel until it goes on."""
    with lab.start("-q", "--status-fd", "2", "--", load(lab), "400000", "2") as trial:
        assert trial.stderr is not None
        assert any(b'"released"' in line for line in trial.stderr)
        time.sleep(0.05)
        trial.send_signal(signal.SIGSTOP)
        time.sleep(1)
        still_running = trial.poll() is None
        trial.send_signal(signal.SIGCONT)
        trial.communicate(timeout=PATIENCE_S)
    report = lab.report()
    assert still_running
    assert report["log"]["lost"] == 0
    assert 800_000 < report["log"]["events"] < 800_000 + OURS
    assert report["finality"]["verdict"] == "final"


def test_slow_disk_slows_the_trial_and_loses_nothing(lab: Lab) -> None:
    """Each write takes a quarter of a second: the trial waits, is frozen when the ring fills, and is whole."""
    lab.environ.update(slow_disk(lab, write_ms=250))
    ran = lab.run("-q", "--", load(lab), "300000", "1")
    assert ran.report["log"]["lost"] == 0
    assert 300_000 < ran.report["log"]["events"] < 300_000 + OURS
    assert lab.call("verify", "last").returncode == 0
    assert ran.finality == "final"


def test_slow_device_delays_the_seal_and_not_the_trial(tmp_path: Path) -> None:
    """A device of 2 MB/s under 12 MB of log: the trial is over long before the disk has it all, and nothing is lost.

    A machine without loop devices, or without a throttle, has the time that a sync takes prolonged instead.
    """
    lab = Lab(tmp_path / "home", tmp_path / "work")
    lab.work.mkdir()
    with ExitStack() as stack:
        slowed: Path | None = None
        try:
            slowed = stack.enter_context(throttled_disk(lab.home, size_bytes=64 << 20, bytes_per_s=2_000_000))
        except (OSError, subprocess.CalledProcessError):
            lab.home.mkdir(mode=0o700, exist_ok=True)
            lab.environ.update(slow_disk(lab, sync_ms=1000))
        with lab.start("-q", "--status-fd", "2", "--", load(lab), "80000", "2") as trial:
            if slowed is not None:
                slowed.write_text(str(trial.pid), encoding="ascii")
            _, said = trial.communicate(timeout=2 * PATIENCE_S)
        at_s = {one["phase"]: one["elapsed_s"] for one in map(json.loads, said.splitlines()) if "elapsed_s" in one}
        report = lab.report()
        assert lab.call("verify", "last").returncode == 0
    assert at_s["endpoint"] < 3 < at_s["sealed"]
    assert report["log"]["lost"] == 0
    assert 160_000 < report["log"]["events"] < 160_000 + OURS
    assert report["finality"]["verdict"] == "final"


def test_sync_that_hangs_does_not_hold_the_trial(lab: Lab) -> None:
    """The log is brought to the disk while the trial runs, and a disk that takes its time stops nobody."""
    lab.environ.update(slow_disk(lab, sync_ms=1000))
    turn = "i=0; while [ $i -lt 30 ]; do sleep 0.1; : > tick; i=$((i+1)); done"
    ran = lab.sh(turn, "-q")
    ticks = [event["t"] for event in lab.events("file.opened") if event.get("path", "").endswith("/tick")]
    assert len(ticks) == 30
    assert _span_s(ticks[0], ticks[-1]) < 4.5
    assert ran.finality == "final"


def test_memory_does_not_grow_with_the_number_of_events(lab: Lab) -> None:
    """Logging two million events needs hardly more memory than a few, and they lie in segments of 64 MiB."""
    program = load(lab)
    small, large = (_peak_bytes(lab, "-q", "--", program, count, "1") for count in ("1000", "2000000"))
    segments = sorted((max((lab.home / "runs").iterdir()) / "log").glob("*.seg"))
    report = lab.report()
    assert report["log"]["lost"] == 0
    assert report["log"]["events"] > 2_000_000
    assert len(segments) > 1
    assert all(segment.stat().st_size <= 64 << 20 for segment in segments)
    assert large < small + (32 << 20), (small, large)


def _peak_bytes(lab: Lab, *argv: str) -> int:
    """Run a trial, and give the most memory that its supervisor had until it began to judge."""
    with lab.start("--status-fd", "2", *argv) as trial:
        assert trial.stderr is not None
        assert any(b'"judging"' in line for line in trial.stderr)
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{trial.pid}/status").read_text(encoding="ascii"))
        trial.communicate(timeout=PATIENCE_S)
    assert trial.returncode == 0
    return int(peak) << 10


def _span_s(first: str, last: str) -> float:
    """Give the seconds between two times of one day."""
    seconds = [
        sum(float(p) * u for p, u in zip(t[11:-1].split(":"), (3600, 60, 1), strict=True)) for t in (first, last)
    ]
    return (seconds[1] - seconds[0]) % 86400
