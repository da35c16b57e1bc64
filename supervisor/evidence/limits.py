"""The limits that a trial met, and whom they ended. In: counts of the kernel and signals sent; out: `LimitMet` values.

The rule it keeps: a death is put down to the memory limit only when nobody is known to have caused it. That is an end
by SIGKILL which no process of the trial sent and which was none of our own, while the kernel counted kills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from supervisor.events import Event, LimitReached, ProcessKey, SignalSent
from supervisor.evidence.facts import LimitMet, Process, Timeline

_KILL = 9
_KILLED = "killed"


class LimitFold:
    """Collects what the limits did, and who was killed by a process of the trial."""

    def __init__(self) -> None:
        """Begin with nothing met."""
        self._reached: list[LimitReached] = []
        self._shot: set[ProcessKey] = set()

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {LimitReached: self._reach, SignalSent: self._send}

    def _reach(self, event: Event) -> None:
        if isinstance(event, LimitReached):
            self._reached.append(event)

    def _send(self, event: Event) -> None:
        if isinstance(event, SignalSent) and event.signal == _KILL and event.error is None:
            self._shot.add(event.target)

    def finish(self, processes: Iterable[Process], line: Timeline) -> tuple[LimitMet, ...]:
        """Give the limits that were met, in log order.

        Args:
            processes: of the trial.
            line: whose kills are our own; a time-out's count from the endpoint on.
        """
        timed_out = line.endpoint_ns if line.endpoint_reason not in {"exit", "signal"} else None
        found = tuple(p for p in processes if p.signal == _KILL and not self._is_explained(p, line, timed_out))
        return tuple(
            LimitMet(
                resource=event.resource,
                limit=event.limit,
                effect=event.effect,
                times=event.times,
                processes=tuple(p.key for p in found) if event.effect == _KILLED else (),
                events=(event.n, *(p.events[-1] for p in found)) if event.effect == _KILLED else (event.n,),
            )
            for event in sorted(self._reached, key=lambda event: event.n)
        )

    def _is_explained(self, process: Process, line: Timeline, timed_out_ns: int | None) -> bool:
        if process.key in self._shot or process.key in line.killed:
            return True
        return timed_out_ns is not None and (process.exited_ns or timed_out_ns) >= timed_out_ns
