"""Committing over what the host changed meanwhile: only what was left alone is touched, and nothing is half-done."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from staged_trial import Trial, everything

from supervisor.launch.stage.stage import Stage

GIVEN = "given"
pytestmark = pytest.mark.kernel("overlay")


WAYS = pytest.mark.parametrize("way", ["copied", GIVEN])
"""Whether the stage gives its files away: the result is the same."""


def meanwhile(trial: Trial, script: str) -> None:
    """Let somebody else change the host."""
    subprocess.run(["bash", "-euc", script], cwd=trial.host, check=True)


def texts(top: Path) -> dict[str, str | None]:
    """Read every file below a directory; a directory has no text."""
    return {str(path.relative_to(top)): path.read_text() if path.is_file() else None for path in sorted(top.rglob("*"))}


CONFLICTS = {
    "a file that both changed": ("echo 1 > a", "echo trial > a", "echo host > a"),
    "a file that both made": ("true", "echo trial > a", "echo host > a"),
    "a file that the trial removed": ("echo 1 > a", "rm a", "echo host > a"),
    "a directory that the trial removed": ("mkdir d; echo 1 > d/x", "rm -r d", "echo host > d/y"),
    "a directory that became a file": ("mkdir d; echo 1 > d/x", "rm -r d; echo trial > d", "echo host > d/y"),
    "a file that became a directory": ("echo 1 > a", "rm a; mkdir a; echo trial > a/x", "echo host > a"),
    "a file in a directory that moved": ("mkdir d; echo 1 > d/x; echo 2 > d/y", "mv d e; echo t > e/x", "echo h > d/x"),
    "a place that a directory moved to": ("mkdir d; echo 1 > d/x", "mv d e", "mkdir e; echo host > e/z"),
    "a file deep in a new directory": ("true", "mkdir -p n/m; echo trial > n/m/x", "mkdir -p n/m; echo host > n/m/x"),
}  # fmt: skip


@WAYS
@pytest.mark.parametrize("first", ["commit before", "forced at once"])
@pytest.mark.parametrize("case", CONFLICTS)
def test_a_forced_commit_shows_what_the_trial_saw(tmp_path: Path, case: str, first: str, way: str) -> None:
    """Whether or not a commit left the paths alone before, afterwards the workspace is what the trial's view was."""
    begin, act, host = CONFLICTS[case]
    trial = Trial(tmp_path / "t", script=begin + "; echo same > untouched")
    trial.act(script=act)
    meanwhile(trial, host)
    with trial.stage as stage:
        if first == "commit before":
            assert stage.commit(everything, gives=way == GIVEN).against
        result = stage.commit(everything, force=True, gives=way == GIVEN)
        assert result.against == ()
        assert stage.commit(everything, gives=way == GIVEN).against == ()
    assert texts(trial.host) == texts(trial.plain)
    assert not list(trial.host.glob(".supervise-*"))


@WAYS
def test_only_what_was_left_alone_is_overwritten(tmp_path: Path, way: str) -> None:
    """What was applied and then changed again on the host stays, and so does what may not be written."""
    trial = Trial(tmp_path / "t", script="echo 1 > a; echo 1 > b; echo 1 > c")
    trial.act(script="echo trial > a; echo trial > b; echo trial > c")
    meanwhile(trial, "echo host > a; echo host > c")

    def allowed(path: bytes) -> bool:
        return path != b"c"

    with trial.stage as stage:
        assert {left.path: left.why for left in stage.commit(allowed, gives=way == GIVEN).left} == {
            b"a": "changed on the host",
            b"c": "not allowed",
        }
        meanwhile(trial, "echo later > b")
        assert [left.path for left in stage.commit(allowed, force=True, gives=way == GIVEN).left] == [b"c"]
    assert texts(trial.host) == {"a": "trial\n", "b": "later\n", "c": "host\n"}


@WAYS
def test_where_only_the_mode_of_a_directory_was_left_alone_nothing_in_it_is_touched(tmp_path: Path, way: str) -> None:
    """What was applied there, and what the host has done there since, stays: also in a directory that was moved."""
    trial = Trial(tmp_path / "t", script="mkdir -p p/d; echo 1 > p/d/x; echo 1 > p/gone; echo 1 > p/a")
    trial.act(script="chmod 711 p p/d; mv p/d p/e; rm p/gone; echo trial > p/a")
    meanwhile(trial, "chmod 700 p p/d")
    with trial.stage as stage:
        assert [left.path for left in stage.commit(everything, gives=way == GIVEN).left] == [b"p", b"p/e"]
        meanwhile(trial, "echo later > p/gone; echo later > p/a")
        assert stage.commit(everything, force=True, gives=way == GIVEN).left == ()
    wanted = {"p": None, "p/a": "later\n", "p/e": None, "p/e/x": "1\n", "p/gone": "later\n"}
    assert texts(trial.host) == wanted
    assert {(trial.host / name).stat().st_mode & 0o777 for name in ("p", "p/e")} == {0o711}


@WAYS
def test_without_a_conflict_to_overwrite_nothing_is_done(tmp_path: Path, way: str) -> None:
    """A forced commit after a whole one leaves what the host has done since."""
    trial = Trial(tmp_path / "t", script="echo 1 > a")
    trial.act(script="echo trial > a")
    with trial.stage as stage:
        assert stage.commit(everything, gives=way == GIVEN).against == ()
        meanwhile(trial, "echo host > a")
        assert stage.commit(everything, force=True, gives=way == GIVEN).resumed
    assert texts(trial.host) == {"a": "host\n"}


class Died(Exception):  # noqa: N818 - it stands for a death
    """The commit ends here, as if it was killed."""


@WAYS
@pytest.mark.parametrize("step", range(1, 14))
def test_an_interrupted_overwriting_is_finished(tmp_path: Path, step: int, way: str) -> None:
    """Wherever it ends, the next commit, forced or not, goes on to the same result."""
    begin, act, host = CONFLICTS["a file in a directory that moved"]
    trial = Trial(tmp_path / "t", script=begin)
    trial.act(script=act)
    meanwhile(trial, host)
    left = step

    def fault() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Died

    with trial.stage as stage:
        assert stage.commit(everything, gives=way == GIVEN).against
        try:
            stage.commit(everything, force=True, fault=fault, gives=way == GIVEN)
        except Died:
            pass
        else:
            assert left > 0
    with Stage(trial.run, os.fsencode(trial.host)) as again:
        assert again.commit(everything, force=step % 2 == 0, gives=way == GIVEN).against == ()
    assert texts(trial.host) == texts(trial.plain)
