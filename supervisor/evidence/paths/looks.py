"""How the trial met shared places, and what it tried with hidden ones. In: events; out: touches, attempts, and doubts.

The laws:

1. What went through an open file is decided by the kernel's own path. What went by name is followed through every
   symlink that may have been on the way; where a call was answered with device and inode, those decide.
2. A look-up whose name the trial could have changed while it was told proves nothing: as long as no touch was seen,
   such look-ups are a gap.
3. What can be read or written without a further call (a mapping, a watch for changes) lasts until whoever made it, and
   all that it forked, has ended.
4. A read may be as late as the time for which reads are not told again.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from policies.types import FilesMode, Policy
from supervisor.events import (
    ConnectionAttempted,
    Event,
    FileChanged,
    FileCreated,
    FileDeleted,
    FileEvent,
    FileLinked,
    FileListed,
    FileLookedUp,
    FileMapped,
    FileOpened,
    FileRead,
    FileRenamed,
    FileTruncated,
    FileWritten,
    Kind,
    PlaceChanged,
    PlaceDeclared,
    PlaceUnwatched,
    ProcessExecFailed,
    ProcessExecuted,
    ProcessKey,
    SocketBound,
)
from supervisor.events.files import READ_WINDOW_NS
from supervisor.evidence.bounded import Numbers
from supervisor.evidence.facts import DeniedLook, ForeignChange, Gap, Route, Touch
from supervisor.evidence.file_facts import FileState, Observed
from supervisor.evidence.naming import listed, show
from supervisor.evidence.paths.leading import Leading, ReadLinks
from supervisor.evidence.processes import Cast

_NOT_FOLLOWING = frozenset({"lstat", "readlink", "readlinkat", "lgetxattr", "llistxattr"})
_WATCHING = frozenset({"inotify_add_watch", "fanotify_mark", "dnotify"})
_CHANGES = (FileCreated, FileDeleted, FileTruncated, FileChanged)
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})
"""What rmdir(2) and rename(2) say of a directory with something in it, by file system."""

_NAMED_GAPS = 10


class Look(NamedTuple):
    """One contact, before it is known whether it met a place.

    ``by_name``: the path is what the caller said; ``follows``: a symlink at its end is followed; ``until_end``: it
    lasts until the process has ended.
    """

    path: bytes
    how: str
    process: ProcessKey | None
    at_ns: int
    number: int
    error: int | None = None
    by_name: bool = False
    verified: bool = True
    device: int = 0
    inode: int = 0
    until_end: bool = False
    follows: bool = True


class _Places:
    """Some places, by every name."""

    def __init__(self, declared: list[PlaceDeclared]) -> None:
        self._names = {name: place.path for place in declared for name in (place.path, *place.names)}
        self._roots = tuple(name.rstrip(b"/") + b"/" for name in self._names)

    def find(self, path: bytes) -> bytes | None:
        """Give a path by its place's own name, None when it is in none of them."""
        if not (path + b"/").startswith(self._roots):
            return None
        name = max((n for n in self._names if (path + b"/").startswith(n.rstrip(b"/") + b"/")), key=len)
        return (self._names[name].rstrip(b"/") + path[len(name.rstrip(b"/")) :]) or b"/"


class LookFold:
    """Collects contacts by name and by open file; nothing at all when nobody else can meet what the policy names.

    Attributes:
        declared, foreign, unwatched: events of places.
        looks: contacts that may have met one.
        links: what moves symlinks, and what makes them.
    """

    def __init__(self, policy: Policy) -> None:
        """Begin with no contact."""
        self._wanted = bool(policy.files.shared or policy.files.read_deny or policy.files.mode is FilesMode.DIRECT)
        self.declared: list[PlaceDeclared] = []
        self.looks: list[Look] = []
        self.links: list[FileLinked | FileRenamed] = []
        self.foreign: list[PlaceChanged] = []
        self.unwatched: list[PlaceUnwatched] = []
        self._written: dict[tuple[int, int, ProcessKey | None], bytes] = {}
        self._near: _Places | None = None

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        if not self._wanted:
            return {}
        kinds = (
            FileOpened, FileRead, FileListed, FileLookedUp, FileMapped, FileWritten, FileRenamed, FileLinked, *_CHANGES,
            ProcessExecuted, ProcessExecFailed, ConnectionAttempted, SocketBound,
        )  # fmt: skip
        handlers: dict[type[Event], Callable[[Event], object]] = dict.fromkeys(kinds, self._look)
        return handlers | dict.fromkeys((PlaceDeclared, PlaceChanged, PlaceUnwatched), self._place)

    def _place(self, event: Event) -> None:
        match event:
            case PlaceDeclared():
                self.declared.append(event)
                if len(self.declared) >= event.total:
                    self._near = _Places(self.declared)
            case PlaceChanged():
                self.foreign.append(event)
            case PlaceUnwatched():
                self.unwatched.append(event)
            case _:
                return

    def _look(self, event: Event) -> None:
        if isinstance(event, FileLinked | FileRenamed):
            self.links.append(event)
        for look in self._read(event):
            # Most opens are of other files: those that the kernel names, and that are elsewhere, are forgotten at once.
            if look.by_name or self._near is None or self._near.find(look.path) is not None:
                self.looks.append(look)

    def _read(self, event: Event) -> Iterator[Look]:
        match event:
            case FileWritten(totals=True):
                path = self._written.get((event.device, event.inode, event.process))
                if path is not None:
                    yield Look(path, "changed", event.process, event.last_ns, event.n)
            case FileEvent():
                yield from self._read_file(event)
            case ProcessExecuted():
                yield Look(event.exe, "executed", event.process, event.time_ns, event.n)
            case ProcessExecFailed():
                yield Look(
                    event.path, "looked", event.process, event.time_ns, event.n, event.error, by_name=True,
                    verified=event.verified,
                )  # fmt: skip
            case ConnectionAttempted(path=bytes(path)) | SocketBound(path=bytes(path), error=int()) if path[:1] == b"/":
                yield Look(path, "looked", event.process, event.time_ns, event.n, event.error, by_name=True)
            case _:
                return

    def _read_file(self, event: FileEvent) -> Iterator[Look]:
        if not event.reachable:
            return
        if isinstance(event, FileWritten) and event.error is None:
            self._written[event.device, event.inode, event.process] = event.path
        by_name = event.error is not None or not event.inode or isinstance(event, FileLookedUp)
        look = Look(
            path=event.path,
            how="looked",
            process=event.process,
            at_ns=event.time_ns,
            number=event.n,
            error=event.error,
            by_name=by_name,
            verified=event.verified and not (event.path_truncated and by_name),
            device=event.device,
            inode=event.inode,
            follows=not isinstance(event, FileDeleted | FileRenamed | FileLinked | FileCreated),
        )
        if event.error is None or isinstance(event, FileLookedUp):
            yield from _meanings(event, look)
        else:
            yield from _refused(event, look)

    def shared(self) -> tuple[bytes, ...]:
        """Give every name of the shared places."""
        own = (place for place in self.declared if not place.hidden and not place.workspace)
        return tuple(sorted({name for place in own for name in (place.path, *place.names)}))

    def named(self, path: bytes) -> bytes:
        """Give a path of a shared place by the place's own name; any other as it is."""
        near = _Places([place for place in self.declared if not place.hidden])
        return near.find(path) or path

    # -- when all is known ---------------------------------------------------------------------------------------

    def finish(
        self,
        cast: Cast,
        links: ReadLinks,
        ended_ns: Callable[[ProcessKey | None], int],
        names: Callable[[], Mapping[int, tuple[bytes, bytes]]] = dict,
    ) -> Met:
        """Sort the contacts.

        Args:
            cast: who belongs to the box itself.
            links: the symlinks of before the trial.
            ended_ns: until when a process, or one that it forked, was there.
            names: gives the real paths, old and new, of what got another name, by the number of the event.
        """
        if not self._wanted:
            return Met()
        return _Sorting(self, cast, links, ended_ns).sort(names())


def _opened(event: FileOpened, look: Look) -> Iterator[Look]:
    changed, through = event.created or event.truncates, event.what in {Kind.FIFO, Kind.DEVICE}
    if changed or (through and event.writes):  # what goes through a fifo is not told
        yield look._replace(how="changed", until_end=through)
    if event.reads and not event.created:
        yield look._replace(how="read", until_end=through)
    elif not changed and not (through and event.writes):
        yield look


def _meanings(event: FileEvent, look: Look) -> Iterator[Look]:
    """Say what a call that worked did."""
    match event:
        case FileLookedUp():
            yield look._replace(until_end=event.how in _WATCHING, follows=event.how not in _NOT_FOLLOWING)
        case FileOpened():
            yield from _opened(event, look)
        case FileRead():
            held = event.how == "mmap"
            yield look._replace(how="mapped" if held else "read", until_end=held)
        case FileListed():
            yield look._replace(how="listed")
        case FileMapped():
            yield look._replace(how="changed", until_end=True)
            yield look._replace(how="mapped", until_end=True)
        case FileLinked(symbolic=True):
            yield look._replace(path=event.new_path, how="changed")
        case FileRenamed() | FileLinked():
            yield look._replace(how="changed")
            yield look._replace(path=event.new_path, how="changed")
        case _:
            yield look._replace(how="changed")
    yield from _found_empty(event, look)


def _found_empty(event: FileEvent, look: Look) -> Iterator[Look]:
    """Say which directory was learnt to be empty: it could not have been removed or replaced else.

    Whether a directory was replaced is not told. Where none was, nobody else can have changed what is in it.
    """
    match event:
        case FileDeleted(what=Kind.DIRECTORY):
            yield look
        case FileRenamed(exchange=False):
            yield look._replace(path=event.new_path)
        case _:
            return


def _refused(event: FileEvent, look: Look) -> Iterator[Look]:
    """Say what a call that failed met: of two names either may be why, and a directory that is not empty was there."""
    match event:
        case FileLinked(symbolic=True):  # its target is a text that nobody follows
            yield look._replace(path=event.new_path)
        case FileRenamed():
            yield look
            yield _seen_full(look._replace(path=event.new_path))
        case FileLinked():
            yield look
            yield look._replace(path=event.new_path)
        case FileDeleted(what=Kind.DIRECTORY):
            yield _seen_full(look)
        case _:
            yield look


def _seen_full(look: Look) -> Look:
    """Take the error away where it tells of what lies in a directory: that was looked at, and something is there."""
    return look._replace(error=None) if look.error in _NOT_EMPTY else look


class Met(NamedTuple):
    """What came of it."""

    touches: tuple[Touch, ...] = ()
    denied: tuple[DeniedLook, ...] = ()
    foreign: tuple[ForeignChange, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def without_foreign(
        self, observe: Callable[[Sequence[bytes]], Mapping[bytes, Observed]]
    ) -> Callable[[Sequence[bytes]], Mapping[bytes, Observed]]:
        """Take the end of what somebody else changed too for unknown: it does not say what the trial did."""
        foreign = frozenset(change.path for change in self.foreign)
        if not foreign:
            return observe

        def look(paths: Sequence[bytes]) -> Mapping[bytes, Observed]:
            states = observe(paths)
            return {
                path: Observed(before=state.before, after=_NOT_OURS) if path in foreign else state
                for path, state in states.items()
            }

        return look

    def unexplained(self, changed: Iterable[bytes]) -> Iterator[bytes]:
        """Leave out what others changed, and what the trial changed by another name of its place."""
        known = {change.path for change in self.foreign}
        known |= {touch.path for touch in self.touches if touch.how == "changed" and touch.error is None}
        return (path for path in changed if path not in known)


_NOT_OURS = FileState(
    kind=Kind.UNKNOWN, digest=None, mode=0, uid=0, gid=0, size_bytes=0, problem="somebody else changed it too"
)


class _Span:
    """From when to when one sort of contact lasted; contacts come in order of time."""

    __slots__ = ("first_ns", "last_ns", "numbers")

    def __init__(self, first_ns: int) -> None:
        self.first_ns = self.last_ns = first_ns
        self.numbers = Numbers()


class _Sorting:
    """One pass over all contacts."""

    def __init__(
        self, fold: LookFold, cast: Cast, links: ReadLinks, ended_ns: Callable[[ProcessKey | None], int]
    ) -> None:
        self._fold, self._cast, self._ended_ns = fold, cast, ended_ns
        declared = sorted(fold.declared, key=lambda event: event.n)
        self._shared = _Places([place for place in declared if not place.hidden])
        self._hidden = _Places([place for place in declared if place.hidden])
        self._shares = any(not place.hidden for place in declared)
        self._hides = any(place.hidden for place in declared)
        self._devices = frozenset(device for place in declared if not place.hidden for device in place.devices)
        self._masks = frozenset(device for place in declared if place.hidden for device in place.devices)
        self._leading = Leading(links)
        self._inodes: dict[tuple[int, int], bytes] = {}
        self._touched: dict[tuple[bytes, str, ProcessKey | None, int | None], _Span] = {}
        self._tried: dict[tuple[bytes, str, ProcessKey | None], tuple[Numbers, list[int | None]]] = {}
        self._doubts: list[Look] = []
        self._refused: list[Look] = []

    def sort(self, names: Mapping[int, tuple[bytes, bytes]]) -> Met:
        fold = self._fold
        for event in sorted(fold.links, key=lambda one: one.n):
            if event.error is not None:
                continue
            old, new = names.get(event.n, (event.path, event.new_path))
            if isinstance(event, FileLinked) and event.symbolic:
                self._leading.made(new, event.path)
                continue
            self._leading.moved(old, new)
            if isinstance(event, FileRenamed) and event.exchange:
                self._leading.moved(new, old)
        looks = [
            look
            for look in sorted(fold.looks, key=lambda one: (one.at_ns, one.number))
            if not self._cast.ignores(look.process, look.at_ns)
        ]
        for look in looks:
            if not look.by_name and (path := self._shared.find(look.path)) is not None:
                self._inodes[look.device, look.inode] = path
        self._leading.ask({look.path for look in looks if look.by_name and not self._is_near(look.path)})
        for look in looks:
            self._sort_one(look)
        return Met(touches=self._touches(), denied=self._denied(), foreign=self._others(), gaps=tuple(self._gaps()))

    def _is_near(self, path: bytes) -> bool:
        return self._shared.find(path) is not None or self._hidden.find(path) is not None

    def _sort_one(self, look: Look) -> None:
        # The kernel answered with what it found.
        device = look.device if look.by_name and look.verified else 0
        if device and self._devices and device not in self._devices | self._masks:
            paths: tuple[bytes, ...] = (look.path,)
            known = True
        else:
            paths, known = self._follow(look)
        seen = () if device and self._masks and device not in self._masks else paths
        hidden = next((path for name in seen if (path := self._hidden.find(name)) is not None), None)
        if hidden is not None:
            self._try(hidden, look)
            return
        shared = next((path for name in paths if (path := self._shared.find(name)) is not None), None)
        if shared is None and look.by_name:
            shared = self._inodes.get((look.device, look.inode)) if look.inode else None
        if shared is not None:
            self._touch(shared, look)
        elif look.by_name and not (look.verified and known):
            if self._shares:
                self._doubts.append(look)
            if self._hides and look.error == errno.EACCES:
                self._refused.append(look)

    def _follow(self, look: Look) -> tuple[tuple[bytes, ...], bool]:
        if not look.by_name:
            return (look.path,), True
        if look.follows:
            return self._leading.follow(look.path)
        above, last = posixpath.split(look.path)
        paths, known = self._leading.follow(above)
        return tuple(posixpath.join(path, last) for path in paths), known

    def _touch(self, path: bytes, look: Look) -> None:
        last_ns = self._ended_ns(look.process) if look.until_end else look.at_ns
        if look.how == "read":
            last_ns += READ_WINDOW_NS
        key = path, look.how, look.process, look.error
        span = self._touched.setdefault(key, _Span(look.at_ns))
        span.last_ns = max(span.last_ns, last_ns)
        span.numbers.add(look.number, look.at_ns)

    def _touches(self) -> tuple[Touch, ...]:
        touches = (
            Touch(
                path=path, how=how, process=process, error=error, first_ns=span.first_ns, last_ns=span.last_ns,
                events=span.numbers.values(),
            )
            for (path, how, process, error), span in self._touched.items()
        )  # fmt: skip
        return tuple(sorted(touches, key=lambda touch: (touch.path, touch.first_ns, touch.events)))

    def _try(self, path: bytes, look: Look) -> None:
        how = {"read": "opened", "mapped": "opened"}.get(look.how, look.how)
        numbers, errors = self._tried.setdefault((path, how, look.process), (Numbers(), []))
        numbers.add(look.number, look.at_ns)
        if look.error not in errors:
            errors.append(look.error)

    def _denied(self) -> tuple[DeniedLook, ...]:
        found = (
            DeniedLook(
                path=path, how=how, process=process, events=numbers.values(),
                error=None if None in errors else errors[0],
            )
            for (path, how, process), (numbers, errors) in self._tried.items()
        )  # fmt: skip
        return tuple(sorted(found, key=lambda one: one.events))

    def _others(self) -> tuple[ForeignChange, ...]:
        by_path: dict[bytes, list[PlaceChanged]] = {}
        for event in sorted(self._fold.foreign, key=lambda one: (one.seen_ns, one.n)):
            by_path.setdefault(self._shared.find(event.path) or event.path, []).append(event)
        return tuple(
            ForeignChange(
                path=path,
                changes=tuple(dict.fromkeys(event.change for event in events)),
                first_ns=min(event.since_ns for event in events),
                last_ns=max(event.seen_ns for event in events),
                events=tuple(sorted(event.n for event in events)),
            )
            for path, events in sorted(by_path.items())
        )

    def _gaps(self) -> Iterator[Gap]:
        if self._doubts and not self._touched:
            text = "look-ups that the trial could have made look like others, while a place was shared"
            yield _doubtful("unverified-look-ups", text, self._doubts, "separation")
        if self._refused:
            text = "refused, by names that do not say where they led, while something is not to be read"
            yield _doubtful("unverified-refusals", text, self._refused, "scope")
        for event in sorted(self._fold.unwatched, key=lambda one: one.n):
            text = f"{show(event.path)}: changes by others may have gone unseen: {event.why}"
            costs = frozenset({"separation", "finality"})
            yield Gap(route=Route.FILE, rule="unwatched-place", text=text, events=(event.n,), costs=costs)


def _doubtful(rule: str, text: str, looks: list[Look], cost: str) -> Gap:
    names = listed([show(path) for path in dict.fromkeys(look.path for look in looks)])
    events = tuple(sorted(look.number for look in looks)[:_NAMED_GAPS])
    return Gap(route=Route.FILE, rule=rule, text=f"{text}: {names}", events=events, costs=frozenset({cost}))
