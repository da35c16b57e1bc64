"""Who holds a trial frozen: the trial goes on only when the last holder has let go.

The consumer freezes it while a ring fills up, the supervisor at its boundaries, a stopped terminal as long as it is
stopped. Each holds under its own name, so that none of them thaws what another one froze.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Freezable(Protocol):
    """What a brake stops: a `supervisor.launch.cgroup.Cgroup`."""

    def freeze(self, timeout_s: float) -> bool:
        """Stop every member; True when the kernel confirmed it in time."""

    def thaw(self) -> bool:
        """Let every member go on; True when the kernel confirmed it."""


class Brake:
    """Counts holders by name. Thread-safe."""

    def __init__(self, cgroup: Freezable, *, timeout_s: float = 5.0) -> None:
        """Hold nothing yet.

        Args:
            cgroup: what is stopped.
            timeout_s: how long the kernel may take to confirm.
        """
        self._cgroup = cgroup
        self._timeout_s = timeout_s
        self._holders: set[str] = set()
        self._lock = threading.Lock()

    def hold(self, holder: str, *, wait: bool = True) -> bool:
        """Freeze on behalf of ``holder``; True when the kernel says that every member has stopped.

        Args:
            holder: who must let go before the trial goes on.
            wait: for the kernel's word. Whoever has other things to do meanwhile does not: one member in an
                uninterruptible call keeps the word back, while all others have stopped.
        """
        with self._lock:
            self._holders.add(holder)
            return self._cgroup.freeze(self._timeout_s if wait else 0.0)

    def release(self, holder: str) -> None:
        """Let go; the trial goes on unless somebody else holds it."""
        with self._lock:
            self._holders.discard(holder)
            if not self._holders:
                self._cgroup.thaw()
