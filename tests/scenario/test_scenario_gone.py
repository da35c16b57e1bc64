"""A workspace that somebody takes away while a trial works in it: nothing is applied, and nothing is claimed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from scenario_lab import Lab, wait_until

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

ACT = "echo 2 > f; echo 3 > d/n; touch /tmp/ready; read go; echo 4 > f; true"


def remove(work: Path) -> None:
    """Remove all of it."""
    shutil.rmtree(work)


def move(work: Path) -> None:
    """Call it something else."""
    work.rename(work.with_name("elsewhere"))


def replace(work: Path) -> None:
    """Put a file where it was."""
    shutil.rmtree(work)
    work.write_text("a file\n")


@pytest.mark.parametrize("option", ["--stage", "--direct"])
@pytest.mark.parametrize("take", [remove, move, replace])
def test_a_workspace_that_is_gone_leaves_everything_open(lab: Lab, take: Callable[[Path], None], option: str) -> None:
    """The trial is judged from its log; what it was about is not there to be looked at."""
    (lab.work / "d").mkdir()
    (lab.work / "f").write_text("1\n")
    place = lab.work
    there = Lab(lab.home, lab.home.parent)
    with there.start(option, "--workspace", str(place), "--", "bash", "-c", ACT, stdin=-1) as process:
        assert wait_until(lambda: b"touch" in _events(there), 30)
        take(place)
        _, err = process.communicate(b"go\n", timeout=60)
    assert process.returncode == 0, err
    report = there.report()
    assert report["finality"]["verdict"] == "unresolved"
    assert report["stage"]["state"] == ("direct" if option == "--direct" else "failed")
    assert not place.is_dir()
    for words in (("commit", "last"), ("diff", "last"), ("verify", "last")):
        said = there.call(*words)
        assert b"Traceback" not in said.stderr, words
    place.unlink(missing_ok=True)
    place.mkdir(exist_ok=True)


def _events(lab: Lab) -> bytes:
    return lab.call("events", "last", "--kind", "process.executed").stdout
