"""Which runs count together: components over edges. In: pairs of numbers; out: sets, smallest member first."""

from __future__ import annotations

from collections.abc import Iterable


class Components:
    """Disjoint sets of run numbers; joining and finding cost next to nothing (union by size, path halving)."""

    def __init__(self, count: int) -> None:
        """Begin with every run by itself."""
        self._above = list(range(count))
        self._size = [1] * count

    def find(self, run: int) -> int:
        """Give the member that stands for the set of a run."""
        above = self._above
        while above[run] != run:
            above[run] = above[above[run]]
            run = above[run]
        return run

    def join(self, one: int, other: int) -> bool:
        """Join two sets; tells whether they were two."""
        one, other = self.find(one), self.find(other)
        if one == other:
            return False
        if self._size[one] < self._size[other]:
            one, other = other, one
        self._above[other] = one
        self._size[one] += self._size[other]
        return True

    def sets(self) -> list[list[int]]:
        """Give every set, its members in order, the sets by their first member."""
        found: dict[int, list[int]] = {}
        for run in range(len(self._above)):
            found.setdefault(self.find(run), []).append(run)
        return sorted(found.values())


def components(count: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Give the sets that pairs join."""
    sets = Components(count)
    for one, other in pairs:
        sets.join(one, other)
    return sets.sets()
