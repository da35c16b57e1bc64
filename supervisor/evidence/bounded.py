"""Event numbers of what may happen a million times: the first thousand and the last are kept, and how many."""

from __future__ import annotations

from typing import TypeVar

_T = TypeVar("_T")

KEPT_FIRST = 1000
"""How many of the first entries of one list are kept."""
KEPT_LAST = 24
"""How many of the last entries of one list are kept, beside the first."""


class Numbers:
    """Event numbers with their times; sorted by number when read.

    Below twice the bound everything is kept, so that the answer does not depend on the order of delivery there.
    """

    __slots__ = ("_entries", "count")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        """Begin with some entries ``(number, ktime_ns)``, or none."""
        self._entries = entries or []
        self.count = len(self._entries)

    def add(self, number: int, at_ns: int) -> None:
        """Add one event."""
        self._entries.append((number, at_ns))
        self.count += 1
        if len(self._entries) > 4 * KEPT_FIRST:
            self._entries = bounded(sorted(self._entries))

    def since(self, at_ns: int | None) -> Numbers:
        """Give the entries from a moment on; None is from the beginning."""
        return self if at_ns is None else Numbers([entry for entry in self._entries if entry[1] >= at_ns])

    def values(self) -> tuple[int, ...]:
        """Give the numbers that are kept, in order."""
        return tuple(number for number, _ in bounded(sorted(self._entries)))


def bounded(entries: list[_T]) -> list[_T]:
    """Keep the first and the last of a long list."""
    return entries if len(entries) <= KEPT_FIRST + KEPT_LAST else entries[:KEPT_FIRST] + entries[-KEPT_LAST:]
