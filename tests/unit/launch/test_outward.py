"""Symlinks of an outcome, followed as a grader would: on real directories, without a box."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.launch.disk.outward import find_outward


class Outcome:
    """A workspace, what a trial changed in it, and what only the grader should see."""

    def __init__(self, top: Path) -> None:
        """Make them."""
        self.work, self.upper, self.reference = top / "work", top / "upper", top / "reference"
        for place in (self.work, self.upper, self.reference, self.work / "answers"):
            place.mkdir()
        (self.reference / "key").touch()

    def outward(self, outcome: str | None = None, *, secret: bool = True) -> list[str]:
        """Find what leads where it must not."""
        reference = (f"{self.reference}/**", "answers") if secret else ()
        captures = {b"": bytes(self.upper)}
        return list(find_outward(bytes(self.work), captures, bytes(self.work), reference, outcome))


@pytest.fixture
def made(tmp_path: Path) -> Outcome:
    """Give one in which nothing was changed."""
    return Outcome(tmp_path)


@pytest.mark.parametrize(
    "target",
    ["../reference/key", "../reference", "..", "/", "answers/key", "answers", "./a/../answers/key", "up/reference/key"],
)
def test_a_symlink_to_the_reference_is_found(made: Outcome, target: str) -> None:
    """However it leads there: to it, to what it lies in, or by another symlink of the trial."""
    (made.upper / "a").mkdir()
    (made.upper / "up").symlink_to("a/up")
    (made.upper / "a" / "up").symlink_to(made.work.parent)
    (made.upper / "out").symlink_to(target)
    assert "out leads to what only the grader should see" in made.outward()


@pytest.mark.parametrize("target", ["a/b", "/usr/bin/env", "../elsewhere", "out", "/nowhere/key", "../referenceless"])
def test_other_symlinks_are_nobody_s_business(made: Outcome, target: str) -> None:
    """A trial may make them: also to itself, and to what is not there."""
    (made.upper / "out").symlink_to(target)
    assert made.outward() == []


def test_where_nothing_is_secret_nothing_leads_to_it(made: Outcome) -> None:
    """A symlink to everything is then one like others."""
    (made.upper / "out").symlink_to("/")
    assert made.outward(secret=False) == []


def test_an_outcome_that_leads_out_was_not_captured(made: Outcome) -> None:
    """Whoever changes what it leads to changes what the grader sees; one that leads to the workspace is captured."""
    (made.upper / "out").symlink_to("/usr/bin/env")
    (made.upper / "d").symlink_to("/usr")
    (made.upper / "in").symlink_to("real")
    assert made.outward("out") == ["out leads out of the workspace, to what was not captured"]
    assert made.outward("./d/bin/env") == ["d/bin/env leads out of the workspace, to what was not captured"]
    assert made.outward("in") == []


def test_what_was_removed_leads_nowhere(made: Outcome) -> None:
    """The workspace's own symlink counts only while the trial has not put something else there."""
    (made.work / "d").symlink_to(made.reference)
    (made.upper / "out").symlink_to("d/key")
    assert made.outward() == ["out leads to what only the grader should see"]
    (made.upper / "d").mkdir()
    assert made.outward() == []
