"""A commit that was killed in the middle is told of where it matters: at the next start there, and in the list."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path

import pytest
from scenario_lab import Lab

from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.stage import Stage

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")


def interrupt_commit(run: Path, work: Path) -> None:
    """Begin to commit a run, in a child that is killed after a few steps."""
    left = 4

    def fault() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            with Stage(RunDir(run), os.fsencode(work)) as stage:
                stage.commit(lambda _: True, fault=fault)
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def test_an_interrupted_commit_is_told_at_the_next_start_until_it_is_finished(lab: Lab) -> None:
    """One line says which run it was and how to go on; not while somebody commits, elsewhere, or afterwards."""
    (lab.work / "a").write_text("1\n", encoding="ascii")
    lab.sh("echo 2 > a; echo 2 > b; echo 2 > c", "--commit", "never")
    (run,) = (lab.home / "runs").iterdir()
    assert b"not finished" not in lab.call("ls").stdout
    interrupt_commit(run, lab.work)
    hint = f"supervise commit {run.name}".encode()
    told = b"supervise: %s: the commit of run %s was not finished: %s\n"
    line = told % (os.fsencode(lab.work), run.name.encode(), hint)
    started = lab.call("--", "true")
    assert (started.returncode, started.stderr.count(line)) == (0, 1)
    assert b"commit not finished: " + hint in lab.call("ls").stdout
    listed = json.loads(lab.call("ls", "--json").stdout)["runs"]
    assert (listed[0]["run"], listed[0]["commit_unfinished"]) == (run.name, True)
    assert not listed[1]["commit_unfinished"]
    at_work = os.open(lab.work, os.O_RDONLY)
    fcntl.flock(at_work, fcntl.LOCK_EX)
    assert hint not in lab.call("--", "true").stderr
    os.close(at_work)
    elsewhere = lab.work.parent / "elsewhere"
    elsewhere.mkdir()
    assert hint not in Lab(lab.home, elsewhere).call("--", "true").stderr
    assert lab.call("commit", run.name).returncode == 0
    assert {path.name: path.read_text() for path in lab.work.iterdir()} == dict.fromkeys("abc", "2\n")
    assert hint not in lab.call("--", "true").stderr
    assert b"not finished" not in lab.call("ls").stdout


def test_what_only_looks_like_one_is_no_unfinished_commit(lab: Lab) -> None:
    """A directory of such a name that belongs to no run here, or to one that was finished, says nothing."""
    lab.sh("echo 2 > a")
    (run,) = (lab.home / "runs").iterdir()
    for name in (f".supervise-{run.name}-0", ".supervise-20300101-000000-000000-0", ".supervise-", ".supervise-..-0"):
        (lab.work / name).mkdir()
    started = lab.call("--", "true")
    assert (started.returncode, b"not finished" in started.stderr) == (0, False)
