"""Readiness and time for one thread: who waits for which descriptor, and what is due later.

asyncio would do it with more: its import costs a fifth of a trial's start, and its streams a task a connection.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import time
from collections.abc import Callable

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
GONE = select.EPOLLHUP | select.EPOLLERR


def boottime_ns() -> int:
    """Read the clock of all events."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _goes(event: tuple[int, int]) -> int:
    """Have whoever goes on looked at before who is gone, whose end nobody waits for."""
    return event[1] & GONE


Ready = Callable[[int], object]
_MAX_EVENTS = 512
_LINGER_NS = 50_000
"""Who asked a server mostly has its answer soon: to look for it so long costs less than to sleep and be woken, most of
all on a machine that is a guest itself. Whoever else wants the processor gets it meanwhile."""


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
        self._busy = False
        self._idle: Callable[[], object] | None = None

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

    def drop(self, fd: int) -> None:
        """Wait no more for a descriptor that is closed now, with which the kernel forgets it by itself."""
        self._ready.pop(fd, None)

    def later(self, delay_s: float, call: Callable[[], object]) -> Later:
        """Call something after a time."""
        made = Later(call)
        heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._count), made))
        return made

    def when_idle(self, call: Callable[[], object]) -> None:
        """Call something short once nobody is ready: what can wait until then."""
        self._idle = call

    def stop(self) -> None:
        """End `run` after the current turn."""
        self._running = False

    def run(self) -> None:
        """Turn until `stop`."""
        while self._running:
            self.turn()

    def turn(self) -> None:
        """Wait once, and call whoever is concerned."""
        happened = self._poll.poll(0, _MAX_EVENTS)
        if not happened and self._idle is not None:
            call, self._idle = self._idle, None
            call()
        elif not happened:
            happened = (self._linger() if self._busy else []) or self._poll.poll(self._wait_s(), _MAX_EVENTS)
        self._busy = bool(happened)
        if len(happened) > 1:
            happened.sort(key=_goes)
        for fd, events in happened:
            ready = self._ready.get(fd)
            if ready is not None:
                ready(events)
        if self._due:
            self._call_due()

    def _linger(self) -> list[tuple[int, int]]:
        until_ns = time.perf_counter_ns() + _LINGER_NS
        while time.perf_counter_ns() < until_ns:
            os.sched_yield()
            if happened := self._poll.poll(0, _MAX_EVENTS):
                return happened
        return []

    def _wait_s(self) -> float:
        while self._due and self._due[0][2].call is None:
            heapq.heappop(self._due)
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else -1

    def _call_due(self) -> None:
        now = time.monotonic()
        while self._due and (self._due[0][0] <= now or self._due[0][2].call is None):
            later = heapq.heappop(self._due)[2]
            call, later.call = later.call, None
            if call is not None:
                call()
