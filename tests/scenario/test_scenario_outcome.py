"""What became of the outcome, of the stage and of CMD, told by a run from its start to its report."""

from __future__ import annotations

import hashlib

import pytest
from scenario_lab import Lab, wait_until

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

LATE = 'echo good > res; setsid sh -c "sleep 0.6; echo bad > res" > /dev/null 2>&1 &'


def sha256(text: str) -> str:
    """Give the digest of a file that holds a text."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_an_outcome_that_changes_after_its_capture_is_final_and_told(lab: Lab) -> None:
    """The claim is about the endpoint; the host gets nothing else, and summary and report say why."""
    ran = lab.sh(LATE, "--settle", "3s", "--outcome", "res")
    assert not (lab.work / "res").exists()
    (run,) = (lab.home / "runs").iterdir()
    assert (run / "snapshot" / "upper" / "res").read_text() == "good\n"
    assert b"changed after it was captured: res; the captured state is kept in snapshot/upper" in ran.err
    assert "changed-since-captured" in ran.reasons("finality")
    assert ran.report["finality"]["observed"]["state"]["digest"] == sha256("good\n")
    assert ran.finality == "final"


def test_an_outcome_that_stays_as_captured_needs_no_word(lab: Lab) -> None:
    """The keeping twin: what lives on leaves it alone."""
    ran = lab.sh("echo good > res; setsid sleep 0.6 > /dev/null 2>&1 &", "--settle", "3s", "--outcome", "res")
    assert b"changed after" not in ran.err
    state = ran.report["finality"]["observed"]["state"]
    assert (state["as_of"], state["digest"]) == ("captured", sha256("good\n"))
    assert ran.finality == "final"


@pytest.mark.parametrize(("mode", "error", "code"), [(None, "ENOENT", 127), (0o644, "EACCES", 126)])
def test_a_command_that_never_ran_is_told_apart_from_one_that_gave_its_code(
    lab: Lab, mode: int | None, error: str, code: int
) -> None:
    """Our message goes to a file of the workspace, which is no change of the trial's."""
    if mode is not None:
        (lab.work / "cmd").write_text("#!/bin/sh\n")
        (lab.work / "cmd").chmod(mode)
    with (lab.work / "err").open("wb") as err:
        ran = lab.run("--", "./cmd", stderr=err)
    assert ran.code == code
    assert (ran.report["endpoint"]["executed"], ran.report["endpoint"]["exec_error"]) == (False, error)
    assert ran.report["effects"]["files"] == []
    assert (ran.finality, ran.scope) == ("final", "clean")
    own = lab.sh(f"exit {code}")
    assert own.report["endpoint"]["executed"] is True


def test_what_may_not_be_written_is_named_as_left_out(lab: Lab) -> None:
    """The rest is applied."""
    ran = lab.sh("mkdir notes; echo a > notes/a; echo b > b", "--write", "notes/**")
    assert ran.report["stage"]["left_out"] == ["b"]
    assert b"not allowed, so left out: b" in ran.err
    assert not (lab.work / "b").exists()
    assert ran.scope == "violated"


def test_what_was_left_out_is_kept_to_be_looked_at(lab: Lab) -> None:
    """The rest is the workspace's, and no longer in the stage; what was refused is shown until it is discarded."""
    ran = lab.sh("mkdir notes; echo a > notes/a; echo secret > notes/b", "--write", "notes/a")
    assert (lab.work / "notes/a").read_text() == "a\n"
    told = lab.call("diff", "last").stdout
    assert b"+secret" in told
    assert b"notes/a" not in told
    assert f"supervise diff {ran.report['run']}".encode() in ran.err
    assert lab.call("commit", "last").returncode == 0
    assert not (lab.work / "notes/b").exists()
    assert lab.call("discard", "last").returncode == 0
    told = lab.call("diff", "last")
    assert (told.returncode, told.stdout) == (0, b"")
    assert b"what was left of them was dropped at" in told.stderr


REPLACE = "echo ours > new; mv new saved; echo ours > free"


def test_what_the_host_removed_meanwhile_is_not_made_again(lab: Lab) -> None:
    """Neither what was edited nor what was replaced by a rename; the trial's content waits for a forced commit."""
    for name in ("saved", "edited"):
        (lab.work / name).write_text("old\n")
    meeting = lab.work.parent / "meeting"
    meeting.mkdir()
    waits = f"touch {meeting}/here; while [ ! -e {meeting}/go ]; do sleep 0.02; done"
    script = f"echo >> saved; echo ours > edited; {waits}; {REPLACE}"
    with lab.start("--shared", str(meeting), "--", "sh", "-c", script) as trial:
        assert wait_until((meeting / "here").exists)
        for name in ("saved", "edited"):
            (lab.work / name).unlink()
        (meeting / "go").touch()
        trial.communicate()
    assert lab.report()["stage"]["conflicts"] == ["edited", "saved"]
    assert sorted(path.name for path in lab.work.iterdir()) == ["free"]
    assert lab.call("diff", "last").stdout.count(b"+ours") == 2
    assert lab.call("commit", "last").returncode == 125
    assert lab.call("commit", "--force", "last").returncode == 0
    assert {path.name: path.read_text() for path in lab.work.iterdir()} == dict.fromkeys(
        ("edited", "free", "saved"), "ours\n"
    )
    assert lab.report()["finality"]["verdict"] == "unresolved"


def test_a_conflict_says_which_file_and_what_to_do(lab: Lab) -> None:
    """Somebody else wrote the file meanwhile: it is left alone, and the outcome is not final."""
    meeting = lab.work.parent / "meeting"
    meeting.mkdir()
    script = f"touch {meeting}/here; while [ ! -e {meeting}/go ]; do sleep 0.02; done; echo ours > same"
    with lab.start("--shared", str(meeting), "--", "sh", "-c", script) as trial:
        assert wait_until((meeting / "here").exists)
        (lab.work / "same").write_text("theirs\n")
        (meeting / "go").touch()
        _, err = trial.communicate()
    assert (lab.work / "same").read_text() == "theirs\n"
    assert b"1 change not applied: changed on the host meanwhile: same" in err
    assert b"supervise discard" in err
    assert lab.report()["finality"]["verdict"] == "unresolved"


def test_a_kept_stage_names_the_ways_on(lab: Lab) -> None:
    """And the run is separate."""
    ran = lab.sh("echo a > a", "--commit", "never")
    assert b"1 change kept in the stage, not applied: the policy says never" in ran.err
    assert f"supervise commit {ran.report['run']}".encode() in ran.err
    assert ran.separation == "separate"


def test_in_place_both_sides_are_known(lab: Lab) -> None:
    """What was there before was recorded; one that the trial made is known to be new."""
    (lab.work / "old").write_text("old\n")
    ran = lab.sh("echo new > old; echo new > new", "--direct")
    assert {name: (file["net"], file["restored"]) for name, file in ran.files.items()} == {
        "old": ("modified", False),
        "new": ("created", False),
    }
    assert ran.scope == "clean"


def test_what_a_descriptor_of_the_outcome_still_writes_is_no_capture(lab: Lab) -> None:
    """Standard output is the outcome itself, and somebody who lives on writes it after the endpoint."""
    with (lab.work / "out").open("wb") as out:
        ran = lab.run("--settle", "2s", "--outcome", "out", "--", "sh", "-c", "(sleep 0.5; echo late) &", stdout=out)
    assert ran.finality == "unresolved"
