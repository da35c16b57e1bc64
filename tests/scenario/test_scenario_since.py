"""What is said of a run after its stage was applied, discarded, or left over: by `show`, `ls`, `diff` and `discard`."""

from __future__ import annotations

import pytest
from scenario_lab import Lab, wait_until

pytestmark = pytest.mark.kernel("witness", "overlay")

APPLIES = b"`supervise commit"
SINCE_APPLIED = b", its staged writes were applied"


def listed(lab: Lab) -> list[str]:
    """Give the three verdicts that the list has of the only run."""
    return lab.call("ls").stdout.decode().split()[1:4]


def separation(shown: bytes) -> str:
    """Give the verdict that a report has."""
    return shown.decode().splitlines()[1].split(maxsplit=1)[1]


def test_a_stage_that_is_applied_by_hand_is_separate_no_longer(lab: Lab) -> None:
    """Others can meet it now: report and list say so, and the sealed argument stays what it was."""
    ran = lab.sh("echo 1 > a", "--commit", "never")
    assert (ran.separation, listed(lab)) == ("separate", ["final", "separate", "clean"])
    assert APPLIES in lab.call("show", "last").stdout
    assert lab.call("commit", "last").returncode == 0
    shown = lab.call("show", "last").stdout
    assert SINCE_APPLIED in shown
    assert APPLIES not in shown
    assert separation(shown).startswith("unresolved: separate when it was sealed")
    assert listed(lab) == ["final", "unresolved", "clean"]
    assert lab.report() == ran.report
    assert SINCE_APPLIED in lab.call("show", "last", "--format", "json").stderr


def test_a_stage_that_is_discarded_stays_separate(lab: Lab) -> None:
    """The keeping twin: nobody met it, and nobody will."""
    lab.sh("echo 1 > a", "--commit", "never")
    assert lab.call("discard", "last").returncode == 0
    shown = lab.call("show", "last").stdout
    assert b", its staged writes were discarded" in shown
    assert APPLIES not in shown
    assert separation(shown).startswith("separate")
    assert listed(lab) == ["final", "separate", "clean"]


def conflicting(lab: Lab, script: str, *options: str) -> None:
    """Run a trial that finds `f` changed on the host when it is over."""
    (lab.work / "f").write_text("0\n")
    meeting = lab.work.parent / "meeting"
    meeting.mkdir()
    waits = f"touch {meeting}/here; while [ ! -e {meeting}/go ]; do sleep 0.02; done"
    words = ("--shared", str(meeting), *options, "--", "sh", "-c", f"{script}; {waits}")
    with lab.start(*words) as trial:
        assert wait_until((meeting / "here").exists)
        (lab.work / "f").write_text("host\n")
        (meeting / "go").touch()
        trial.communicate()


@pytest.mark.parametrize("more", [True, False])
def test_what_the_host_stood_against_is_dropped_by_name(lab: Lab, more: bool) -> None:  # noqa: FBT001
    """What was applied and what was not are told apart, also where nothing was."""
    conflicting(lab, "echo trial > f" + ("; echo new > g" if more else ""))
    dropped = lab.call("discard", "last")
    assert dropped.returncode == 0
    rest = "the rest of its writes were applied when the run ended" if more else "none of its writes were applied"
    assert f": dropped: f; {rest}".encode() in dropped.stderr
    assert (lab.work / "f").read_text() == "host\n"
    shown = lab.call("show", "last").stdout
    assert b", what was not applied was dropped" in shown
    assert b"--force" not in shown
    told = lab.call("diff", "last")
    assert (told.returncode, told.stdout) == (0, b"")
    assert b"what was left of them was dropped at 2" in told.stderr
    assert lab.call("verify", "last").returncode == 0


def test_what_was_applied_whole_is_discarded_without_a_name(lab: Lab) -> None:
    """The keeping twin: nothing was left alone, so nothing is dropped."""
    lab.sh("echo 1 > a", "--commit", "never")
    lab.call("commit", "last")
    discarded = lab.call("discard", "last")
    assert b"its writes were applied before, at 2" in discarded.stderr
    assert b"dropped" not in discarded.stderr + lab.call("show", "last").stdout


def test_the_diff_of_what_was_applied_points_to_the_report(lab: Lab) -> None:
    """What was there before is not known any more, and that is no error; what was staged and dropped is one."""
    ran = lab.sh("echo 1 > a")
    for words in ((), ("--stat",)):
        told = lab.call("diff", "last", *words)
        assert (told.returncode, told.stdout) == (0, b"")
        assert b"its writes were applied when the run ended, and what was there before was not kept" in told.stderr
        assert f"`supervise show {ran.report['run']}`".encode() in told.stderr
    lab.sh("echo 2 > a", "--commit", "never")
    assert b"+2" in lab.call("diff", "last").stdout
    lab.call("discard", "last")
    assert lab.call("diff", "last").returncode == 125


def test_the_diff_of_what_a_validator_refused_is_not_called_applied(lab: Lab) -> None:
    """Nothing is staged, and nothing was applied: that is an error, as for what somebody discarded."""
    lab.sh("echo 1 > a", "--validate", "false")
    told = lab.call("diff", "last")
    assert (told.returncode, b"applied" in told.stderr) == (125, False)
