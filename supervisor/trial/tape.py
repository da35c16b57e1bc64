"""The end of a log that is being written: where slabs are put and events recorded, and the latest of them again."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

from policies.redaction import NOTHING_HIDDEN, Redactor
from probes.kernel.decode import decode_slab
from probes.kernel.slabs import redact_slab
from probes.kernel.witness import Loss
from supervisor import clock
from supervisor.events import ConnectionBlocked, Event, EventsLost, Origin
from supervisor.log.writer import LogWriter

E = TypeVar("E", bound=Event)

_KEPT_BYTES = 2 << 20
_HEARD = 1024
CANARY_RULE = "canary"
"""What the gateway says of a connection to where the box tests itself."""


class Tape:
    """Where the consumer puts its slabs: the log, and a copy of the latest ones, in which the canaries are found.

    The opening canary is all that has happened so far; the acts of the closing one are the last that anybody does.
    """

    def __init__(self, log: LogWriter, redactor: Redactor = NOTHING_HIDDEN) -> None:
        """Begin with nothing; the redactor takes out what must not be written."""
        self._log = log
        self._redactor = redactor
        self._latest: deque[tuple[bytes, int]] = deque()
        self._size_bytes = 0
        self._heard: deque[Event] = deque(maxlen=_HEARD)

    def take(self, slab: memoryview, count: int) -> None:
        """Append one slab."""
        copy = redact_slab(bytes(slab), self._redactor)
        self._latest.append((copy, self._log.append_kernel(copy, count)))
        self._size_bytes += len(copy)
        while self._size_bytes > _KEPT_BYTES and len(self._latest) > 1:
            self._size_bytes -= len(self._latest.popleft()[0])

    def tell_loss(self, loss: Loss) -> None:
        """Record that events are missing."""
        record(self._log, EventsLost, count=loss.count, hook=loss.hook, first_ns=loss.first_ns, last_ns=loss.last_ns)

    def latest(self, pid: int) -> Iterator[Event]:
        """Decode the latest events of one process."""
        for slab, first in self._latest:
            yield from decode_slab(slab, first, os.uname().machine, only_pid=pid)
        yield from tuple(self._heard)

    def hear(self, event: Event) -> None:
        """Keep what the gateway tells of the canaries: the ends of thousands of connections would push it out."""
        if isinstance(event, ConnectionBlocked) and event.rule == CANARY_RULE:
            self._heard.append(event)


def record(log: LogWriter, kind: type[E], **fields: Any) -> E:  # noqa: ANN401 - as `Trial.record`
    """Write an event of the supervisor to a log, and give it."""
    made: list[E] = []

    def make(n: int) -> E:
        made.append(kind(n=n, time_ns=clock.boottime_ns(), **{"origin": Origin.SUPERVISOR, **fields}))
        return made[-1]

    log.record(make)
    return made[-1]
