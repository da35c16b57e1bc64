"""Names over time. In: the table of changes; out: the rows of each path, and which names should exist at the end.

Renaming a directory renames everything below it. What is below it is known so far as something happened to it: each
such name gets rows of its own, with the number of the rename, also where something happens to it only later. Likewise
what is written through one name of a file is a change of every other name that it has.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator

from supervisor.evidence.file_facts import SharedNames
from supervisor.evidence.paths.aliases import ELSEWHERE, Aliases
from supervisor.evidence.paths.files import UNLINKED, Code, FileFold, code_set
from supervisor.evidence.processes import Cast

DERIVED_LIMIT = 1_000_000
"""How many rows of children are made before we stop, so that renames back and forth cannot exhaust the supervisor."""

MOVES_KEPT = 32
"""How many renames to one name are remembered, so that a file that is saved over and over costs no memory."""

_PRESENT = code_set(Code.CREATED, Code.LINKED_HERE)
_WRITTEN = code_set(Code.MODIFIED, Code.TOTALS)
_OF_THE_FILE = _WRITTEN | code_set(Code.EMPTIED, Code.ATTRIBUTES, Code.TIMES, Code.MAPPED, Code.RESIZED)
_MAKES = _PRESENT | code_set(Code.RENAMED_HERE)
_CHANGES_NAMES = _PRESENT | code_set(Code.DELETED, Code.RENAMED_AWAY, Code.EXCHANGED)
_FOR_EVER = 1 << 62
_TOTALS = int(Code.TOTALS)
_MOVES = frozenset({Code.RENAMED_AWAY, Code.EXCHANGED})
_NONE = -1
_UNKNOWN = -2


class Tree:
    """The names of a trial after all its changes.

    What is known of each path stands in columns of machine integers, as the rows do: a trial can touch half a million.

    Attributes:
        boxed: paths that the box itself touched before or after the trial.
        moved: directories and files that were renamed: by new name, what came there last and before, each with its old
            name and how manieth change of a name that was.
        overflowed: children of renamed directories were left out.
        brought: names of which nothing was known when a directory brought them, so that only the disk tells whether
            there was anything at their old names.
    """

    def __init__(self, fold: FileFold, cast: Cast, shared: SharedNames | None = None) -> None:
        """Walk the table once, in the order of the clock."""
        self._fold, self._rows, self._cast = fold, fold.rows, cast
        self._first, self._last, self._next = array("i"), array("i"), array("i")
        self._presence, self._shown, self._origin = array("b"), array("b"), array("i")
        self.boxed: set[int] = set()
        self.moved: dict[int, tuple[tuple[int, int], ...]] = {}
        self.overflowed = False
        self.brought: set[int] = set()
        self._move_rows = array("i")
        self._new_names: dict[bytes, int] = {}
        self._below: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self._derived = 0
        self._exchanged = -1
        self._turn = 0
        self._writers: dict[tuple[int, int], int] = {}
        self._moved_to: dict[int, int] = {}
        self._made: frozenset[int] = frozenset()
        self._lost_at: dict[int, int] = {}
        self._linked: set[int] = set()
        self._still: frozenset[int] = frozenset()
        shared = shared or SharedNames()
        self._aliases = Aliases(shared, fold.path_id)
        self._elsewhere = {fold.path_id(ELSEWHERE + name): name for name in shared.elsewhere}
        self._walk()
        if self.moved:
            self._still = frozenset(
                origin for origin, there in zip(self._origin, self._presence, strict=True) if origin >= 0 and there == 1
            )
        self._lost = frozenset(at for thing, at in self._lost_at.items() if not self.lives_on(thing))

    def known(self) -> Iterator[int]:
        """Give every path that has rows."""
        return (path for path, row in enumerate(self._first) if row != _NONE and path not in self._elsewhere)

    def changed_elsewhere(self) -> Iterator[tuple[bytes, tuple[int, ...]]]:
        """Give a name of each changed file that has more names than anybody knows, and the events that changed it."""
        for path, name in self._elsewhere.items():
            if rows := self.rows_of(path):
                yield name, tuple(sorted({self._rows.number[row] for row in rows}))

    def rows_of(self, path: int) -> list[int]:
        """Give the numbers of the rows of a path, in order of time; the box's own acts are left out."""
        rows, row, following = [], self._first[path], self._next
        while row != _NONE:
            rows.append(row)
            row = following[row]
        return rows

    def present(self, path: int) -> bool | None:
        """Tell whether a name should exist at the end, None when nothing changed its existence."""
        present = self._presence[path]
        return None if present == _NONE else bool(present)

    def origin(self, path: int) -> int | None:
        """Tell where the thing at a path came from by renames: -1 when the trial made it, None when it never moved."""
        origin = self._origin[path]
        return None if origin == _UNKNOWN else origin

    def lives_on(self, path: int) -> bool:
        """Tell whether what was at a path at first is at some name at the end, as far as renames tell."""
        return path in self._still or path in self._linked

    def lost_something(self, path: int) -> bool:
        """Tell whether what came to a path from where it was at first was deleted or overwritten there, for good."""
        return path in self._lost

    def moves(self) -> dict[bytes, tuple[tuple[bytes, int], ...]]:
        """Give what was renamed: by new path, old paths and when, in order of time: a larger number is later."""
        paths = self._fold.paths
        return {paths[new]: tuple([(paths[old], turn) for old, turn in came]) for new, came in self.moved.items()}

    def boxed_paths(self) -> set[bytes]:
        """Give the paths that the box itself touched."""
        return {self._fold.paths[path] for path in self.boxed}

    def _walk(self) -> None:
        rows = self._rows
        order = rows.in_order()
        self._next.extend([_NONE] * len(rows))
        self._grow()
        self._begin_aliases()
        self._tell_nameless()
        moves = any(code in _MOVES for code in set(rows.code))
        actors = self._fold.processes
        outsiders = {i for i, process in enumerate(actors) if self._cast.ignores(process, _FOR_EVER)}
        main = actors.index(self._cast.main) if self._cast.main in actors else _NONE
        # This loop is run a million times: columns and sets of codes are bound once.
        codes, paths, processes, errors, first = rows.code, rows.path, rows.process, rows.error, self._first
        marks = rows.mark
        for row in order:
            code, path, process = codes[row], paths[row], processes[row]
            if _WRITTEN >> code & 1:
                path = self._writing(row, path)
                if path < 0:
                    continue
            if process in outsiders or (process == main and self._cast.ignores(self._cast.main, rows.at[row])):
                self.boxed.add(path)
                continue
            if moves and first[path] == _NONE:
                self._register(self._fold.paths[path])
            # What has lost its name, or never had one, says nothing of what lies there: no directory takes it along.
            # Totals do not say it; the write that they count again did.
            shows = not errors[row] and code != _TOTALS and (not marks[row] & UNLINKED or bool(_MAKES >> code & 1))
            if shows and self.moved and not _MAKES >> code & 1 and not (self._shown[path] and self._presence[path]):
                self._bring(path)
            self._append(path, row)
            if not errors[row]:
                self._shown[path] |= shows
                if _CHANGES_NAMES >> code & 1:
                    self._apply(row, path, code)
                elif _OF_THE_FILE >> code & 1 and self._aliases.any():
                    self._tell_others(row, path, code)

    def _begin_aliases(self) -> None:
        """Take up what the disk says of names that share a file."""
        if self._aliases.expects:
            made = zip(self._rows.path, self._rows.code, strict=True)
            self._made = frozenset(path for path, code in made if _MAKES >> code & 1)
        for path in self._aliases.seeds:
            self._shown[path] = True
            self._register(self._fold.paths[path])

    def _grow(self) -> None:
        """Give room to paths that were not known before."""
        missing = len(self._fold.paths) - len(self._first)
        if not missing:
            return
        self._first.extend([_NONE] * missing)
        self._last.extend([_NONE] * missing)
        self._presence.extend([_NONE] * missing)
        self._shown.extend([False] * missing)
        self._origin.extend([_UNKNOWN] * missing)

    def _append(self, path: int, row: int) -> None:
        last = self._last[path]
        if last == _NONE:
            self._first[path] = row
        else:
            self._next[last] = row
        self._last[path] = row

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

    def _tell_nameless(self) -> None:
        """Tell a file without a name where it was opened: the kernel has it below its directory's present name."""
        rows, paths, files = self._rows, self._fold.paths, self._fold.nameless
        for row in range(len(rows)) if files else ():
            opened = files.get(rows.file[row], _NONE) if rows.mark[row] & UNLINKED else _NONE
            for column in (rows.path, rows.other) if opened != _NONE else ():
                if column[row] >= 0 and _last(paths[column[row]]) == _last(paths[opened]):
                    column[row] = opened

    def _apply(self, row: int, path: int, code: int) -> None:
        """Follow one change of a name."""
        if _PRESENT >> code & 1:
            if code == Code.LINKED_HERE and self._rows.other[row] >= 0:
                self._linked.add(self._came_from(self._rows.other[row]))
            self._presence[path] = True
            self._origin[path] = -1
            self._moved_to.pop(path, None)
            if code == Code.LINKED_HERE and self._rows.other[row] >= 0:
                self._aliases.link(self._rows.other[row], path, self._there)
            else:
                self._aliases.drop(path)
        elif code == Code.DELETED:
            self._lose(path)
            self._presence[path] = False
            self._aliases.drop(path)
        elif code == Code.RENAMED_AWAY:
            new = self._rows.other[row]
            children = self._children(path)
            self._move(row, path, new)
            self._move_children(row, path, new, children)
        elif code == Code.EXCHANGED and self._rows.number[row] != self._exchanged:
            self._exchanged = self._rows.number[row]
            self._exchange(row, path, self._rows.other[row])

    def _bring(self, path: int) -> None:
        """Give what is there for the first time, or again, the names that it had before directories were renamed."""
        came: list[tuple[int, int, int, bool]] = []
        limit, since_ns = _FOR_EVER, self._gone_ns(path)
        while (step := self._last_move_above(path, limit)) is not None:
            limit, old, new = step
            move, top = self._move_rows[limit - 1], self._fold.paths[new]
            source = self._fold.path_id(self._fold.paths[old] + self._fold.paths[path][len(top) :])
            self._grow()
            if self._rows.at[move] < since_ns or self._knew(source, move):
                return  # what was known there went its own way; an attempt that failed made nothing known
            came.append((move, source, path, bool(self._shown[source])))
            path, since_ns = source, 0
        for move, source, target, late in reversed(came):
            self._register(self._fold.paths[source])
            if late:  # something else is there by now
                self._come_late(move, source, target)
            else:
                self._move_one(move, source, target, self._came_from(source))
            self.brought.add(target)

    def _gone_ns(self, path: int) -> int:
        """Tell when what was at a path went away, 0 when nothing was known of it."""
        rows = self._rows
        named = (row for row in self.rows_of(path) if not rows.error[row] and _CHANGES_NAMES >> rows.code[row] & 1)
        return max((rows.at[row] for row in named), default=0)

    def _knew(self, path: int, move: int) -> bool:
        """Tell whether anything was known of what lay at a path when a directory above it was renamed."""
        rows, known = self._rows, self.rows_of(path)
        return (self._shown[path] and not known) or any(
            rows.at[row] < rows.at[move] and not rows.error[row] and not rows.mark[row] & UNLINKED for row in known
        )

    def _come_late(self, row: int, source: int, target: int) -> None:
        """Tell of a rename after what came into the place that it left; of that nothing changes."""
        rows, first = self._rows, self._first[source]
        self._derive(row, target, source, Code.RENAMED_HERE)
        self._presence[target] = self._shown[target] = True
        self._origin[target] = source
        self._moved_to.pop(target, None)
        self._next.append(first)
        self._first[source] = len(rows)
        self._copy(row, source, target, Code.RENAMED_AWAY)

    def _last_move_above(self, path: int, limit: int) -> tuple[int, int, int] | None:
        """Find the last rename before a turn of a directory that a path lies in: its turn, old and new name."""
        above, found = self._fold.paths[path].rpartition(b"/")[0], None
        while above:
            if (new := self._new_names.get(above)) is not None:
                turns = ((turn, old, new) for old, turn in self.moved[new] if turn < limit)
                found = max(turns, default=found) if found is None else max((found, *turns))
            above = above.rpartition(b"/")[0]
        return found

    def _lose(self, path: int) -> None:
        """Note where something ends that came from elsewhere."""
        if self._presence[path] == 1 and self._origin[path] not in {_UNKNOWN, -1, path}:
            self._lost_at[self._origin[path]] = path

    def _move(self, row: int, old: int, new: int) -> None:
        self._lose(new)
        self._presence[old], self._presence[new] = False, True
        self._origin[new] = self._came_from(old)
        self._turn += 1
        self._record_move(old, new)
        self._move_rows.append(row)
        self._moved_to[old] = new
        self._moved_to.pop(new, None)
        self._aliases.move(old, new)

    def _record_move(self, old: int, new: int) -> None:
        self._new_names[self._fold.paths[new]] = new
        self.moved[new] = (*self.moved.get(new, ())[1 - MOVES_KEPT :], (old, self._turn))

    def _exchange(self, row: int, one: int, two: int) -> None:
        if self.moved and not (self._shown[two] and self._presence[two]):
            self._bring(two)
            self._shown[two] = True
        first, second = self._children(one), self._children(two)
        self._presence[one] = self._presence[two] = True
        self._origin[one], self._origin[two] = self._came_from(two), self._came_from(one)
        self._turn += 1
        self._record_move(one, two)
        self._record_move(two, one)
        self._move_rows.append(row)
        self._aliases.exchange(one, two)
        self._exchange_children(row, one, two, first, second)

    def _exchange_children(self, row: int, one: int, two: int, first: list[int], second: list[int]) -> None:
        """Give the children of two names that changed places their rows; what both have changes places too."""
        top, other = self._fold.paths[one], self._fold.paths[two]
        there = {child: self._fold.path_id(other + self._fold.paths[child][len(top) :]) for child in first}
        others = frozenset(second)
        both = {child: target for child, target in there.items() if target in others}
        self._move_children(row, one, two, [child for child in first if child not in both])
        self._move_children(row, two, one, [child for child in second if child not in both.values()])
        for child, target in both.items():
            if self._derived >= DERIVED_LIMIT:
                self.overflowed = True
                return
            self._derived += 1
            self._derive(row, child, target, Code.EXCHANGED)
            self._derive(row, target, child, Code.EXCHANGED)
            self._origin[child], self._origin[target] = self._came_from(target), self._came_from(child)
            self._aliases.exchange(child, target)

    def _came_from(self, path: int) -> int:
        origin = self._origin[path]
        return path if origin == _UNKNOWN else origin

    def _move_children(self, row: int, old: int, new: int, children: list[int]) -> None:
        """Give every child that is known and there a row at its old and at its new name."""
        source, target = self._fold.paths[old], self._fold.paths[new]
        moved = []
        for child in children:
            if self._derived >= DERIVED_LIMIT:
                self.overflowed = True
                return
            there = self._fold.path_id(target + self._fold.paths[child][len(source) :])
            moved.append((child, there, self._came_from(child)))
            self._derived += 1
        self._grow()
        for child, there, origin in moved:
            self._move_one(row, child, there, origin)

    def _move_one(self, row: int, child: int, there: int, origin: int) -> None:
        self._register(self._fold.paths[there])
        self._derive(row, child, there, Code.RENAMED_AWAY)
        self._derive(row, there, child, Code.RENAMED_HERE)
        self._presence[child], self._presence[there] = False, True
        self._shown[there] = True
        self._moved_to[child] = there
        self._moved_to.pop(there, None)
        self._aliases.move(child, there)
        self._origin[there] = origin

    def _there(self, path: int) -> bool:
        """Tell whether something has a name at this moment, as far as is known."""
        presence = self._presence[path]
        return path not in self._made if presence == _NONE else bool(presence)

    def _tell_others(self, row: int, path: int, code: int) -> None:
        """Give every other name of a file that was changed a row of its own."""
        for name in self._aliases.others(path, gone=bool(self._rows.mark[row] & UNLINKED)):
            if self._derived >= DERIVED_LIMIT:
                self.overflowed = True
                return
            self._derived += 1
            self._derive(row, name, path, Code(code))

    def _derive(self, row: int, path: int, other: int, code: Code) -> None:
        self._next.append(_NONE)
        self._append(path, len(self._rows))
        self._copy(row, path, other, code)

    def _copy(self, row: int, path: int, other: int, code: Code) -> None:
        rows = self._rows
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
        self._grow()
        return [child for child in found if self._shown[child] and self._presence[child]]

    def _descend(self, path: bytes) -> Iterator[bytes]:
        stack = [path]
        while stack:
            below = self._below.get(stack.pop())
            if below:
                names = sorted(below)
                yield from names
                stack.extend(names)


def _last(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
