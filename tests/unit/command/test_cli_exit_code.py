"""The exit code of a trial."""

from __future__ import annotations

from typing import Any

import pytest

from completions import completion
from supervisor.command.exit_code import exit_code
from supervisor.request import Requirement

ALL = frozenset(Requirement)
BAD = {"finality": {"verdict": "unresolved"}, "scope": {"verdict": "violated"}}


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        ({"reason": "exit", "exit_code": 0}, 0),
        ({"reason": "exit", "exit_code": 77}, 77),
        ({"reason": "exit", "exit_code": 127}, 127),
        ({"reason": "signal", "exit_code": None, "signal": 11}, 139),
        ({"reason": "timeout", "exit_code": None, "signal": 15}, 124),
        ({"reason": "timeout", "exit_code": 0}, 124),
        ({"reason": "stopped", "exit_code": None, "signal": 2}, 130),
        ({"reason": "exit", "exit_code": None}, 125),
    ],
)
def test_the_code_is_the_childs_unless_a_limit_ended_it(endpoint: dict[str, Any], code: int) -> None:
    """128+n for a signal, 124 for a limit of ours, 125 when nobody saw how it ended."""
    assert exit_code(completion(endpoint=endpoint)) == code


def test_a_requirement_changes_only_a_zero() -> None:
    """A child that failed keeps its own code, so that its failure is not hidden."""
    assert exit_code(completion(**BAD), ALL) == 120
    assert exit_code(completion(**BAD, endpoint={"exit_code": 3}), ALL) == 3
    good = completion(stage={"state": "applied", "changes": 1}, finality={"label": "success"})
    assert exit_code(good, ALL) == 0


@pytest.mark.parametrize(("label", "code"), [("success", 0), ("failure", 120), (None, 120)])
def test_the_code_carries_the_label_only_where_that_is_required(label: str | None, code: int) -> None:
    """A run that is not final has no label, whatever was observed; without the word a failure is 0."""
    seen = completion(finality={"label": label, "observed": {"label": "success", "at": None, "digest": None}})
    assert exit_code(seen, frozenset({Requirement.SUCCESS})) == code
    assert exit_code(seen) == 0


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ({"state": "applied", "changes": 2}, 0),
        ({"state": "direct", "changes": 2}, 0),
        ({"state": "kept", "changes": 0}, 0),
        ({"state": "kept", "changes": 1, "why": "the policy says never"}, 120),
        ({"state": "failed", "changes": 2, "conflicts": ["f"]}, 120),
        ({"state": "discarded", "changes": 1}, 120),
        ({"state": "applied", "changes": 1, "left_out": ["f"]}, 120),
        ({"state": "unknown", "changes": 0}, 120),
        (None, 120),
    ],
)
def test_writes_that_were_not_applied_change_the_code_only_where_that_is_required(
    stage: dict[str, Any] | None, code: int
) -> None:
    """`--require applied` is met where nothing that was staged was kept back; what is not known is not met."""
    seen = completion(stage=stage)
    assert exit_code(seen, frozenset({Requirement.APPLIED})) == code
    assert exit_code(seen) == 0
