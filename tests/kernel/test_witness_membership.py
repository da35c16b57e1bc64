"""Who belongs to a trial: joining, leaving, being born into it or out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from witness_builder import WitnessLab, compile_c

from supervisor.events import (
    MembershipLeft,
    ProcessExited,
    ProcessStarted,
)
from supervisor.launch.cgroup import Cgroup, find_root

pytestmark = pytest.mark.kernel("witness")


def test_leaving_the_cgroup_is_told_once() -> None:
    """A process that is moved out is told once, threads or not, and nothing of it is seen afterwards."""
    code = """
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(3)]
[t.start() for t in threads]
open(sys.argv[1], 'w').write(str(os.getpid()))
open('/tmp/never-seen-after-leaving', 'w').close(); os.unlink('/tmp/never-seen-after-leaving')
stop.set(); [t.join() for t in threads]
"""
    with WitnessLab() as lab:
        process = lab.python(code, find_root() / "cgroup.procs")
        process.communicate(timeout=20)
        seen = lab.finish(process) if process.poll() is None else None
        events = lab.drain()
    assert seen is None
    (left,) = [event for event in events if isinstance(event, MembershipLeft)]
    assert left.cgroup == find_root().stat().st_ino
    assert left.process is not None
    assert left.process.pid == process.pid
    assert not [e for e in events if getattr(e, "path", b"") == b"/tmp/never-seen-after-leaving"]


def test_joining_is_told_for_each_process() -> None:
    """A process that is moved in is told without a parent, its children with it as theirs."""
    with WitnessLab() as lab:
        first = lab.start("/bin/sh", "-c", "true & wait")
        second = lab.start("/bin/true")
        second.communicate()
        seen = lab.finish(first)
    roots = [event.process.pid for event in seen.of(ProcessStarted) if event.parent is None and event.process]
    assert sorted(roots) == sorted([first.pid, second.pid])


INTO_CGROUP = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <stdint.h>
#include <stdio.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct clone_args a = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = open(argv[argc - 1], O_PATH)};
    long pid = syscall(SYS_clone3, &a, sizeof a);
    if (pid == 0) _exit(6);
    printf("%ld\\n", pid);
    return waitpid(pid, 0, 0) < 0;
}"""


def test_born_into_the_cgroup_is_joining(tmp_path: Path) -> None:
    """A process that an outsider makes with CLONE_INTO_CGROUP is told as one that joined, and its end with it."""
    program = compile_c(INTO_CGROUP, tmp_path)
    with WitnessLab() as lab:
        out = subprocess.run([program, lab.cgroup.path], capture_output=True, check=True, text=True).stdout
        events = lab.drain()
    (started,) = [event for event in events if isinstance(event, ProcessStarted)]
    (exited,) = [event for event in events if isinstance(event, ProcessExited)]
    assert started.parent is None
    assert started.process == exited.process
    assert exited.process is not None
    assert (exited.process.pid, exited.exit_code) == (int(out), 6)


def test_born_out_of_the_cgroup_is_leaving(tmp_path: Path) -> None:
    """A child that a member puts outside is told as having left."""
    program = compile_c(INTO_CGROUP, tmp_path)
    with WitnessLab() as lab:
        seen = lab.finish(lab.start(program, find_root()))
    left = seen.one(MembershipLeft)
    assert left.process is not None
    assert left.process.pid == int(seen.out)
    assert left.process not in {event.process for event in seen.of(ProcessStarted)}


def test_moving_to_another_trial_leaves_one_and_joins_the_other() -> None:
    """A process that is moved between trials is told by both."""
    with WitnessLab() as one, WitnessLab() as other:
        process = one.python("open(sys.argv[1], 'w').write('0'); time.sleep(0)", other.cgroup.path / "cgroup.procs")
        process.communicate(timeout=20)
        left, joined = one.drain(), other.drain()
    assert [e.cgroup for e in left if isinstance(e, MembershipLeft)] == [other.cgroup.id]
    assert [e.process.pid for e in joined if isinstance(e, ProcessStarted) and e.process] == [process.pid]
    assert [e.exit_code for e in joined if isinstance(e, ProcessExited)] == [0]


def test_processes_outside_are_not_told() -> None:
    """Nothing of a process outside the cgroup is told, nor of one in a cgroup beside it."""
    beside = Cgroup.create(find_root(), f"beside-{os.getpid()}")
    try:
        with WitnessLab() as lab:
            subprocess.run([sys.executable, "-S", "-c", "open('/dev/null', 'w').write('x')"], check=True)
            subprocess.run(
                ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs"; cat /etc/hostname', beside.path],
                check=True,
                capture_output=True,
            )
            assert lab.drain() == []
    finally:
        beside.remove()


def test_members_of_a_cgroup_below_are_members() -> None:
    """A process in a cgroup below the trial's is a member of the trial."""
    with WitnessLab() as lab:
        below = lab.cgroup.path / "below"
        below.mkdir()
        process = lab.start("/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec /bin/sh -c "exit 3"', below)
        seen = lab.finish(process)
    assert seen.of(MembershipLeft) == []
    assert seen.one(ProcessExited).exit_code == 3
