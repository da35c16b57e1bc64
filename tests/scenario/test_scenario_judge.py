"""The same log under another claim, graded again, and judged again: `judge` and `verify --rejudge`, end to end."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, runs_on_host, wait_until

pytestmark = [pytest.mark.kernel("bpf", "cgroup", "bubblewrap", "overlayfs")]

EVENT = '[claim]\ndecided_by = "event"\nevent = "file.written path=out"'


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One trial whose outcome says 1 at the endpoint and 2 in the end, graded at the endpoint."""
    top = tmp_path_factory.mktemp("judged")
    (top / "home").mkdir(mode=0o700)
    (top / "work").mkdir()
    lab = Lab(top / "home", top / "work")
    script = "echo 1 > out; echo x > other; (setsid sh -c 'sleep 1; echo 2 > out' >/dev/null 2>&1 &)"
    ran = lab.sh(script, "--outcome", "out", "--settle", "10s", "--grade", "grep -qx 1 out")
    assert (ran.finality, ran.report["finality"]["label"]) == ("final", "success")
    return lab


def judge(lab: Lab, *options: str) -> dict[str, Any]:
    """Judge the last run and give the document."""
    ended = lab.call("judge", "last", "--json", *options)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def claim(lab: Lab, text: str) -> str:
    """Write a policy with a claim."""
    file = lab.home.parent / "claim.toml"
    file.write_text(f"schema = 1\n{text}\n")
    return str(file)


def run_of(lab: Lab) -> Path:
    """Give the directory of the only run."""
    (run,) = (lab.home / "runs").iterdir()
    return run


def test_a_claim_that_comes_after_the_run_says_so_and_shows_both(judged: Lab) -> None:
    """The same log is a success at the endpoint and a failure eventually; the second claim was not declared before."""
    eventually = claim(judged, '[claim]\noutcome = "out"\nperiod = "eventually"')
    told = judge(judged, "--claim", eventually)
    assert told["declared_before"] is False
    assert (told["finality"]["verdict"], told["finality"]["label"]) == ("final", "failure")
    assert (told["declared"]["claim"]["period"], told["declared"]["finality"]["label"]) == ("endpoint", "success")
    shown = judged.call("judge", "last", "--claim", eventually).stdout.decode()
    assert "not declared before the run" in shown
    assert "final: failure" in shown
    assert "final: success" in shown


def test_the_claim_that_was_declared_gives_what_was_concluded(judged: Lab) -> None:
    """Judged under its own claim nothing changes, and it says that this one was declared."""
    told = judge(judged, "--claim", claim(judged, '[claim]\noutcome = "out"\n[grade]\ncommand = "grep -qx 1 out"'))
    assert told["declared_before"] is True
    assert told["finality"] == told["declared"]["finality"]


def test_the_kept_outcome_is_graded_again(judged: Lab) -> None:
    """Another grader sees the captured state, not the workspace as it is now."""
    told = judge(judged, "--grade", "grep -qx 2 out")
    assert (told["finality"]["verdict"], told["finality"]["label"]) == ("final", "failure")
    assert told["declared_before"] is False
    (place, *_) = (run_of(judged) / "judgements").iterdir()
    assert judged.call("verify", str(place)).returncode == 0
    assert judged.call("verify", "last").returncode == 0


def test_what_changed_since_costs_the_label_of_a_later_grade(judged: Lab) -> None:
    """A file of the workspace that was captured is known; one that somebody changed since is not."""
    (judged.work / "beside").write_text("new")
    assert judge(judged, "--grade", "test -s other")["finality"]["label"] == "success"
    told = judge(judged, "--grade", "cat beside; true")["finality"]
    assert (told["verdict"], told["label"], told["cause"]) == ("unresolved", None, "grader")
    assert "no longer as it was then: beside" in told["reasons"][0]["text"]


def test_every_verdict_follows_from_the_log(judged: Lab) -> None:
    """The argument recomputed from log, manifest and kept states is the same, byte for byte; altered ones are found."""
    again = judged.call("verify", "last", "--rejudge")
    assert (again.returncode, b"every verdict follows from its log" in again.stdout) == (0, True)
    states = run_of(judged) / "observed.jsonl"
    kept = states.read_bytes()
    states.write_bytes(kept.replace(b'"size_bytes":2', b'"size_bytes":3'))
    assert judged.call("verify", "last").returncode == 1
    states.unlink()
    assert judged.call("verify", "last", "--rejudge").returncode == 1
    states.write_bytes(kept)


def test_a_run_without_a_grader_is_graded_later(lab: Lab) -> None:
    """The applied outcome is graded while it is as it was; changed since, it gives no label."""
    lab.sh("echo 1 > out")
    assert judge(lab, "--grade", "grep -qx 1 out")["finality"]["label"] == "success"
    (lab.work / "out").write_text("1\n2\n")
    assert judge(lab, "--grade", "grep -qx 1 out")["finality"]["cause"] == "grader"


def test_judge_asks_for_a_claim_or_a_grader(lab: Lab) -> None:
    """Neither is a mistake of the caller: 125."""
    assert lab.call("judge", "last").returncode == 125


def test_what_the_trial_was_asked_is_digested_before_it_starts(lab: Lab) -> None:
    """Requirements are bound by the manifest; one that is not there is the caller's mistake."""
    (lab.work / "task.md").write_text("write 1")
    policy = claim(lab, '[claim]\nrequirements = ["task.md"]')
    lab.sh("echo 2 > task.md", "--policy", policy)
    manifest = json.loads((run_of(lab) / "manifest.json").read_bytes())
    assert manifest["requirements"] == {"task.md": f"sha256:{hashlib.sha256(b'write 1').hexdigest()}"}
    missing = lab.call("--policy", claim(lab, '[claim]\nrequirements = ["none.md"]'), "--", "true")
    assert (missing.returncode, b"claim.requirements[0]" in missing.stderr) == (125, True)


@pytest.mark.parametrize("kept", ["snapshot/upper/out", "settled/upper/out", "stage/upper/out"])
def test_an_altered_capture_is_not_graded(lab: Lab, kept: str) -> None:
    """Whichever was kept: the log knows its digest; and nothing is left of the judgement that failed."""
    late = "echo 1 > out; (setsid sh -c 'sleep 0.4; echo 2 > out' >/dev/null 2>&1 &)"
    if kept.startswith("stage"):
        lab.sh("echo 1 > out", "--commit", "never")
    else:
        period = "endpoint" if kept.startswith("snapshot") else "eventually"
        lab.sh(late, "--outcome", "out", "--settle", "10s", "--period", period, "--grade", "true")
    assert judge(lab, "--grade", "grep -q . out")["finality"]["verdict"] == "final"
    (run_of(lab) / kept).write_text("3\n")
    ended = lab.call("judge", "last", "--grade", "grep -qx 3 out")
    assert ended.returncode != 0
    assert b"it was changed" in ended.stderr
    assert [place.name for place in (run_of(lab) / "judgements").iterdir()] == ["0"]
    assert lab.call("verify", "last").returncode == 1


def test_a_judgement_that_was_killed_counts_for_nothing_and_one_that_was_cut_is_found(judged: Lab) -> None:
    """The first leaves the run as it was; the second had a seal once."""
    with judged.start("judge", "last", "--grade", "sleep 63.7") as process:
        assert wait_until(lambda: runs_on_host("sleep", "63.7"), 60)
        process.kill()
    assert wait_until(lambda: not runs_on_host("sleep", "63.7"), 60)
    assert judged.call("verify", "last").returncode == 0
    judge(judged, "--grade", "true")
    latest = max((run_of(judged) / "judgements").iterdir(), key=lambda place: int(place.name))
    log = latest / "log" / "000000.seg"
    whole = log.read_bytes()
    log.write_bytes(whole[: whole.rindex(whole[:4])])
    assert judged.call("verify", "last").returncode == 1
    log.write_bytes(whole)
    assert judged.call("verify", "last").returncode == 0


def test_a_secret_of_the_caller_is_in_no_judgement(judged: Lab) -> None:
    """What the grader says of it is written without the value."""
    secret = "sk-" + "q9Zr7Lw2" * 4
    lab = Lab(judged.home, judged.work, {"SHOP_API_KEY": secret})
    (judged.home.parent / "said").write_text(f'{{"passed": true, "reason": "{secret}"}}')
    told = judge(lab, "--grade", f"cat {judged.home.parent}/said")
    assert told["finality"]["label"] == "success"
    assert not [path for path in run_of(judged).rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.mark.parametrize(("content", "code"), [("ok", 0), ("no", 120)])
def test_the_label_reaches_the_exit_code(lab: Lab, content: str, code: int) -> None:
    """With `--require success`, which the manifest has; CMD exits with 0 either way."""
    words = ("--outcome", "out", "--grade", "grep -q ok out", "--require", "success")
    ran = lab.sh(f"echo {content} > out", *words)
    assert ran.code == code
    assert (b"--require success: not met" in ran.err) == (code == 120)
    assert lab.sh("echo no > out", *words[:-2]).code == 0
    manifest = json.loads((lab.home / "runs" / ran.report["run"] / "manifest.json").read_bytes())
    assert manifest["require"] == ["success"]


def test_a_label_that_nobody_gives_is_not_waited_for(lab: Lab) -> None:
    """It could never be met: a mistake before anything runs. The log itself can give one."""
    refused = lab.call("--require", "success", "--", "touch", "ran")
    assert (refused.returncode, b"--require: expected somebody who gives the label" in refused.stderr) == (125, True)
    decided = lab.call("-p", claim(lab, EVENT), "--require", "success", "--", "sh", "-c", "echo 1 > out")
    assert decided.returncode == 0, decided.stderr
