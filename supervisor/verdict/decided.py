"""Claims that the log decides by itself: by one event, or by the order of events. In: a situation; out: what it says.

The laws:

1. An event that was witnessed within the period decides at once, whatever else is open: nothing takes it back. So does
   an order that was broken.
2. It was within the period when what it tells of was done then, whenever it was told. One of which that is not known
   decides nothing, and leaves open that there was none.
3. That it did *not* come is known only when nothing could have come unseen: no event was lost, and the period was
   watched to its end. For ``endpoint`` that is the endpoint; else the rows of the table say whether it was.
"""

from __future__ import annotations

from policies.types import DecidedBy, PeriodKind
from supervisor.evidence.said import EventMatch
from supervisor.values import dataclass
from supervisor.verdict.bounds import FAILURE, SUCCESS
from supervisor.verdict.completion import Reason
from supervisor.verdict.situation import Situation

_BILLION = 1_000_000_000
_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What the log says.

    Attributes:
        label: ``success`` or ``failure``.
        closed: it holds whatever else is open; else only where the table says final.
        lost: events are missing among which the deciding one may be, or one came of which it is not known when.
        at_ns: when it was decided, CLOCK_BOOTTIME.
    """

    label: str
    closed: bool
    lost: bool
    at_ns: int
    reason: Reason


def read_decided(situation: Situation) -> Decided | None:
    """Read what decides the claim; None when its state does, or when there was no endpoint to count from."""
    claim, line = situation.policy.claim, situation.facts.timeline
    if claim.decided_by is DecidedBy.STATE or line.endpoint_ns is None:
        return None
    if claim.decided_by is DecidedBy.EVENT:
        return _by_event(situation, line.endpoint_ns)
    return _by_order(situation, line.endpoint_ns)


def _by_event(situation: Situation, endpoint_ns: int) -> Decided:
    event = situation.policy.claim.event
    decider = situation.facts.decider
    found = _within(decider, situation, endpoint_ns)
    if found:
        text = f"decided by an event that was witnessed: {event}"
        return _closed(SUCCESS, text, found)
    return _absent(situation, FAILURE, f"no event of the period was {event}", _maybe(decider, situation, endpoint_ns))


def _by_order(situation: Situation, endpoint_ns: int) -> Decided:
    maybe: tuple[EventMatch, ...] = ()
    for order in situation.facts.orders:
        if found := _within(order.early, situation, endpoint_ns):
            return _closed(FAILURE, f"decided by the order of events: {order.then} came before {order.first}", found)
        maybe += _maybe(order.early, situation, endpoint_ns)
    return _absent(situation, SUCCESS, "the order of events was kept", maybe)


def _within(found: tuple[EventMatch, ...], situation: Situation, endpoint_ns: int) -> tuple[EventMatch, ...]:
    end_ns = _end_ns(situation, endpoint_ns)
    return tuple(match for match in found if end_ns is None or match.until_ns <= end_ns)


def _maybe(found: tuple[EventMatch, ...], situation: Situation, endpoint_ns: int) -> tuple[EventMatch, ...]:
    end_ns = _end_ns(situation, endpoint_ns)
    return tuple(match for match in found if end_ns is not None and match.since_ns <= end_ns < match.until_ns)


def _end_ns(situation: Situation, endpoint_ns: int) -> int | None:
    """Tell when the period ends, None for never."""
    period = situation.policy.claim.period
    if period.kind is PeriodKind.EVENTUALLY:
        return None
    return endpoint_ns + round((period.within_s or 0.0) * _BILLION)


def _closed(label: str, text: str, found: tuple[EventMatch, ...]) -> Decided:
    events = tuple(match.event for match in found[:_NAMED])
    reason = Reason(rule="decided", text=text, events=events)
    return Decided(label=label, closed=True, lost=False, at_ns=found[0].until_ns, reason=reason)


def _absent(situation: Situation, label: str, text: str, maybe: tuple[EventMatch, ...]) -> Decided:
    endpoint_ns = situation.facts.timeline.endpoint_ns or 0
    if maybe:
        text = f"{text}, as far as is known: what was told later may have been done within the period"
        events = tuple(match.event for match in maybe[:_NAMED])
        reason = Reason(rule="decided", text=text, events=events, keeps_open=True)
        return Decided(label=label, closed=False, lost=True, at_ns=endpoint_ns, reason=reason)
    lost = bool(situation.facts.losses)
    reason = Reason(rule="decided", text=text, events=tuple(loss.event for loss in situation.facts.losses))
    closed = situation.policy.claim.period.kind is PeriodKind.ENDPOINT and not lost and not situation.gaps
    if lost:
        text = f"{text}, as far as is known: events were lost"
        reason = Reason(rule="decided", text=text, events=reason.events, keeps_open=True)
    return Decided(label=label, closed=closed, lost=lost, at_ns=endpoint_ns, reason=reason)
