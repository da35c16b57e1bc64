"""A name that is changed between the call and its record never makes a clean trial."""

from __future__ import annotations

import pytest
from scenario_lab import Lab, Ran, python
from scenario_races import CALLS, NAMES, PROGRAM, furnish

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Ran]:
    """One trial that changes files outside its scope, each told by an allowed name, and puts them all back."""
    base = tmp_path_factory.mktemp("races")
    lab = Lab(base / "home", base / "work")
    lab.home.mkdir(mode=0o700)
    lab.work.mkdir()
    furnish(lab.work)
    ran = lab.run("--write", "allowed/**", "--commit", "never", "--", *python(PROGRAM, *NAMES))
    assert ran.code == 0, ran.err
    return lab, ran


def test_the_attack_is_one(raced: tuple[Lab, Ran]) -> None:
    """Every name that was told is an allowed one, so that nothing but doubt speaks against the trial."""
    _, ran = raced
    changed = {path for path, file in ran.files.items() if file["history"]}
    assert {path for path in changed if not path.startswith("allowed/")} == {"/memfd:text"}
    assert {f"allowed/{name}" for name in NAMES} <= {path.removesuffix(" 2") for path in changed}
    assert len([path for path in changed if path.startswith("allowed/b")]) == CALLS


def test_a_name_that_was_changed_under_its_call_is_no_clean_trial(raced: tuple[Lab, Ran]) -> None:
    """Where it happened is not known: scope stays unresolved, and says why."""
    _, ran = raced
    assert ran.scope == "unresolved"
    assert "unconfirmed-names" in ran.reasons("scope")


@pytest.mark.parametrize("name", [*sorted({*NAMES} - {"mkdir", "mknod", "symlink"}), ""])
def test_what_was_really_changed_is_named(raced: tuple[Lab, Ran], name: str) -> None:
    """It is as it was, but it lies in the stage: nothing is copied there without a reason, not even a directory."""
    _, ran = raced
    real = f"secret/{name}".rstrip("/")
    told = [reason["text"] for reason in ran.report["scope"]["reasons"] if reason["rule"] == "unexplained-copy"]
    assert [text for text in told if text.startswith(f"file: {real}: ")]


@pytest.mark.parametrize("name", NAMES)
def test_each_call_that_was_raced_is_doubted(raced: tuple[Lab, Ran], name: str) -> None:
    """The gap cites the events of each of the attacks."""
    _, ran = raced
    gap = next(reason for reason in ran.report["scope"]["reasons"] if reason["rule"] == "unconfirmed-names")
    told = [file for path, file in ran.files.items() if path in {f"allowed/{name}", f"allowed/{name} 2"}]
    assert told
    for file in told:
        assert set(file["events"]) <= set(gap["events"]), file["path"]
