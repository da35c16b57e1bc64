"""The exit code of a trial."""

from __future__ import annotations

from typing import Any

import pytest

from completions import completion
from supervisor.exit_code import exit_code
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
    assert exit_code(completion(), ALL) == 0
