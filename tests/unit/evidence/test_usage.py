"""How much of its budgets a trial used."""

from __future__ import annotations

import pytest
from transcript import MAIN, Transcript, ordinary

from policies.types import StopRule
from supervisor import events as ev
from supervisor.evidence.routes import Usage
from supervisor.evidence.usage import Claimed, parse_usage
from supervisor.trial.budget import Budgets


def tool(trial: Transcript, name: str, call: str, arguments: str = "sha256:a", *, passed: bool = True) -> None:
    """Tell of a call."""
    trial.add(ev.ToolCalled, process=None, tool=name, call=call, arguments=arguments, passed=passed)


def test_calls_retries_failures_and_what_has_no_answer_are_told_apart() -> None:
    """The same call again is a retry; one above the budget was not made."""
    trial = ordinary()
    tool(trial, "search", "1")
    trial.add(ev.ToolAnswered, process=None, call="1", failed=True)
    tool(trial, "search", "2")
    tool(trial, "write", "3", "sha256:b")
    trial.add(ev.ToolAnswered, process=None, call="3", failed=False)
    tool(trial, "write", "4", "sha256:c", passed=False)
    used = trial.facts().usage
    assert (used.tool_calls, used.retries, used.failed, used.refused) == (3, 1, 1, 1)
    assert used.unanswered == ("search (2)",)


def test_what_the_trial_says_of_itself_is_kept_apart() -> None:
    """Nothing that was counted is changed by it."""
    trial = ordinary()
    for text in ('{"tool_calls": 2, "tokens": 100}', '{"tokens": 50}', "hello", '{"tokens": -1}', '{"tokens": true}'):
        trial.add(ev.NoteReceived, process=MAIN, origin=ev.Origin.TRIAL, text=text)
    used = trial.facts().usage
    assert (used.tool_calls, used.claimed_tool_calls, used.claimed_tokens) == (0, 2, 150)
    assert ordinary().facts().usage == Usage()


@pytest.mark.parametrize(
    ("note", "claimed"),
    [
        ('{"tool_calls": 1}', Claimed(1, 0)),
        ('{"tokens": 7, "more": "x"}', Claimed(0, 7)),
        ("{}", None),
        ("[1]", None),
        ('{"tokens": 1.5}', None),
        ('{"tokens": 99999999999999}', None),
        ("{" * 5000, None),
        ('{"tokens": ' + "[" * 100_000, None),
    ],
)
def test_a_note_that_claims_usage_is_read_strictly(note: str, claimed: Claimed | None) -> None:
    """Whole numbers, not below zero, not beyond reason."""
    assert parse_usage(note) == claimed


def test_a_budget_ends_with_the_call_after_the_last_one() -> None:
    """It is told once, with who counted."""
    told: list[dict[str, object]] = []
    budgets = Budgets(StopRule(tool_calls=2, tokens=100), lambda **fields: told.append(fields))
    try:
        assert [budgets.call() for _ in range(4)] == [True, True, False, False]
        budgets.note('{"tokens": 500}')
        assert budgets.reached
        assert told == [{"budget": "tool_calls", "limit": 2, "counted": 3, "claimed": False}]
    finally:
        budgets.close()


def test_claims_count_against_the_budget_by_themselves() -> None:
    """They are not added to what was counted."""
    told: list[dict[str, object]] = []
    budgets = Budgets(StopRule(tool_calls=2), lambda **fields: told.append(fields))
    try:
        budgets.call()
        budgets.note('{"tool_calls": 2}')
        assert not budgets.reached
        budgets.note('{"tool_calls": 1}')
        assert told == [{"budget": "tool_calls", "limit": 2, "counted": 3, "claimed": True}]
    finally:
        budgets.close()
