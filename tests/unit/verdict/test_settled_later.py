"""A run judged again by what its services said after its seal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed
from transcript import EVENTUALLY, WITHIN, policy_for

from completions import GOOD, completion
from policies.types import PeriodKind, Policy, Service, ServiceState
from supervisor.verdict.completion import Completion, Finality, ObservedOutcome, OpenEffect, Proof, Reason
from supervisor.verdict.settled_later import LaterAnswer, decide, open_services, settle_later

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
    found = settle_later(left_open(), policy(), {"shop": [said("pending", 1), said(status, 2)]}, None)
    assert (found.finality.verdict, found.finality.label) == ("final", label)
    assert [one.rule for one in found.finality.reasons] == ["service-settled"]
    assert (found.open_effects[0].settled, found.open_effects[0].proof.checked) == (True, (7,))
    assert found.result.passed is (label == "success")


def test_an_answer_that_is_no_outcome_gives_no_label() -> None:
    """As in a run that was not asked again: nothing is left to act, and nobody knows how it ended."""
    found = settle_later(left_open(), policy(), {"shop": [said("settled", 2)]}, None)
    assert (found.finality.verdict, found.finality.label, found.finality.cause) == ("unresolved", None, "service")
    assert [one.rule for one in found.finality.reasons] == ["no-label", "service-settled"]
    assert open_services(found, policy()) == ()
    again = settle_later(found, policy(), {"shop": [said("settled", 3)]}, None)
    assert [one.rule for one in again.finality.reasons] == ["no-label", "service-settled"]


@pytest.mark.parametrize("status", ["pending", "unknown"])
def test_anything_else_leaves_it_open(status: str) -> None:
    """And it can be gone on with again."""
    found = settle_later(left_open(), policy(), {"shop": [said(status, 1)]}, None)
    assert found.finality.verdict == "unresolved"
    assert open_services(found, policy()) == ("shop",)
    assert settle_later(left_open(), policy(), {}, None).finality.verdict == "unresolved"


def test_what_else_keeps_the_run_open_stays() -> None:
    """A process that was cut, or a gap, is nothing that a service could answer for."""
    other = Reason(rule="evidence-gap", text="x", events=(), keeps_open=True)
    found = settle_later(left_open(other), policy(), {"shop": [said("committed", 1)]}, None)
    assert found.finality.verdict == "unresolved"
    assert found.finality.observed.label == "success"
    assert open_services(found, policy()) == ()


def test_a_label_of_a_grader_becomes_final_when_the_service_cannot_touch_it_any_more() -> None:
    """The claim is about a file; the service only kept it open."""
    found = settle_later(left_open(label="success"), policy(outcome="out"), {"shop": [said("settled", 1)]}, None)
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
