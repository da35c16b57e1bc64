"""Writes that are allowed outside the workspace: warned of before, told afterwards, and nowhere on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay")

GONE = b"allowed, and discarded: outside the workspace"


def test_a_write_that_is_allowed_outside_the_workspace_is_called_discarded(lab: Lab) -> None:
    """It violates nothing and is not on the host; before and after, whoever allowed it is told: final, clean."""
    outside = Path("/etc/supervise-scenario.conf")
    ran = lab.sh(f"echo hi > {outside}; echo hi > in", "--write", str(outside), "--write", "in")
    assert (ran.finality, ran.scope) == ("final", "clean")
    assert not outside.exists()
    assert f"files.write[0]: {GONE.decode()}".encode() in ran.err
    assert GONE + f": {outside}".encode() in ran.err
    shown = lab.call("show", "last").stdout.decode()
    assert f"created: {outside}, allowed, discarded: outside the workspace" in shown
    assert ran.files[str(outside)]["discarded"] is True
    assert "discarded" not in ran.files["in"]


def test_a_write_that_is_allowed_in_a_shared_place_stays(lab: Lab) -> None:
    """The keeping twin: nothing of it is discarded, and nobody is warned."""
    shared = lab.work.parent / "shared"
    shared.mkdir()
    ran = lab.sh(
        f"echo hi > {shared}/one", "--shared", str(shared), "--write", f"{shared}/one", "--write", str(lab.work)
    )
    assert (shared / "one").read_text() == "hi\n"
    assert ran.scope == "clean"
    assert b"discarded" not in ran.err + lab.call("show", "last").stdout


def test_a_policy_is_checked_for_writes_that_are_thrown_away(lab: Lab) -> None:
    """The check knows no workspace, unless the policy names it; it is a warning, and the policy good."""
    policy = lab.work / "policy.toml"
    for workspace, told in (("", True), ('workspace = "/srv/w"', True), ('workspace = "/var/out"', False)):
        policy.write_text(f'schema = 1\n[files]\n{workspace}\nwrite = ["/var/out/**"]\n')
        checked = lab.call("policy", "check", "policy.toml")
        assert (checked.returncode, GONE in checked.stderr) == (0, told), checked.stderr
