"""Attempts to reach addresses. In: refused connections and datagrams; out: one `Flow` a process, protocol and address.

Loopback inside the trial is no flow: it leaves nothing and reaches nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.events import ConnectionBlocked, DatagramBlocked, Event, ProcessKey
from supervisor.evidence.bounded import Numbers
from supervisor.evidence.facts import Flow
from supervisor.evidence.processes import Cast

_Key = tuple[ProcessKey | None, str, str, int]


class FlowFold:
    """Merges attempts; only the time of the first and the numbers are kept of each."""

    def __init__(self) -> None:
        """Begin with no flow."""
        self._flows: dict[_Key, tuple[list[int], Numbers]] = {}

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {ConnectionBlocked: self._blocked, DatagramBlocked: self._blocked}

    def _blocked(self, event: Event) -> None:
        if not isinstance(event, ConnectionBlocked | DatagramBlocked):
            return
        key = (event.process, event.transport, event.ip, event.port)
        last_ns, numbers = self._flows.setdefault(key, ([0], Numbers()))
        # CMD's process acts for the box until its release, so an entry counts by its last attempt.
        last_ns[0] = max(last_ns[0], event.time_ns)
        numbers.add(event.n, event.time_ns)

    def finish(self, cast: Cast) -> tuple[Flow, ...]:
        """Build the flows of the trial, first attempt first."""
        flows = [
            Flow(
                protocol=protocol,
                host=None,
                ip=ip,
                port=port,
                decision="blocked",
                bytes_out=0,
                bytes_in=0,
                process=process,
                events=kept.values(),
            )
            for (process, protocol, ip, port), (last_ns, numbers) in self._flows.items()
            if process is not None
            and not cast.ignores(process, last_ns[0])
            and (kept := numbers.since(cast.released_ns if process == cast.main else None)).values()
        ]
        return tuple(sorted(flows, key=lambda flow: flow.events))
