"""Whose doing a change of a shared place was. In: what the watch saw, and the trial's events; out: what is not its.

The laws:

1. The watch sees paths and no processes: a change is the trial's own when an event of the trial changed that path in
   this way in the same span of time. What is left was somebody else's.
2. A file that was open for writing and is closed was the trial's to close if the trial ever had it open so.
3. What was renamed is the trial's under every name that it had, and what a renamed directory brought came with it.
4. A span is wider than it was: the watch is read after the change, and a call is told after it has worked. Who changes
   the same path within it is not told apart from the trial; the states before and after are, by the reconciliation.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

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
    PlaceDeclared,
    ProcessKey,
)
from supervisor.events.places import Sighting
from supervisor.evidence.paths.leading import Leading, ReadLinks, no_links
from supervisor.evidence.paths.reconcile import parents

SLACK_NS = 50_000_000
_FOR_EVER = 1 << 62

_CLOSING = ("closed",)

_Span = tuple[int, int]
_Key = tuple[bytes, str]

_WAYS: dict[type[FileEvent], tuple[str, ...]] = {
    FileOpened: ("created", "modified"),
    FileWritten: ("modified", "attributes"),
    FileMapped: ("modified",),
    FileTruncated: ("modified", "attributes"),
    FileCreated: ("created",),
    FileDeleted: ("deleted", "attributes"),
    FileRenamed: ("moved", "deleted", "created", "attributes"),
    FileLinked: ("created", "attributes"),
    FileChanged: ("attributes", "modified"),
}
"""What the watch can see of each kind of event: a write takes set-id bits away, a time that is set is like a write."""


def find_foreign(sightings: Sequence[Sighting], events: Iterable[Event], links: ReadLinks = no_links) -> list[Sighting]:
    """Give what no event of the trial explains, in the order in which it was seen.

    Args:
        sightings: what the watch saw.
        events: of the trial.
        links: gives the symlinks of before the trial among some paths.
    """
    own = _Own(sightings, links)
    for event in events:
        own.add(event)
    return [sight for sight in sightings if not own.explains(sight)]


class _Own:
    """Spans in which the trial changed paths: by path, and for calls that were given a name also by its last part.

    A name may lead through a symlink, so that its last part is all that it has in common with what changed.
    """

    def __init__(self, sightings: Sequence[Sighting], links: ReadLinks) -> None:
        self._wanted = frozenset(sight.path for sight in sightings)
        # A directory whose contents are seen as created may have been brought by one above it.
        names = self._wanted.union(*(parents(sight.path) for sight in sightings if sight.change == "created"))
        self._last_parts = frozenset(posixpath.basename(path) for path in names)
        self._spans: defaultdict[_Key, list[_Span]] = defaultdict(list)
        self._written: defaultdict[tuple[int, int, ProcessKey | None], dict[bytes, int]] = defaultdict(dict)
        self._names: dict[bytes, bytes] = {}
        self._leading = Leading(links)
        self._renamed: dict[bytes, bytes] = {}

    def add(self, event: Event) -> None:
        match event:
            case PlaceDeclared():
                self._names.update((name, event.path) for name in event.names)
            case FileWritten(totals=True):
                # They may be those of any of its descriptors of the file.
                for path, first_ns in self._written[event.device, event.inode, event.process].items():
                    for name in self._names_since(path) if first_ns <= event.last_ns else ():
                        self._put(name, _WAYS[FileWritten], first_ns, event.last_ns)
            case FileEvent(error=None):
                self._add_change(event)
            case _:
                return

    def _add_change(self, event: FileEvent) -> None:
        at_ns, ways = event.time_ns, _WAYS.get(type(event), ())
        self._add_closing(event)
        match event:
            case FileOpened() if not (event.created or event.truncates):
                return
            case FileWritten():
                self._written[event.device, event.inode, event.process].setdefault(event.path, at_ns)
            case FileMapped():
                self._put(event.path, ways, at_ns, _FOR_EVER)
            case FileRenamed() | FileLinked():
                self._put(event.new_path, ways, at_ns, at_ns, by_name=True)
                self._follow_name(event)
            case FileChanged(follows=True, inode=0) | FileTruncated(inode=0):
                for path in self._leading.follow(event.path)[0][1:]:
                    self._put(path, ways, at_ns, at_ns)
            case _:
                pass
        self._put(event.path, ways, at_ns, at_ns, by_name=not event.inode)

    def _follow_name(self, event: FileRenamed | FileLinked) -> None:
        old, new = self._own_name(event.path), self._own_name(event.new_path)
        if isinstance(event, FileLinked) and event.symbolic:
            self._leading.made(new, event.path)
            return
        self._leading.moved(old, new)
        if isinstance(event, FileRenamed):
            self._renamed[old] = new
            if event.exchange:
                self._leading.moved(new, old)
                self._renamed[new] = old

    def _names_since(self, path: bytes) -> dict[bytes, None]:
        """Give a path and the names that were given to what is there."""
        names = {path: None}
        while (path := self._renamed.get(path, b"")) and path not in names:
            names[path] = None
        return names

    def _add_closing(self, event: FileEvent) -> None:
        """Note what the trial may close after writing, at any time; a file can have another name by then."""
        match event:
            case FileOpened(writes=True) | FileWritten() | FileMapped():
                self._put(event.path, _CLOSING, event.time_ns, _FOR_EVER, by_name=not event.inode)
            case FileRenamed() | FileLinked():
                self._put(event.new_path, _CLOSING, event.time_ns, _FOR_EVER, by_name=True)
            case _:
                return

    def _put(self, path: bytes, ways: tuple[str, ...], first_ns: int, last_ns: int, *, by_name: bool = False) -> None:
        path = self._own_name(path)
        last_part = posixpath.basename(path)
        if last_part not in self._last_parts:
            return
        for key in (path, last_part) if by_name and path not in self._wanted else (path,):
            for way in ways:
                self._spans[key, way].append((first_ns, last_ns))

    def _own_name(self, path: bytes) -> bytes:
        """Give a path by the own name of its place."""
        for name, place in self._names.items():
            if path == name or path.startswith(name.rstrip(b"/") + b"/"):
                return place + path[len(name.rstrip(b"/")) :]
        return path

    def explains(self, sight: Sighting) -> bool:
        """Tell whether the trial changed this path in this span."""
        names = (posixpath.basename(sight.path), *self._leading.names_of(sight.path)[0])
        return any(self._meets((name, sight.change), sight) for name in names) or (
            sight.change == "created" and any(self._meets((above, "moved"), sight) for above in parents(sight.path))
        )

    def _meets(self, key: _Key, sight: Sighting) -> bool:
        since_ns, until_ns = sight.since_ns - SLACK_NS, sight.seen_ns + SLACK_NS
        spans = self._spans.get(key)
        if not spans:
            return False
        return any(first <= until_ns and last >= since_ns for first, last in _near(spans, since_ns))


def _near(spans: list[_Span], since_ns: int) -> Iterator[_Span]:
    """Give the spans that can end at a moment or later; most are short, and in the order of time."""
    start = bisect_left(spans, (since_ns, 0))
    yield from spans[start:]
    yield from (span for span in spans[:start] if span[1] >= since_ns)
