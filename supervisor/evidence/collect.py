"""Events to facts, in one pass. In: events in any order, the policy, and two ways to look at the disk; out: `Facts`.

The rule it keeps: the same events give the same facts in whatever order they were delivered. Each fold keeps what it
needs in compact form; frozen values are made at the end only.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

from policies.types import Policy
from supervisor.events import (
    Event,
    EventsLost,
    MembershipLeft,
    ProcessKey,
    ProcessReached,
    TrialCounted,
)
from supervisor.evidence.bounded import bounded
from supervisor.evidence.captured import CaptureFold
from supervisor.evidence.contacts import ContactFold
from supervisor.evidence.coverage import Noted, cover, find_gaps
from supervisor.evidence.credentials import CredentialFold
from supervisor.evidence.facts import Facts, Gap, Loss, Outcome, Process, Timeline
from supervisor.evidence.file_facts import FileHistory, Observed, SharedNames
from supervisor.evidence.flows import FlowFold
from supervisor.evidence.given import StreamFold
from supervisor.evidence.graders.grades import GradeFold, ReferenceFold
from supervisor.evidence.held import HeldFold, add_decisions
from supervisor.evidence.limits import LimitFold
from supervisor.evidence.locks import LockFold
from supervisor.evidence.orders import OrderFold
from supervisor.evidence.paths.files import FileFold
from supervisor.evidence.paths.followed import Beginning, Followed
from supervisor.evidence.paths.histories import Draft, Historian
from supervisor.evidence.paths.leading import ReadLinks, no_links
from supervisor.evidence.paths.looks import LookFold
from supervisor.evidence.paths.reads import ReadFold
from supervisor.evidence.paths.reconcile import (
    BATCH,
    Copied,
    Explained,
    Found,
    before_gap,
    check_changed,
    check_history,
    doubt_gap,
    elsewhere_gap,
    overflow_gap,
    without_symlinks,
)
from supervisor.evidence.paths.sharing import place_gaps
from supervisor.evidence.paths.tree import Tree
from supervisor.evidence.places import Places
from supervisor.evidence.processes import Cast, ProcessFold
from supervisor.evidence.reached import Reached
from supervisor.evidence.requests import RequestFold
from supervisor.evidence.schedules import ScheduleFold
from supervisor.evidence.services import ServiceFold
from supervisor.evidence.timeline import TimelineFold
from supervisor.evidence.usage import UsageFold
from supervisor.values import replace

_FOR_EVER = 1 << 62

Observe = Callable[[Sequence[bytes]], Mapping[bytes, Observed]]
FindAliases = Callable[[bool], SharedNames]
"""Finds the names that share a file; the argument tells whether any was linked in the trial."""


def no_aliases(_linked: bool) -> SharedNames:  # noqa: FBT001 - see `FindAliases`
    """Find no two names of one file."""
    return SharedNames()


def collect(
    events: Iterable[Event],
    *,
    policy: Policy,
    workspace: bytes,
    observe: Observe,
    changed: Callable[[], Iterable[bytes]],
    aliases: FindAliases = no_aliases,
    beginning: Beginning = lambda _: None,
    links: ReadLinks = no_links,
) -> Facts:
    """Add events up to facts, and reconcile them with the final state.

    Args:
        events: of one trial; any order.
        policy: what was allowed and claimed.
        workspace: absolute, as the trial sees it.
        observe: gives the states before and after of absolute paths; one that it leaves out is not known.
        changed: gives every absolute path present in the stage.
        aliases: gives the names that share a file.
        beginning: gives the text of a symlink that was there before, and tells directories from the rest.
        links: gives the symlinks of the host among some paths.
    """
    with _no_garbage():
        return _collect(events, policy, workspace, _Disk(observe, changed, aliases, beginning, links))


class _Disk(NamedTuple):
    """The ways to look at the disk, see `collect`."""

    observe: Observe
    changed: Callable[[], Iterable[bytes]]
    aliases: FindAliases
    beginning: Beginning
    links: ReadLinks


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Keep the collector of reference cycles off: nothing here makes any, and looking for them costs a third."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _collect(
    events: Iterable[Event],
    policy: Policy,
    workspace: bytes,
    disk: _Disk,
) -> Facts:
    folds = _Folds(policy, workspace)
    count = folds.read(events)
    held, released_ns, losses = folds.timeline.held(), folds.timeline.released_ns(), folds.losses()
    cast = folds.processes.cast(held, released_ns, execs_lost=any(loss.hook == "exec" for loss in losses))
    line = folds.timeline.finish(folds.processes.exited_ns(cast.main))
    seen = {key for key in folds.files.processes if key is not None}
    processes = folds.processes.finish(cast, line.endpoint_ns, seen, _listed(line))
    flows = folds.flows.finish(cast, line.endpoint_ns)
    requests, unread = folds.requests.finish()
    contacts, noted = folds.contacts.contacts(cast), folds.noted(cast)
    lives = _Lives(processes, line)
    met = folds.looks.finish(cast, disk.links, lives.last_exit_ns, Followed(folds.files, disk.beginning).names)
    places = Places(policy, workspace, shared=folds.looks.shared(), looked_at=folds.grades.footprint())
    own = disk._replace(observe=met.without_foreign(disk.observe), changed=lambda: met.unexplained(disk.changed()))
    files, file_gaps = _collect_files(folds.files, cast, places, (line, processes, folds.reached(processes)), own)
    gaps = find_gaps(
        line=line,
        processes=processes,
        cast=cast,
        losses=losses,
        noted=noted,
        contacts=contacts,
        policy=policy,
    )
    return Facts(
        main=cast.main,
        timeline=line,
        processes=processes,
        files=files,
        flows=flows,
        requests=requests,
        unread=unread,
        contacts=contacts,
        coverage=cover(
            (*gaps, *file_gaps, *place_gaps(met, files, places, policy), *folds.credentials.gaps()),
            line,
            served=noted.gateway.started is not None,
            credentials=folds.credentials.witnessed,
        ),
        events=count,
        lost=sum(loss.count for loss in losses),
        losses=losses,
        refusals=folds.contacts.refusals(cast),
        outcome=_look_at_outcome(places, policy, disk.observe),
        executed=cast.executed,
        exec_error=folds.processes.exec_error(cast),
        limits=folds.limits.finish(processes, line),
        grades=folds.grades.runs(),
        references=folds.references.met(cast),
        settled_digest=folds.grades.settled_digest(),
        orders=folds.orders.orders(cast),
        decider=folds.orders.decider(cast),
        credentials=folds.credentials.finish(cast, processes),
        schedules=folds.schedules.finish(files),
        services=folds.services.finish(),
        usage=folds.usage.finish(),
        release=folds.held.finish(),
        captured=folds.captured.finish(),
        reads=folds.reads.finish(cast),
        touches=met.touches,
        denied=met.denied,
        foreign=met.foreign,
        locks=folds.locks.finish(cast, lives.last_exit_ns, folds.looks.named),
        streams=folds.streams.finish(),
    )


def with_release(facts: Facts, events: Sequence[Event]) -> Facts:
    """Add what was decided about what was held, and the requests that were sent then, as if they had been collected."""
    requests = RequestFold()
    for event in events:
        handle = requests.handlers().get(type(event))
        if handle is not None:
            handle(event)
    sent = bounded(sorted((*facts.requests, *requests.finish()[0]), key=lambda one: one.events))
    return replace(facts, requests=tuple(sent), release=add_decisions(facts.release, events))


def _listed(line: Timeline) -> tuple[ProcessKey, ...]:
    """Give the processes that the cgroup itself named at the boundaries: an account beside that of fork events."""
    return (*line.alive_at_endpoint, *line.alive_at_settled, *line.killed)


def _look_at_outcome(places: Places, policy: Policy, observe: Observe) -> Outcome | None:
    """Look at the path that the claim names, if it names one, whether or not anything happened to it."""
    path = places.outcome(policy.claim)
    if path is None:
        return None
    place = places.locate(path)
    observed = observe([path]).get(path) if place.observable else None
    return Outcome(path=place.shown, observed=observed)


def _both(first: Callable[[Event], object], second: Callable[[Event], object]) -> Callable[[Event], object]:
    """Give an event to two folds."""

    def give(event: Event) -> None:
        first(event)
        second(event)

    return give


class _Folds:
    """All folds, fed from one loop."""

    def __init__(self, policy: Policy, workspace: bytes) -> None:
        self.looks, self.locks = LookFold(policy), LockFold()
        self.timeline, self.processes, self.files = TimelineFold(), ProcessFold(), FileFold()
        self.grades, self.references = GradeFold(), ReferenceFold(policy, workspace)
        self.orders = OrderFold(policy, workspace)
        self.flows, self.contacts, self.limits, self.reads = FlowFold(), ContactFold(), LimitFold(), ReadFold()
        self.requests, self.held = RequestFold(), HeldFold()
        self.credentials, self.streams = CredentialFold(), StreamFold()
        self.schedules, self.services, self.usage = ScheduleFold(), ServiceFold(), UsageFold()
        self.captured = CaptureFold()
        self._lost: list[Event] = []
        self._left: list[Event] = []
        self._reached: list[Event] = []
        self._counted: list[Event] = []

    def read(self, events: Iterable[Event]) -> int:
        """Give every event to the fold that wants it; count them all."""
        handlers: dict[type[Event], Callable[[Event], object]] = {
            EventsLost: self._lost.append,
            MembershipLeft: self._left.append,
            ProcessReached: self._reached.append,
            TrialCounted: self._counted.append,
        }
        more = (self.looks, self.reads, self.requests, self.schedules, self.services, self.credentials, self.usage)
        named = (self.grades, self.references, self.orders, self.locks, self.held, self.streams, self.captured)
        for fold in (self.timeline, self.processes, self.files, self.flows, self.contacts, self.limits, *more, *named):
            for kind, handle in fold.handlers().items():
                handlers[kind] = _both(handlers[kind], handle) if kind in handlers else handle
        count = 0
        find = handlers.get
        for event in events:
            count += 1
            wanted = find(type(event))
            if wanted is not None:
                wanted(event)
        return count

    def losses(self) -> tuple[Loss, ...]:
        """Give the ranges of which events are missing."""
        return tuple(
            Loss(hook=e.hook, count=e.count, first_ns=e.first_ns, last_ns=e.last_ns, event=e.n)
            for e in sorted(self._lost, key=lambda event: event.n)
            if isinstance(e, EventsLost)
        )

    def reached(self, processes: tuple[Process, ...]) -> Reached:
        """Give since when the memory of each process proves nothing."""
        reaches = (e for e in self._reached if isinstance(e, ProcessReached))
        return Reached(reaches, processes, self.files.memories)

    def noted(self, cast: Cast) -> Noted:
        """Give what bears on the worth of all the other events."""
        left = [e for e in self._left if isinstance(e, MembershipLeft) and not cast.ignores(e.process, e.time_ns)]
        return Noted(
            departures=tuple(sorted(left, key=lambda event: event.n)),
            counted=next((e for e in self._counted if isinstance(e, TrialCounted)), None),
            cut=self.files.cut_events(cast),
            gateway=self.flows.account(),
            datagram_sockets=self.contacts.datagram_sockets(cast),
            watched=any(place.workspace and place.watched for place in self.looks.declared),
        )


def _collect_files(
    fold: FileFold,
    cast: Cast,
    places: Places,
    trial: tuple[Timeline, tuple[Process, ...], Reached],
    disk: _Disk,
) -> tuple[tuple[FileHistory, ...], tuple[Gap, ...]]:
    """Write every history and check it against the disk, a batch at a time; then what changed without a history."""
    line, processes, reached = trial
    observe = disk.observe
    shared = disk.aliases(fold.linked)
    tree = Tree(fold, cast, shared)
    fold.forget_index()
    historian = Historian(
        fold,
        tree,
        line,
        _Lives(processes, line).last_exit_ns,
        shown=lambda path: places.locate(path).shown,
        reached=reached,
    )
    explained = Explained(tree.boxed_paths())
    histories: list[FileHistory] = []
    found: list[Found] = []
    doubted: list[tuple[bytes, tuple[int, ...]]] = []
    unknown_before: list[FileHistory] = []
    copied = Copied(tree, lambda: _touched(fold, tree), shared)
    for path, draft in _write_histories(fold, tree, places, historian, observe):
        histories.append(draft.history)
        explained.add(path, draft)
        gap = check_history(path, draft, copied.moves, observe)
        found += [(path, gap)] if gap else []
        if _lacks_before(draft.history):
            unknown_before.append(draft.history)
        if draft.unconfirmed and places.restricts(draft.history):
            doubted.append((draft.history.path, draft.history.events))
    found += check_changed(disk.changed(), explained, copied, places, observe)
    gaps = (
        *without_symlinks(found, explained, places, observe),
        *doubt_gap(doubted),
        *before_gap(unknown_before),
        *overflow_gap(tree),
        *elsewhere_gap(tree, places),
    )
    return tuple(histories), gaps


def _lacks_before(history: FileHistory) -> bool:
    """Tell whether a file of the workspace was changed, and nobody knows what it was."""
    before = history.before
    return bool(history.changes) and history.in_workspace and before is not None and before.problem is not None


def _write_histories(
    fold: FileFold, tree: Tree, places: Places, historian: Historian, observe: Observe
) -> Iterator[tuple[bytes, Draft]]:
    known = sorted(tree.known(), key=fold.paths.__getitem__)
    ids = [path for path in known if not fold.is_nameless(path) or tree.present(path) is not None]
    for start in range(0, len(ids), BATCH):
        batch = [(path, fold.paths[path], places.locate(fold.paths[path])) for path in ids[start : start + BATCH]]
        came_from = ((path, tree.origin(path)) for path, _, _ in batch)
        origins = {path: fold.paths[origin] for path, origin in came_from if origin is not None and origin >= 0}
        seen = {name for _, name, place in batch if place.observable}
        states = observe(sorted(seen.union(origins.values()))) if seen or origins else {}
        for path, name, place in batch:
            observed = states.get(name) if name in seen else None
            draft = historian.write(path, place, observed, states.get(origins.get(path, b"")))
            if draft is not None:
                yield name, draft


def _touched(fold: FileFold, tree: Tree) -> Iterator[bytes]:
    """Give every path to which anything happened, or was tried, or that was opened for writing."""
    yield from (fold.paths[path] for path in chain(tree.known(), fold.opened))
    yield from tree.boxed_paths()


class _Lives:
    """Until when the mappings of a process can be written: it, or a child that inherited them, may be the last."""

    def __init__(self, processes: tuple[Process, ...], line: Timeline) -> None:
        self._end = {p.key: p.exited_ns or line.emptied_ns or _FOR_EVER for p in processes}
        for process in reversed(processes):  # children start after their parents
            if process.parent in self._end:
                self._end[process.parent] = max(self._end[process.parent], self._end[process.key])

    def last_exit_ns(self, key: ProcessKey | None) -> int:
        """Tell when the last one of a process and its descendants ended."""
        return self._end.get(key, _FOR_EVER) if key else _FOR_EVER
