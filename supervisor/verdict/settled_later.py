"""A run judged again after its seal, by what was seen since. In: its argument, answers and looks; out: another one.

Laws:
    1. Only what was open because a service or a schedule might still act is closed by this: every other reason stays.
    2. The claim, its period and its endpoint are those of the run: an answer after D says nothing of D, but that it was
       still pending then.
    3. No process of the trial is alive any more, so that every answer was asked for after the last client had ended.
    4. A schedule is closed only by one that is known not to have fired: it is gone before it was due, or D is over.
    5. Where the claim is about files, closing needs an outcome that nobody has touched since the run was sealed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from policies.types import PeriodKind, Policy, ServiceState, ServiceStatus
from supervisor.evidence.naming import listed, show
from supervisor.values import dataclass, field
from supervisor.verdict.completion import Completion, Finality, OpenEffect, Proof, Reason
from supervisor.verdict.judge import combine
from supervisor.verdict.later import FIRES, name_schedule

OPEN = "service-open"
"""The rule of the reasons that an answer of a service can close."""

CHANGED = "outcome-changed-since"
"""The rule of the reason that nothing closes any more: what the label was given to is not there."""

_NO_LABEL = "no-label"
_NAMED = 20
_UNSETTLED = frozenset({ServiceStatus.PENDING, ServiceStatus.UNKNOWN})
_AWAY = frozenset({"gone", "restored"})
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftSchedule:
    """A trigger that keeps a run open.

    Attributes:
        path: as in `supervisor.events.ScheduleFound`.
        what: its kind, for people.
        next_ns: when it was going to fire next, CLOCK_REALTIME; None when that was not known.
        before, after: digests of the file before the trial and as it left it; None where there was none.
    """

    path: bytes
    what: str
    next_ns: int | None
    before: str | None
    after: str | None

    @property
    def name(self) -> str:
        """What reasons and effects call it."""
        return name_schedule(self.what, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterLook:
    """What was seen of a trigger since: see `supervisor.events.ScheduleChecked`; ``at_ns`` is CLOCK_REALTIME."""

    state: str
    fired: bool | None
    why: str
    at_ns: int
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSince:
    """Whether the outcome is what the run left: see `supervisor.events.OutcomeChecked`."""

    changed: tuple[bytes, ...]
    problem: str | None
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What was seen after the seal.

    Attributes:
        answers: by service, in order of time.
        looks: by the name of the schedule, in order of time.
        outcome: None where nobody looked, because the claim is not about files.
    """

    answers: Mapping[str, Sequence[LaterAnswer]] = field(default_factory=dict)
    looks: Mapping[str, Sequence[LaterLook]] = field(default_factory=dict)
    outcome: OutcomeSince | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What keeps a run open and can be followed: services by name, and schedules."""

    services: tuple[str, ...] = ()
    schedules: tuple[LeftSchedule, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What people call them."""
        return (*self.services, *(one.name for one in self.schedules))


def open_routes(completion: Completion, policy: Policy, schedules: Sequence[LeftSchedule] = ()) -> Waiting:
    """Give what keeps a run open and can be followed; nothing when there is nothing to wait for.

    Args:
        completion: the latest argument of the run.
        policy: of the run.
        schedules: that the trial left where they stay.
    """
    reasons = completion.finality.reasons
    over = policy.claim.period.kind is PeriodKind.ENDPOINT  # what comes later says nothing of how it stood then
    if over or completion.finality.verdict == "final" or any(reason.rule == CHANGED for reason in reasons):
        return Waiting()
    asked = [reason.text for reason in reasons if reason.rule == OPEN]
    fires = [reason.text for reason in reasons if reason.rule == FIRES and reason.keeps_open]
    return Waiting(
        services=tuple(one.name for one in policy.services if any(text.startswith(_named(one.name)) for text in asked)),
        schedules=tuple(one for one in schedules if any(text.startswith(f"{one.name} stays") for text in fires)),
    )


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


def decide_schedule(looks: Sequence[LaterLook], deadline_ns: int | None) -> LaterLook | None:
    """Find the look after which a schedule can change nothing of the claim; None while there is none.

    Args:
        looks: at one schedule, in order of time.
        deadline_ns: as for `decide`.
    """
    quiet = (one for one in looks if one.fired is False)
    return next((one for one in quiet if one.state in _AWAY or (deadline_ns or one.at_ns + 1) <= one.at_ns), None)


def is_lost(looks: Sequence[LaterLook]) -> bool:
    """Tell whether no later look can close a schedule: it has fired, or it is gone and nobody can tell."""
    return any(one.fired or (one.fired is None and one.state in _AWAY) for one in looks)


def settle_later(completion: Completion, policy: Policy, since: Since, deadline_ns: int | None) -> Completion:
    """Judge again.

    Args:
        completion: what was concluded before.
        policy: of the run.
        since: what was seen.
        deadline_ns: as for `decide`.
    """
    decided = {name: decide(policy, answers, deadline_ns) for name, answers in since.answers.items()}
    closed = {name: answer for name, answer in decided.items() if answer is not None}
    looked = {name: decide_schedule(looks, deadline_ns) for name, looks in since.looks.items()}
    quiet = {name: look for name, look in looked.items() if look is not None}
    finality = _finality(completion.finality, policy, closed, quiet, since)
    effects = (_service_effect(one, policy, closed) for one in completion.open_effects)
    return replace(
        completion,
        finality=finality,
        open_effects=tuple(_schedule_effect(one, quiet, since) for one in effects),
        result=combine(finality, completion.scope, graded=finality.observed.label is not None),
    )


def _finality(
    before: Finality,
    policy: Policy,
    closed: Mapping[str, LaterAnswer],
    quiet: Mapping[str, LaterLook],
    since: Since,
) -> Finality:
    reasons = tuple(_schedule_reason(_service_reason(one, closed), quiet, since) for one in before.reasons)
    claimed = policy.claim.service
    observed = before.observed
    if claimed is not None and since.answers.get(claimed):
        said = closed.get(claimed) or since.answers[claimed][-1]
        observed = replace(observed, label=_LABELS.get(ServiceStatus(said.status)))
    kept = tuple(one for one in reasons if one.rule != _NO_LABEL or claimed is None or observed.label is None)
    without = closed.get(claimed or "")
    if without is not None and observed.label is None and not any(one.rule == _NO_LABEL for one in kept):
        kept = (_no_label(without), *kept)
    kept = (*_outcome_reason(since.outcome), *kept)
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


def _outcome_reason(outcome: OutcomeSince | None) -> tuple[Reason, ...]:
    """Say that the outcome is not what the label was given to, or that nobody can tell."""
    if outcome is None or not (outcome.changed or outcome.problem):
        return ()
    names = listed([show(path) for path in outcome.changed[:_NAMED]])
    text = f"touched since the run was sealed: {names}" if outcome.changed else f"what it is now: {outcome.problem}"
    text = f"the outcome may not be what it was; {text}; supervise judge --grade looks at it as it is"
    return (Reason(rule=CHANGED, text=text, events=(outcome.event,), keeps_open=True),)


def _no_label(said: LaterAnswer) -> Reason:
    """Say that a claim about a service ended without a label, in the words of a run that was not asked again."""
    cause = f"{_named(said.service)} said {said.status} ({said.detail}), which is no outcome"
    return Reason(rule=_NO_LABEL, text=f"the service gave no label: {cause}", events=(said.event,))


def _service_reason(reason: Reason, closed: Mapping[str, LaterAnswer]) -> Reason:
    if reason.rule != OPEN:
        return reason
    for name, answer in closed.items():
        if reason.text.startswith(_named(name)):
            text = f"{_named(name)} asked again after the seal, it said: {answer.status} ({answer.detail})"
            return replace(reason, rule="service-settled", text=text, events=(answer.event,), keeps_open=False)
    return reason


def _schedule_reason(reason: Reason, quiet: Mapping[str, LaterLook], since: Since) -> Reason:
    if reason.rule != FIRES or not reason.keeps_open:
        return reason
    for named, looks in since.looks.items():
        last = looks[-1]
        if not reason.text.startswith(f"{named} stays"):
            continue
        if named in quiet:
            look = quiet[named]
            text = f"{named}: looked for after the seal, it is {look.state}, and has not run: {look.why}"
            return replace(reason, rule="schedule-ended", text=text, events=(look.event,), keeps_open=False)
        stays = "stays open" if is_lost(looks) else "stays and starts by itself"
        text = f"{named} {stays}: looked for after the seal, it is {last.state}; {last.why}"
        return replace(reason, text=text, events=(*reason.events, last.event))
    return reason


def _service_effect(effect: OpenEffect, policy: Policy, closed: Mapping[str, LaterAnswer]) -> OpenEffect:
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


def _schedule_effect(effect: OpenEffect, quiet: Mapping[str, LaterLook], since: Since) -> OpenEffect:
    for named, looks in since.looks.items():
        if effect.handling != "unresolved" or effect.what != named:
            continue
        look = quiet.get(named)
        if look is None:
            return replace(effect, bearing=f"looked for after the seal: {looks[-1].state}; {looks[-1].why}")
        away = look.state in _AWAY
        return replace(
            effect,
            status="terminal" if away else "pending",
            could_affect=() if away else ("runs",),
            handling="observed",
            settled=away,
            proof=Proof(checked=(look.event,), supports=("finality",)),
            bearing=f"looked for after the seal: {look.state}, and it has not run: {look.why}",
        )
    return effect


def _named(service: str) -> str:
    return f"service {service}:"
