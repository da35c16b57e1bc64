"""What supervision costs commands that touch very many files, beside bubblewrap over an overlay of the same workspace.

Workloads: ``git status`` in 50,000 files, the first and the second of one mount, ``pip install`` of 30 local wheels, a
tree of 40,000 small files as a package manager makes it (minutes a round, on a slow disk), 2 GB written in one go.
Ways, by turns: ``bwrap`` over an overlay mount with the kernel's default options, and with those of a stage,
``supervise`` with the writes left staged, and with the writes applied to the workspace. ``inside`` is what the workload
itself took; ``whole`` ends with the report; ``memory`` is the most that any process of the way held, the supervisor's
report among them. `bench_overhead` runs it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import measuring
from measuring import PROGRAM, MeasuringError, Series, Way, compile_workloads

FILES = 50_000
WHEELS = 30
MODULES = 40
PACKAGES = 4_000
PER_PACKAGE = 10
WRITTEN_MB = 2_000

AGAIN = 'git status --porcelain; exec "$0" time git status --porcelain'
"""The second look: an overlay with ``index=on`` asks its index once for each file that nobody has looked up before."""

COLUMNS = {
    "workload": "workload",
    "way": "way",
    "inside_ms": "inside ms",
    "inside_ratio": "x overlay",
    "whole_ms": "whole ms",
    "whole_ratio": "x overlay",
    "memory_mb": "memory MB",
    "runs": "runs",
}
BASELINE = "bwrap+overlay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload: how its workspace is filled, the command, and what is removed again when it was applied."""

    fill: Callable[[Path], None]
    command: tuple[str, ...]
    makes: str = ""


@dataclass(slots=True)
class Taken:
    """What one way took, run by run."""

    series: Series = field(default_factory=Series)
    memory_kb: list[int] = field(default_factory=list)


def fill_repository(folder: Path) -> None:
    """Commit many small files into a repository."""
    for number in range(FILES):
        place = folder / f"d{number // 250}"
        if number % 250 == 0:
            place.mkdir()
        (place / f"file_{number}.txt").write_text(f"{number}\n", encoding="ascii")
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.test", "-c", "gc.auto=0")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "all")):
        subprocess.run(["git", *words], cwd=folder, check=True)


def fill_wheels(folder: Path) -> None:
    """Write wheels of plain modules."""
    (folder / "wheels").mkdir()
    for number in range(WHEELS):
        name = f"bench_pkg{number}"
        modules = {f"{name}/module_{n}.py": f"VALUE = {n}\n" * 20 for n in range(MODULES)}
        write_wheel(folder / "wheels" / f"{name}-1.0-py3-none-any.whl", name, modules)


def write_wheel(path: Path, name: str, modules: dict[str, str]) -> None:
    """Write one wheel (the binary distribution format of packaging.python.org)."""
    info = f"{name}-1.0.dist-info"
    texts = {
        **modules,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{place},sha256={_digest(text)},{len(text)}" for place, text in texts.items()]
    with zipfile.ZipFile(path, "w") as wheel:
        for place, text in texts.items():
            wheel.writestr(place, text)
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]) + "\n")


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def workloads() -> dict[str, Workload]:
    """Give every workload."""
    pip = (
        *(sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-cache-dir"),
        *("--disable-pip-version-check", "--find-links", "wheels", "--target", "site"),
    )
    timed = (PROGRAM, "time")
    return {
        "git status": Workload(fill=fill_repository, command=(*timed, "git", "status", "--porcelain")),
        "git status again": Workload(fill=fill_repository, command=("sh", "-ec", AGAIN, PROGRAM)),
        "pip install": Workload(
            fill=fill_wheels,
            command=(*timed, *pip, *(f"bench-pkg{number}" for number in range(WHEELS))),
            makes="site",
        ),
        "package tree": Workload(
            fill=lambda _: None, command=(PROGRAM, "tree", str(PACKAGES), str(PER_PACKAGE)), makes="packages"
        ),
        "2 GB write": Workload(
            fill=lambda _: None,
            command=(*timed, "dd", "if=/dev/zero", "of=big", "bs=1M", f"count={WRITTEN_MB}", "status=none"),
            makes="big",
        ),
    }


def ways() -> tuple[Way, ...]:
    """Give the ways, the one to compare with first."""
    return (
        Way(name=BASELINE, prefix=measuring.over_overlay(measuring.PLAIN_OVERLAY)),
        Way(name="bwrap+stage's overlay", prefix=measuring.over_overlay(measuring.STAGE_OVERLAY)),
        Way(name="supervise", prefix=(measuring.supervise_command(), "-q", "--commit", "never", "--")),
        Way(name="applied", prefix=(measuring.supervise_command(), "-q", "--commit", "always", "--")),
    )


def run_once(way: Way, command: Sequence[str], workspace: Path) -> tuple[float, float, int]:
    """Run a command once.

    Returns:
        Seconds of the whole, seconds that the command says it took, and the most memory of one process in kB.

    Raises:
        MeasuringError: it failed, or said no time.
    """
    started = time.perf_counter()
    with subprocess.Popen(
        [*way.prefix, *command],
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        said = process.stdout.read().split() if process.stdout else []
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    whole_s = time.perf_counter() - started
    if process.returncode or not said:
        message = f"{way.name}: expected exit code 0 and a time, got {process.returncode}"
        raise MeasuringError(message)
    return whole_s, int(said[-1]) / 1e9, used.ru_maxrss


def measure(workload: Workload, rounds: int, folder: Path) -> dict[str, Taken]:
    """Run a workload in every way, by turns; the first round only warms up and is not counted."""
    taken = {way.name: Taken() for way in ways()}
    pristine = folder / "workspace"
    pristine.mkdir()
    compile_workloads(pristine)
    workload.fill(pristine)
    for turn in range(rounds + 1):
        for way in ways():
            whole_s, inside_s, memory_kb = run_once(way, workload.command, pristine)
            for place in (*folder.glob("state/runs/*"), *folder.glob("tmp.*")):
                shutil.rmtree(place, ignore_errors=True)
            if workload.makes:
                subprocess.run(["rm", "-rf", workload.makes], cwd=pristine, check=True)
            if turn:
                taken[way.name].series.whole_s.append(whole_s)
                taken[way.name].series.inside_s.append(inside_s)
                taken[way.name].memory_kb.append(memory_kb)
    shutil.rmtree(pristine)
    return taken


def rows(name: str, taken: dict[str, Taken]) -> list[dict[str, object]]:
    """Give one row for each way."""
    found = measuring.rows(name, {way: one.series for way, one in taken.items()}, baseline=BASELINE)
    return [{**row, "memory_mb": max(taken[str(row["way"])].memory_kb) // 1000} for row in found]


def measure_all(only: str | None, rounds: int, folder: Path) -> list[dict[str, object]]:
    """Measure every workload, or the one that is asked for, and give their rows.

    Args:
        only: a workload, ``files`` or None for all; any other name is none of these.
        rounds: counted rounds.
        folder: scratch space of the benchmark.
    """
    chosen = {name: one for name, one in workloads().items() if only in {None, "files", name}}
    return [row for name, one in chosen.items() for row in rows(name, measure(one, rounds, folder))]
