"""Places that are written in place, seen from outside the trial: what changes there, whoever does it (inotify(7)).

In: places. Out: sightings, and holes: spans in which something may have gone unseen. The rule it keeps: the watch
stands before the trial is released, and whatever it could not watch is said.

The kernel tells paths, not who did it; which of the changes were the trial's own is found in the log. It cannot see
stores into shared mappings: whoever makes them has had the file open for writing, so a workspace is also watched for
such files being closed, and `find_held` tells which are still open. What is changed on another machine (network file
systems) is not seen at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from supervisor.events.places import Sighting
from supervisor.values import dataclass

if TYPE_CHECKING:
    import inotify_simple

MOST_DIRECTORIES = 20_000
MOST_SIGHTINGS = 500_000
_WAIT_MS = 100

_CREATED, _MODIFIED, _DELETED, _MOVED, _ATTRIBUTES = "created", "modified", "deleted", "moved", "attributes"
_CLOSED = "closed"
_SETSIG = 10  # F_SETSIG of <linux/fcntl.h>, which Python has no name for


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A span in which changes of a place may have gone unseen (CLOCK_BOOTTIME)."""

    path: bytes
    why: str
    since_ns: int
    seen_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that was seen, in order."""

    sightings: tuple[Sighting, ...]
    holes: tuple[Hole, ...]


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class PlaceWatch:
    """Watches some places, in a thread of its own, from ``with`` to `finish` or the end of the ``with``."""

    def __init__(self, places: tuple[bytes, ...], *, hidden: bytes = b"", closing: bool = False) -> None:
        """Name the places; nothing is watched yet.

        Args:
            places: absolute paths of files and directories, free of symlinks.
            hidden: a directory that is left out, the one of our runs.
            closing: tell also of files that are closed after they were open for writing.
        """
        self._places, self._hidden, self._closing = places, hidden, closing
        self._told: set[tuple[bytes, str]] = set()
        self._paths: dict[int, bytes] = {}
        self._moving: dict[int, bytes] = {}
        self._sightings: list[Sighting] = []
        self._holes: list[Hole] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervise-places", daemon=True)
        self._since_ns = 0
        self._full = self._closed = False

    def __enter__(self) -> Self:
        """Watch everything that is there, then begin to read."""
        self.begin()
        self._thread.start()
        return self

    def begin(self) -> None:
        """Watch everything that is there; what is seen waits in the kernel until the ``with`` begins."""
        if self._since_ns:
            return
        import inotify_simple  # noqa: PLC0415 - only trials that share something need it

        flags = inotify_simple.flags
        self._flags = flags
        self._changes = {
            flags.MODIFY: _MODIFIED,
            flags.ATTRIB: _ATTRIBUTES,
            flags.CREATE: _CREATED,
            flags.DELETE: _DELETED,
            flags.DELETE_SELF: _DELETED,
            flags.MOVED_FROM: _MOVED,
            flags.MOVED_TO: _MOVED,
            flags.MOVE_SELF: _MOVED,
        }
        if self._closing:
            self._changes[flags.CLOSE_WRITE] = _CLOSED
        self._mask = 0
        for flag in self._changes:
            self._mask |= flag
        self._inotify: inotify_simple.INotify = inotify_simple.INotify(nonblocking=True)
        self._since_ns = _now_ns()
        for place in self._places:
            self._watch_below(place)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the watch."""
        self.finish()

    def finish(self) -> Seen:
        """Read what waits, end the watch, and give all that was seen; twice is once."""
        if self._thread.is_alive():
            self._ending.set()
            self._thread.join()
        if self._since_ns and not self._closed:
            self._closed = True
            self._inotify.close()
        return Seen(sightings=tuple(self._sightings), holes=tuple(self._holes))

    # -- what is watched -------------------------------------------------------------------------------------------

    def _watch_below(self, path: bytes) -> None:
        """Watch a file, or a directory and all below it."""
        waiting = [path]
        while waiting:
            here = waiting.pop()
            if here == self._hidden:
                continue
            if not self._watch(here):
                return
            with suppress(OSError), os.scandir(here) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

    def _watch(self, path: bytes) -> bool:
        """Watch one thing; False when no more can be watched."""
        if len(self._paths) >= MOST_DIRECTORIES:
            self._hole(path, f"it has more than {MOST_DIRECTORIES} directories")
            return False
        try:
            number = self._inotify.add_watch(path, self._mask | self._flags.EXCL_UNLINK | self._flags.DONT_FOLLOW)
        except OSError as err:
            if err.errno in {errno.ENOENT, errno.ENOTDIR}:  # gone meanwhile, which its parent tells
                return True
            self._hole(path, f"it cannot be watched: {(err.strerror or str(err)).lower()}")
            return err.errno != errno.ENOSPC
        self._paths[number] = path
        return True

    # -- what is seen ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        ending = False
        while not ending:
            ending = self._ending.is_set()  # what happened before that is still read
            began_ns = _now_ns()
            try:
                events = list(self._inotify.read(timeout=0 if ending else _WAIT_MS))
            except OSError as err:
                self._hole(self._places[0], f"the watch failed: {(err.strerror or str(err)).lower()}")
                return
            seen_ns = _now_ns()
            for event in events:
                self._take(event, seen_ns)
            for path in self._moving.values():
                self._forget_below(path)
            self._moving.clear()
            self._told.clear()
            self._since_ns = began_ns

    def _take(self, event: inotify_simple.Event, seen_ns: int) -> None:
        flags = self._flags
        if event.mask & flags.Q_OVERFLOW:
            for place in self._places:
                self._hole(place, "the kernel's queue of changes ran over")
                self._watch_below(place)
            return
        above = self._paths.get(event.wd)
        if event.mask & flags.IGNORED:
            self._paths.pop(event.wd, None)
        if above is None:
            return
        path = above + b"/" + os.fsencode(event.name) if event.name else above
        # What happens to a directory itself its parent tells, at once: it is deleted only when nobody has it open.
        told = 0 if above in self._places else flags.DELETE_SELF | flags.MOVE_SELF
        for flag, change in self._changes.items():
            if event.mask & flag & ~told:
                self._see(path, change, seen_ns)
        if event.mask & flags.ISDIR and event.name:
            self._follow_directory(event, path, seen_ns)

    def _follow_directory(self, event: inotify_simple.Event, path: bytes, seen_ns: int) -> None:
        """Keep up with directories that come, go and move; what is in a new one already may have just come."""
        if event.mask & self._flags.MOVED_FROM:
            self._moving[event.cookie] = path
        elif event.mask & self._flags.MOVED_TO:
            old = self._moving.pop(event.cookie, None)
            if old is not None:
                self._rename(old, path)
            self._watch_below(path)
        elif event.mask & self._flags.CREATE:
            self._watch_below(path)
            for above, directories, files in os.walk(path):
                for name in (*directories, *files):
                    self._see(above + b"/" + name, _CREATED, seen_ns)

    def _forget_below(self, path: bytes) -> None:
        """Watch a directory no more that was moved out of its place; one that only came late is watched again."""
        for number in [n for n, one in self._paths.items() if one == path or one.startswith(path + b"/")]:
            with suppress(OSError):
                self._inotify.rm_watch(number)
            self._paths.pop(number)

    def _rename(self, old: bytes, new: bytes) -> None:
        for number, path in self._paths.items():
            if path == old or path.startswith(old + b"/"):
                self._paths[number] = new + path[len(old) :]

    def _see(self, path: bytes, change: str, seen_ns: int) -> None:
        if (path, change) in self._told:  # read in one go: the same span
            return
        self._told.add((path, change))
        if len(self._sightings) >= MOST_SIGHTINGS:
            if not self._full:
                self._full = True
                self._hole(path, f"there were more than {MOST_SIGHTINGS} changes")
            return
        self._sightings.append(Sighting(path=path, change=change, since_ns=self._since_ns, seen_ns=seen_ns))

    def _hole(self, path: bytes, why: str) -> None:
        self._holes.append(Hole(path=path, why=why, since_ns=self._since_ns, seen_ns=_now_ns()))


def find_held(paths: Iterable[bytes]) -> Iterator[tuple[bytes, str]]:
    """Find files that somebody has open for writing, or mapped so, with what is known of each.

    The kernel is asked for a lease to read, which it refuses as long as anybody can write (fcntl(2), F_SETLEASE); it
    is given back at once.

    Args:
        paths: absolute; of what is no regular file nothing is told.
    """
    for path in paths:
        try:
            opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as err:
            if err.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}:
                yield path, f"whether it is open for writing is not known: {(err.strerror or str(err)).lower()}"
            continue
        try:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                fcntl.fcntl(opened, _SETSIG, signal.SIGURG)  # who comes between sends us this, and it is ignored
                fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError as err:
            yield path, "" if err.errno == errno.EAGAIN else "the file system does not tell whether it is open"
        finally:
            os.close(opened)
