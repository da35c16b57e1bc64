"""A run judged again after its seal, by what its services have said since. In: its argument and answers; out: another.

Laws:
    1. Only what was open because a service might still act is closed by this: every other reason stays as it was.
    2. The claim, its period and its endpoint are those of the run: an answer after D says nothing of D, but that it was
       still pending then.
    3. No process of the trial is alive any more, so that every answer was asked for after the last client had ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from policies.types import PeriodKind, Policy, ServiceState, ServiceStatus
from supervisor.values import dataclass
from supervisor.verdict.completion import Completion, Finality, OpenEffect, Proof, Reason
from supervisor.verdict.judge import combine

OPEN = "service-open"
"""The rule of the reasons that this can close."""

_NO_LABEL = "no-label"
_UNSETTLED = frozenset({ServiceStatus.PENDING, ServiceStatus.UNKNOWN})
_LABELS = {
    ServiceStatus.COMMITTED: "success",
    ServiceStatus.PENDING: "failure",
    ServiceStatus.FAILED: "failure",
    ServiceStatus.CANCELLED: "failure",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterAnswer:
    """What a service said since: ``asked_ns`` and ``at_ns`` are CLOCK_REALTIME, ``event`` is of the addendum's log."""

    service: str
    status: str
    detail: str
    asked_ns: int
    at_ns: int
    event: int


def open_services(completion: Completion, policy: Policy) -> tuple[str, ...]:
    """Give the names of the services that keep a run open; empty when there is nothing to wait for."""
    if completion.finality.verdict == "final":
        return ()
    texts = [reason.text for reason in completion.finality.reasons if reason.rule == OPEN]
    return tuple(one.name for one in policy.services if any(text.startswith(_named(one.name)) for text in texts))


def decide(policy: Policy, answers: Sequence[LaterAnswer], deadline_ns: int | None) -> LaterAnswer | None:
    """Find the answer of one service that says how it stands for the claim; None while there is none.

    Args:
        policy: has the period.
        answers: of one service, in order of time.
        deadline_ns: where the period ends, CLOCK_REALTIME; None when it does not.
    """
    if not answers:
        return None
    if policy.claim.period.kind is not PeriodKind.WITHIN or deadline_ns is None:
        return answers[-1] if answers[-1].status not in _UNSETTLED else None
    in_time = (one for one in answers if one.at_ns <= deadline_ns and one.status not in _UNSETTLED)
    first = next(in_time, None)
    if first is not None:
        return first
    after = next((one for one in answers if one.asked_ns >= deadline_ns), None)
    return after if after is not None and after.status == ServiceStatus.PENDING else None


def settle_later(
    completion: Completion, policy: Policy, answers: Mapping[str, Sequence[LaterAnswer]], deadline_ns: int | None
) -> Completion:
    """Judge again.

    Args:
        completion: what was concluded before.
        policy: of the run.
        answers: by service, in order of time.
        deadline_ns: as for `decide`.
    """
    waiting = open_services(completion, policy)
    decided = {name: decide(policy, answers.get(name, ()), deadline_ns) for name in waiting}
    closed = {name: answer for name, answer in decided.items() if answer is not None}
    finality = _finality(completion.finality, policy, closed, answers)
    return replace(
        completion,
        finality=finality,
        open_effects=tuple(_effect(one, policy, closed) for one in completion.open_effects),
        result=combine(finality, completion.scope, graded=finality.observed.label is not None),
    )


def _finality(
    before: Finality,
    policy: Policy,
    closed: Mapping[str, LaterAnswer],
    answers: Mapping[str, Sequence[LaterAnswer]],
) -> Finality:
    reasons = tuple(_reason(reason, closed) for reason in before.reasons)
    claimed = policy.claim.service
    observed = before.observed
    if claimed is not None and answers.get(claimed):
        said = closed.get(claimed) or answers[claimed][-1]
        observed = replace(observed, label=_LABELS.get(ServiceStatus(said.status)))
    kept = tuple(one for one in reasons if one.rule != _NO_LABEL or claimed is None or observed.label is None)
    without = closed.get(claimed or "")
    if without is not None and observed.label is None and not any(one.rule == _NO_LABEL for one in kept):
        kept = (_no_label(without), *kept)
    unlabelled = any(one.rule == _NO_LABEL for one in kept)
    final = not unlabelled and not any(one.keeps_open for one in kept)
    return replace(
        before,
        verdict="final" if final else "unresolved",
        label=observed.label if final else None,
        observed=observed,
        reasons=kept,
        cause=(before.cause or "service") if unlabelled else None,
    )


def _no_label(said: LaterAnswer) -> Reason:
    """Say that a claim about a service ended without a label, in the words of a run that was not asked again."""
    cause = f"{_named(said.service)} said {said.status} ({said.detail}), which is no outcome"
    return Reason(rule=_NO_LABEL, text=f"the service gave no label: {cause}", events=(said.event,))


def _reason(reason: Reason, closed: Mapping[str, LaterAnswer]) -> Reason:
    if reason.rule != OPEN:
        return reason
    for name, answer in closed.items():
        if reason.text.startswith(_named(name)):
            text = f"{_named(name)} asked again after the seal, it said: {answer.status} ({answer.detail})"
            return replace(reason, rule="service-settled", text=text, events=(answer.event,), keeps_open=False)
    return reason


def _effect(effect: OpenEffect, policy: Policy, closed: Mapping[str, LaterAnswer]) -> OpenEffect:
    if effect.route != "service":
        return effect
    for service in policy.services:
        answer = closed.get(service.name)
        if answer is not None and f"{effect.what} ".startswith(f"service {service.name} "):
            shared = service.state is ServiceState.SHARED
            pending = answer.status == ServiceStatus.PENDING
            return replace(
                effect,
                status="pending" if pending else "persistent" if shared else "terminal",
                could_affect=("runs",) if shared else (),
                handling="observed",
                settled=not pending,
                proof=Proof(checked=(answer.event,), supports=("finality",)),
                bearing=f"asked again after the seal, it said: {answer.status} ({answer.detail})",
            )
    return effect


def _named(service: str) -> str:
    return f"service {service}:"
