"""What happened to files. In: file events in any order; out: one table of changes in the order of the kernel's clock.

The laws:

1. Opening for writing without effect is no change. An open that created is ``created``; one that truncated a file
   which had content is ``modified``, also where it was opened for reading.
2. Totals belong to the write that they count again: they move its last time and add no change.
3. A file that is not below the trial's root was given to it; it is never the path that is spelled the same.
4. Pipes, sockets and devices hold no content of the file system: writing into them changes no file.

The table is kept in columns of machine integers (about 45 bytes a change), because a trial can make a million changes.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from enum import IntEnum

from supervisor.events import (
    Event,
    FileChanged,
    FileCreated,
    FileDeleted,
    FileEvent,
    FileKept,
    FileLinked,
    FileMapped,
    FileOpened,
    FileRenamed,
    FileTruncated,
    FileWritten,
    Kind,
    ProcessKey,
)
from supervisor.evidence.places import UNREACHABLE
from supervisor.evidence.processes import Cast

_O_TMPFILE = 0o20000000
_MEMORY = re.compile(rb"/proc/([0-9]+)(?:/task/[0-9]+)?/mem")
_POSITIVE = (1 << 63) - 1
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
    RESIZED = 14


VERIFIED = 1
"""Mark of a row: its path is the kernel's own, or could not have been changed."""
DIRECTORY = 2
"""Mark of a row: a directory was made."""
BY_NAME = 4
"""Mark of a row: its path is the argument of a call, read from memory, not the kernel's own of an open file."""

UNLINKED = 8
"""Mark of a row: it was made through a descriptor of a file that had lost the name it was opened by."""

NOFOLLOW = 16
"""Mark of a row: its path is told by name, and a symlink there is what was meant."""

FOLLOW = 32
"""Mark of a row: a symlink that got another name is not what was meant, but its target."""


def code_set(*codes: Code) -> int:
    """Give some codes as a bit set; plain integers, because a set is asked for every change."""
    return sum(1 << code for code in codes)


Row = tuple[int, int, int, int, int, int, int, int, int]
"""One row before it is in the columns: path, process, other, at, number, file, code, mark, error."""

_WAITING = 8192


class Rows:
    """The table: a row's number is its place, ``at`` is when it (last) happened, ``file`` digests device and inode.

    New rows wait in a list and are put into the columns many at a time, which costs a third of putting in each. Whoever
    reads the columns calls `settle` first.
    """

    def __init__(self) -> None:
        """Begin with no row."""
        self.path, self.process, self.other = array("i"), array("i"), array("i")
        self.at, self.number, self.file = array("q"), array("q"), array("q")
        self.code, self.mark, self.error = array("b"), array("b"), array("h")
        self._waiting: list[Row] = []
        self._order: list[int] = []

    def __len__(self) -> int:
        """Count the rows that are in the columns."""
        return len(self.path)

    def add(self, row: Row) -> None:
        """Take one more row."""
        self._waiting.append(row)
        if len(self._waiting) >= _WAITING:
            self.settle()

    def settle(self) -> None:
        """Put what waits into the columns."""
        columns = (
            self.path,
            self.process,
            self.other,
            self.at,
            self.number,
            self.file,
            self.code,
            self.mark,
            self.error,
        )
        for column, values in zip(columns, zip(*self._waiting, strict=True), strict=False):
            column.extend(values)
        self._waiting.clear()

    def in_order(self) -> list[int]:
        """Give the rows by time, then number. The log is nearly in order, which makes these two sorts cheap."""
        self.settle()
        if len(self._order) != len(self):
            self._order = sorted(range(len(self)), key=self.number.__getitem__)
            self._order.sort(key=self.at.__getitem__)
        return self._order


class FileFold:
    """Collects changes and refused attempts, by path.

    Attributes:
        linked: a file was given another name.
        opened: paths that were opened for writing, whatever came of it: a stage has a copy of them.
        memories: pid and time of each open of the memory of a process for writing.
        symlinks: the text of each symlink that was made, by the number of its event.
        nameless: where a temporary file was opened without a name, by the digest of device and inode.
    """

    def __init__(self) -> None:
        """Begin with no path."""
        self.rows = Rows()
        self._put = self.rows.add
        self.paths: list[bytes] = []
        self.processes: list[ProcessKey | None] = []
        self._path_ids: dict[bytes, int] = {}
        self._process_ids: dict[ProcessKey | None, int] = {}
        self.kept: dict[int, list[int]] = {}
        self.nameless: dict[int, int] = {}
        self._nameless: set[int] = set()
        self.linked = False
        self.opened: set[int] = set()
        self.memories: list[tuple[int, int]] = []
        self.symlinks: dict[int, bytes] = {}
        self._cut: list[tuple[ProcessKey | None, int, int]] = []

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {
            FileOpened: self._opened_file,
            FileWritten: self._wrote,
            FileKept: self._kept,
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

    def forget_index(self) -> None:
        """Drop what finds the number of a path: no path comes after the tree has been walked."""
        self._path_ids.clear()
        self._process_ids.clear()

    def is_nameless(self, path: int) -> bool:
        """Tell whether a path stands for a temporary file that was opened without a name."""
        return path in self._nameless

    def _place(self, event: FileEvent) -> int:
        return self.path_id((event.given or event.path) if event.reachable else UNREACHABLE + event.path)

    def cut_events(self, cast: Cast) -> tuple[int, ...]:
        """Give the changes of the trial whose path was not whole: nobody knows what they changed."""
        return tuple(sorted(number for process, at_ns, number in self._cut if not cast.ignores(process, at_ns)))

    def _process_id(self, process: ProcessKey | None) -> int:
        known = self._process_ids.get(process)
        if known is None:
            known = self._process_ids[process] = len(self.processes)
            self.processes.append(process)
        return known

    def _add(self, event: FileEvent, path: int, code: Code, other: int = -1, at_ns: int = 0, mark: int = 0) -> None:
        if event.path_truncated and event.error is None:
            # What is left of its path is the name of nothing: it says neither what was changed nor that it was allowed.
            self._cut.append((event.process, event.time_ns, event.n))
            return
        self._put(
            (
                path,
                self._process_id(event.process),
                other,
                at_ns or event.time_ns,
                event.n,
                _file_of(event),
                code,
                mark
                | (VERIFIED if event.verified else 0)
                | (0 if event.inode and not isinstance(event, FileLinked) else BY_NAME)
                | (UNLINKED if event.unlinked else 0),
                event.error or 0,
            )
        )

    def _opened_file(self, event: Event) -> None:
        if not isinstance(event, FileOpened) or event.what in _NO_CONTENT or not (event.writes or event.truncates):
            return
        if event.error is not None:
            self._add(event, self._place(event), Code.CREATED if event.created else Code.MODIFIED)
            return
        path = self._place(event)
        if event.path.endswith(b"/mem") and (memory := _MEMORY.fullmatch(event.path)):
            self.memories.append((int(memory[1]), event.time_ns))
        self.opened.add(path)
        if event.flags & _O_TMPFILE:
            self._nameless.add(path)
            self.nameless[_file_of(event)] = path
        elif event.created:
            self._add(event, path, Code.CREATED)
        elif event.truncates:
            self._add(event, path, Code.EMPTIED)

    def _wrote(self, event: Event) -> None:
        if not isinstance(event, FileWritten) or event.what in _NO_CONTENT:
            return
        if event.totals:
            # Totals carry no path: `Tree` finds the write that they count again.
            self._add(event, self._place(event) if event.path else -1, Code.TOTALS, at_ns=event.last_ns)
        else:
            self._add(event, self._place(event), Code.MODIFIED)

    def _kept(self, event: Event) -> None:
        if isinstance(event, FileKept):
            self.kept.setdefault(self._place(event), []).append(event.n)

    def _made(self, event: Event) -> None:
        if isinstance(event, FileCreated):
            mark = DIRECTORY if event.what is Kind.DIRECTORY else 0
            self._add(event, self._place(event), Code.CREATED, mark=mark)

    def _deleted(self, event: Event) -> None:
        if isinstance(event, FileDeleted):
            self._add(event, self._place(event), Code.DELETED)

    def _renamed(self, event: Event) -> None:
        if not isinstance(event, FileRenamed):
            return
        old, new = self._place(event), self.path_id(event.new_given or event.new_path)
        away, here = (Code.EXCHANGED, Code.EXCHANGED) if event.exchange else (Code.RENAMED_AWAY, Code.RENAMED_HERE)
        self._add(event, old, away, other=new)
        self._add(event, new, here, other=old)
        if event.whiteout and event.error is None:
            self._add(event, old, Code.CREATED)

    def _linked(self, event: Event) -> None:
        if not isinstance(event, FileLinked):
            return
        new = self.path_id(event.new_given or event.new_path)
        if event.symbolic:
            if event.error is None:
                self.symlinks[event.n] = event.path
            self._add(event, new, Code.LINKED_HERE)
            return
        # A second name lets its writer change the first one: that is a change of the first one too.
        old = self._place(event)
        self.linked |= event.error is None
        mark = FOLLOW if event.follows else 0
        self._add(event, old, Code.LINKED_FROM, other=new, mark=mark)
        self._add(event, new, Code.LINKED_HERE, other=old, mark=mark)

    def _truncated(self, event: Event) -> None:
        if isinstance(event, FileTruncated):
            self._add(event, self._place(event), Code.MODIFIED if event.inode else Code.RESIZED)

    def _mapped(self, event: Event) -> None:
        if isinstance(event, FileMapped):
            self._add(event, self._place(event), Code.MAPPED)

    def _changed(self, event: Event) -> None:
        if isinstance(event, FileChanged):
            code = Code.TIMES if event.attribute == "times" else Code.ATTRIBUTES
            self._add(event, self._place(event), code, mark=0 if event.follows else NOFOLLOW)


def _file_of(event: FileEvent) -> int:
    return (event.device << 40 ^ event.inode) & _POSITIVE
