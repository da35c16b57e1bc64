"""Readiness and time for one thread: who waits for which descriptor, and what is due later.

asyncio would do it with more: its import costs a fifth of a trial's start, and its streams a task a connection.
"""

from __future__ import annotations

import heapq
import itertools
import select
import time
from collections.abc import Callable

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
GONE = select.EPOLLHUP | select.EPOLLERR


def boottime_ns() -> int:
    """Read the clock of all events."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


Ready = Callable[[int], object]
_MAX_EVENTS = 512
_IDLE_S = 0.001
"""After so long without anybody ready there is time for what could wait."""


class Later:
    """Something that is due once; `cancel` takes it back."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object] | None) -> None:
        """Hold what is to be called."""
        self.call = call

    def cancel(self) -> None:
        """Do not call it."""
        self.call = None


class Loop:
    """Runs until it is told to stop."""

    def __init__(self) -> None:
        """Begin with nobody waiting."""
        self._poll = select.epoll()
        self._ready: dict[int, Ready] = {}
        self._due: list[tuple[float, int, Later]] = []
        self._count = itertools.count()
        self._running = True
        self._idle: Callable[[], object] | None = None
        self._idle_by = 0.0

    def watch(self, fd: int, interest: int, ready: Ready) -> None:
        """Call ``ready`` with what happened whenever ``fd`` is readable or writable, as ``interest`` says."""
        self._ready[fd] = ready
        self._poll.register(fd, interest)

    def change(self, fd: int, interest: int) -> None:
        """Wait for something else from now on."""
        self._poll.modify(fd, interest)

    def forget(self, fd: int) -> None:
        """Wait no more. Call it before the descriptor is closed."""
        if self._ready.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def later(self, delay_s: float, call: Callable[[], object]) -> Later:
        """Call something after a time."""
        made = Later(call)
        heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._count), made))
        return made

    def when_idle(self, call: Callable[[], object], *, within_s: float) -> None:
        """Call something once nobody is ready, or after a time: what can wait until then."""
        self._idle = call
        self._idle_by = time.monotonic() + within_s

    def stop(self) -> None:
        """End `run` after the current turn."""
        self._running = False

    def run(self) -> None:
        """Turn until `stop`."""
        while self._running:
            self.turn()

    def turn(self) -> None:
        """Wait once, and call whoever is concerned."""
        happened = self._poll.poll(self._wait_s(), _MAX_EVENTS)
        for fd, events in happened:
            ready = self._ready.get(fd)
            if ready is not None:
                ready(events)
        self._call_due()
        if self._idle is not None and (not happened or time.monotonic() >= self._idle_by):
            call, self._idle = self._idle, None
            call()

    def _wait_s(self) -> float:
        while self._due and self._due[0][2].call is None:
            heapq.heappop(self._due)
        wait_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else -1
        return min(wait_s, _IDLE_S) if self._idle is not None and self._due else _IDLE_S if self._idle else wait_s

    def _call_due(self) -> None:
        now = time.monotonic()
        while self._due and (self._due[0][0] <= now or self._due[0][2].call is None):
            later = heapq.heappop(self._due)[2]
            call, later.call = later.call, None
            if call is not None:
                call()
