"""Facts to verdicts. In: facts, the policy, and the grader's label if there is a grader; out: a `Judgement`."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from policies.types import Policy
from supervisor.evidence.captured import NOTHING, UNKNOWN, captured_in
from supervisor.evidence.facts import Facts
from supervisor.evidence.naming import show
from supervisor.evidence.paths.histories import unknown
from supervisor.values import dataclass, replace
from supervisor.verdict import services
from supervisor.verdict.bounds import SUCCESS, BoundFound, read_bound
from supervisor.verdict.captures import differing
from supervisor.verdict.completion import (
    Finality,
    GraderSaid,
    ObservedOutcome,
    OpenEffect,
    OutcomeState,
    Reason,
    Result,
    Scope,
    Separation,
)
from supervisor.verdict.decided import Decided, read_decided
from supervisor.verdict.finality import FinalityFound, judge_finality, mark_bounded
from supervisor.verdict.labels import Grade, read_grade
from supervisor.verdict.naming import moment
from supervisor.verdict.open_effects import list_open_effects
from supervisor.verdict.scope import judge_scope
from supervisor.verdict.separation import judge_separation
from supervisor.verdict.situation import Captured, Situation, read_situation

_NAMED = 100
"""How many paths that changed since they were captured are named."""


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
        grade: what a grader said, when that is not in the facts.
        outcome_digest: of the outcome as it is at the end, for ``finality.observed``.
    """
    situation = read_situation(facts, policy, sealed=sealed)
    decided = read_decided(situation)
    grade = _grade_by_service(situation) or grade or _by_log(decided) or read_grade(situation)
    bound = read_bound(facts, policy)
    if bound is not None and grade is not None and bound.label != grade.label:
        bound = replace(bound, label=None)
    found = _with_bound(_with_decided(judge_finality(situation, bound=bound), decided, situation), bound)
    finality = _label(found, situation, grade, outcome_digest or facts.settled_digest)
    effects = list_open_effects(situation, final=finality.verdict == "final")
    if bound is not None and bound.label is not None:
        effects = tuple(mark_bounded(effect, bound, situation) for effect in effects)
    scope = judge_scope(facts, policy, sealed=sealed)
    return Judgement(
        open_effects=effects,
        finality=finality,
        separation=judge_separation(situation, effects),
        scope=scope,
        result=combine(finality, scope, graded=grade is not None),
    )


def _by_log(decided: Decided | None) -> Grade | None:
    """Take the label from the log where the claim says that it decides."""
    if decided is None:
        return None
    return Grade(label=decided.label, at_ns=decided.at_ns, events=decided.reason.events, by="log")


def _with_decided(found: FinalityFound, decided: Decided | None, situation: Situation) -> FinalityFound:
    """Let a witnessed event decide whatever else is open; that it did not come needs all of it closed."""
    if decided is None:
        return found
    final = situation.sealed and not decided.lost and (decided.closed or found.final)
    reasons = (decided.reason, *(() if decided.closed and situation.sealed else found.reasons))
    return replace(found, final=final, intervened=found.intervened and not decided.closed, reasons=reasons)


def _with_bound(found: FinalityFound, bound: BoundFound | None) -> FinalityFound:
    """Say of states that differ which they are, where they keep the claim open."""
    if bound is None or found.final or not bound.differing:
        return found
    text = f"the states that were declared possible differ: {'; '.join(bound.differing)}"
    reason = Reason(rule="states-differ", text=text, events=bound.events, basis="declared")
    return replace(found, reasons=(reason, *found.reasons))


def _grade_by_service(situation: Situation) -> Grade | None:
    """Take the label from the service that the claim is about, if it is about one: no grader knows better."""
    said = services.outcome(situation)
    if said is None:
        return None
    return Grade(label=said.label, at_ns=said.at_ns, cause=said.cause, events=said.events, by="service")


def _label(found: FinalityFound, situation: Situation, grade: Grade | None, outcome_digest: str | None) -> Finality:
    """Give the label only to a final verdict; a grader that gave none leaves the outcome unresolved."""
    reasons = found.reasons
    ungraded = grade is not None and grade.label is None
    if ungraded and grade is not None:
        text = f"the {grade.by} gave no label: {grade.cause or 'no reason is known'}"
        reasons = (Reason(rule=grade.rule, text=text, events=grade.events, keeps_open=True), *reasons)
    if grade is not None and grade.label is not None and grade.by == "grader":
        text = f"the grader said {grade.label}{f': {grade.reason}' if grade.reason else ''}"
        reasons = (*reasons, Reason(rule="graded", text=text, events=grade.events))
    final = found.final and not ungraded
    return Finality(
        verdict="final" if final else "unresolved",
        label=grade.label if final and grade else None,
        observed=_observed(found, situation, grade, outcome_digest),
        intervened=found.intervened,
        reasons=reasons,
        cause=grade.by if ungraded and grade is not None else None,
        grader=_grader_said(grade),
    )


def _grader_said(grade: Grade | None) -> GraderSaid | UnsetType:
    """Give what the grader wrote for people; unset where it was content, or wrote nothing."""
    run = grade.run if grade is not None else None
    if grade is None or run is None or grade.label == SUCCESS or not run.output.strip():
        return UNSET
    return GraderSaid(exit_code=run.exit_code, signal=run.signal, output=run.output, events=run.events)


def _observed(
    found: FinalityFound, situation: Situation, grade: Grade | None, outcome_digest: str | None
) -> ObservedOutcome:
    line = situation.facts.timeline
    captured = found.captured
    snapshot = captured.snapshot if captured else None
    at_ns = snapshot.at_ns if snapshot else line.emptied_ns or line.endpoint_ns
    digest = snapshot.digest if snapshot else outcome_digest
    if grade is not None:
        at_ns, digest = grade.at_ns, grade.digest or digest
    return ObservedOutcome(
        label=grade.label if grade else None,
        at=None if at_ns is None else moment(at_ns, line.realtime_offset_ns),
        digest=digest,
        kept_in=snapshot.kept_in if snapshot and snapshot in line.kept else None,
        changed_since=tuple(show(history.path) for history in captured.changed_since[:_NAMED]) if captured else (),
        differs=tuple(show(history.path) for history in differing(situation.facts, captured)[:_NAMED]),
        state=_outcome(situation.facts, captured),
    )


def _outcome(facts: Facts, captured: Captured | None) -> OutcomeState | None:
    """Tell what lies at the path that the claim names: as captured, where that is known."""
    outcome = facts.outcome
    if outcome is None:
        return None
    observed = outcome.observed
    if observed is None:
        return OutcomeState(path=show(outcome.path), as_of="end", exists=None, existed_before=None)
    after = observed.after
    known = after is None or not unknown(after)
    existed = None if unknown(observed.before) else observed.before is not None
    snapshot = captured.snapshot if captured is not None else None
    changed = snapshot is not None and captured is not None and bool(captured.changed_since)
    then = captured_in(facts, snapshot.kept_in).get(outcome.path) if snapshot is not None and changed else None
    if then is not None and then.captured != UNKNOWN:
        there = then.captured != NOTHING
        return OutcomeState(
            path=show(outcome.path),
            as_of="captured",
            exists=there,
            existed_before=existed,
            kind=then.captured if there else None,
            size_bytes=then.size_bytes if there else None,
            digest=then.digest,
        )
    return OutcomeState(
        path=show(outcome.path),
        as_of="end" if changed or snapshot is None else "captured",
        exists=after is not None if known else None,
        existed_before=existed,
        kind=after.kind.value if after and known else None,
        size_bytes=after.size_bytes if after and known else None,
        digest=after.digest if after and known else None,
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
        return f"finality is {finality.verdict}, and nothing graded the outcome"
    return f"finality is {finality.verdict}; the label is {finality.label or 'not given'}"
