"""Who reached into whom. In: ptrace, process_vm_writev and opens of memory; out: since when that proves nothing.

A name that a call was given is read from the caller's memory. Who was reached into, and whoever descends from it (a
tracer may follow its children without another call), may have had it changed between the call and its record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from supervisor.events import ProcessKey, ProcessReached
from supervisor.evidence.facts import Process

NEVER = 1 << 62
_ONLY_READS = frozenset({"process_vm_readv"})


class Reached:
    """Answers since when the memory of a process proves nothing."""

    def __init__(
        self,
        events: Iterable[ProcessReached] = (),
        processes: Iterable[Process] = (),
        memories: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Find the targets; one that is no known process may be any.

        Args:
            events: every reach, in any order.
            processes: of the trial, parents before their children.
            memories: pid inside and time of each open of ``/proc/PID/mem`` for writing: a child may inherit that.
        """
        first = _first_reaches(events)
        for pid, at_ns in memories:
            first[pid] = min(at_ns, first.get(pid, NEVER))
        known: dict[ProcessKey | None, int] = {}
        pids = set()
        for process in processes:
            own = first.get(process.pid, NEVER)
            if own != NEVER and own <= (process.exited_ns or NEVER):
                pids.add(process.pid)
            else:
                own = NEVER
            since_ns = min(own, known.get(process.parent, NEVER))
            if since_ns != NEVER:
                known[process.key] = since_ns
        self._known: Mapping[ProcessKey | None, int] = known
        self._all_ns = min((at_ns for pid, at_ns in first.items() if pid not in pids), default=NEVER)
        self.nobody = not known and self._all_ns == NEVER

    def since_ns(self, process: ProcessKey | None) -> int:
        """Tell since when, on CLOCK_BOOTTIME; `NEVER` for nearly all."""
        return min(self._all_ns, self._known.get(process, NEVER))


def _first_reaches(events: Iterable[ProcessReached]) -> dict[int, int]:
    first: dict[int, int] = {}
    for event in events:
        if event.error is None and event.how not in _ONLY_READS:
            first[event.target_inside] = min(event.time_ns, first.get(event.target_inside, NEVER))
    return first
