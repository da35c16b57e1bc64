"""What was read of the host, by path. In: opens for reading, execs and look-ups; out: one `Touch` a path and way.

The witness tells reads once a trial and inode, outside the places where every one is told: elsewhere only the first
contact is known. What the trial reads of its own writes is left out by whoever asks.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from supervisor.events import (
    Event,
    FileCreated,
    FileDeleted,
    FileEvent,
    FileLinked,
    FileLookedUp,
    FileOpened,
    FileRenamed,
    Kind,
    ProcessExecuted,
    ProcessKey,
)
from supervisor.evidence.facts import Touch
from supervisor.evidence.processes import Cast

_Kept = tuple[ProcessKey | None, int, int, int, int]
"""Who first, first_ns, last_ns, and the numbers of the first and the last event."""

_MOST = 200_000
"""How many paths are kept with those that were only looked up; where a place is shared, every look-up is told."""

_CONTENT = frozenset({Kind.FILE, Kind.DIRECTORY})


class ReadFold:
    """Keeps one entry a path and way; memory grows with the number of distinct paths only."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._kept: dict[tuple[bytes, str], list[_Kept]] = {}

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        kinds: tuple[type[Event], ...] = (FileCreated, FileDeleted, FileLinked, FileRenamed)
        handlers: dict[type[Event], Callable[[Event], object]] = dict.fromkeys(kinds, self._refused)
        return handlers | {
            FileOpened: self._opened, ProcessExecuted: self._executed, FileLookedUp: self._looked_up,
        }  # fmt: skip

    def _looked_up(self, event: Event) -> None:
        if isinstance(event, FileLookedUp) and event.reachable:
            self._look(event, event.path)

    def _refused(self, event: Event) -> None:
        """Take what could not be made or removed: that something is there, or nothing, is why."""
        if isinstance(event, FileEvent) and event.error is not None and event.reachable:
            self._look(event, event.new_path if isinstance(event, FileLinked | FileRenamed) else event.path)

    def _look(self, event: FileEvent, path: bytes) -> None:
        if path[:1] == b"/" and len(self._kept) < _MOST:
            self._add(posixpath.normpath(path), "looked", event)

    def _opened(self, event: Event) -> None:
        if not isinstance(event, FileOpened):
            return
        if event.error is not None and event.reachable:
            self._look(event, event.path)
        if event.what not in _CONTENT:
            return
        if event.reads and event.error is None and event.reachable:
            self._add(event.path, "listed" if event.what is Kind.DIRECTORY else "read", event)

    def _executed(self, event: Event) -> None:
        if isinstance(event, ProcessExecuted):
            self._add(event.exe, "executed", event)

    def _add(self, path: bytes, how: str, event: Event) -> None:
        # CMD's process acts for the box until its release, so a path keeps its first and its last reader apart.
        entry = (event.process, event.time_ns, event.time_ns, event.n, event.n)
        kept = self._kept.setdefault((path, how), [])
        kept.append(entry)
        kept.sort(key=_first)
        del kept[1:-1]

    def finish(self, cast: Cast) -> tuple[Touch, ...]:
        """Give what the trial itself read, by path."""
        found = []
        for (path, how), entries in sorted(self._kept.items()):
            mine = [entry for entry in entries if not cast.ignores(entry[0], entry[1])]
            if mine:
                mine.sort(key=_first)
                events = tuple(dict.fromkeys((mine[0][3], mine[-1][4])))
                found.append(
                    Touch(
                        path=path, how=how, process=mine[0][0], first_ns=mine[0][1], last_ns=mine[-1][2], events=events
                    )
                )
        return tuple(found)


def _first(entry: _Kept) -> int:
    return entry[1]
