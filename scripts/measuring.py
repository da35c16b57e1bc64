"""What the benchmarks share: which commands are compared, runs that take turns, medians, the table.

Turns are taken round by round, so that a slow minute of the machine is everybody's. Figures are medians; ratios are
against the bare command of the same session.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

BOX = ("bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-all", "--die-with-parent", "--")
OVERLAY = """
options=$1
shift
place=$(mktemp -d -p "$BENCH_SCRATCH")
mkdir "$place/up" "$place/work"
work=$PWD
mount -t overlay -o "lowerdir=$work,upperdir=$place/up,workdir=$place/work,$options" overlay "$work"
cd "$work"
"$@"
"""
"""Run by ``sh -e`` in a mount namespace of its own."""
PLAIN_OVERLAY = "volatile"
STAGE_OVERLAY = "volatile,redirect_dir=on,index=on,metacopy=off"
"""Mount options: of an overlay as it is by default, and of that of a stage, which keeps hard links together."""
TRACE = ("strace", "-f", "-qq", "-o", "/dev/null", "--")
SOURCE = Path(__file__).resolve().parent / "bench_workloads.c"
PROGRAM = "./workloads"
NAMES = 2
"""Columns of a table that hold names; the others hold figures."""


class MeasuringError(Exception):
    """A command under test did not do its work, so its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run the same command: its name, and the words that go before the command."""

    name: str
    prefix: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Series:
    """The seconds that one way took, run by run, and the same without what the way costs at its start and end."""

    whole_s: list[float] = field(default_factory=list)
    inside_s: list[float] = field(default_factory=list)


def supervise_command() -> str:
    """Find the command under test: ``$SUPERVISE``, the one beside this Python, or the one on the PATH.

    Raises:
        MeasuringError: there is none.
    """
    beside = Path(sys.executable).parent / "supervise"
    found = os.environ.get("SUPERVISE") or (str(beside) if beside.exists() else shutil.which("supervise"))
    if not found:
        message = "supervise: expected the command in this environment, found none; make setup installs it"
        raise MeasuringError(message)
    return found


def ways(*, trace: bool) -> tuple[Way, ...]:
    """Give the ways that can be measured here, the bare one first."""
    found = [Way(name="bare"), Way(name="supervise", prefix=(supervise_command(), "-q", "--"))]
    if shutil.which("bwrap"):
        found.append(Way(name="bwrap", prefix=BOX))
    if trace and shutil.which("strace"):
        found.append(Way(name="strace -f", prefix=TRACE))
    return tuple(found)


def over_overlay(options: str) -> tuple[str, ...]:
    """Give the words that run a command in bubblewrap over an overlay of the workspace."""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-ec", OVERLAY, "sh", options, *BOX)


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder of this benchmark's own; runs of ``supervise`` keep their logs in it and go with it."""
    with TemporaryDirectory(prefix="supervise-bench-") as name:
        home = Path(name) / "state"
        home.mkdir(mode=0o700)
        # An installed program has its bytecode: what was edited since is compiled in the round that is not counted.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        before = os.environ.get("SUPERVISE_HOME")
        os.environ["SUPERVISE_HOME"] = str(home)
        os.environ["BENCH_SCRATCH"] = name
        try:
            yield Path(name)
        finally:
            os.environ.pop("SUPERVISE_HOME")
            if before is not None:
                os.environ["SUPERVISE_HOME"] = before


def compile_workloads(folder: Path) -> None:
    """Compile the workloads into a workspace: of what lies in /tmp, a trial sees nothing else.

    Raises:
        MeasuringError: there is no compiler.
    """
    target = folder / PROGRAM
    done = subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", str(target), str(SOURCE)], check=False)
    if done.returncode:
        message = f"cc: expected exit code 0, got {done.returncode}"
        raise MeasuringError(message)


def run_once(way: Way, command: Sequence[str], workspace: Path) -> tuple[float, float]:
    """Run a command once in a workspace.

    Returns:
        Seconds of the whole, and the seconds that the command itself says it took (its last line: nanoseconds).

    Raises:
        MeasuringError: it failed, or said no time.
    """
    started = time.perf_counter()
    done = subprocess.run(
        [*way.prefix, *command], cwd=workspace, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True
    )
    whole_s = time.perf_counter() - started
    lines = done.stdout.split()
    if done.returncode:
        message = f"{way.name}: expected exit code 0, got {done.returncode}: {done.stderr[-400:]}"
        raise MeasuringError(message)
    return whole_s, int(lines[-1]) / 1e9 if lines else whole_s


def take_turns(
    found: Sequence[Way], rounds: int, command: Sequence[str], fresh: Callable[[], Path]
) -> dict[str, Series]:
    """Run a command in every way, round by round; the first round only warms up and is not counted."""
    series = {way.name: Series() for way in found}
    for turn in range(rounds + 1):
        for way in found:
            workspace = fresh()
            whole_s, inside_s = run_once(way, command, workspace)
            shutil.rmtree(workspace)
            if turn:
                series[way.name].whole_s.append(whole_s)
                series[way.name].inside_s.append(inside_s)
    return series


def rows(name: str, series: Mapping[str, Series], *, baseline: str = "bare") -> list[dict[str, object]]:
    """Give one row for each way: medians in milliseconds, ratios to the baseline."""
    base = series[baseline]
    return [
        {
            "workload": name,
            "way": way,
            "inside_ms": round(statistics.median(one.inside_s) * 1e3, 2),
            "inside_ratio": round(statistics.median(one.inside_s) / statistics.median(base.inside_s), 3),
            "whole_ms": round(statistics.median(one.whole_s) * 1e3, 2),
            "whole_ratio": round(statistics.median(one.whole_s) / statistics.median(base.whole_s), 3),
            "fastest_inside_ms": round(min(one.inside_s) * 1e3, 2),
            "runs": len(one.inside_s),
        }
        for way, one in series.items()
    ]


def print_table(found: Sequence[Mapping[str, object]], columns: Mapping[str, str]) -> None:
    """Print rows as a table; ``columns`` maps a field to its heading."""
    cells = [list(columns.values()), *([str(row.get(name, "")) for name in columns] for row in found)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    for number, line in enumerate(cells):
        words = [cell.ljust(width) for cell, width in zip(line[:NAMES], widths, strict=False)]
        figures = [cell.rjust(width) for cell, width in zip(line[NAMES:], widths[NAMES:], strict=True)]
        print("  ".join(words + figures))
        if not number:
            print("  ".join("-" * width for width in widths))


def write_json(place: str | None, found: Sequence[Mapping[str, object]], *, rounds: int) -> None:
    """Write the rows with what they were measured on; nothing when no place was named."""
    if place is None:
        return
    machine = {"kernel": platform.release(), "machine": platform.machine(), "processors": os.cpu_count()}
    told = {"schema": "benchmark/1", "machine": machine, "python": platform.python_version(), "rounds": rounds}
    Path(place).write_text(json.dumps({**told, "rows": list(found)}, indent=1) + "\n", encoding="utf-8")
