"""Nothing is lost: backpressure, freezing, a consumer that is late or fails. What is lost all the same is counted."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from witness_builder import WitnessLab, compile_c

from probes.kernel.consumer import Consumer
from probes.kernel.ring import count_records
from probes.kernel.witness import Loss
from supervisor.events import FileDeleted, ProcessExited, ProcessStarted
from supervisor.launch.brake import Brake

pytestmark = pytest.mark.kernel("witness")

DELETING = """
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int p = 1; p < atoi(argv[2]); p++) if (fork() == 0) break;
    for (long i = atol(argv[1]); i; i--) rmdir("/nowhere");
    return argc != 3;
}"""
FORKING = """
#include <sys/wait.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int i = atoi(argv[1]); i; i--) { if (fork() == 0) _exit(0); if (i % 16 == 0) while (wait(0) > 0); }
    while (wait(0) > 0);
    return argc - 2;
}"""


class Disk:
    """Takes slabs as a log does: at its own pace, and maybe not at all."""

    def __init__(self, *, late_s: float = 0.0, full_after: int | None = None) -> None:
        """Be late once, or full after so many slabs."""
        self.slabs: list[tuple[bytes, int]] = []
        self._late_s = late_s
        self._full_after = full_after

    def take(self, slab: memoryview, count: int) -> None:
        """Keep a slab."""
        if self._full_after is not None and len(self.slabs) >= self._full_after:
            raise OSError(28, "no space left")
        time.sleep(self._late_s)
        self._late_s = 0.0
        self.slabs.append((bytes(slab), count))


@contextmanager
def consumed(lab: WitnessLab, disk: Disk) -> Iterator[tuple[Consumer, list[Loss]]]:
    """Let a consumer run on the lab's ring."""
    losses: list[Loss] = []
    consumer = Consumer(lab.witness, take=disk.take, brake=Brake(lab.cgroup), tell_loss=losses.append)
    consumer.start()
    try:
        yield consumer, losses
    finally:
        if consumer.error is None:
            consumer.stop()
        lab.slabs += disk.slabs


def wait_end(process: subprocess.Popen[str], lab: WitnessLab) -> None:
    """Wait for a command and its children."""
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert lab.cgroup.wait_empty(20)


def test_small_ring_survives_a_consumer_that_is_late_by_a_second(tmp_path: Path) -> None:
    """While nobody takes records, producers are slowed down and lose nothing, in a ring of 512 KiB."""
    program = compile_c(DELETING, tmp_path)
    with WitnessLab(ring_bytes=1 << 19) as lab:
        process = lab.start(program, "8000", "1")
        time.sleep(1)
        waiting = process.poll() is None
        while process.poll() is None:
            lab.witness.ring.drain(lab.take)
        process.communicate()
        counters = lab.counters()
        deleted = sum(isinstance(event, FileDeleted) for event in lab.drain())
    assert waiting
    assert counters.losses == ()
    assert counters.throttled_ns > 100_000_000
    assert deleted == 8000


def test_three_hundred_thousand_events_are_all_there(tmp_path: Path) -> None:
    """300,000 records through a ring of 4 MiB: each is in the log."""
    program = compile_c(DELETING, tmp_path)
    disk = Disk()
    with WitnessLab(ring_bytes=1 << 22) as lab:
        with consumed(lab, disk) as (consumer, losses):
            wait_end(lab.start(program, "300000", "1"), lab)
        assert lab.counters().losses == ()
    assert losses == []
    assert consumer.events == sum(count for _, count in disk.slabs) == sum(count_records(s) for s, _ in disk.slabs)
    assert 300_000 <= consumer.events <= 300_100


def test_producers_on_all_processors_lose_nothing(tmp_path: Path) -> None:
    """Four processes that produce at once, with a consumer that is late once: all of each is there."""
    program = compile_c(DELETING, tmp_path)
    with WitnessLab(ring_bytes=1 << 19) as lab:
        with consumed(lab, Disk(late_s=0.5)) as (_, losses):
            wait_end(lab.start(program, "10000", "4"), lab)
        assert lab.counters().losses == ()
        deleted = Counter(event.process for event in lab.decode() if isinstance(event, FileDeleted))
    assert losses == []
    assert list(deleted.values()) == [10_000] * 4


def test_fork_storm_is_told_whole(tmp_path: Path) -> None:
    """5,000 births and ends are told, each once, and each end belongs to a birth."""
    program = compile_c(FORKING, tmp_path)
    with WitnessLab(ring_bytes=1 << 20) as lab:
        with consumed(lab, Disk()):
            wait_end(lab.start(program, "5000"), lab)
        assert lab.counters().losses == ()
        events = list(lab.decode())
    births = Counter(event.process for event in events if isinstance(event, ProcessStarted))
    ends = Counter(event.process for event in events if isinstance(event, ProcessExited))
    assert len(births) == 5001
    assert births == ends
    assert set(births.values()) == {1}


def test_events_of_one_process_stand_in_their_order(tmp_path: Path) -> None:
    """In the log the events of one process stand in the order of their time."""
    program = compile_c(DELETING, tmp_path)
    with WitnessLab(ring_bytes=1 << 20) as lab:
        with consumed(lab, Disk()):
            wait_end(lab.start(program, "3000", "2"), lab)
        events = list(lab.decode())
    for process in {event.process for event in events}:
        times = [event.time_ns for event in events if event.process == process]
        assert times == sorted(times)


def test_losses_are_counted_with_hook_and_time() -> None:
    """What finds no room is counted by hook, with the time of the first and the last; the consumer tells it once."""
    with WitnessLab(ring_bytes=4096) as lab:
        lab.start("/bin/sh", "-c", "for i in $(seq 100); do /bin/true; done").communicate()
        counters = lab.counters()
        with consumed(lab, Disk()) as (_, losses):
            pass
    assert counters.lost > 0
    assert counters.last_error == 11
    assert {loss.hook for loss in counters.losses} <= {"syscall", "fork", "exec", "exit", "signal", "cgroup", "socket"}
    assert all(0 < loss.first_ns <= loss.last_ns for loss in counters.losses)
    assert sum(loss.count for loss in losses) == counters.lost


def test_consumer_freezes_the_trial_when_the_ring_is_nearly_full(tmp_path: Path) -> None:
    """Above three quarters the trial is frozen until the ring is nearly empty, and then goes on to its end."""
    program = compile_c(DELETING, tmp_path)
    with WitnessLab(ring_bytes=1 << 18) as lab:
        process = lab.start(program, "20000", "1")
        _wait_for(lambda: lab.witness.ring.fill() > 0.76)
        with consumed(lab, Disk()) as (consumer, _):
            wait_end(process, lab)
        assert lab.counters().losses == ()
        assert not lab.cgroup.frozen()
    assert consumer.freezes > 0


def test_failing_log_stops_the_trial(tmp_path: Path) -> None:
    """When the log takes no more, the trial is frozen, `failed` becomes readable, and the error is raised by all."""
    program = compile_c(DELETING, tmp_path)
    with WitnessLab(ring_bytes=1 << 20) as lab, consumed(lab, Disk(full_after=2)) as (consumer, _):
        process = lab.start(program, "2000000", "1")
        assert os.eventfd_read(_readable(consumer.failed)) == 1
        _wait_for(lab.cgroup.frozen)
        with pytest.raises(OSError, match="no space left"):
            consumer.flush()
        with pytest.raises(OSError, match="no space left"):
            consumer.stop()
        lab.cgroup.kill()
        process.communicate()


def test_record_stays_in_the_ring_until_it_was_taken() -> None:
    """When taking fails the records are still there for the next attempt."""
    with WitnessLab() as lab:
        lab.start("/bin/true").communicate()
        with pytest.raises(OSError, match="no space left"):
            lab.witness.ring.drain(Disk(full_after=0).take)
        kinds = {event.kind for event in lab.drain()}
    assert {"process.started", "process.executed", "process.exited"} <= kinds


def test_flush_has_all_that_happened_before() -> None:
    """What a finished process did is in the log when `flush` returns, whatever the consumer's thread does."""
    disk = Disk()
    with WitnessLab() as lab, consumed(lab, disk) as (consumer, _):
        for _turn in range(20):
            process = lab.start("/bin/true")
            process.communicate()
            consumer.flush()
            ends = [e.process.pid for e in _decoded(disk) if isinstance(e, ProcessExited) and e.process]
            assert ends[-1] == process.pid


def test_stopping_twice_is_stopping_once() -> None:
    """`stop` can be called again, and leaves no thread."""
    with WitnessLab() as lab, consumed(lab, Disk()) as (consumer, _):
        assert consumer.stop() == consumer.stop()
        assert "supervise-consumer" not in {thread.name for thread in threading.enumerate()}


def _decoded(disk: Disk) -> Iterator[object]:
    lab = WitnessLab(slabs=list(disk.slabs))
    return lab.decode()


def _readable(fd: int) -> int:
    assert select.select([fd], [], [], 20)[0]
    return fd


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
