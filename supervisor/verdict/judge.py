"""Facts to verdicts. In: facts, the policy, and the grader's label if there is a grader; out: a `Judgement`."""

from __future__ import annotations

from dataclasses import dataclass

from policies.types import Policy
from supervisor.evidence.facts import Facts
from supervisor.verdict.completion import (
    Finality,
    ObservedOutcome,
    OpenEffect,
    Reason,
    Result,
    Scope,
    Separation,
)
from supervisor.verdict.finality import FinalityFound, judge_finality
from supervisor.verdict.naming import moment
from supervisor.verdict.open_effects import list_open_effects
from supervisor.verdict.scope import judge_scope
from supervisor.verdict.separation import judge_separation
from supervisor.verdict.situation import Situation, read_situation


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What a declared grader said of the state that the claim is about.

    Attributes:
        label: ``success``, ``failure``, or None when it gave none (``cause`` then says why).
        at_ns: when that state was, CLOCK_BOOTTIME.
        digest: of that state.
    """

    label: str | None
    at_ns: int
    digest: str | None = None
    cause: str | None = None
    events: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The three verdicts, what they were read from, and the result."""

    open_effects: tuple[OpenEffect, ...]
    finality: Finality
    separation: Separation
    scope: Scope
    result: Result


def judge(
    facts: Facts,
    policy: Policy,
    *,
    sealed: bool = True,
    grade: Grade | None = None,
    outcome_digest: str | None = None,
) -> Judgement:
    """Judge one trial.

    Args:
        facts: of the trial.
        policy: what was allowed and claimed, declared before it ran.
        sealed: False when the log has no seal. The argument is bound by the seal, so it is written before: a run that
            is about to be sealed is judged with True, and a reader that finds no seal uses `completion.without_seal`.
        grade: what the grader said, None when no grader was declared.
        outcome_digest: of the outcome as it is at the end, for ``finality.observed``.
    """
    situation = read_situation(facts, policy, sealed=sealed)
    found = judge_finality(situation)
    finality = _label(found, situation, grade, outcome_digest)
    effects = list_open_effects(situation, final=finality.verdict == "final")
    scope = judge_scope(facts, policy, sealed=sealed)
    return Judgement(
        open_effects=effects,
        finality=finality,
        separation=judge_separation(situation, effects),
        scope=scope,
        result=combine(finality, scope, graded=grade is not None),
    )


def _label(found: FinalityFound, situation: Situation, grade: Grade | None, outcome_digest: str | None) -> Finality:
    """Give the label only to a final verdict; a grader that gave none leaves the outcome unresolved."""
    reasons = found.reasons
    ungraded = grade is not None and grade.label is None
    if ungraded and grade is not None:
        text = f"the grader gave no label: {grade.cause or 'no reason is known'}"
        reasons = (Reason(rule="no-label", text=text, events=grade.events), *reasons)
    final = found.final and not ungraded
    return Finality(
        verdict="final" if final else "unresolved",
        label=grade.label if final and grade else None,
        observed=_observed(found, situation, grade, outcome_digest),
        intervened=found.intervened,
        reasons=reasons,
        cause="grader" if ungraded else None,
    )


def _observed(
    found: FinalityFound, situation: Situation, grade: Grade | None, outcome_digest: str | None
) -> ObservedOutcome:
    line = situation.facts.timeline
    snapshot = found.captured.snapshot if found.captured else None
    at_ns = snapshot.at_ns if snapshot else line.emptied_ns or line.endpoint_ns
    digest = snapshot.digest if snapshot else outcome_digest
    if grade is not None:
        at_ns, digest = grade.at_ns, grade.digest or digest
    return ObservedOutcome(
        label=grade.label if grade else None,
        at=None if at_ns is None else moment(at_ns, line.realtime_offset_ns),
        digest=digest,
    )


def combine(finality: Finality, scope: Scope, *, graded: bool) -> Result:
    """Combine label and scope by Kleene's strong logic: false wins, then not known."""
    label = {"success": True, "failure": False}.get(finality.label or "")
    within = {"clean": True, "violated": False}.get(scope.verdict)
    because = (_because_label(finality, graded=graded), f"scope is {scope.verdict}")
    if label is False or within is False:
        return Result(passed=False, because=because)
    return Result(passed=True if label and within else None, because=because)


def _because_label(finality: Finality, *, graded: bool) -> str:
    if not graded:
        return f"finality is {finality.verdict}; no grader was declared, so there is no label"
    return f"finality is {finality.verdict}; the label is {finality.label or 'not given'}"
