"""The boundaries of a trial. In: the supervisor's own events in any order; out: a `Timeline`.

The rule it keeps: the endpoint is CMD's exit, or the limit that ended it, not the moment somebody noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from supervisor.events import (
    Event,
    ProcessKey,
    StageCommitted,
    TrialEmptied,
    TrialEndpoint,
    TrialFrozen,
    TrialHeld,
    TrialIsolated,
    TrialKilled,
    TrialReleased,
    TrialSettled,
    TrialSnapshotted,
    TrialTested,
    TrialThawed,
)
from supervisor.evidence.facts import Committed, Facts, Kill, Snapshot, Timeline
from supervisor.values import replace

_E = TypeVar("_E", bound=Event)

_BOUNDARIES: tuple[type[Event], ...] = (
    TrialHeld,
    TrialTested,
    TrialReleased,
    TrialEndpoint,
    TrialFrozen,
    TrialSnapshotted,
    TrialThawed,
    TrialSettled,
    TrialIsolated,
    TrialKilled,
    TrialEmptied,
    StageCommitted,
)


class TimelineFold:
    """Collects the boundaries; there are few, so they are kept as they are until the end."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._seen: dict[type[Event], list[Event]] = {kind: [] for kind in _BOUNDARIES}

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {kind: events.append for kind, events in self._seen.items()}

    def held(self) -> TrialHeld | None:
        """Give the event that names CMD's process and the helpers of the box."""
        return self._first(TrialHeld)

    def released_ns(self) -> int | None:
        """Tell when CMD was let go."""
        released = self._first(TrialReleased)
        return released.time_ns if released else None

    def finish(self, main_exited_ns: int | None) -> Timeline:
        """Put the boundaries together.

        Args:
            main_exited_ns: when CMD's process ended, as witnessed.
        """
        held, released = self._first(TrialHeld), self._first(TrialReleased)
        settled, emptied = self._last(TrialSettled), self._last(TrialEmptied)
        commit, isolated = self._last(StageCommitted), self._last(TrialIsolated)
        line = Timeline(
            realtime_offset_ns=held.realtime_offset_ns if held else 0,
            released_ns=released.time_ns if released else None,
            settled_ns=settled.time_ns if settled else None,
            settled_emptied=settled.emptied if settled else None,
            alive_at_settled=settled.alive if settled else (),
            emptied_ns=emptied.time_ns if emptied and emptied.pids_left == 0 else None,
            pids_left=emptied.pids_left if emptied else None,
            boundaries_ns=tuple(sorted(e.time_ns for e in (*self._all(TrialEndpoint), *self._all(TrialFrozen)))),
            isolated_ns=isolated.time_ns if isolated else None,
            isolation_error=isolated.error if isolated else None,
            committed=_committed(commit) if commit else None,
            opening_findings=self._findings("opening"),
            closing_findings=self._findings("closing"),
            events=self._numbers(),
        )
        return self._with_kills(self._with_snapshots(self._with_endpoint(line, main_exited_ns)))

    def _with_endpoint(self, line: Timeline, main_exited_ns: int | None) -> Timeline:
        endpoint = self._first(TrialEndpoint)
        if endpoint is None:
            return line
        by_exit = endpoint.reason in {"exit", "signal"} and main_exited_ns is not None
        at_ns = min(endpoint.time_ns, main_exited_ns) if by_exit and main_exited_ns else endpoint.time_ns
        return replace(
            line, endpoint_ns=at_ns, endpoint_reason=endpoint.reason, alive_at_endpoint=tuple(sorted(endpoint.alive))
        )

    def _with_snapshots(self, line: Timeline) -> Timeline:
        taken = tuple(self._snapshot(event) for event in self._all(TrialSnapshotted))
        if not taken:
            frozen = [event.time_ns for event in self._all(TrialFrozen) if event.time_ns >= (line.endpoint_ns or 0)]
            return replace(line, frozen_ns=min(frozen, default=None))
        first = taken[0]
        return replace(
            line,
            snapshots=taken,
            frozen_ns=first.frozen_ns,
            snapshot_ns=first.at_ns,
            snapshot_digest=first.digest,
        )

    def _snapshot(self, event: TrialSnapshotted) -> Snapshot:
        """Find the freeze that a snapshot was taken under: the last one before it, unless a thaw lies between."""
        before = [e for e in (*self._all(TrialFrozen), *self._all(TrialThawed)) if _key(e) < _key(event)]
        last = max(before, key=_key, default=None)
        frozen = last if isinstance(last, TrialFrozen) else None
        return Snapshot(
            at_ns=event.time_ns,
            frozen_ns=frozen.time_ns if frozen else None,
            digest=event.digest,
            event=event.n,
            frozen_event=frozen.n if frozen else None,
            kept_in=event.kept_in,
        )

    def _with_kills(self, line: Timeline) -> Timeline:
        kills = tuple(
            Kill(why=e.why, killed=tuple(sorted(e.killed)), at_ns=e.time_ns, event=e.n) for e in self._all(TrialKilled)
        )
        if not kills:
            return line
        killed: tuple[ProcessKey, ...] = tuple(sorted({key for kill in kills for key in kill.killed}))
        return replace(line, kills=kills, killed=killed, killed_ns=kills[-1].at_ns, killed_why=kills[-1].why)

    def _findings(self, canary: str) -> tuple[str, ...] | None:
        tests = [event for event in self._all(TrialTested) if event.canary == canary]
        return tuple(finding for event in tests for finding in event.findings) if tests else None

    def _numbers(self) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for kind in _BOUNDARIES:
            for event in self._all(kind):
                name = f"{event.kind}.{event.canary}" if isinstance(event, TrialTested) else event.kind
                numbers.setdefault(name, event.n)
        return numbers

    def _all(self, kind: type[_E]) -> list[_E]:
        return sorted((e for e in self._seen[kind] if isinstance(e, kind)), key=_key)

    def _first(self, kind: type[_E]) -> _E | None:
        return next(iter(self._all(kind)), None)

    def _last(self, kind: type[_E]) -> _E | None:
        return next(reversed(self._all(kind)), None)


def with_commit(facts: Facts, event: StageCommitted) -> Facts:
    """Add what became of the stage to facts that were collected before it was applied."""
    numbers = {**facts.timeline.events, event.kind: event.n}
    line = replace(facts.timeline, committed=_committed(event), events=numbers)
    return replace(facts, timeline=line)


def _committed(event: StageCommitted) -> Committed:
    return Committed(state=event.state, error=event.error, left_out=event.left_out, conflicts=event.conflicts)


def _key(event: Event) -> tuple[int, int]:
    return event.time_ns, event.n
