"""How long it takes to start and end: ``supervise -- true`` against bare, ``bwrap``, and Docker when it is there.

python scripts/bench_start.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import measuring
from measuring import MeasuringError, Way

COLUMNS = {"workload": "command", "way": "way", "whole_ms": "median ms", "fastest_inside_ms": "fastest", "runs": "runs"}


def docker_way() -> Way | None:
    """Give the way through Docker, when a daemon answers and has an image with ``true`` in it."""
    if shutil.which("docker") is None:
        return None
    listed = subprocess.run(["docker", "images", "-q", "busybox"], capture_output=True, text=True, check=False)
    image = listed.stdout.split()[:1]
    return Way(name="docker run", prefix=("docker", "run", "--rm", image[0])) if image else None


def main(words: list[str]) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="How long it takes to start and end.")
    parser.add_argument("--rounds", type=int, default=15, help="counted rounds (default: 15)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args(words)
    with measuring.scratch() as folder:
        numbers = iter(range(10**9))

        def fresh() -> Path:
            workspace = folder / f"work-{next(numbers)}"
            workspace.mkdir()
            return workspace

        docker = docker_way()
        ways = (*measuring.ways(trace=False), *([docker] if docker else []))
        found = measuring.rows("true", measuring.take_turns(ways, options.rounds, ("true",), fresh))
    measuring.print_table(found, COLUMNS)
    if docker is None:
        print("docker: left out (no daemon with a busybox image)")
    measuring.write_json(options.json, found, rounds=options.rounds)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MeasuringError as error:
        sys.exit(f"bench_start: {error}")
