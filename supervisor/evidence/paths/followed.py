"""Names as the kernel followed them. In: the table of changes, and symlinks; out: the same table with real paths.

A call that is given a name (unlink, chmod, rename) is told with the name as it was given. Where a directory in it is a
symlink, the change happens somewhere else; some calls follow the last component too. The laws:

1. A symlink of before the trial is known from the disk, one of the trial from its events, in the order of the clock.
2. ``..`` goes up from where a symlink led to, not from where it lies.
3. Where another process made a symlink on the way something else at some time, nobody knows which of both was followed:
   the name is then not verified.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from supervisor.evidence.paths.files import BY_NAME, DIRECTORY, FOLLOW, NOFOLLOW, VERIFIED, Code, FileFold, code_set

Beginning = Callable[[bytes], bytes | None]
"""What was at a path before the trial: the text of a symlink, nothing (``b""``) for a directory, None for all else."""

_HOPS = 40
_ASIDE = b"\0"
"""Ends the name that a thing has while it changes places with another: no path has it."""
_FOLLOWING = code_set(Code.MODIFIED, Code.RESIZED, Code.ATTRIBUTES, Code.TIMES)
_MAKING = code_set(Code.CREATED, Code.LINKED_HERE, Code.RENAMED_HERE, Code.EXCHANGED)
_NAMING = code_set(Code.LINKED_HERE, Code.RENAMED_HERE, Code.EXCHANGED)
_TWO_NAMES = code_set(Code.RENAMED_AWAY, Code.RENAMED_HERE, Code.EXCHANGED, Code.LINKED_FROM, Code.LINKED_HERE)
_OPEN_FILES = b"/proc/self/fd"
_DEVICES: Mapping[bytes, bytes] = {
    b"/dev/fd": _OPEN_FILES,
    b"/dev/stdin": _OPEN_FILES + b"/0",
    b"/dev/stdout": _OPEN_FILES + b"/1",
    b"/dev/stderr": _OPEN_FILES + b"/2",
}
"""Symlinks of the box that lead to whatever a process has open."""

Way = tuple[bytes, tuple[bytes, ...]]
"""A real path, and the symlinks on the way to it."""


class Followed:
    """Follows names through the symlinks of their time.

    Args:
        fold: the changes; its rows get real paths.
        beginning: what was there before.
    """

    def __init__(self, fold: FileFold, beginning: Beginning) -> None:
        """Follow every name that a call was given, in the order of the clock."""
        self._fold, self._rows, self._ask = fold, fold.rows, beginning
        self._links: dict[bytes, bytes | None] = dict(_DEVICES)
        self._origins: dict[bytes, bytes | None] = {}
        self._homes: dict[bytes, bytes | None] = {}
        self._above: set[bytes] = set()
        self._asked: dict[bytes, bytes | None] = {}
        self._ways: dict[bytes, Way] = {}
        self._on_the_way: set[bytes] = set()
        self._crossed: defaultdict[bytes, list[int]] = defaultdict(list)
        self._walk()
        self._doubt()

    def names(self) -> dict[int, tuple[bytes, bytes]]:
        """Give the real paths, old and new, of what got another name, by the number of the event."""
        rows, paths = self._rows, self._fold.paths
        return {
            rows.number[row]: (paths[rows.other[row]] if rows.other[row] >= 0 else b"", paths[rows.path[row]])
            for row in range(len(rows))
            if _NAMING >> rows.code[row] & 1 and not rows.error[row]
        }

    def _walk(self) -> None:
        rows = self._rows
        batch: list[int] = []
        for row in rows.in_order():
            if not rows.mark[row] & BY_NAME or rows.path[row] < 0:
                continue
            # Both names of a call are followed before either changes.
            if batch and rows.number[row] != rows.number[batch[0]]:
                self._apply(batch)
            batch.append(row)
            code, linked = rows.code[row], bool(rows.mark[row] & FOLLOW)
            follows = linked if code == Code.LINKED_FROM else bool(_FOLLOWING >> code & 1)
            rows.path[row] = self._real(row, rows.path[row], follows=follows and not rows.mark[row] & NOFOLLOW)
            if _TWO_NAMES >> code & 1 and rows.other[row] >= 0:
                rows.other[row] = self._real(row, rows.other[row], follows=linked and code == Code.LINKED_HERE)
        self._apply(batch)

    def _doubt(self) -> None:
        """Take the proof from names whose way another process may have changed under them."""
        rows, paths = self._rows, self._fold.paths
        things: defaultdict[bytes, set[object]] = defaultdict(set)
        makers: defaultdict[bytes, set[int]] = defaultdict(set)
        doubted: set[bytes] = set()
        for row in range(len(rows)) if self._crossed else ():
            if (
                not _MAKING >> rows.code[row] & 1
                or rows.error[row]
                or (name := paths[rows.path[row]]) not in self._crossed
            ):
                continue
            things[name].add(self._fold.symlinks.get(rows.number[row], rows.number[row]))
            makers[name].add(rows.process[row])
            if not rows.mark[row] & VERIFIED:
                doubted.add(name)
        for name, made in things.items():
            before = self._asked.get(name)
            changed = len(made | ({before} if before is not None else set())) > 1
            for row in self._crossed[name]:
                if name in doubted or (changed and makers[name] - {rows.process[row]}):
                    rows.mark[row] &= ~VERIFIED

    def _real(self, row: int, path: int, *, follows: bool) -> int:
        """Give the number of the real path."""
        given = self._fold.paths[path]
        above, _, name = given.rpartition(b"/")
        if not given.startswith(b"/"):
            return path
        if name in {b"..", b"."}:
            real, links = self._follow(given, follows=True)
        else:
            way = self._ways.get(above)
            if way is None:
                way = self._ways[above] = self._follow(above, follows=True)
            real, links = way[0] + b"/" + name, way[1]
            if follows and self._text(real):
                target, more = self._follow(real, follows=True)
                # What could not be opened may be anything; that it was tried by this name is known.
                if not (self._rows.error[row] and target.startswith(_OPEN_FILES)):
                    real, links = target, (*links, *more)
        for link in links:
            self._crossed[link].append(row)
        return path if real == given else self._fold.path_id(real or b"/")

    def _follow(self, path: bytes, *, follows: bool) -> Way:
        """Follow a path component by component, as the kernel does; the root is ``b""``."""
        todo, real = path.split(b"/")[::-1], b""
        links: list[bytes] = []
        while todo:
            name = todo.pop()
            if name == b"..":
                real = real.rpartition(b"/")[0]
            if name in {b"", b".", b".."}:
                continue
            real += b"/" + name
            self._on_the_way.add(real)
            text = self._text(real) if todo or follows else None
            if text and len(links) < _HOPS:
                links.append(real)
                todo += text.split(b"/")[::-1]
                real = b"" if text.startswith(b"/") else real.rpartition(b"/")[0]
        return real, tuple(links)

    def _text(self, path: bytes) -> bytes | None:
        """Give the text of a symlink at this moment; nothing, or None, for all else."""
        return self._links[path] if path in self._links else self._before(self._origin(path))

    def _before(self, path: bytes | None) -> bytes | None:
        if path is None or path.endswith(_ASIDE):
            return None
        if path not in self._asked:
            self._asked[path] = self._ask(path)
        return self._asked[path]

    def _origin(self, path: bytes) -> bytes | None:
        """Give the name that a thing had at the beginning; None for one that lies in a new directory."""
        if path in self._origins:
            return self._origins[path]
        above, _, name = path.rpartition(b"/")
        home = self._homes[above] if above in self._homes else self._find_home(above)
        return None if home is None else home + b"/" + name

    def _find_home(self, directory: bytes) -> bytes | None:
        """Give where a directory was at the beginning; a path may have thousands of components."""
        missing = []
        while directory and directory not in self._homes and directory not in self._origins:
            missing.append(directory)
            directory = directory.rpartition(b"/")[0]
        home = self._homes.get(directory, self._origins.get(directory, None if directory else b""))
        for below in reversed(missing):
            home = self._homes[below] = None if home is None else home + below[below.rindex(b"/") :]
        return home

    def _apply(self, batch: list[int]) -> None:
        for row in batch:
            if not self._rows.error[row]:
                self._change(row, self._rows.code[row], self._fold.paths[self._rows.path[row]])
        batch.clear()

    def _change(self, row: int, code: int, path: bytes) -> None:
        """Follow one change of a name."""
        rows = self._rows
        if code == Code.CREATED:
            self._set(path, None)
            if rows.mark[row] & DIRECTORY:
                self._place(path, None)
        elif code == Code.LINKED_HERE:
            self._set(path, self._fold.symlinks.get(rows.number[row]) or self._text_of_other(row))
        elif code == Code.DELETED:
            self._set(path, None)
        elif code == Code.RENAMED_AWAY:
            self._move(path, self._fold.paths[rows.other[row]])
        elif code == Code.EXCHANGED and rows.path[row] < rows.other[row]:
            one, two = path, self._fold.paths[rows.other[row]]
            for old, new in ((one, one + _ASIDE), (two, one), (one + _ASIDE, two)):
                self._move(old, new)

    def _text_of_other(self, row: int) -> bytes | None:
        """Give the text of what got another name: a symlink can have several, too."""
        other = self._rows.other[row]
        return (self._text(self._fold.paths[other]) or None) if other >= 0 else None

    def _set(self, path: bytes, text: bytes | None) -> None:
        """Say what a name is now; what never was a symlink needs no entry."""
        if text is None and not self._text(path):
            return
        self._links[path] = text
        self._changed(path)

    def _place(self, path: bytes, origin: bytes | None) -> None:
        """Say where a directory comes from: what lies in it is what lay there."""
        self._origins[path] = origin
        self._homes.clear()
        self._changed(path)

    def _changed(self, path: bytes) -> None:
        for above in _upwards(path.rpartition(b"/")[0]):
            if above in self._above:
                break
            self._above.add(above)
        if path in self._on_the_way:
            self._ways.clear()
            self._on_the_way.clear()

    def _move(self, old: bytes, new: bytes) -> None:
        text, origin = self._text(old), self._origin(old)
        directory = old in self._origins or (old not in self._links and self._before(origin) == b"")
        self._empty(new)
        moved = self._take(old)
        if directory:
            self._place(old, None)
            self._place(new, origin)
        if moved:
            self._homes.clear()
        for entries, found in moved:
            for name, value in found.items():
                entries[new + name[len(old) :]] = value
                self._changed(new + name[len(old) :])
        self._set(old, None)
        self._set(new, text or None)

    def _empty(self, path: bytes) -> None:
        """Forget what is known of a name that something else takes."""
        self._take(path)
        if path in self._origins:
            del self._origins[path]
            self._homes.clear()
        self._links.pop(path, None)
        self._changed(path)

    def _take(self, path: bytes) -> list[tuple[dict[bytes, bytes | None], dict[bytes, bytes | None]]]:
        """Take out all that is known of what lies below a directory."""
        if path not in self._above:
            return []
        self._homes.clear()
        return [
            (entries, {name: entries.pop(name) for name in [*entries] if name.startswith(path + b"/")})
            for entries in (self._links, self._origins)
        ]


def _upwards(path: bytes) -> Iterator[bytes]:
    """Give a path and every directory above it."""
    while path:
        yield path
        path = path.rpartition(b"/")[0]
