"""What a verdict is about and what reaches the host are one state, or nothing reaches it: stragglers in every way."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, Ran

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

REQUIRED = ("--require", "final,applied,clean")
GRADED = ("--grade", "grep -qx ok out")


OK = hashlib.sha256(b"ok\n").hexdigest()


def left(lab: Lab, later: str, *options: str, first: str = "echo ok > out") -> Ran:
    """Run a trial that writes its outcome and leaves somebody who does something else a little later."""
    script = f"{first}; setsid sh -c 'sleep 0.5; {later}' > /dev/null 2>&1 &"
    return lab.sh(script, "--settle", "3s", *options)


def observed(ran: Ran) -> dict[str, Any]:
    """Give what was seen of the outcome."""
    return dict(ran.report["finality"]["observed"])


def attested(lab: Lab) -> dict[str, str]:
    """Read what the signed statement is about: digests by name."""
    (run,) = (lab.home / "runs").iterdir()
    envelope = json.loads((run / "completion.dsse.json").read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    return {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}


CHANGES = {
    "rewritten": "echo no > out",
    "replaced": "echo no > new; mv new out",
    "appended": "echo more >> out",
    "deleted": "rm out",
    "moved": "mv out away",
    "its mode": "chmod 777 out",
}


@pytest.mark.parametrize(("change", "when"), [("rewritten", "final"), *((name, "always") for name in CHANGES)])
def test_what_a_straggler_made_of_the_outcome_is_not_applied(lab: Lab, change: str, when: str) -> None:
    """The verdict is about the endpoint and stays final; the host has nothing of it, and `applied` does not hold."""
    ran = left(lab, CHANGES[change], "--outcome", "out", "--commit", when, *GRADED, *REQUIRED)
    assert (ran.finality, ran.report["finality"]["label"], ran.scope) == ("final", "success", "clean")
    assert ran.code == 120
    assert b"--require applied: not met" in ran.err
    assert list(lab.work.iterdir()) == []
    assert ran.report["stage"]["state"] == "kept"
    assert "changed after the endpoint: out" in ran.report["stage"]["why"]
    assert observed(ran)["differs"] == ["out"]
    shown = lab.call("show", "last").stdout.decode()
    assert f"out: file, 3 bytes, sha256:{OK}, at the endpoint" in shown
    assert f"supervise commit {ran.report['run']}" in shown
    assert attested(lab)["out"] == OK
    assert lab.call("verify", "last", "--rejudge").returncode == 0


def test_an_outcome_that_nobody_touches_later_is_applied(lab: Lab) -> None:
    """The keeping twin: somebody lives on, and what was captured is what the host gets."""
    ran = left(lab, "true", "--outcome", "out", "--commit", "final", *GRADED, *REQUIRED)
    assert (ran.code, ran.finality, observed(ran)["differs"]) == (0, "final", [])
    assert (lab.work / "out").read_text() == "ok\n"
    assert f"out: file, 3 bytes, sha256:{OK}, at the endpoint".encode() in lab.call("show", "last").stdout
    assert lab.events("capture.compared") == []


def test_an_outcome_that_is_put_back_is_applied(lab: Lab) -> None:
    """It changed after the endpoint, which is told; what is applied is what was captured."""
    ran = left(lab, "echo no > out; sleep 0.1; echo ok > out", "--outcome", "out", *GRADED, *REQUIRED)
    assert (ran.code, ran.finality) == (0, "final")
    assert (observed(ran)["changed_since"], observed(ran)["differs"]) == (["out"], [])
    assert (lab.work / "out").read_text() == "ok\n"
    assert b"changed after it was captured, and put back: out" in ran.err
    assert [(one["path"], one["again"]) for one in lab.events("capture.compared")] == [("out", True)]
    assert lab.call("verify", "last", "--rejudge").returncode == 0


def test_another_file_is_not_what_the_claim_is_about(lab: Lab) -> None:
    """What a straggler writes beside the outcome is applied with it."""
    ran = left(lab, "echo late > log", "--outcome", "out", *GRADED, *REQUIRED)
    assert (ran.code, ran.finality) == (0, "final")
    assert {path.name: path.read_text() for path in lab.work.iterdir()} == {"out": "ok\n", "log": "late\n"}


@pytest.mark.parametrize("first", ["true", "mkdir d; echo ok > d/one"])
def test_a_file_that_comes_into_a_claimed_directory_is_not_applied(lab: Lab, first: str) -> None:
    """Nothing of it was there when it was captured, and so nothing comes of it; the outcome is still told."""
    ran = left(lab, "mkdir -p d; echo no > d/two", "--outcome", "d", *REQUIRED, first=first)
    assert (ran.code, ran.finality) == (120, "final")
    assert "d/two" in observed(ran)["differs"]
    assert (observed(ran)["state"]["as_of"], observed(ran)["state"]["exists"]) == ("captured", first != "true")
    assert list(lab.work.iterdir()) == []


def test_a_claim_about_the_end_has_the_end_applied(lab: Lab) -> None:
    """Followed to its end, the straggler's word is the outcome: another label, and that is what the host gets."""
    ran = left(lab, "echo no > out", "--outcome", "out", "--period", "eventually", *GRADED, *REQUIRED)
    assert (ran.code, ran.finality, ran.report["finality"]["label"]) == (0, "final", "failure")
    assert (lab.work / "out").read_text() == "no\n"


@pytest.mark.parametrize("what", ["cancel", "freeze"])
def test_who_is_not_let_go_on_changes_nothing(lab: Lab, what: str) -> None:
    """What was captured is the end as well."""
    ran = left(lab, "echo no > out", "--outcome", "out", "--at-endpoint", what, *GRADED, *REQUIRED)
    assert (ran.code, ran.finality, observed(ran)["differs"]) == (0, "final", [])
    assert (lab.work / "out").read_text() == "ok\n"


def test_what_changes_after_the_deadline_is_not_applied(lab: Lab) -> None:
    """A claim within a time is about the state then, when somebody still lives."""
    ran = left(lab, "sleep 0.7; echo no > out", "--outcome", "out", "--period", "within:500ms", *GRADED, *REQUIRED)
    assert (ran.code, ran.finality, ran.report["finality"]["label"]) == (120, "final", "success")
    assert list(lab.work.iterdir()) == []
    assert b", as captured when the period ended" in lab.call("show", "last").stdout


def test_by_hand_the_end_is_applied_and_told_apart(lab: Lab) -> None:
    """Whoever asks for it gets what is staged, with the word that it is not what was judged."""
    left(lab, "echo no > out", "--outcome", "out")
    assert b"+no" in lab.call("diff", "last").stdout
    done = lab.call("commit", "last")
    assert done.returncode == 0
    assert b"1 change applied" in done.stderr
    assert b"the verdict is about another state: changed after it was captured: out" in done.stderr
    assert (lab.work / "out").read_text() == "no\n"
    assert lab.call("verify", "last").returncode == 0


def test_by_hand_what_was_judged_needs_no_word(lab: Lab) -> None:
    """The keeping twin."""
    left(lab, "true", "--outcome", "out", "--commit", "never")
    done = lab.call("commit", "last")
    assert (done.returncode, b"verdict" in done.stderr) == (0, False)
    assert (lab.work / "out").read_text() == "ok\n"


def test_what_a_claim_names_nothing_of_is_applied_as_it_ends(lab: Lab) -> None:
    """Without an outcome everything is applied, as ever; that it is as it was judged can still be required."""
    ran = left(lab, "echo late > out")
    assert (ran.code, (lab.work / "out").read_text()) == (0, "late\n")
    assert b"is what the verdict is about, not what was applied" in ran.err
    assert left(lab, "echo later > out", *REQUIRED).code == 120
    assert (lab.work / "out").read_text() == "later\n"
    assert left(lab, "echo last > out", "--period", "eventually", *REQUIRED).code == 0


def test_only_a_final_outcome_is_applied_where_nothing_is_named(lab: Lab) -> None:
    """What was judged is the workspace at the endpoint, and what is staged is not that; its twin is left alone."""
    assert left(lab, "echo late > out", "--commit", "final").report["stage"]["state"] == "kept"
    assert list(lab.work.iterdir()) == []
    assert left(lab, "true", "--commit", "final").report["stage"]["state"] == "applied"


def test_what_was_written_in_place_cannot_be_held_back(lab: Lab) -> None:
    """It is there; `applied` does not hold, and the outcome that is told is the one that was judged."""
    ran = left(lab, "echo no > out", "--direct", "--outcome", "out", *REQUIRED)
    assert ((lab.work / "out").read_text(), ran.code, ran.finality) == ("no\n", 120, "final")
    assert observed(ran)["state"]["digest"] == f"sha256:{OK}"
    (lab.work / "out").unlink()
    assert left(lab, "true", "--direct", "--outcome", "out", *REQUIRED).code == 0


def test_a_mount_in_the_workspace_is_compared_too(lab: Lab) -> None:
    """What a straggler changes in a file system that is mounted there is not applied either; its twin puts it back."""
    for later, applied in (("echo no > in/out", ""), ("echo no > in/out; echo ok > in/out", "ok\n")):
        script = f"echo ok > in/out; setsid sh -c 'sleep 0.5; {later}' > /dev/null 2>&1 &"
        ended = lab.call_in(
            "mkdir -p in; mount -t tmpfs none in",
            *("--settle", "3s", "--outcome", "in/out", "--", "sh", "-c", script),
            then="cat in/out > ../got || true",
        )
        assert ended.returncode == 0, ended.stderr
        assert Path(lab.work.parent / "got").read_text() == applied
