"""Measure judging many runs against each other: time and memory, on indexes as sealed runs write them.

    python scripts/bench_separation.py [--runs 10000] [--effects 1000] [--shared 0.01] [--verify RUN]
    python scripts/bench_separation.py --write DIR; python scripts/bench_separation.py --read DIR

Indexes are written to disk as a run does, and read from there as `supervise separate` does. What it takes to verify the
log of each run beside is measured on a sealed run that is named (a directory), and multiplied. With `--write` and
`--read` the two halves are apart, so that only the second one needs a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from supervisor.evidence.file_facts import Sight
from supervisor.kept.reading import verify_run
from supervisor.launch.runs.state import RunDir
from supervisor.verdict.runs.pairs import separate_pairs
from supervisor.verdict.runs.run_index import Contact, RunIndex, Stream, decode_index, encode_index, head_of

SECOND = 1_000_000_000
BUDGET_S, BUDGET_BYTES = 60.0, 2 << 30


def make_run(number: int, effects: int, shared: float, seed: int) -> RunIndex:
    """Make one run: most effects in a place of its own, some in a place that every hundredth run uses too.

    Of that one it tells what it found and left, as runs do; somebody unknown has written all of it in between.
    All append to one log, and were given one pipe at its end.
    """
    chosen = random.Random(seed * 1_000_003 + number)  # noqa: S311 - figures of a benchmark
    start_ns = number * SECOND
    contacts = []
    found, left = [], []
    for effect in range(effects):
        at_ns = start_ns + effect
        everybodys = chosen.random() < shared
        place = (
            f"/srv/shared/{number % 100}/{chosen.randrange(50)}"
            if everybodys
            else f"/srv/own/{number}/d{effect % 40}/f{effect}"
        )
        how = chosen.choice(("changed", "read", "read"))
        contacts.append(Contact(place.encode(), how, at_ns, at_ns + 5, (effect,)))
        if everybodys:
            found.append(Sight(place.encode(), 1, 2, 1, 3, start_ns - SECOND, start_ns - SECOND, "state"))
        if everybodys and how == "changed":
            left.append(Sight(place.encode(), 1, 2, 1, 3, at_ns, at_ns))
    return RunIndex(
        run=f"run-{number:06}",
        released_ns=start_ns,
        ended_ns=start_ns + SECOND // 2,
        places=(f"/srv/shared/{number % 100}".encode(),),
        workspace=f"/srv/own/{number}".encode(),
        contacts=tuple(contacts),
        found=tuple(found),
        left=tuple(left),
        left_ns=start_ns + SECOND // 2,
        streams=(
            Stream(0, "fifo", b"pipe:[7]", False, 15, 7, 0, True, False, ended=True),  # noqa: FBT003 - as on disk
            Stream(1, "file", b"/srv/log", True, 1, 9, 5, False, True),  # noqa: FBT003 - as above
        ),
    )


def time_verification(run: Path) -> float:
    """Give the seconds of processor time that verifying one run's log takes, the shortest of five."""
    times = []
    for _ in range(5):
        begun = time.process_time()
        verify_run(RunDir(run))
        times.append(time.process_time() - begun)
    return min(times)


def indexes_in(directory: Path, runs: int) -> list[Path]:
    """Name the files."""
    return [directory / f"{number:06}" for number in range(runs)]


def write_indexes(paths: list[Path], options: argparse.Namespace) -> None:
    """Write an index a path."""
    for number, path in enumerate(paths):
        path.write_bytes(encode_index(make_run(number, options.effects, options.shared, options.seed)))


def main() -> int:
    """Write indexes, judge them, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--effects", type=int, default=1_000)
    parser.add_argument("--shared", type=float, default=0.01, help="share of effects in places of several runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verify", type=Path, metavar="RUN", help="a sealed run, whose log is verified")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the indexes there, and end")
    parser.add_argument("--read", type=Path, metavar="DIR", help="judge those that were written there")
    options = parser.parse_args()
    verify_s = time_verification(options.verify) * options.runs if options.verify else 0.0
    if options.write is not None:
        options.write.mkdir()
        write_indexes(indexes_in(options.write, options.runs), options)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        paths = indexes_in(options.read or Path(directory), options.runs)
        if options.read is None:
            if (child := os.fork()) == 0:  # so that what was made is not counted as memory of judging
                write_indexes(paths, options)
                os._exit(0)
            os.waitpid(child, 0)

        def indexes() -> Iterator[RunIndex]:
            return (decode_index(path.read_bytes()) for path in paths)

        size = sum(path.stat().st_size for path in paths)
        begun, begun_cpu_s = time.perf_counter(), time.process_time()
        heads = [head_of(index) for index in indexes()]
        found = separate_pairs(heads, indexes)
        took_s, cpu_s = time.perf_counter() - begun, time.process_time() - begun_cpu_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{options.runs} runs of {options.effects} effects, indexes of {size / 1e6:.0f} MB")
    print(f"{took_s:.1f} s, {cpu_s:.1f} s of it on a processor, and {verify_s:.1f} s there to verify as many logs")
    print(f"budget {BUDGET_S:.0f} s for 10,000 runs of 1,000; {peak / 1e6:.0f} MB (budget 2,147 MB)")
    print(f"{len(found.units)} units, {len(found.edges)} edges told, {found.omitted} findings omitted")
    return 0 if took_s + verify_s <= BUDGET_S and peak <= BUDGET_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
