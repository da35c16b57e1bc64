"""What is followed after the seal: services are asked, schedules looked for, until something is decided.

In: what keeps a run open. Out: events in the log of an addendum, and `Since`, which a verdict is made of. Laws:

    * Time is that of the run: CLOCK_BOOTTIME while the machine runs since before it, so that nobody who sets the clock
      moves a deadline; after a restart only the time of day is left.
    * It ends as soon as one route is decided, so that this can be sealed before anything else happens.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping
from enum import StrEnum

from policies.redaction import Redactor
from policies.types import PeriodKind, Policy
from probes.services.answers import Answer
from supervisor import clock
from supervisor.events import Origin, OutcomeChecked, ScheduleChecked, ServiceAnswered
from supervisor.log.writer import LogWriter
from supervisor.prepare.machine import boot_id, machine_id
from supervisor.settle.outcome_check import Checked
from supervisor.settle.schedule_watch import Look, look_at
from supervisor.signals import ENDING, Signals
from supervisor.trial.service_watch import ServiceWatch
from supervisor.trial.tape import record
from supervisor.values import dataclass, field, replace
from supervisor.verdict.settled_later import (
    LaterAnswer,
    LaterLook,
    LeftSchedule,
    OutcomeSince,
    Since,
    Waiting,
    decide,
    decide_schedule,
    is_lost,
)

_NANO = 1_000_000_000
_LONGEST_S = 3600.0
LOOK_EVERY_S = 1.0
"""Between two looks for schedules."""


class Ended(StrEnum):
    """Why following ended."""

    DECIDED = "a route was decided"
    STUCK = "nothing that is left can be decided"
    TIME = "the time was over"
    TOLD = "somebody ended it"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClock:
    """The time of day as the run had it; ``offset_ns`` is what is added to CLOCK_BOOTTIME for it.

    ``same_boot`` says that the machine runs since before the run, ``same_host`` that it is the machine of the run.
    """

    offset_ns: int
    same_boot: bool
    same_host: bool

    @classmethod
    def of(cls, host: Mapping[str, object], offset_ns: int | None) -> RunClock:
        """Go on with the clock of a run.

        Args:
            host: what its manifest says of the machine.
            offset_ns: as its log has it.
        """
        booted = host.get("boot") == boot_id()
        known, own = host.get("id"), machine_id()
        same_host = booted if known is None or own is None else known == own
        kept = offset_ns if booted and same_host else None
        return cls(
            offset_ns=clock.realtime_offset_ns() if kept is None else kept,
            same_boot=kept is not None,
            same_host=same_host,
        )

    def now_ns(self) -> int:
        """Give the time now."""
        return clock.boottime_ns() + self.offset_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What is followed, of which run.

    Attributes:
        run: id.
        policy: of it.
        waiting: what keeps it open.
        places: where each schedule lies on this host, by its path.
        announced: operations that the trial had announced, by service.
        deadline_ns: where the period ends, by the clock of the run; None when it does not.
        since_s: when the run began, CLOCK_REALTIME.
    """

    run: str
    policy: Policy
    waiting: Waiting
    places: Mapping[bytes, bytes]
    announced: Mapping[str, tuple[str, ...]]
    deadline_ns: int | None
    since_s: float | None
    clock: RunClock


@dataclass(slots=True)
class Resumed:
    """Follows, and collects what was seen; what must not be written is nowhere in it."""

    log: LogWriter
    redactor: Redactor
    followed: Followed
    environ: Mapping[str, str]
    answers: dict[str, list[LaterAnswer]] = field(default_factory=dict)
    looks: dict[str, list[LaterLook]] = field(default_factory=dict)
    outcome: OutcomeSince | None = None
    _woken: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))

    def close(self) -> None:
        """Let go of what it waits on."""
        os.close(self._woken)

    @property
    def since(self) -> Since:
        """Give everything that was seen so far."""
        return Since(answers=dict(self.answers), looks=dict(self.looks), outcome=self.outcome)

    @property
    def decided(self) -> bool:
        """Whether a route is decided by what was seen."""
        return any(self._decided())

    def wait(self, signals: Signals, until_ns: int | None) -> Ended:
        """Follow until something is decided, nothing can be, the time (of the run's clock) is over, or a signal."""
        watch = self._watch_services()
        watch.start()
        try:
            if self.followed.waiting.services:
                watch.follow(on=True)
            ended = self._until(watch, signals, until_ns)
            if ended is not Ended.DECIDED:
                self._last(watch, signals)
                ended = Ended.DECIDED if self.decided else ended
            watch.stop()
        finally:
            watch.close()
        return ended

    def check_outcome(self, check: Callable[[], Checked]) -> None:
        """Look whether the outcome is what it was, and record it."""
        found = check()
        clean = tuple(self.redactor.redact(path, where="") for path in found.changed)
        event = record(self.log, OutcomeChecked, changed=clean, problem=found.problem)
        self.outcome = OutcomeSince(changed=event.changed, problem=event.problem, event=event.n)

    # -- services --------------------------------------------------------------------------------------------------

    def _watch_services(self) -> ServiceWatch:
        followed = self.followed
        services = tuple(one for one in followed.policy.services if one.name in followed.waiting.services)
        watch = ServiceWatch(
            replace(followed.policy, services=services),
            run=followed.run,
            environ=self.environ,
            tell=self.tell,
            since_s=followed.since_s,
        )
        for service, operations in followed.announced.items():
            for operation in operations:
                watch.announce_one(service, operation)
        return watch

    def tell(self, *, service: str, moment: str, answer: Answer, asked_ns: int, operations: tuple[str, ...]) -> None:
        """Record an answer; called from any thread."""
        event = record(
            self.log,
            ServiceAnswered,
            origin=Origin.SERVICE,
            service=service,
            moment="resumed" if moment == "settling" else moment,
            status=answer.status.value,
            detail=self.redactor.redact_text(answer.detail, where=""),
            asked_ns=asked_ns,
            operations=tuple(self.redactor.redact_text(one, where="") for one in operations),
        )
        offset_ns = self.followed.clock.offset_ns
        later = LaterAnswer(
            service=service,
            status=event.status,
            detail=event.detail,
            asked_ns=asked_ns + offset_ns,
            at_ns=event.time_ns + offset_ns,
            event=event.n,
        )
        self.answers.setdefault(service, []).append(later)
        os.eventfd_write(self._woken, 1)

    # -- schedules -------------------------------------------------------------------------------------------------

    def look(self, *, last: bool = False) -> None:
        """Look for every schedule; told is what differs from the look before, and at the end all of it."""
        for schedule in self.followed.waiting.schedules:
            run_clock = self.followed.clock
            now_ns = max(run_clock.now_ns(), clock.boottime_ns() + clock.realtime_offset_ns())
            seen = look_at(schedule, self.followed.places[schedule.path], now_ns=now_ns, same_boot=run_clock.same_boot)
            before = self.looks.get(schedule.name, [])
            if last or not before or (before[-1].state, before[-1].fired) != (seen.state, seen.fired):
                self._tell_look(schedule, seen, run_clock.now_ns())

    def _tell_look(self, schedule: LeftSchedule, seen: Look, at_ns: int) -> None:
        event = record(self.log, ScheduleChecked, path=schedule.path, state=seen.state, fired=seen.fired, why=seen.why)
        later = LaterLook(state=event.state, fired=event.fired, why=event.why, at_ns=at_ns, event=event.n)
        self.looks.setdefault(schedule.name, []).append(later)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _until(self, watch: ServiceWatch, signals: Signals, until_ns: int | None) -> Ended:
        now_ns = self.followed.clock.now_ns
        while True:
            self.look()
            if self.decided:
                return Ended.DECIDED
            if not self._may_be_decided():
                return Ended.STUCK
            left_s = _LONGEST_S if until_ns is None else (until_ns - now_ns()) / _NANO
            if left_s <= 0:
                return Ended.TIME
            if self.followed.waiting.schedules:
                left_s = min(left_s, LOOK_EVERY_S)
            wake = [self._woken, watch.settled, signals.fileno()]
            ready, _, _ = select.select(wake, [], [], min(left_s, _LONGEST_S))
            if self._woken in ready:
                os.eventfd_read(self._woken)
            elif watch.settled in ready:
                return Ended.TIME  # it answered for good before and nothing was decided, or failed: `stop` raises that
            if signals.fileno() in ready and ENDING.intersection(signals.take()):
                return Ended.TOLD

    def _last(self, watch: ServiceWatch, signals: Signals) -> None:
        """Ask and look once more: what is so when the period is over counts, and else it is what is told."""
        deadline_ns = self.followed.deadline_ns
        if self.followed.waiting.services:
            watch.ask("deadline" if deadline_ns is not None and self.followed.clock.now_ns() >= deadline_ns else "last")
            select.select([watch.answered, signals.fileno()], [], [], watch.patience_s)
        self.look(last=True)

    def _decided(self) -> list[bool]:
        deadline_ns = self.followed.deadline_ns
        answers = [decide(self.followed.policy, list(one), deadline_ns) for one in list(self.answers.values())]
        looks = [decide_schedule(one, deadline_ns) for one in self.looks.values()]
        return [one is not None for one in (*answers, *looks)]

    def _may_be_decided(self) -> bool:
        """Tell whether waiting can decide anything; a schedule that has fired cannot be taken back."""
        schedules = self.followed.waiting.schedules
        hopeful = [one for one in schedules if not is_lost(self.looks.get(one.name, ()))]
        return bool(self.followed.waiting.services or hopeful)


def deadline_ns(policy: Policy, endpoint_ns: int | None) -> int | None:
    """Tell where the period of a claim ends; None when it does not.

    Args:
        policy: has the claim.
        endpoint_ns: when the trial ended, CLOCK_REALTIME as the run had it.
    """
    period = policy.claim.period
    if period.kind is not PeriodKind.WITHIN or period.within_s is None or endpoint_ns is None:
        return None
    return endpoint_ns + round(period.within_s * _NANO)
