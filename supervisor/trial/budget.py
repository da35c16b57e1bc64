"""The budgets of one trial: counts what is used, and says when to stop. Several threads count; one waits.

The rule: as many calls as the budget allows are made; the one after them ends the trial, and is passed on to nobody.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

from policies.types import StopRule
from supervisor.evidence.usage import parse_usage


class TellReached(Protocol):
    """Puts it in the log that a budget was used up."""

    def __call__(self, *, budget: str, limit: int, counted: int, claimed: bool) -> object:
        """Record it."""


class Budgets:
    """Counts against the limits of a stop rule."""

    def __init__(self, stop: StopRule, tell: TellReached) -> None:
        """Begin with nothing used; ``tell`` is called once, by whoever uses up the first budget."""
        self._limits = {"tool_calls": stop.tool_calls, "tokens": stop.tokens}
        self._tell = tell
        self._used: dict[tuple[str, bool], int] = {}
        self._lock = threading.Lock()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.reached = False

    def fileno(self) -> int:
        """Give the descriptor that is readable once a budget is used up."""
        return self._fd

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self._fd)

    def note(self, text: str) -> None:
        """Count what a note of the trial claims."""
        claimed = parse_usage(text)
        if claimed is not None:
            self._use("tool_calls", claimed.tool_calls, claimed=True)
            self._use("tokens", claimed.tokens, claimed=True)

    def call(self) -> bool:
        """Count a call of a tool; False when there is no budget for it."""
        return self._use("tool_calls", 1, claimed=False)

    def _use(self, budget: str, amount: int, *, claimed: bool) -> bool:
        limit = self._limits[budget]
        with self._lock:
            used = self._used.get((budget, claimed), 0) + amount
            over = limit is not None and used > limit
            first = over and not self.reached
            self.reached |= over
            if not over or claimed:  # what was refused was not used
                self._used[budget, claimed] = used
        if first and limit is not None:
            self._tell(budget=budget, limit=limit, counted=used, claimed=claimed)
            os.eventfd_write(self._fd, 1)
        return not over
