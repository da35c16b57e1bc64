"""What happened to files. In: file events in any order; out: one table of changes in the order of the kernel's clock.

The laws:

1. Opening for writing without effect is no change. An open that created is ``created``; one that truncated a file
   which had content is ``modified``.
2. Totals belong to the write that they count again: they move its last time and add no change.
3. What was written through a descriptor that nobody of the trial opened was given to it (descriptors 0-2).
4. Pipes, sockets and devices hold no content of the file system: writing into them changes no file.

The table is kept in columns of machine integers (about 45 bytes a change), because a trial can make a million changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from enum import IntEnum

from supervisor.events import (
    Event,
    FileChanged,
    FileCreated,
    FileDeleted,
    FileEvent,
    FileLinked,
    FileMapped,
    FileOpened,
    FileRenamed,
    FileTruncated,
    FileWritten,
    Kind,
    ProcessKey,
)

_O_TMPFILE = 0o20000000
_NO_CONTENT = frozenset({Kind.FIFO, Kind.SOCKET, Kind.DEVICE})


class Code(IntEnum):
    """What one row of the table says; finer than the words of a history."""

    CREATED = 1
    MODIFIED = 2
    EMPTIED = 3
    TOTALS = 4
    DELETED = 5
    RENAMED_AWAY = 6
    RENAMED_HERE = 7
    EXCHANGED = 8
    LINKED_FROM = 9
    LINKED_HERE = 10
    ATTRIBUTES = 11
    TIMES = 12
    MAPPED = 13


VERIFIED = 1
"""Mark of a row: its path is the kernel's own, or could not have been changed."""
DIRECTORY = 2
"""Mark of a row: a directory was made."""


def code_set(*codes: Code) -> int:
    """Give some codes as a bit set; plain integers, because a set is asked for every change."""
    return sum(1 << code for code in codes)


class Rows:
    """The table. A row's number is its place; `at` is when it (last) happened, `told` when the event was made."""

    def __init__(self) -> None:
        """Begin with no row."""
        self.path, self.process, self.other = array("i"), array("i"), array("i")
        self.at, self.told, self.number = array("q"), array("q"), array("q")
        self.code, self.mark, self.error = array("b"), array("b"), array("h")

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.path)

    def in_order(self) -> list[int]:
        """Give the rows by time, then number. The log is nearly in order, which makes these two sorts cheap."""
        rows = sorted(range(len(self)), key=self.number.__getitem__)
        rows.sort(key=self.at.__getitem__)
        return rows


class FileFold:
    """Collects changes and refused attempts, by path."""

    def __init__(self) -> None:
        """Begin with no path."""
        self.rows = Rows()
        self.paths: list[bytes] = []
        self.processes: list[ProcessKey | None] = []
        self._path_ids: dict[bytes, int] = {}
        self._process_ids: dict[ProcessKey | None, int] = {}
        self._opened: set[int] = set()
        self._opened_paths: set[int] = set()
        self._written: dict[int, set[int]] = {}
        self._sources: dict[int, set[int]] = {}
        self._nameless: set[int] = set()

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {
            FileOpened: self._opened_file,
            FileWritten: self._wrote,
            FileCreated: self._made,
            FileDeleted: self._deleted,
            FileRenamed: self._renamed,
            FileLinked: self._linked,
            FileTruncated: self._truncated,
            FileMapped: self._mapped,
            FileChanged: self._changed,
        }

    def path_id(self, path: bytes) -> int:
        """Give the number of a path, new ones too."""
        known = self._path_ids.get(path)
        if known is None:
            known = self._path_ids[path] = len(self.paths)
            self.paths.append(path)
        return known

    def given(self, path: int) -> bool:
        """Tell whether a path was written through a descriptor only that the trial did not open itself (law 3)."""
        inodes = self._written.get(path)
        return inodes is not None and path not in self._opened_paths and inodes.isdisjoint(self._opened)

    def nameless(self, path: int) -> bool:
        """Tell whether all that was written at, or linked from, a path is a temporary file without a name."""
        inodes = self._written.get(path, set()) | self._sources.get(path, set())
        return bool(inodes) and inodes <= self._nameless and path not in self._opened_paths

    def _process_id(self, process: ProcessKey | None) -> int:
        known = self._process_ids.get(process)
        if known is None:
            known = self._process_ids[process] = len(self.processes)
            self.processes.append(process)
        return known

    def _add(self, event: FileEvent, path: int, code: Code, other: int = -1, at_ns: int = 0, mark: int = 0) -> None:
        rows = self.rows
        rows.path.append(path)
        rows.process.append(self._process_id(event.process))
        rows.other.append(other)
        rows.at.append(at_ns or event.time_ns)
        rows.told.append(event.time_ns)
        rows.number.append(event.n)
        rows.code.append(code)
        rows.mark.append(mark | VERIFIED if event.verified else mark)
        rows.error.append(event.error or 0)

    def _opened_file(self, event: Event) -> None:
        if not isinstance(event, FileOpened) or not event.writes or event.what in _NO_CONTENT:
            return
        if event.error is not None:
            self._add(event, self.path_id(event.path), Code.CREATED if event.created else Code.MODIFIED)
            return
        if event.flags & _O_TMPFILE:
            if event.inode:
                self._nameless.add(_inode(event))
            return
        path = self.path_id(event.path)
        self._opened_paths.add(path)
        if event.inode:
            self._opened.add(_inode(event))
        if event.created:
            self._add(event, path, Code.CREATED)
        elif event.truncates:
            self._add(event, path, Code.EMPTIED)

    def _wrote(self, event: Event) -> None:
        if not isinstance(event, FileWritten) or event.what in _NO_CONTENT:
            return
        path = self.path_id(event.path)
        # Nearly every write is to a path that was opened; only for the others does the inode matter.
        if path not in self._opened_paths:
            self._written.setdefault(path, set()).add(_inode(event))
        if event.totals:
            self._add(event, path, Code.TOTALS, at_ns=event.last_ns)
        else:
            self._add(event, path, Code.MODIFIED)

    def _made(self, event: Event) -> None:
        if isinstance(event, FileCreated):
            mark = DIRECTORY if event.what is Kind.DIRECTORY else 0
            self._add(event, self.path_id(event.path), Code.CREATED, mark=mark)

    def _deleted(self, event: Event) -> None:
        if isinstance(event, FileDeleted):
            self._add(event, self.path_id(event.path), Code.DELETED)

    def _renamed(self, event: Event) -> None:
        if not isinstance(event, FileRenamed):
            return
        old, new = self.path_id(event.path), self.path_id(event.new_path)
        away, here = (Code.EXCHANGED, Code.EXCHANGED) if event.exchange else (Code.RENAMED_AWAY, Code.RENAMED_HERE)
        self._add(event, old, away, other=new)
        self._add(event, new, here, other=old)

    def _linked(self, event: Event) -> None:
        if not isinstance(event, FileLinked):
            return
        new = self.path_id(event.new_path)
        if event.symbolic:
            self._add(event, new, Code.LINKED_HERE)
            return
        # A second name lets its writer change the first one: that is a change of the first one too.
        old = self.path_id(event.path)
        if old not in self._opened_paths:
            self._sources.setdefault(old, set()).add(_inode(event))
        self._add(event, old, Code.LINKED_FROM, other=new)
        self._add(event, new, Code.LINKED_HERE, other=old)

    def _truncated(self, event: Event) -> None:
        if isinstance(event, FileTruncated):
            self._opened_paths.add(self.path_id(event.path))
            self._add(event, self.path_id(event.path), Code.MODIFIED)

    def _mapped(self, event: Event) -> None:
        if isinstance(event, FileMapped):
            self._add(event, self.path_id(event.path), Code.MAPPED)

    def _changed(self, event: Event) -> None:
        if isinstance(event, FileChanged):
            code = Code.TIMES if event.attribute == "times" else Code.ATTRIBUTES
            self._add(event, self.path_id(event.path), code)


def _inode(event: FileEvent) -> int:
    """Give device and inode as one number."""
    return event.device << 64 | event.inode
