"""What is kept of an outcome: verified with its run, whichever way it was captured."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

LEAVES_A_WRITER = "mkdir d; echo 1 > d/out; rm -f old; (setsid sh -c 'sleep 0.5' >/dev/null 2>&1 &)"
DIRECT = '[claim]\noutcome = "d/out"\n[files]\nmode = "direct"\n'
STAGED = '[claim]\noutcome = "d/out"\n[grade]\ncommand = "test -e d/out"\n'


def run_of(lab: Lab) -> Path:
    """Give the directory of the only run."""
    (run,) = (lab.home / "runs").iterdir()
    return run


def leave(lab: Lab, policy: str) -> Path:
    """Run a trial that leaves somebody alive, so that the outcome is captured at the endpoint."""
    (lab.work / "old").write_text("there before")
    file = lab.home.parent / "kept.toml"
    file.write_text(f"schema = 1\n{policy}")
    lab.sh(LEAVES_A_WRITER, "-p", str(file))
    assert lab.call("verify", "last").returncode == 0
    return run_of(lab)


@pytest.mark.parametrize("policy", [STAGED, DIRECT], ids=["staged", "direct"])
@pytest.mark.parametrize("change", ["content", "added", "mode", "gone"])
def test_a_capture_that_was_changed_is_found(lab: Lab, policy: str, change: str) -> None:
    """Its digest is computed again: content, names and modes are part of it, and it must be there."""
    kept = leave(lab, policy) / "snapshot"
    match change:
        case "content":
            (kept / "upper/d/out").write_text("2\n")
        case "added":
            (kept / "upper/d/more").write_text("")
        case "mode":
            (kept / "upper/d/out").chmod(0o777)
        case _:
            kept.rename(kept.with_name("elsewhere"))
    found = lab.call("verify", "last")
    assert found.returncode == 1
    assert b"snapshot" in found.stderr


def test_what_was_captured_when_the_trial_was_over_is_verified_too(lab: Lab) -> None:
    """A grader sees that, also where nothing was alive at the endpoint."""
    lab.sh("echo 1 > out", "--outcome", "out", "--grade", "grep -q 1 out")
    (run_of(lab) / "settled/upper/out").write_text("2\n")
    found = lab.call("verify", "last")
    assert (found.returncode, b"settled" in found.stderr) == (1, True)


def test_what_was_gone_at_the_capture_is_part_of_it(lab: Lab) -> None:
    """Of a workspace that is written in place the copy alone would not tell it."""
    kept = leave(lab, DIRECT.replace('outcome = "d/out"', 'outcome = "*"')) / "snapshot"
    assert b"old" in (kept / "gone").read_bytes()
    (kept / "gone").unlink()
    assert lab.call("verify", "last").returncode == 1


@pytest.mark.parametrize("change", ["content", "added", "gone"])
def test_a_stage_that_was_kept_and_changed_is_found(lab: Lab, change: str) -> None:
    """What could still be applied is what the log says, or it is not verified."""
    lab.sh("mkdir d; echo 1 > d/out", "--commit", "never")
    upper = run_of(lab) / "stage/upper"
    assert lab.call("verify", "last").returncode == 0
    match change:
        case "content":
            (upper / "d/out").write_text("2\n")
        case "added":
            (upper / "more").write_text("")
        case _:
            (upper / "d/out").unlink()
    found = lab.call("verify", "last")
    assert (found.returncode, b"stage" in found.stderr) == (1, True)


@pytest.mark.parametrize("word", ["commit", "discard"])
def test_a_stage_that_was_applied_or_thrown_away_is_no_tampering(lab: Lab, word: str) -> None:
    """Both are the user's own doing, and leave the run as good as it was."""
    lab.sh("mkdir d; echo 1 > d/out", "--commit", "never")
    assert lab.call(word, "last").returncode == 0
    assert lab.call("verify", "last").returncode == 0
