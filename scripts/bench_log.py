"""What the log can take and what it costs: events a second without a loss, CPU, bytes, verifying, a million events.

    python scripts/bench_log.py [--rounds N] [--scale X] [--json FILE]

Every figure but the last comes from real trials, watched by the kernel witness:

* flood: a loop of open, write 4 KiB, close as fast as it goes, until there are a million events; from it also the time
  and the memory from the end of the trial to the sealed completion.json,
* paced: the same loop 5000 times a second, which is about 10,000 events, for what the supervisor itself costs,
* build: many small C files compiled and linked, for the bytes of log an event takes,
* verify: a synthetic log of 1 GB (``--verify-gb``), read by both verifiers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import bench_overhead
import measuring
import verify_log as second
from measuring import MeasuringError
from supervisor.events import TrialSealed
from supervisor.log.verify import verify_log
from supervisor.log.writer import LogWriter

COLUMNS = {"workload": "workload", "way": "what", "figure": "figure", "unit": "unit", "budget": "budget"}
FLOOD = 500_000
PACED = 25_000
SLAB_BYTES = 200_000
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The supervisor at one phase of a trial: when; its own CPU so far, events in the log, most memory so far."""

    at_s: float
    cpu_s: float
    events: int
    peak_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial that was measured: its phases, and what was concluded of its log."""

    moments: dict[str, Moment]
    lost: int
    events: int
    log_bytes: int
    directory: Path

    def between(self, first: str, last: str) -> tuple[float, float, int]:
        """Give seconds, the supervisor's CPU seconds and events between two phases."""
        begin, end = self.moments[first], self.moments[last]
        return end.at_s - begin.at_s, end.cpu_s - begin.cpu_s, end.events - begin.events


def look_at(pid: int, events: int) -> Moment:
    """Look at the supervisor: its own threads only, not the trial."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    cpu_s = (int(stat[11]) + int(stat[12])) / TICK
    return Moment(at_s=time.monotonic(), cpu_s=cpu_s, events=events, peak_mb=peak_kb / 1024)


def run_trial(command: Sequence[str], workspace: Path) -> Trial:
    """Run one trial and look at its supervisor whenever it tells of a phase.

    Raises:
        MeasuringError: it failed.
    """
    reading, writing = os.pipe()
    words = [measuring.supervise_command(), "-q", "--status-fd", str(writing), "--", *command]
    moments: dict[str, Moment] = {}
    run = ""
    with (
        subprocess.Popen(words, cwd=workspace, stdout=subprocess.DEVNULL, pass_fds=(writing,)) as supervisor,
        os.fdopen(reading, encoding="ascii") as told,
    ):
        os.close(writing)
        for line in told:
            record = json.loads(line)
            run = record["run"]
            with suppress(OSError, StopIteration):  # the last lines may come after its end
                moments[record["phase"]] = look_at(supervisor.pid, record.get("events", 0))
    if supervisor.returncode or "sealed" not in moments:
        message = f"supervise: expected a sealed run and exit code 0, got {supervisor.returncode}"
        raise MeasuringError(message)
    return _trial(Path(os.environ["SUPERVISE_HOME"]) / "runs" / run, moments)


def _trial(directory: Path, moments: dict[str, Moment]) -> Trial:
    log = json.loads((directory / "completion.json").read_bytes())["log"]
    size = sum(path.stat().st_size for path in (directory / "log").iterdir())
    return Trial(moments=moments, lost=log["lost"], events=log["events"], log_bytes=size, directory=directory)


def row(workload: str, way: str, figure: float, unit: str, budget: str = "") -> dict[str, object]:
    """Make one row of the table."""
    return {"workload": workload, "way": way, "figure": round(figure, 2), "unit": unit, "budget": budget}


def flood_rows(trials: Sequence[Trial]) -> list[dict[str, object]]:
    """Tell what the floods showed."""
    spans = [trial.between("released", "endpoint") for trial in trials]
    rate = statistics.median(events / wall_s for wall_s, _, events in spans)
    cpu = statistics.median(cpu_s / events * 1e6 for _, cpu_s, events in spans)
    ends = [(trial.between("judging", "sealed")[0], trial.events) for trial in trials]
    million_s = statistics.median(seconds / events * 1e6 for seconds, events in ends)
    return [
        row("flood", "events", statistics.median(trial.events for trial in trials), "events"),
        row("flood", "lost", sum(trial.lost for trial in trials), "events", "0"),
        row("flood", "sustained", rate, "events/s", ">= 250000"),
        row("flood", "supervisor's CPU", cpu, "us/event"),
        row("flood", "bytes of log", statistics.median(trial.log_bytes / trial.events for trial in trials), "B/event"),
        row("flood", "to completion.json", million_s, "s/1M events", "<= 10"),
        row("flood", "most memory", max(trial.moments["sealed"].peak_mb for trial in trials), "MB", "<= 500"),
    ]


def paced_rows(trials: Sequence[Trial]) -> list[dict[str, object]]:
    """Tell what a supervisor costs at an ordinary rate."""
    spans = [trial.between("released", "endpoint") for trial in trials]
    rate = statistics.median(events / wall_s for wall_s, _, events in spans)
    share = statistics.median(cpu_s / wall_s / (events / wall_s / 10_000) * 100 for wall_s, cpu_s, events in spans)
    return [
        row("paced", "rate", rate, "events/s"),
        row("paced", "supervisor's CPU", share, "% at 10k events/s", "<= 5"),
        row("paced", "lost", sum(trial.lost for trial in trials), "events", "0"),
    ]


def build_rows(trials: Sequence[Trial]) -> list[dict[str, object]]:
    """Tell how long the log of a build is."""
    return [
        row("build", "events", statistics.median(trial.events for trial in trials), "events"),
        row("build", "bytes of log", statistics.median(trial.log_bytes / trial.events for trial in trials), "B/event"),
        row("build", "lost", sum(trial.lost for trial in trials), "events", "0"),
    ]


def write_synthetic(run: Path, size_bytes: int) -> None:
    """Write a sealed log of that size, unsigned, of opaque slabs."""
    run.mkdir()
    manifest = b'{"run": "synthetic"}'
    (run / "manifest.json").write_bytes(manifest)
    log = LogWriter.create(run / "log", manifest_digest=digest_of(manifest))
    slab = os.urandom(SLAB_BYTES)
    for _ in range(size_bytes // SLAB_BYTES):
        log.append_kernel(slab, 1000)
    evidence = log.checkpoint()
    completion = json.dumps({"log": {"frames": evidence.frames, "root": evidence.root}}).encode()
    (run / "completion.json").write_bytes(completion)
    log.seal(
        lambda n: TrialSealed(
            n=n,
            time_ns=0,
            evidence_frames=evidence.frames,
            evidence_root=evidence.root,
            completion=digest_of(completion),
            stage="none",
        )
    )


def digest_of(data: bytes) -> str:
    """Give a digest as documents write it."""
    return f"sha256:{sha256(data).hexdigest()}"


def verify_rows(run: Path, workload: str) -> list[dict[str, object]]:
    """Time both verifiers over one log."""
    size_mb = sum(path.stat().st_size for path in (run / "log").iterdir()) / 1e6
    found = []
    for name, verify in (("supervise verify", verify_log), ("verify_log.py", second.verify)):
        began_s = time.perf_counter()
        verify(run)
        found.append(row(workload, name, size_mb / (time.perf_counter() - began_s), "MB/s", ">= 300"))
    return found


def measure_synthetic(size_gb: float) -> list[dict[str, object]]:
    """Time both verifiers over a long log of their own."""
    with TemporaryDirectory(prefix="supervise-bench-") as place:
        run = Path(place) / "run"
        write_synthetic(run, int(size_gb * 1e9))
        return verify_rows(run, f"log of {size_gb:g} GB")


def main(words: list[str]) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="What the log can take and what it costs.")
    parser.add_argument("--rounds", type=int, default=3, help="trials of each workload (default: 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the loops (default: 1)")
    parser.add_argument("--verify-gb", type=float, default=1.0, help="size of the log to verify (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args(words)
    program = measuring.PROGRAM
    flood = (program, "loop", str(int(FLOOD * options.scale)))
    paced = (program, "paced", str(int(PACED * options.scale)))
    build = (program, "time", "sh", "-c", bench_overhead.BUILD_SCRIPT)
    with measuring.scratch() as folder:
        fresh = bench_overhead.workspaces(folder)
        floods = [run_trial(flood, fresh()) for _ in range(options.rounds)]
        found = flood_rows(floods) + verify_rows(floods[-1].directory, "flood")
        found += paced_rows([run_trial(paced, fresh()) for _ in range(options.rounds)])
        found += build_rows([run_trial(build, fresh()) for _ in range(options.rounds)])
    found += measure_synthetic(options.verify_gb)
    measuring.print_table(found, COLUMNS)
    measuring.write_json(options.json, found, rounds=options.rounds)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MeasuringError as error:
        sys.exit(f"bench_log: {error}")
