"""A run judged again by what its services said after its seal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed
from transcript import ENDPOINT, EVENTUALLY, WITHIN, policy_for

from completions import GOOD, completion
from policies.types import PeriodKind, Policy, Service, ServiceState
from supervisor.verdict.completion import Completion, Finality, ObservedOutcome, OpenEffect, Proof, Reason
from supervisor.verdict.settled_later import (
    LaterAnswer,
    LaterLook,
    LeftSchedule,
    OutcomeSince,
    Since,
    decide,
    decide_schedule,
    is_lost,
    open_routes,
    settle_later,
)

S = 1_000_000_000
assert GOOD


def policy(period: PeriodKind = EVENTUALLY, *, outcome: str = "service:shop") -> Policy:
    """Give a policy with one service."""
    return replace(
        policy_for(period=period, outcome=outcome), services=(Service(name="shop", state=ServiceState.PER_RUN),)
    )


def left_open(*more: Reason, label: str | None = None) -> Completion:
    """Give an argument that one service keeps open."""
    waiting = Reason(rule="service-open", text="service shop: it last said: pending", events=(5,), keeps_open=True)
    effect = OpenEffect(
        id="o1", route="service", what="service shop at unix:/s", status="pending", could_affect=("outcome",),
        handling="unresolved", settled=False, proof=Proof(), events=(5,),
    )  # fmt: skip
    observed = ObservedOutcome(label=label or "failure", at=None, digest=None)
    finality = Finality(verdict="unresolved", label=None, observed=observed, intervened=False, reasons=(*more, waiting))
    return changed(completion(), finality=finality, open_effects=(effect,))


def said(status: str, at_s: float) -> LaterAnswer:
    """Give an answer."""
    at_ns = round(at_s * S)
    return LaterAnswer(service="shop", status=status, detail="x", asked_ns=at_ns, at_ns=at_ns, event=7)


@pytest.mark.parametrize(("status", "label"), [("committed", "success"), ("failed", "failure")])
def test_an_answer_for_good_closes_what_was_open(status: str, label: str) -> None:
    """The reason, the effect, the label and the result follow."""
    found = settle_later(left_open(), policy(), Since(answers={"shop": [said("pending", 1), said(status, 2)]}), None)
    assert (found.finality.verdict, found.finality.label) == ("final", label)
    assert [one.rule for one in found.finality.reasons] == ["service-settled"]
    assert (found.open_effects[0].settled, found.open_effects[0].proof.checked) == (True, (7,))
    assert found.result.passed is (label == "success")


def test_an_answer_that_is_no_outcome_gives_no_label() -> None:
    """As in a run that was not asked again: nothing is left to act, and nobody knows how it ended."""
    found = settle_later(left_open(), policy(), Since(answers={"shop": [said("settled", 2)]}), None)
    assert (found.finality.verdict, found.finality.label, found.finality.cause) == ("unresolved", None, "service")
    assert [one.rule for one in found.finality.reasons] == ["no-label", "service-settled"]
    assert open_routes(found, policy()).services == ()
    again = settle_later(found, policy(), Since(answers={"shop": [said("settled", 3)]}), None)
    assert [one.rule for one in again.finality.reasons] == ["no-label", "service-settled"]


@pytest.mark.parametrize("status", ["pending", "unknown"])
def test_anything_else_leaves_it_open(status: str) -> None:
    """And it can be gone on with again."""
    found = settle_later(left_open(), policy(), Since(answers={"shop": [said(status, 1)]}), None)
    assert found.finality.verdict == "unresolved"
    assert open_routes(found, policy()).services == ("shop",)
    assert settle_later(left_open(), policy(), Since(), None).finality.verdict == "unresolved"


def test_what_else_keeps_the_run_open_stays() -> None:
    """A process that was cut, or a gap, is nothing that a service could answer for."""
    other = Reason(rule="evidence-gap", text="x", events=(), keeps_open=True)
    found = settle_later(left_open(other), policy(), Since(answers={"shop": [said("committed", 1)]}), None)
    assert found.finality.verdict == "unresolved"
    assert found.finality.observed.label == "success"
    assert open_routes(found, policy()).services == ()


def test_a_label_of_a_grader_becomes_final_when_the_service_cannot_touch_it_any_more() -> None:
    """The claim is about a file; the service only kept it open."""
    found = settle_later(
        left_open(label="success"), policy(outcome="out"), Since(answers={"shop": [said("settled", 1)]}), None
    )
    assert (found.finality.verdict, found.finality.label) == ("final", "success")


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([("committed", 9)], "committed"),
        ([("pending", 9), ("committed", 11)], None),
        ([("pending", 9)], None),
        ([("pending", 11)], "pending"),
        ([("unknown", 11), ("pending", 12)], None),
        ([], None),
    ],
)
def test_the_period_is_that_of_the_run(answers: list[tuple[str, float]], status: str | None) -> None:
    """Done by D, still pending at D, or not known."""
    found = decide(policy(WITHIN), [said(*one) for one in answers], 10 * S)
    assert (found.status if found else None) == status


# -- schedules -------------------------------------------------------------------------------------------------------

JOB = LeftSchedule(path=b"/var/spool/cron/atjobs/a1", what="job of at", next_ns=20 * S, before=None, after="sha256:x")


def left_to_fire(*more: Reason, label: str | None = "success") -> Completion:
    """Give an argument that one job of at keeps open."""
    text = f"{JOB.name} stays and starts by itself, next at 20"
    waiting = Reason(rule="schedule-persists", text=text, events=(5,), keeps_open=True)
    effect = OpenEffect(
        id="o1", route="schedule", what=JOB.name, status="pending", could_affect=("outcome", "runs"),
        handling="unresolved", settled=False, proof=Proof(), events=(5,),
    )  # fmt: skip
    observed = ObservedOutcome(label=label, at=None, digest=None)
    finality = Finality(verdict="unresolved", label=None, observed=observed, intervened=False, reasons=(*more, waiting))
    return changed(completion(), finality=finality, open_effects=(effect,))


def seen(state: str, fired: bool | None, at_s: float) -> LaterLook:  # noqa: FBT001 - read as a table
    """Give a look."""
    return LaterLook(state=state, fired=fired, why="x", at_ns=round(at_s * S), event=9)


@pytest.mark.parametrize(
    ("looks", "deadline_s", "closed"),
    [
        ([("gone", False, 5)], None, True),
        ([("restored", False, 5)], None, True),
        ([("there", False, 5)], None, False),
        ([("changed", False, 5)], None, False),
        ([("gone", None, 25)], None, False),
        ([("gone", True, 25)], None, False),
        ([("there", False, 5), ("gone", False, 6)], None, True),
        ([("there", False, 5), ("gone", None, 26)], None, False),
        ([("there", False, 5)], 10, False),
        ([("there", False, 11)], 10, True),
        ([("changed", False, 11)], 10, True),
        ([("there", None, 11)], 10, False),
        ([("there", True, 11)], 10, False),
    ],
)
def test_a_schedule_is_closed_only_by_one_that_is_known_not_to_have_run(
    looks: list[tuple[str, bool | None, float]],
    deadline_s: float | None,
    closed: bool,  # noqa: FBT001 - read as a table
) -> None:
    """It is gone before it was due, or the period is over and it had not."""
    deadline_ns = None if deadline_s is None else round(deadline_s * S)
    since = Since(looks={JOB.name: [seen(*one) for one in looks]})
    assert (decide_schedule(since.looks[JOB.name], deadline_ns) is not None) is closed
    asked = policy(EVENTUALLY if deadline_s is None else WITHIN, outcome="out")
    found = settle_later(left_to_fire(), asked, since, deadline_ns)
    assert (found.finality.verdict, found.finality.label) == (("final", "success") if closed else ("unresolved", None))
    assert found.open_effects[0].proof.checked == ((9,) if closed else ())
    assert ("outcome" in found.open_effects[0].could_affect) is not closed
    assert bool(open_routes(found, asked, (JOB,)).schedules) is not closed


def test_one_that_ran_or_vanished_unseen_is_not_waited_for() -> None:
    """Nothing that is seen later can tell what it did."""
    assert is_lost([seen("running", True, 25)])  # noqa: FBT003 - read as a table
    assert is_lost([seen("gone", None, 25)])
    assert not is_lost([seen("there", None, 5)])
    assert not is_lost([])


@pytest.mark.parametrize("outcome", [OutcomeSince(changed=(b"out",), problem=None, event=12),
                                     OutcomeSince(changed=(), problem="it is gone", event=12)])  # fmt: skip
def test_an_outcome_that_was_touched_since_keeps_its_run_open_for_good(outcome: OutcomeSince) -> None:
    """The label was given to what is not there any more; following on would not bring it back."""
    asked = policy(outcome="out")
    since = Since(looks={JOB.name: [seen("gone", False, 5)]}, outcome=outcome)  # noqa: FBT003 - read as a table
    found = settle_later(left_to_fire(), asked, since, None)
    assert (found.finality.verdict, found.finality.label) == ("unresolved", None)
    assert found.finality.reasons[0].rule == "outcome-changed-since"
    assert open_routes(found, asked, (JOB,)).names == ()


def test_what_comes_later_says_nothing_of_the_endpoint() -> None:
    """A service that was not asked then is not asked instead afterwards."""
    assert open_routes(left_open(), policy(ENDPOINT)).names == ()
    assert open_routes(left_open(), policy()).names == ("shop",)
