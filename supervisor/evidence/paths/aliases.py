"""Names that share one file. In: links, renames and removals in their order; out: the other names of what was changed.

The laws:

1. What changes a file through one of its names changes it under every other name that it has at that moment.
2. A name that is made anew, removed or moved away shares nothing any more; a name that is moved takes its file along.
3. A descriptor that was opened by a name outlives it: what is written through it changes the names that are left.
4. A name that is somewhere, nobody knows where, is `ELSEWHERE` before one that is known: it is never given up.
5. What the disk says is only added: names that share a file at the end were joined when the later one was linked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from supervisor.evidence.file_facts import SharedNames

ELSEWHERE = b"\0"
"""No path has this byte."""


class Aliases:
    """Which names share a file, by the numbers that the fold gave to paths.

    Args:
        shared: what the disk says of before and of the end.
        number: gives the number of a path.
    """

    def __init__(self, shared: SharedNames, number: Callable[[bytes], int]) -> None:
        """Join what shared a file before the trial."""
        self._files: dict[int, set[int]] = {}
        self._left: dict[int, set[int]] = {}
        self._at_the_end: dict[int, tuple[int, ...]] = {}
        for names in shared.before:
            self._join(map(number, names))
        for name in shared.elsewhere:
            self._join(map(number, (name, ELSEWHERE + name)))
        self.seeds = tuple(self._files)
        for names in shared.after:
            group = tuple(map(number, names))
            self._at_the_end |= dict.fromkeys(group, group)

    @property
    def expects(self) -> bool:
        """Whether the disk shows names that share a file at the end."""
        return bool(self._at_the_end)

    def any(self) -> bool:
        """Tell whether any two names share a file, or did."""
        return bool(self._files or self._left)

    def others(self, path: int, *, gone: bool = False) -> tuple[int, ...]:
        """Give the other names of the file at a path, in a fixed order.

        Args:
            path: the name that the change was told under.
            gone: the change was made through a descriptor of a file that has lost this name.
        """
        names = (gone and self._left.get(path)) or self._files.get(path)
        return tuple(sorted(names - {path})) if names else ()

    def link(self, old: int, new: int, there: Callable[[int], bool]) -> None:
        """Make ``new`` a name of the file at ``old``.

        Args:
            old: a name of the file, as it was told.
            new: the name that it gets.
            there: tells whether something has a name now: the disk may know of a name that the call did not say.
        """
        self.drop(new)
        self._join((old, new, *(name for name in self._at_the_end.get(new, ()) if there(name))))

    def drop(self, path: int) -> None:
        """Forget a name: it was removed, or is a new file's."""
        names = self._files.pop(path, None)
        if names is not None:
            names.discard(path)
            self._left[path] = names

    def move(self, old: int, new: int) -> None:
        """Give a file's name ``old`` up for ``new``. Of two names of one file nothing is renamed: both stay."""
        names = self._files.get(old)
        if names is not None and new in names:
            return
        self.drop(new)
        if names is not None:
            del self._files[old]
            names.discard(old)
            names.add(new)
            self._files[new] = names

    def exchange(self, one: int, two: int) -> None:
        """Let two names change places."""
        first, second = self._files.get(one), self._files.get(two)
        if first is second:
            return
        for names, old, new in ((first, one, two), (second, two, one)):
            if names is None:
                self._files.pop(new, None)
            else:
                names.discard(old)
                names.add(new)
                self._files[new] = names

    def _join(self, paths: Iterable[int]) -> None:
        joined: set[int] = set()
        for path in paths:
            names = self._files.get(path)
            if names is None:
                joined.add(path)
            elif names is not joined:  # the larger set lives on: whoever holds it sees the new names
                small, joined = sorted((joined, names), key=len)
                joined |= small
        for path in joined:
            self._files[path] = joined
