"""Credentials that a user typed into a policy or a grader's command: used, judged by, and kept nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scenario_lab import Lab, Ran

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

KNOWN = "tok-of-the-caller-71c0aa39"
TYPED = "ghp_" + "zQ81mfYYxpLmnd83nAk3ncsOxzAAb26d4Klp"  # in two parts: no scanner of repositories is to find one here
SHORT = "tok-71c0aa39"
"""No longer than the word that stands for it: which variable had it is not told."""
POLICY = f"""
schema = 1
name = "typed"
[claim]
outcome = "out"
[credentials]
pass = ["MY_TOKEN"]
[grade]
command = "test -e out && test {KNOWN} != {TYPED}"
[[services]]
name = "shop"
at = "shop.test:80"
settle = {{ kind = "http", socket = "/tmp/no-shop", url = "http://shop.test/?key={TYPED}", committed = ["done"] }}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Ran]:
    """Run a trial whose policy has one credential of the environment in it, and one that only looks like one."""
    top = tmp_path_factory.mktemp("typed")
    (top / "home").mkdir(mode=0o700)
    (top / "work").mkdir()
    (top / "policy.toml").write_text(POLICY)
    lab = Lab(top / "home", top / "work", {"MY_TOKEN": KNOWN})
    return lab, lab.sh("echo 1 > out; (setsid sleep 0.3 >/dev/null 2>&1 &)", "-p", str(top / "policy.toml"))


def run_of(lab: Lab) -> Path:
    """Give the directory of the only run."""
    (run,) = (lab.home / "runs").iterdir()
    return run


def kept_values(lab: Lab) -> list[Path]:
    """Give the files of the home that hold one of the values."""
    files = [path for path in lab.home.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if any(one.encode() in path.read_bytes() for one in (KNOWN, TYPED))]


def test_the_grader_ran_with_the_values_and_nothing_keeps_them(done: tuple[Lab, Ran]) -> None:
    """Its label is there; manifest, argument, attestation, index and both logs are without."""
    lab, ran = done
    assert (ran.finality, ran.report["finality"]["label"]) == ("final", "success"), ran.err
    assert not kept_values(lab)
    document = json.loads((run_of(lab) / "manifest.json").read_bytes())["policy"]["document"]
    assert "[redacted MY_TOKEN]" in document["grade"]["command"]
    assert "[redacted GitHub Token]" in document["services"][0]["settle"]["url"]


def test_the_digest_is_that_of_the_policy_as_it_was_declared(done: tuple[Lab, Ran]) -> None:
    """Whoever has the file can tell that it is the one."""
    lab, ran = done
    checked = lab.call("policy", "check", str(lab.home.parent / "policy.toml"))
    assert ran.report["policy"]["digest"] in checked.stdout.decode() + checked.stderr.decode()
    assert (
        json.loads((run_of(lab) / "manifest.json").read_bytes())["policy"]["digest"] == ran.report["policy"]["digest"]
    )


def test_such_a_run_verifies_and_is_judged_again(done: tuple[Lab, Ran]) -> None:
    """The argument follows from what is kept, byte for byte."""
    found = done[0].call("verify", "last", "--rejudge")
    assert (found.returncode, b"every verdict follows" in found.stdout) == (0, True), found.stderr


def test_a_command_with_something_taken_out_is_not_run_again(done: tuple[Lab, Ran]) -> None:
    """Where another claim needs another state graded, the user is asked for it; typed again it is not kept either."""
    lab, _ = done
    claim = lab.home.parent / "claim.toml"
    claim.write_text('schema = 1\n[claim]\noutcome = "out"\nperiod = "eventually"\n')
    refused = lab.call("judge", "last", "--claim", str(claim))
    assert (refused.returncode, b"name it again" in refused.stderr) == (125, True), refused.stderr
    grade = f"test -e out && test {KNOWN} != {TYPED}"
    again = lab.call("judge", "last", "--json", "--claim", str(claim), "--grade", grade)
    assert json.loads(again.stdout)["finality"]["label"] == "success", again.stderr
    assert not kept_values(lab)
    assert lab.call("verify", "last").returncode == 0


def test_a_value_where_nothing_else_can_stand_is_refused(lab: Lab) -> None:
    """Before anything runs: the name of a host cannot be hidden and kept."""
    policy = lab.home.parent / "policy.toml"
    policy.write_text(f'schema = 1\n[credentials]\npass = ["MY_TOKEN"]\n[network]\nallow = ["{KNOWN}.test:80"]\n')
    ran = Lab(lab.home, lab.work, {"MY_TOKEN": KNOWN}).call("-p", str(policy), "--", "true")
    assert (ran.returncode, KNOWN.encode() in ran.stderr) == (125, False), ran.stderr
    assert b"name a variable" in ran.stderr


def test_what_was_typed_into_the_command_is_kept_nowhere(lab: Lab) -> None:
    """The trial has it; manifest, argument and log are without."""
    ran = lab.sh(f"echo {TYPED} | wc -c > size; true --password hunter2hunter2")
    assert ran.finality == "final", ran.err
    assert (lab.work / "size").read_text().strip() == str(len(TYPED) + 1)
    files = [path.read_bytes() for path in lab.home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not any(value in data for data in files for value in (TYPED.encode(), b"hunter2hunter2"))


@pytest.mark.parametrize(("said", "label"), [("code", "failure"), (SHORT, "success")])
def test_a_pattern_with_a_known_value_means_only_that(lab: Lab, said: str, label: str) -> None:
    """What stands for it is no wildcard: an event decides the claim only where the value was met."""
    policy = lab.home.parent / "policy.toml"
    event = f"process.executed argv=*{SHORT}"
    policy.write_text(f'schema = 1\n[claim]\ndecided_by = "event"\nevent = "{event}"\n')
    ran = Lab(lab.home, lab.work, {"DEPLOY_TOKEN": SHORT}).sh(f"/bin/echo {said} > out", "-p", str(policy))
    assert (ran.finality, ran.report["finality"]["label"]) == ("final", label), ran.err


def test_a_password_in_an_address_breaks_nothing(lab: Lab) -> None:
    """What stands for it is where no URL may have it; the run is judged and sealed all the same."""
    policy = lab.home.parent / "policy.toml"
    dsn = "postgresql://me:hunter2hunter2@127.0.0.1:1/db"
    settle = f'{{ kind = "postgres", dsn = "{dsn}", query = "select 1", settled = ["1"] }}'
    policy.write_text(f'schema = 1\n[[services]]\nname = "db"\nat = "db.test:5432"\nsettle = {settle}\n')
    ran = lab.sh("true", "-p", str(policy))
    assert (ran.code, ran.finality) == (0, "final"), ran.err
    assert lab.call("verify", "last", "--rejudge").returncode == 0
