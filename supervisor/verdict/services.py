"""Services outside the box: what each standing means for the claim. In: a situation; out: findings, effects, a label.

The laws:

1. A request that was sent is a route even when its client is dead: only the service can say what became of it.
2. A service that erred, gave no answer or was never asked is open. So is one that says that something was called off,
   but not that it can no longer be done (adapters give ``pending`` for that).
3. An answer closes the route only when it was asked for after the last client had ended, and after the last of what
   clients had sent there was passed on to it.
4. What the trial announced is something to ask about, and closes nothing.
5. ``per-run`` and ``stateless`` are declared, not seen: verdicts that rest on them list it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from policies.types import PeriodKind, Policy, Service, ServiceState, ServiceStatus
from supervisor.evidence.facts import Facts, Flow, OutsideContact
from supervisor.evidence.routes import ServiceAnswer
from supervisor.values import dataclass
from supervisor.verdict.completion import OpenEffect, Proof
from supervisor.verdict.naming import span_s
from supervisor.verdict.situation import Situation

Findings = Sequence[tuple[str, tuple[int, ...]]]

_UNSETTLED = frozenset({ServiceStatus.PENDING, ServiceStatus.UNKNOWN})


class Standing(StrEnum):
    """Where a service stands for one claim."""

    UNTOUCHED = "the trial did not reach it, and the claim is not about it"
    STATELESS = "declared to keep nothing"
    SNAPSHOT = "the claim is about files at the endpoint"
    SETTLED = "it said what became of it"
    OPEN = "it may still act"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stands:
    """The standing of one service, why, and on which events.

    Attributes:
        answer: the one that decides, or the last one; None when there is none.
        cancelled: events in which it took our request to call it off.
    """

    service: Service
    standing: Standing
    why: str
    events: tuple[int, ...]
    answer: ServiceAnswer | None
    cancelled: tuple[int, ...] = ()


def declared_contact(contact: OutsideContact, policy: Policy) -> Service | None:
    """Give the declared service that a contact is with; a descriptor that was passed is never only that."""
    if contact.descriptor or contact.service is None:
        return None
    return next((one for one in policy.services if one.name == contact.service), None)


def stand(situation: Situation) -> tuple[Stands, ...]:
    """Give the standing of every declared service."""
    return tuple(_stand(service, situation) for service in situation.policy.services)


def _stand(service: Service, situation: Situation) -> Stands:
    contacts = _contacts(service, situation.facts, situation.policy)
    answers = next((one.answers for one in situation.facts.services if one.name == service.name), ())
    claimed = situation.policy.claim.service == service.name
    period = situation.policy.claim.period.kind
    last = answers[-1] if answers else None
    if not contacts and not claimed:
        return Stands(service=service, standing=Standing.UNTOUCHED, why="it was not reached", events=(), answer=last)
    if service.state is ServiceState.STATELESS and not claimed:
        why = "it is declared to keep nothing and to start nothing"
        return Stands(service=service, standing=Standing.STATELESS, why=why, events=contacts, answer=last)
    if period is PeriodKind.ENDPOINT and not claimed:
        why = "what it does later is not what the claim is about"
        return Stands(service=service, standing=Standing.SNAPSHOT, why=why, events=contacts, answer=last)
    decided, why = _decide(service, answers, situation)
    closing = decided if decided is not None else last
    return Stands(
        service=service,
        standing=Standing.OPEN if decided is None else Standing.SETTLED,
        why=why,
        events=(*contacts[-1:], *((closing.event,) if closing else ())),
        answer=closing,
        cancelled=next((one.cancelled for one in situation.facts.services if one.name == service.name), ()),
    )


def _contacts(service: Service, facts: Facts, policy: Policy) -> tuple[int, ...]:
    """Give the events in which the trial reached a service."""
    met = [one.events for one in facts.contacts if one.error is None and declared_contact(one, policy) == service]
    met += [flow.events for flow in _flows(service, facts)]
    met += [one.events for one in facts.release.sent if _is_at(service, one.port, one.host, one.ip)]
    return tuple(number for events in met for number in events)


def _flows(service: Service, facts: Facts) -> Iterator[Flow]:
    """Give the flows of the trial to a service."""
    for flow in facts.flows:
        if flow.decision == "allowed" and _is_at(service, flow.port, flow.host, flow.ip):
            yield flow


def _is_at(service: Service, port: int | None, *names: str | None) -> bool:
    host, _, own_port = (service.at or "").rpartition(":")
    return str(port) == own_port and bool({host, host.strip("[]")} & set(names))


def _decide(
    service: Service, answers: tuple[ServiceAnswer, ...], situation: Situation
) -> tuple[ServiceAnswer | None, str]:
    """Find the answer that says how it stands for the period of the claim; None when there is none, with why."""
    if not answers:
        return None, "nobody asked it what became of what it was asked for"
    match situation.policy.claim.period.kind:
        case PeriodKind.ENDPOINT:
            return _at_endpoint(answers, situation)
        case PeriodKind.WITHIN:
            return _by_deadline(answers, situation, _quiet_ns(service, situation))
        case _:
            return _eventually(answers, situation, _quiet_ns(service, situation))


def _at_endpoint(answers: tuple[ServiceAnswer, ...], situation: Situation) -> tuple[ServiceAnswer | None, str]:
    endpoint_ns = situation.facts.timeline.endpoint_ns
    first = next((one for one in answers if endpoint_ns is not None and one.asked_ns >= endpoint_ns), None)
    if first is None or endpoint_ns is None or first.moment != "endpoint":
        return None, "it was not asked at the endpoint"
    if first.status == ServiceStatus.UNKNOWN:
        return None, f"it gave no answer at the endpoint: {first.detail}"
    after = span_s(first.at_ns - endpoint_ns)
    return first, f"{after} after the endpoint it said: {first.status} ({first.detail})"


def _by_deadline(
    answers: tuple[ServiceAnswer, ...], situation: Situation, quiet_ns: int | None
) -> tuple[ServiceAnswer | None, str]:
    deadline_ns = situation.deadline_ns
    if deadline_ns is None:
        return None, "no deadline is known"
    before = [one for one in answers if one.at_ns <= deadline_ns]
    for one in before:
        if quiet_ns is not None and one.asked_ns >= quiet_ns and one.status not in _UNSETTLED:
            return one, f"within the period, and with no client left, it said: {one.status} ({one.detail})"
    at = next((one for one in answers if one.asked_ns >= deadline_ns), None)
    if at is None:
        return None, f"the period is not over, and it last said: {answers[-1].status}; `supervise settle` goes on"
    if at.status == ServiceStatus.PENDING:
        return at, f"when the period was over it still said: {at.status} ({at.detail})"
    if at.status not in _UNSETTLED and before and before[-1].status == at.status:
        return at, f"before the period was over and after it, it said: {at.status} ({at.detail})"
    return None, f"what it was when the period ended is not known; the next answer was: {at.status} ({at.detail})"


def _eventually(
    answers: tuple[ServiceAnswer, ...], situation: Situation, quiet_ns: int | None
) -> tuple[ServiceAnswer | None, str]:
    last, ended_ns = answers[-1], _ended_ns(situation)
    if last.status in _UNSETTLED:
        return None, f"it last said: {last.status} ({last.detail})"
    if ended_ns is None or last.asked_ns < ended_ns:
        return None, f"it said {last.status}, but clients of the trial were alive then"
    if quiet_ns is None or last.asked_ns < quiet_ns:
        return None, f"it said {last.status}, but something that was sent to it was still on its way then"
    return last, f"it was followed until it said: {last.status} ({last.detail})"


def _ended_ns(situation: Situation) -> int | None:
    """Tell when the last process of the trial that could ask for something had ended."""
    return situation.last_end_ns if situation.after else situation.facts.timeline.endpoint_ns


def _quiet_ns(service: Service, situation: Situation) -> int | None:
    """Tell when the last one that could ask for something had ended, and the last that was asked had been passed on."""
    ended_ns = _ended_ns(situation)
    passed_ns = max((flow.passed_ns for flow in _flows(service, situation.facts)), default=0)
    return None if ended_ns is None else max(ended_ns, passed_ns)


# -- rows ------------------------------------------------------------------------------------------------------------


def _row(situation: Situation, standing: Standing) -> Findings:
    return [
        (f"service {one.service.name}: {one.why}", one.events) for one in stand(situation) if one.standing is standing
    ]


def still_open(situation: Situation) -> Findings:
    """Find services that may still act."""
    return _row(situation, Standing.OPEN)


def settled(situation: Situation) -> Findings:
    """Find services that said what became of it."""
    return _row(situation, Standing.SETTLED)


def beside_the_files(situation: Situation) -> Findings:
    """Find services that may still act, where the claim is about files at the endpoint."""
    return _row(situation, Standing.SNAPSHOT)


def stateless(situation: Situation) -> Findings:
    """Find services that are declared to keep nothing."""
    return _row(situation, Standing.STATELESS)


# -- effects ---------------------------------------------------------------------------------------------------------


def list_services(situation: Situation) -> Iterator[OpenEffect]:
    """List every service that was reached, or that the claim is about."""
    for one in stand(situation):
        if one.standing is not Standing.UNTOUCHED:
            yield _effect(one)


def _effect(one: Stands) -> OpenEffect:
    shared = one.service.state is ServiceState.SHARED
    is_open = one.standing in {Standing.OPEN, Standing.SNAPSHOT} and not _is_terminal(one.answer)
    pending = one.answer is not None and one.answer.status == ServiceStatus.PENDING
    terminal = "persistent" if shared else "terminal"
    cancelled = _was_cancelled(one) and not is_open
    checked = (one.answer.event,) if one.answer is not None and not is_open else ()
    affected = ("outcome",) if is_open and one.standing is not Standing.STATELESS else ()
    return OpenEffect(
        id="",
        route="service",
        what=f"service {one.service.name}{f' at {one.service.at}' if one.service.at else ''}",
        status=("pending" if pending else "unknown") if is_open else terminal,
        could_affect=(*affected, *(("runs",) if shared else ())),
        handling="unresolved" if is_open else "cancelled" if cancelled else "observed",
        settled=not is_open,
        proof=Proof(
            prevented=one.cancelled if cancelled else (), checked=checked, supports=("finality",) if checked else ()
        ),
        events=one.events,
        bearing=f"{one.why}{_met(one.service)}",
    )


def _was_cancelled(one: Stands) -> bool:
    """Tell whether it was called off by us, and says that it was and can no longer be done: both proofs."""
    return bool(one.cancelled) and one.answer is not None and one.answer.status == ServiceStatus.CANCELLED


def intervened(situation: Situation) -> bool:
    """Tell whether what a service would have done was called off by us."""
    return any(_was_cancelled(one) and one.standing is Standing.SETTLED for one in stand(situation))


def _is_terminal(answer: ServiceAnswer | None) -> bool:
    return answer is not None and answer.status not in _UNSETTLED


def _met(service: Service) -> str:
    match service.state:
        case ServiceState.SHARED:
            return "; other runs use it too, and can meet what is left there"
        case ServiceState.PER_RUN:
            return "; declared to be this run's own"
        case _:
            return ""


def assumptions(situation: Situation) -> tuple[str, ...]:
    """Say what is declared of services that were reached, which nobody here checks."""
    return tuple(
        f"service {one.service.name}: declared {one.service.state}: no other run meets what is left there"
        for one in stand(situation)
        if one.standing is not Standing.UNTOUCHED and one.service.state is not ServiceState.SHARED
    )


# -- the label -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOutcome:
    """What the service that the claim is about says of it: ``label`` is None when that says nothing of success."""

    label: str | None
    cause: str | None
    at_ns: int
    events: tuple[int, ...]


def outcome(situation: Situation) -> ServiceOutcome | None:
    """Read the outcome of a claim about a service; None when the claim is about something else.

    An outcome is success only once it is committed; what is pending at the moment that counts is not.
    """
    name = situation.policy.claim.service
    found = next((one for one in stand(situation) if one.service.name == name), None)
    if name is None or found is None:
        return None
    line = situation.facts.timeline
    if found.answer is None:
        at_ns = line.emptied_ns or line.endpoint_ns or 0
        return ServiceOutcome(label=None, cause=f"service {name}: {found.why}", at_ns=at_ns, events=())
    answer = found.answer
    label = {
        ServiceStatus.COMMITTED: "success",
        ServiceStatus.PENDING: "failure",
        ServiceStatus.FAILED: "failure",
        ServiceStatus.CANCELLED: "failure",
    }.get(ServiceStatus(answer.status))
    cause = None if label else f"service {name} said {answer.status} ({answer.detail}), which is no outcome"
    return ServiceOutcome(label=label, cause=cause, at_ns=answer.at_ns, events=(answer.event,))
