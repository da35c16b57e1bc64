"""A consumer that is late, slow or stopped loses nothing, however fat the records are."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from witness_builder import WitnessLab, compile_c

from probes.kernel.consumer import Consumer
from probes.kernel.witness import DEFAULT_RING_BYTES, Loss
from supervisor.events import Event, FileDeleted, ProcessExecuted
from supervisor.launch.brake import Brake

pytestmark = pytest.mark.kernel("witness")

LONG_PATHS = """
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static char path[4090];
    memset(path, '/', sizeof(path) - 1);
    for (int i = 1; i + 1 < (int)sizeof(path); i++) if (i % 200) path[i] = 'a';
    for (int p = 1; p < atoi(argv[2]); p++) if (fork() == 0) break;
    for (long i = atol(argv[1]); i; i--) rmdir(path);
    return argc != 3;
}"""
"""Removes a path of the greatest length, which is not there, again and again: 4 KiB a record."""

LONG_ARGUMENTS = """
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static char filler[60000], left[16];
    long turns = atol(argv[1]);
    memset(filler, 'x', sizeof(filler) - 1);
    if (turns == 0) return 0;
    snprintf(left, sizeof(left), "%ld", turns - 1);
    char *next[] = {argv[0], left, filler, 0};
    execv(argv[0], next);
    return argc;
}"""
"""Executes itself with as many arguments as a record can hold, again and again."""


class Slow:
    """Takes slabs at the pace of a slow disk, and stands still for a while once."""

    def __init__(self, *, stops_after: int = -1, stops_s: float = 0.0, bytes_per_s: float = float("inf")) -> None:
        """Be slow in one way or the other."""
        self.slabs: list[tuple[bytes, int]] = []
        self._stops_after, self._stops_s, self._bytes_per_s = stops_after, stops_s, bytes_per_s

    def take(self, slab: memoryview, count: int) -> None:
        """Keep a slab."""
        if len(self.slabs) == self._stops_after:
            time.sleep(self._stops_s)
        time.sleep(len(slab) / self._bytes_per_s)
        self.slabs.append((bytes(slab), count))


@contextmanager
def consumed(lab: WitnessLab, disk: Slow) -> Iterator[list[Loss]]:
    """Let a consumer run on the lab's ring; gives what it told as lost."""
    losses: list[Loss] = []
    consumer = Consumer(lab.witness, take=disk.take, brake=Brake(lab.cgroup), tell_loss=losses.append)
    consumer.start()
    try:
        yield losses
    finally:
        consumer.stop()
        lab.slabs += disk.slabs


def wait_end(process: subprocess.Popen[str], lab: WitnessLab) -> None:
    """Wait for a command and its children."""
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert lab.cgroup.wait_empty(60)


def count(lab: WitnessLab, kind: type[Event]) -> int:
    """Count the events of one class."""
    return sum(isinstance(event, kind) for event in lab.decode())


def test_consumer_that_stops_for_a_second_in_mid_load(tmp_path: Path) -> None:
    """Two processes at full rate, and a consumer that takes nothing for a second: each record is there."""
    program = compile_c(LONG_PATHS.replace("4090", "40"), tmp_path)
    with WitnessLab(ring_bytes=DEFAULT_RING_BYTES) as lab:
        with consumed(lab, Slow(stops_after=1, stops_s=1.0)) as losses:
            wait_end(lab.start(program, "300000", "2"), lab)
        assert lab.counters().losses == ()
        assert count(lab, FileDeleted) == 600_000
    assert losses == []


def test_consumer_that_stops_while_records_are_at_their_longest(tmp_path: Path) -> None:
    """Records of 4 KiB fill a ring a hundred times faster: the fuller it is, the longer their makers wait."""
    program = compile_c(LONG_PATHS, tmp_path)
    with WitnessLab(ring_bytes=DEFAULT_RING_BYTES) as lab:
        with consumed(lab, Slow(stops_after=1, stops_s=1.2)) as losses:
            wait_end(lab.start(program, "5000", "4"), lab)
        assert lab.counters().losses == ()
        assert count(lab, FileDeleted) == 20_000
    assert losses == []


def test_consumer_that_stops_while_arguments_are_at_their_longest(tmp_path: Path) -> None:
    """Programs that are executed with all the arguments a record can hold wait as well."""
    program = compile_c(LONG_ARGUMENTS, tmp_path, "-static")
    with WitnessLab(ring_bytes=DEFAULT_RING_BYTES) as lab:
        with consumed(lab, Slow(stops_after=1, stops_s=1.2)) as losses:
            processes = [lab.start(program, "3000") for _ in range(4)]
            for process in processes:
                wait_end(process, lab) if process is processes[-1] else process.communicate(timeout=120)
        assert lab.counters().losses == ()
        assert count(lab, ProcessExecuted) >= 12_000
    assert losses == []


def test_slow_disk_slows_the_trial_down_and_loses_nothing(tmp_path: Path) -> None:
    """A disk of 4 MB/s under 12 MB of records: the trial takes as long as the disk does."""
    program = compile_c(LONG_PATHS.replace("4090", "40"), tmp_path)
    with WitnessLab(ring_bytes=1 << 20) as lab:
        began_s = time.monotonic()
        with consumed(lab, Slow(bytes_per_s=4e6)) as losses:
            wait_end(lab.start(program, "100000", "1"), lab)
        took_s = time.monotonic() - began_s
        assert lab.counters().losses == ()
        assert count(lab, FileDeleted) == 100_000
    assert losses == []
    assert took_s > 2
