"""When the stage is applied: on which verdicts all of it waits, from one command to what lies in the workspace."""

from __future__ import annotations

import json

import pytest
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

INSIDE = "mkdir notes; echo a > notes/a"
OUTSIDE = f"{INSIDE}; echo b > b"
LEFT = f"{INSIDE}; sleep 61 &"


@pytest.mark.parametrize(
    ("when", "script", "why"),
    [
        ("clean", INSIDE, None),
        ("clean", OUTSIDE, "nothing unless the scope is clean, and it is violated"),
        ("clean", LEFT, None),
        ("final,clean", INSIDE, None),
        ("clean,final", OUTSIDE, "nothing unless the scope is clean, and it is violated"),
        ("final,clean", LEFT, "a final outcome only, and this one is unresolved"),
        ("final", OUTSIDE, None),
    ],
)
def test_all_or_nothing_is_applied_by_the_verdicts(lab: Lab, when: str, script: str, why: str | None) -> None:
    """What the mode names must hold, else even what was allowed stays in the stage; the report says which did not."""
    options = ("--write", "notes/**", "--commit", when, "--period", "eventually", "--settle", "0s")
    ran = lab.sh(script, *options, "--require", "applied")
    stage = ran.report["stage"]
    assert (lab.work / "notes/a").exists() == (why is None)
    assert not (lab.work / "b").exists()
    assert stage["state"] == ("applied" if why is None else "kept")
    if why is not None:
        assert ran.code == 120
        assert why in stage["why"]
        assert why.encode() in ran.err
        assert ran.separation == "separate" if when != "final,clean" else "unresolved"


def test_what_was_kept_back_can_be_looked_at_and_applied(lab: Lab) -> None:
    """As with `--commit never`; what was not allowed is not applied then either."""
    lab.sh(OUTSIDE, "--write", "notes/**", "--commit", "clean")
    assert b"notes/a" in lab.call("diff", "last", "--stat").stdout
    assert lab.call("commit", "last").returncode == 0
    assert (lab.work / "notes/a").exists()
    assert not (lab.work / "b").exists()
    assert lab.call("verify", "last", "--rejudge").returncode == 0


def test_the_mode_is_fixed_before_the_run(lab: Lab) -> None:
    """The manifest has it, in one spelling, and a policy file says the same."""
    policy = lab.work / "p.toml"
    policy.write_text('schema = 1\n[files]\ncommit = "clean,final"\n')
    for words in (("--commit", "final,clean"), ("-p", str(policy))):
        ran = lab.run(*words, "--", "true")
        manifest = json.loads((lab.home / "runs" / ran.report["run"] / "manifest.json").read_bytes())
        assert manifest["policy"]["document"]["files"]["commit"] == "final,clean"
