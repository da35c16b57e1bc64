"""What supervision costs while a command runs, and what it costs everybody else on the machine.

    python scripts/bench_overhead.py [--rounds N] [--json FILE] [--no-trace] [--only WORKLOAD]

Workloads: a build (many small C files compiled and linked, thousands of files opened, hundreds of forks), a loop of
open/write 4 KiB/close, a fork storm, and getppid. Ways: bare, ``supervise``, ``bwrap``, ``strace -f`` when it is there.
``inside`` is what the workload itself took, ``whole`` the time of the command with the start and end of its supervisor.
The loop is also run where what a file system costs can be told from what we do: over bare overlays, with ``--direct``,
and in the box's own ``/tmp`` beside a bare tmpfs. Then the same loop outside of any trial, while none and while one is
running; last, commands that touch very many files (`bench_files`). ``--only`` takes the name of one workload, ``rest``
or ``files``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import bench_files
import measuring
from measuring import PROGRAM, MeasuringError, Series, Way, compile_workloads

UNITS = 40
READS = 3000
FORKS = 200

BUILD_SCRIPT = f"""
set -eu
for unit in unit_*.c; do cc -O1 -c "$unit" -o "${{unit%.c}}.o"; done
cc -o program unit_*.o
./program
i=0
while [ $i -lt {READS} ]; do read -r line < "header_$((i % 100)).h"; i=$((i + 1)); done
i=0
while [ $i -lt {FORKS} ]; do (:); i=$((i + 1)); done
"""

LOOP = "open/write/close"
PLAIN = "bwrap+overlay"
ELSEWHERE = """
folder=$(mktemp -d -p "$1")
program=$PWD/$2
shift 2
cd "$folder"
"$program" "$@"
rm -r "$folder"
"""
"""Run by ``sh -e``: the program of the workspace, in a new folder below the first word."""

COLUMNS = {
    "workload": "workload",
    "way": "way",
    "inside_ms": "inside ms",
    "inside_ratio": "x bare",
    "overlay_ratio": "x overlay",
    "whole_ms": "whole ms",
    "whole_ratio": "x bare",
    "runs": "runs",
}
REST_COLUMNS = {
    "workload": "bystander",
    "way": "meanwhile",
    "inside_ms": "ms",
    "inside_ratio": "ratio",
    "runs": "runs",
}


def write_project(folder: Path) -> None:
    """Write a C project of many small files, and headers to read."""
    folder.mkdir()
    for number in range(UNITS):
        body = f"int part_{number}(int x) {{ return x * {number + 1} + {number}; }}\n"
        text = f"#include <stdio.h>\n#include <stdlib.h>\n{body}"
        (folder / f"unit_{number:02}.c").write_text(text, encoding="ascii")
    (folder / "unit_main.c").write_text("int part_0(int);\nint main(void) { return part_0(0); }\n", encoding="ascii")
    for number in range(100):
        (folder / f"header_{number}.h").write_text(f"#define VALUE_{number} {number}\n", encoding="ascii")


def workspaces(folder: Path) -> Callable[[], Path]:
    """Give a maker of fresh workspaces: every run starts from the same files."""
    template = folder / "template"
    write_project(template)
    compile_workloads(template)
    numbers = iter(range(10**9))

    def fresh() -> Path:
        return Path(shutil.copytree(template, folder / f"work-{next(numbers)}"))

    return fresh


def workloads(scale: float) -> dict[str, tuple[str, ...]]:
    """Give every workload as a command."""
    return {
        "build": (PROGRAM, "time", "sh", "-c", BUILD_SCRIPT),
        LOOP: (PROGRAM, "loop", str(int(20_000 * scale))),
        "fork storm": (PROGRAM, "forks", str(int(2_000 * scale))),
        "getppid": (PROGRAM, "getppid", str(int(300_000 * scale))),
    }


def places() -> tuple[Way, ...]:
    """Give the ways of the loop that differ by the file system it writes to."""
    supervise = (measuring.supervise_command(), "-q")
    elsewhere = ("sh", "-ec", ELSEWHERE, "sh")
    return (
        Way(name=PLAIN, prefix=measuring.over_overlay(measuring.PLAIN_OVERLAY)),
        Way(name="bwrap+stage's overlay", prefix=measuring.over_overlay(measuring.STAGE_OVERLAY)),
        Way(name="supervise --direct", prefix=(*supervise, "--direct", "--")),
        Way(name="bare in tmpfs", prefix=(*elsewhere, "/dev/shm")),  # noqa: S108 - a tmpfs of every machine
        Way(name="supervise in /tmp", prefix=(*supervise, "--", *elsewhere, "/tmp")),  # noqa: S108 - the box's own
    )


def overlay_ratios(found: list[dict[str, object]]) -> list[dict[str, object]]:
    """Add to each row of the loop what it took beside the plain overlay."""
    (base,) = (float(str(row["inside_ms"])) for row in found if row["way"] == PLAIN)
    return [{**row, "overlay_ratio": round(float(str(row["inside_ms"])) / base, 3)} for row in found]


@contextmanager
def one_trial(workspace: Path) -> Iterator[None]:
    """Keep one quiet trial running meanwhile."""
    command = [measuring.supervise_command(), "-q", "--", "sh", "-c", "echo ready; exec sleep 600"]
    with subprocess.Popen(command, cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as trial:
        try:
            if trial.stdout is None or trial.stdout.readline() != b"ready\n":
                message = "supervise: expected a running trial, got none"
                raise MeasuringError(message)
            yield
        finally:
            trial.terminate()


def measure_rest(fresh: Callable[[], Path], rounds: int, scale: float) -> list[dict[str, object]]:
    """Measure a bystander: a command outside of any trial, while none and while one is running, by turns."""
    bystander = {"loop": ("loop", 20_000), "getppid": ("getppid", 1_000_000)}
    series = {name: {"no trial": Series(), "one trial": Series()} for name in bystander}
    for _ in range(rounds):
        for state in ("no trial", "one trial"):
            with one_trial(fresh()) if state == "one trial" else _nothing():
                time.sleep(0.2)
                for name, (word, count) in bystander.items():
                    command = (PROGRAM, word, str(int(count * scale)))
                    whole_s, inside_s = measuring.run_once(Way(name="bare"), command, fresh())
                    series[name][state].whole_s.append(whole_s)
                    series[name][state].inside_s.append(inside_s)
    return [row for name, both in series.items() for row in measuring.rows(name, both, baseline="no trial")]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def parse(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="What supervision costs, inside a trial and outside of it.")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default: 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the loops (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--no-trace", action="store_true", help="leave strace out: it takes most of the time")
    parser.add_argument(
        "--only", metavar="WORKLOAD", help=", ".join((*workloads(1), "rest", "files", *bench_files.workloads()))
    )
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Measure, print, write."""
    options = parse(words)
    found: list[dict[str, object]] = []
    rest: list[dict[str, object]] = []
    with measuring.scratch() as folder:
        fresh = workspaces(folder)
        ways = measuring.ways(trace=not options.no_trace)
        for name, command in workloads(options.scale).items():
            if options.only in {None, name}:
                more = places() if name == LOOP else ()
                taken = measuring.rows(name, measuring.take_turns((*ways, *more), options.rounds, command, fresh))
                found += overlay_ratios(taken) if more else taken
        if options.only in {None, "rest"}:
            rest = measure_rest(fresh, options.rounds, options.scale)
        files = bench_files.measure_all(options.only, options.rounds, folder)
    for one, columns in ((found, COLUMNS), (rest, REST_COLUMNS), (files, bench_files.COLUMNS)):
        if one:
            measuring.print_table(one, columns)
            print()
    measuring.write_json(options.json, found + rest + files, rounds=options.rounds)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MeasuringError as error:
        sys.exit(f"bench_overhead: {error}")
