"""Uses of credentials. In: events in any order; out: one `CredentialUse` a credential, action and process.

The laws:

1. An attempt counts whether or not there was anything: ``denied`` is what was asked for and not given, because it was
   masked, refused or absent.
2. What is a credential is read from the log (`CredentialGuarded`); a log without it tells of none.
3. Attempts are no violation: ordinary programs look for their credentials. A decoy that is met elsewhere is one.
4. No value is here.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from supervisor.events import (
    CanaryLeaked,
    CanaryPlaced,
    ConnectionAllowed,
    ConnectionAttempted,
    ConnectionBlocked,
    ConnectionSinkholed,
    CredentialDropped,
    CredentialFound,
    CredentialGuarded,
    CredentialLooked,
    CredentialPassed,
    CredentialRedacted,
    DatagramBlocked,
    Event,
    FileCreated,
    FileDeleted,
    FileEvent,
    FileLinked,
    FileListed,
    FileLookedUp,
    FileOpened,
    FileRead,
    FileRenamed,
    FileWritten,
    NameAsked,
    ProcessKey,
    SyscallRefused,
)
from supervisor.evidence.bounded import Numbers
from supervisor.evidence.facts import Coverage, CredentialUse, Facts, Gap, Process, Route
from supervisor.evidence.guard import CANARY, FILE, Guard, Guarded
from supervisor.evidence.naming import show
from supervisor.evidence.processes import Cast
from supervisor.values import replace

READ, DENIED, WRITTEN, CREATED, PASSED, USED, LEAKED = (
    "read", "denied", "written", "created", "passed", "used", "leaked",
)  # fmt: skip

_DENYING = frozenset({errno.EPERM, errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EROFS, errno.ELOOP, errno.EXDEV})
"""What an attempt fails with where nothing is given. An attribute that a file lacks is none of it."""

DECOYS = "decoys"
"""What the decoys of a run are called together, as far as they only lie there."""

_WAITING = 50_000
"""How many events are kept until it is known what a credential is; a log tells it before the trial is released."""

_KEYRING = frozenset({"keyctl", "add_key", "request_key"})
_PRIVILEGE = frozenset(
    {
        "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "capset", "unshare", "clone",
        "setns",
    }
)  # fmt: skip
_PROC = re.compile(rb"/proc/(\d+)(?:/task/\d+)?/(environ|mem)")


def with_credentials(facts: Facts, events: Iterable[Event]) -> Facts:
    """Add what was recorded after the facts were collected: what was found in files and in what was sent."""
    fold = CredentialFold()
    handlers = fold.handlers()
    for event in events:
        if (handle := handlers.get(type(event))) is not None:
            handle(event)
    coverage = tuple(_with_gaps(entry, fold.gaps()) for entry in facts.coverage)
    return replace(facts, credentials=_in_order((*facts.credentials, *fold.recorded())), coverage=coverage)


def _with_gaps(entry: Coverage, gaps: tuple[Gap, ...]) -> Coverage:
    found = tuple(gap for gap in gaps if gap.route == entry.route)
    return replace(entry, gaps=(*entry.gaps, *found), complete=False) if found else entry


def _in_order(uses: Iterable[CredentialUse]) -> tuple[CredentialUse, ...]:
    return tuple(sorted(uses, key=lambda use: (use.events, use.name)))


class _Use(NamedTuple):
    """What makes two acts one use."""

    what: str
    name: str
    action: str
    process: ProcessKey | None
    violates: bool = False
    fingerprint: str | None = None
    where: str | None = None
    run: str | None = None


class CredentialFold:
    """Collects what was done with credentials."""

    def __init__(self) -> None:
        """Begin with none."""
        self._guarded: CredentialGuarded | None = None
        self._placed: list[CanaryPlaced] = []
        self._guard: Guard | None = None
        self._early: list[Event] = []
        self._looked_for: list[Event] = []
        self._uses: dict[_Use, Numbers] = {}
        self._memory: dict[tuple[ProcessKey | None, int, bytes, bool], Numbers] = {}

    @property
    def witnessed(self) -> bool:
        """Whether the log says what a credential is."""
        return self._guarded is not None

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        known: dict[type[Event], Callable[[Event], object]] = {
            CredentialGuarded: self._begin,
            CanaryPlaced: self._place,
            CredentialDropped: self._dropped,
            CredentialPassed: self._passed,
            CredentialRedacted: self._redacted,
            CredentialFound: self._found,
            CanaryLeaked: self._leaked,
            CredentialLooked: self._looked_for.append,
        }
        opens: dict[type[Event], Callable[[Event], object]] = {
            FileOpened: self._opened_file,
            FileWritten: self._wrote,
        }
        return known | dict.fromkeys(_ACTS, self._act) | opens

    # -- what there was --

    def _begin(self, event: Event) -> None:
        if isinstance(event, CredentialGuarded):
            self._guarded = event

    def _place(self, event: Event) -> None:
        if isinstance(event, CanaryPlaced):
            self._placed.append(event)
            self._add(_Use(CANARY, DECOYS, PASSED, None), event)

    def _dropped(self, event: Event) -> None:
        if isinstance(event, CredentialDropped):
            self._add(_Use("env", event.name, DENIED, None, fingerprint=event.fingerprint), event)

    def _passed(self, event: Event) -> None:
        if isinstance(event, CredentialPassed):
            self._add(_Use("env", event.name, PASSED, None, fingerprint=event.fingerprint), event)

    def _redacted(self, event: Event) -> None:
        if isinstance(event, CredentialRedacted):
            use = _Use("env", event.name, USED, event.process, fingerprint=event.fingerprint, where=event.where)
            self._add(use, event)

    def _found(self, event: Event) -> None:
        if isinstance(event, CredentialFound):
            where = f"in {show(event.path)}"
            if event.passed:
                use = _Use("env", event.sort, USED, event.process, fingerprint=event.fingerprint, where=where)
            else:
                use = _Use(FILE, f"{event.sort} {where}", WRITTEN, event.process, fingerprint=event.fingerprint)
            self._add(use, event)

    def _leaked(self, event: Event) -> None:
        if isinstance(event, CanaryLeaked):
            where = f"{event.where} ({event.encoding})"
            use = _Use(CANARY, event.form, LEAKED, event.process, violates=True, where=where, run=event.placed_by)
            self._add(use, event)

    # -- what the trial did --

    def _ready(self, event: Event) -> Guard | None:
        """Give what tells credentials from other things; until it is known, the event is kept."""
        if self._guard is None:
            if self._guarded is None or len(self._placed) < self._guarded.canaries:
                self._early += [event] if len(self._early) < _WAITING else []
            else:
                self._guard = Guard(self._guarded, self._placed)
        return self._guard

    def _act(self, event: Event) -> None:
        guard = self._guard or self._ready(event)
        if guard is not None:
            for use in _ACTS[type(event)](event, guard):
                self._add(use, event)

    def _opened_file(self, event: Event) -> None:
        """Take an open: there may be a million, of which hardly one is of a credential."""
        guard = self._guard or self._ready(event)
        if guard is None or not isinstance(event, FileOpened):
            return
        if event.path.startswith(b"/proc/"):
            self._proc(event)
        if guard.find(event.path) is not None:
            self._act(event)
        elif event.reads and event.error is None:
            linked = guard.find_linked(event.path, event.device, event.inode)
            if linked is not None:
                self._add(_Use(FILE, linked.name, READ, event.process, where=f"by the name {show(event.path)}"), event)

    def _wrote(self, event: Event) -> None:
        """Take a write, of which there may be as many."""
        guard = self._guard or self._ready(event)
        if guard is not None and isinstance(event, FileWritten) and guard.find(event.path) is not None:
            self._act(event)

    def _proc(self, event: FileOpened) -> None:
        if other := _PROC.fullmatch(event.path):
            key = (event.process, int(other[1]), other[2], event.error is not None)
            self._memory.setdefault(key, Numbers()).add(event.n, event.time_ns)

    def _add(self, use: _Use, event: Event) -> None:
        self._uses.setdefault(use, Numbers()).add(event.n, event.time_ns)

    def finish(self, cast: Cast, processes: Iterable[Process]) -> tuple[CredentialUse, ...]:
        """Build the uses, first one first. The box's own acts are none, nor is what a process reads of itself."""
        if self._guarded is None:
            return ()
        self._guard = self._guard or Guard(self._guarded, self._placed)
        early, self._early = self._early, []
        handlers = self.handlers()
        for event in early:
            handlers[type(event)](event)
        pids: dict[ProcessKey | None, int] = {process.key: process.pid for process in processes}
        for (process, pid, what, refused), numbers in self._memory.items():
            if pids.get(process) != pid:
                sort = "env" if what == b"environ" else "privilege"
                use = _Use(sort, f"/proc/{pid}/{what.decode()}", DENIED if refused else READ, process)
                self._uses.setdefault(use, numbers)
        return _in_order(self._finished(cast))

    def gaps(self) -> tuple[Gap, ...]:
        """Say where a decoy may lie that nobody looked for."""
        return tuple(
            Gap(
                route=Route.CREDENTIAL,
                rule="unsearched-files",
                text=f"{event.left_out} touched files were not searched to their end for decoys: {event.reason}",
                events=(event.n,),
                costs=frozenset({"scope", "separation"}),
            )
            for event in sorted(self._looked_for, key=lambda event: event.n)
            if isinstance(event, CredentialLooked) and event.decoys and event.left_out
        )

    def recorded(self) -> tuple[CredentialUse, ...]:
        """Build the uses that the supervisor recorded: they need nobody's word for who is who."""
        return tuple(_finished(use, numbers.values()) for use, numbers in self._uses.items())

    def _finished(self, cast: Cast) -> Iterator[CredentialUse]:
        for use, numbers in self._uses.items():
            kept = numbers.since(cast.released_ns if use.process == cast.main else None).values()
            if kept and use.process not in cast.outsiders:
                yield _finished(use, kept)


def _finished(use: _Use, events: tuple[int, ...]) -> CredentialUse:
    return CredentialUse(
        what=use.what,
        name=use.name,
        action=use.action,
        process=use.process,
        events=events,
        violates=use.violates,
        fingerprint=use.fingerprint,
        where=use.where,
        run=use.run,
    )


def _opened(event: Event, guard: Guard) -> Iterator[_Use]:
    if not isinstance(event, FileOpened) or not event.reachable or (found := guard.find(event.path)) is None:
        return
    if found.made_only and not event.writes:
        return
    did = _answer(event, READ, found)
    if event.reads and not found.made_only and did is not None:
        yield _Use(found.what, found.name, did, event.process)
    if event.writes and not event.reads and did == DENIED:
        yield _Use(found.what, found.name, DENIED, event.process)
    if event.created and event.error is None:
        yield _Use(found.what, found.name, CREATED, event.process)


def _looked(event: Event, guard: Guard) -> Iterator[_Use]:
    """A look that changes and opens nothing is an attempt where there was nothing to see, and a listing a read."""
    if not isinstance(event, FileEvent) or not event.reachable or (found := guard.find(event.path)) is None:
        return
    did = _answer(event, READ, found)
    if not found.made_only and (did == DENIED or (did == READ and not isinstance(event, FileLookedUp))):
        yield _Use(found.what, found.name, did, event.process)


def _written(event: Event, guard: Guard) -> Iterator[_Use]:
    if isinstance(event, FileEvent) and event.reachable:
        yield from _changing(event, guard.find(event.path), WRITTEN)


def _made(event: Event, guard: Guard) -> Iterator[_Use]:
    if isinstance(event, FileCreated):
        yield from _changing(event, guard.find(event.path), CREATED)


def _named(event: Event, guard: Guard) -> Iterator[_Use]:
    if isinstance(event, FileRenamed | FileLinked):
        yield from _changing(event, guard.find(event.new_path), CREATED)
    if isinstance(event, FileRenamed):
        yield from _changing(event, guard.find(event.path), WRITTEN)


def _changing(event: FileEvent, found: Guarded | None, action: str) -> Iterator[_Use]:
    if found is not None and (did := _answer(event, action)) is not None:
        yield _Use(found.what, found.name, did, event.process)


def _answer(event: FileEvent, action: str, found: Guarded | None = None) -> str | None:
    """Tell what came of an attempt: what was wanted, or nothing; None where it failed for a reason of its own."""
    if event.error is not None:
        return DENIED if event.error in _DENYING else None
    return DENIED if found is not None and found.masked else action


def _refused(event: Event, _guard: Guard) -> Iterator[_Use]:
    if isinstance(event, SyscallRefused) and event.name in _KEYRING | _PRIVILEGE:
        yield _Use("keyring" if event.name in _KEYRING else "privilege", event.name, DENIED, event.process)


def _connected(event: Event, guard: Guard) -> Iterator[_Use]:
    if isinstance(event, ConnectionAttempted) and event.path and (name := guard.socket(event.path)) is not None:
        yield _Use("agent", name, DENIED if event.error else USED, event.process)


def _sent(event: Event, guard: Guard) -> Iterator[_Use]:
    """A cloud's address for credentials that was tried: by the name that it went by, or the address."""
    if not isinstance(event, ConnectionBlocked | DatagramBlocked | ConnectionAllowed | ConnectionSinkholed):
        return
    host = None if isinstance(event, DatagramBlocked) else event.host
    for named in (host, event.ip):
        if named and guard.gives_credentials(named):
            yield _Use("metadata", named, USED if isinstance(event, ConnectionAllowed) else DENIED, event.process)
            return


def _asked(event: Event, guard: Guard) -> Iterator[_Use]:
    if isinstance(event, NameAsked) and guard.gives_credentials(event.name):
        yield _Use("metadata", event.name, USED if event.decision == "answered" else DENIED, event.process)


_ACTS: dict[type[Event], Callable[[Event, Guard], Iterator[_Use]]] = {
    FileOpened: _opened,
    FileRead: _looked,
    FileListed: _looked,
    FileLookedUp: _looked,
    FileWritten: _written,
    FileDeleted: _written,
    FileCreated: _made,
    FileRenamed: _named,
    FileLinked: _named,
    SyscallRefused: _refused,
    ConnectionAttempted: _connected,
    ConnectionBlocked: _sent,
    ConnectionAllowed: _sent,
    ConnectionSinkholed: _sent,
    DatagramBlocked: _sent,
    NameAsked: _asked,
}
"""What each kind of act says of what is guarded."""
