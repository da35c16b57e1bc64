"""Names over time. In: the table of changes; out: the rows of each path, and which names should exist at the end.

Renaming a directory renames everything below it. What is below it is known so far as something happened to it: each
such name gets rows of its own, with the number of the rename.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from supervisor.evidence.files import Code, FileFold
from supervisor.evidence.processes import Cast

DERIVED_LIMIT = 1_000_000
"""How many rows of children are made before we stop, so that renames back and forth cannot exhaust the supervisor."""

_ABSENT = frozenset({Code.DELETED, Code.RENAMED_AWAY})
_PRESENT = frozenset({Code.CREATED, Code.LINKED_HERE})
_WRITTEN = frozenset({Code.MODIFIED, Code.TOTALS})
_MOVES = frozenset({Code.RENAMED_AWAY, Code.EXCHANGED})


class Tree:
    """The names of a trial after all its changes.

    Attributes:
        by_path: numbers of the rows of each path, in order of time; the box's own acts are left out.
        present: whether a name should exist at the end; a path that is missing here never changed its existence.
        origin: where the thing at a path came from by renames, -1 when the trial made it.
        boxed: paths that the box itself touched before or after the trial.
        moved: directories and files that were renamed, new name to old name, and how manieth change of a name that was.
        overflowed: children of renamed directories were left out.
    """

    def __init__(self, fold: FileFold, cast: Cast) -> None:
        """Walk the table once, in the order of the clock."""
        self._fold, self._rows, self._cast = fold, fold.rows, cast
        self.by_path: defaultdict[int, list[int]] = defaultdict(list)
        self.present: dict[int, bool] = {}
        self.origin: dict[int, int] = {}
        self.boxed: set[int] = set()
        self.moved: dict[int, tuple[int, int]] = {}
        self.overflowed = False
        self._below: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self._derived = 0
        self._exchanged = -1
        self._turn = 0
        self._known: set[int] = set()
        self._writers: dict[tuple[int, int], int] = {}
        self._moved_to: dict[int, int] = {}
        self._walk()

    def moves(self) -> dict[bytes, tuple[bytes, int]]:
        """Give what was renamed, new path to old path and when: a larger number is a later rename."""
        return {self._fold.paths[new]: (self._fold.paths[old], turn) for new, (old, turn) in self.moved.items()}

    def boxed_paths(self) -> set[bytes]:
        """Give the paths that the box itself touched."""
        return {self._fold.paths[path] for path in self.boxed}

    def _walk(self) -> None:
        rows = self._rows
        moves = any(code in _MOVES for code in set(rows.code))
        ignored = self._fold.processes
        outsiders = {i for i, process in enumerate(ignored) if self._cast.ignores(process, 1 << 62)}
        main = self._fold.processes.index(self._cast.main) if self._cast.main in self._fold.processes else -1
        for row in rows.in_order():
            path, process = rows.path[row], rows.process[row]
            if rows.code[row] in _WRITTEN:
                path = self._writing(row, path)
            if path < 0:
                continue
            if process in outsiders or (process == main and self._cast.ignores(self._cast.main, rows.at[row])):
                self.boxed.add(path)
                continue
            if moves and path not in self.by_path:
                self._register(self._fold.paths[path])
            self.by_path[path].append(row)
            if not rows.error[row]:
                self._known.add(path)
                self._apply(row, path, rows.code[row])

    def _writing(self, row: int, path: int) -> int:
        """Remember where a file is written; find where totals belong, which name only process, device and inode."""
        writer = self._rows.process[row], self._rows.file[row]
        if path >= 0:
            if self._rows.code[row] == Code.MODIFIED:
                self._writers[writer] = path
            return path
        path = self._writers.get(writer, -1)
        seen: set[int] = set()
        while path in self._moved_to and path not in seen:
            seen.add(path)
            path = self._moved_to[path]
        return path

    def _apply(self, row: int, path: int, code: int) -> None:
        """Follow one change of a name."""
        if code in _PRESENT:
            self.present[path] = True
            self.origin[path] = -1
            self._moved_to.pop(path, None)
        elif code == Code.DELETED:
            self.present[path] = False
        elif code == Code.RENAMED_AWAY:
            new = self._rows.other[row]
            children = self._children(path)
            self._move(path, new)
            self._move_children(row, path, new, children)
        elif code == Code.EXCHANGED and self._rows.number[row] != self._exchanged:
            self._exchanged = self._rows.number[row]
            self._exchange(row, path, self._rows.other[row])

    def _move(self, old: int, new: int) -> None:
        self.present[old], self.present[new] = False, True
        self.origin[new] = self.origin.get(old, old)
        self._turn += 1
        self.moved[new] = old, self._turn
        self._moved_to[old] = new
        self._moved_to.pop(new, None)

    def _exchange(self, row: int, one: int, two: int) -> None:
        first, second = self._children(one), self._children(two)
        self.present[one] = self.present[two] = True
        origins = self.origin.get(two, two), self.origin.get(one, one)
        self.origin[one], self.origin[two] = origins
        self._turn += 1
        self.moved[one], self.moved[two] = (two, self._turn), (one, self._turn)
        self._move_children(row, one, two, first)
        self._move_children(row, two, one, second)

    def _move_children(self, row: int, old: int, new: int, children: list[int]) -> None:
        """Give every child that is known and there a row at its old and at its new name."""
        source, target = self._fold.paths[old], self._fold.paths[new]
        moved = []
        for child in children:
            if self._derived >= DERIVED_LIMIT:
                self.overflowed = True
                return
            there = self._fold.path_id(target + self._fold.paths[child][len(source) :])
            moved.append((child, there, self.origin.get(child, child)))
            self._derived += 1
        for child, there, origin in moved:
            self._register(self._fold.paths[there])
            self._derive(row, child, there, Code.RENAMED_AWAY)
            self._derive(row, there, child, Code.RENAMED_HERE)
            self.present[child], self.present[there] = False, True
            self._known.add(there)
            self._moved_to[child] = there
            self._moved_to.pop(there, None)
            self.origin[there] = origin

    def _derive(self, row: int, path: int, other: int, code: Code) -> None:
        rows = self._rows
        self.by_path[path].append(len(rows))
        rows.path.append(path)
        rows.other.append(other)
        rows.code.append(code)
        for column in (rows.process, rows.at, rows.file, rows.number, rows.mark, rows.error):
            column.append(column[row])

    def _register(self, path: bytes) -> None:
        while path:
            parent = path.rpartition(b"/")[0]
            below = self._below[parent]
            if path in below:
                return
            below.add(path)
            path = parent

    def _children(self, path: int) -> list[int]:
        """List what is known to be below a path and still there, in a fixed order; a failed attempt shows nothing."""
        found = [self._fold.path_id(name) for name in self._descend(self._fold.paths[path])]
        return [child for child in found if child in self._known and self.present.get(child, True)]

    def _descend(self, path: bytes) -> Iterator[bytes]:
        stack = [path]
        while stack:
            below = self._below.get(stack.pop())
            if below:
                names = sorted(below)
                yield from names
                stack.extend(names)
