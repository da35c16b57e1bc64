"""What was left to run later, as rows of the finality table and as open effects. In: a situation; out: findings.

The laws:

1. What a clock or a daemon starts by itself may change anything of the host, so it is open wherever it stays.
2. What only somebody who acts starts changes no outcome by itself; another run may be that somebody.
3. What was discarded never starts: that it was written is told, and closed by where it was written.
4. What was where it is read, and was taken away again, may have been started: nothing says that it was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from policies.types import PeriodKind
from supervisor.evidence.naming import show
from supervisor.evidence.routes import Schedule
from supervisor.verdict.completion import OpenEffect, Proof
from supervisor.verdict.naming import moment
from supervisor.verdict.situation import Situation

Findings = Sequence[tuple[str, tuple[int, ...]]]

FIRES = "schedule-persists"
"""The rule of what stays and starts by itself; its texts begin with the name of the schedule, and `` stays``."""


def firing(situation: Situation) -> Findings:
    """Find what stays, starts by itself, and may do so before the period of the claim is over."""
    found = _chosen(situation, lambda one: one.autonomous and situation.persists(one))
    return [
        (f"{_named(one)} {_open(one, situation)}", one.events) for one in found if not _after_deadline(one, situation)
    ]


def _open(one: Schedule, situation: Situation) -> str:
    if one.gone:
        return "was there for a while, where something may have started it; nobody knows whether that has ended"
    return f"stays and starts by itself{_when(one, situation)}"


def firing_later(situation: Situation) -> Findings:
    """Find what stays and starts by itself, but is known not to do so before D."""
    found = _chosen(situation, lambda one: one.autonomous and situation.persists(one))
    return [
        (f"{_named(one)} stays and starts by itself, but not within the period{_when(one, situation)}", one.events)
        for one in found
        if _after_deadline(one, situation)
    ]


def dormant(situation: Situation) -> Findings:
    """Find what stays and starts only when somebody does something."""
    found = _chosen(situation, lambda one: not one.autonomous and situation.persists(one))
    return [(f"{_named(one)} stays; it starts only when somebody does something", one.events) for one in found]


def discarded(situation: Situation) -> Findings:
    """Find what would start later had it not been discarded, or left staged."""
    found = _chosen(situation, lambda one: not situation.persists(one))
    return [(f"{_named(one)} {_gone(one)}: nothing starts it", one.events) for one in found]


def list_schedules(situation: Situation) -> Iterator[OpenEffect]:
    """List every trigger that was left, as an open effect."""
    for one in situation.facts.schedules:
        yield _staying(one, situation) if situation.persists(one) else _isolated(one, situation)


def _staying(one: Schedule, situation: Situation) -> OpenEffect:
    return OpenEffect(
        id="",
        route=one.route,
        what=_named(one),
        status="unknown" if one.gone else "pending" if one.autonomous else "persistent",
        could_affect=("outcome", "runs") if one.autonomous else ("runs",),
        handling="unresolved",
        settled=False,
        proof=Proof(),
        events=one.events,
        bearing="may have been started while it was there, and may change the outcome or another run"
        if one.gone
        else f"starts by itself{_when(one, situation)}, and may change the outcome or another run"
        if one.autonomous
        else "starts only when somebody does something; that may be another run",
    )


def _isolated(one: Schedule, situation: Situation) -> OpenEffect:
    line = situation.facts.timeline
    prevented = tuple(line.events[kind] for kind in ("trial.held",) if kind in line.events)
    checked = tuple(line.events[kind] for kind in ("trial.emptied",) if kind in line.events)
    return OpenEffect(
        id="",
        route=one.route,
        what=_named(one),
        status="terminal",
        could_affect=(),
        handling="isolated",
        settled=True,
        proof=Proof(
            prevented=prevented,
            checked=(*one.events[-1:], *checked),
            supports=("finality", "separation") if prevented and checked else (),
        ),
        events=one.events,
        bearing=f"does not affect the claim: it {_gone(one)}, where no scheduler of the host reads",
    )


def _gone(one: Schedule) -> str:
    return "stays staged" if one.kept else "was written to a layer of the trial's own that is discarded"


def _chosen(situation: Situation, wanted: Callable[[Schedule], bool]) -> list[Schedule]:
    return [one for one in situation.facts.schedules if wanted(one)]


def _named(one: Schedule) -> str:
    return name_schedule(one.what, one.path)


def name_schedule(what: str, path: bytes) -> str:
    """Name a schedule as reasons and effects do."""
    return f"{what}: {show(path)}"


def _after_deadline(one: Schedule, situation: Situation) -> bool:
    return situation.policy.claim.period.kind is PeriodKind.WITHIN and situation.fires_after_deadline(one)


def _when(one: Schedule, situation: Situation) -> str:
    if one.next_ns is None:
        return ", when is not known"
    offset = situation.facts.timeline.realtime_offset_ns
    return f", next at {moment(one.next_ns - offset, offset)}"
