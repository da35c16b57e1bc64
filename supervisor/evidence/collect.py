"""Events to facts, in one pass. In: events in any order, the policy, and two ways to look at the disk; out: `Facts`.

The rule it keeps: the same events give the same facts in whatever order they were delivered. Each fold keeps what it
needs in compact form; frozen values are made at the end only.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from policies.types import Policy
from supervisor.events import Event, EventsLost, MembershipLeft, ProcessKey
from supervisor.evidence.contacts import ContactFold
from supervisor.evidence.coverage import cover, find_gaps
from supervisor.evidence.facts import Facts, FileHistory, Gap, Loss, Observed, Process, Timeline
from supervisor.evidence.files import FileFold
from supervisor.evidence.flows import FlowFold
from supervisor.evidence.histories import Draft, Historian
from supervisor.evidence.limits import LimitFold
from supervisor.evidence.places import Places
from supervisor.evidence.processes import Cast, ProcessFold
from supervisor.evidence.reconcile import (
    BATCH,
    Explained,
    Found,
    check_changed,
    check_history,
    overflow_gap,
    without_symlinks,
)
from supervisor.evidence.timeline import TimelineFold
from supervisor.evidence.tree import Tree

_FOR_EVER = 1 << 62

Observe = Callable[[Sequence[bytes]], Mapping[bytes, Observed]]


def collect(
    events: Iterable[Event],
    *,
    policy: Policy,
    workspace: bytes,
    observe: Observe,
    changed: Callable[[], Iterable[bytes]],
) -> Facts:
    """Add events up to facts, and reconcile them with the final state.

    Args:
        events: of one trial; any order.
        policy: what was allowed and claimed.
        workspace: absolute, as the trial sees it.
        observe: gives the states before and after of absolute paths; one that it leaves out is not known.
        changed: gives every absolute path present in the stage.
    """
    with _no_garbage():
        return _collect(events, policy, workspace, observe, changed)


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
    observe: Observe,
    changed: Callable[[], Iterable[bytes]],
) -> Facts:
    folds = _Folds()
    count = folds.read(events)
    held, released_ns = folds.timeline.held(), folds.timeline.released_ns()
    cast = folds.processes.cast(held, released_ns)
    line = folds.timeline.finish(folds.processes.exited_ns(cast.main))
    seen = {key for key in folds.files.processes if key is not None}
    processes = folds.processes.finish(cast, line.endpoint_ns, seen)
    contacts, losses = folds.contacts.contacts(cast), folds.losses()
    files, file_gaps = _collect_files(folds.files, cast, Places(policy, workspace), line, processes, observe, changed)
    gaps = find_gaps(
        line=line,
        processes=processes,
        cast=cast,
        losses=losses,
        departures=folds.departures(),
        contacts=contacts,
        policy=policy,
        datagram_sockets=folds.contacts.datagram_sockets(cast),
    )
    return Facts(
        main=cast.main,
        timeline=line,
        processes=processes,
        files=files,
        flows=folds.flows.finish(cast),
        contacts=contacts,
        coverage=cover((*gaps, *file_gaps), line),
        events=count,
        lost=sum(loss.count for loss in losses),
        losses=losses,
        refusals=folds.contacts.refusals(cast),
        limits=folds.limits.finish(processes, line),
    )


class _Folds:
    """All folds, fed from one loop."""

    def __init__(self) -> None:
        self.timeline, self.processes, self.files = TimelineFold(), ProcessFold(), FileFold()
        self.flows, self.contacts, self.limits = FlowFold(), ContactFold(), LimitFold()
        self._lost: list[Event] = []
        self._left: list[Event] = []

    def read(self, events: Iterable[Event]) -> int:
        """Give every event to the fold that wants it; count them all."""
        handlers: dict[type[Event], Callable[[Event], object]] = {
            EventsLost: self._lost.append,
            MembershipLeft: self._left.append,
        }
        for fold in (self.timeline, self.processes, self.files, self.flows, self.contacts, self.limits):
            handlers.update(fold.handlers())
        count = 0
        find = handlers.get
        for event in events:
            count += 1
            handle = find(type(event))
            if handle is not None:
                handle(event)
        return count

    def losses(self) -> tuple[Loss, ...]:
        """Give the ranges of which events are missing."""
        return tuple(
            Loss(hook=e.hook, count=e.count, first_ns=e.first_ns, last_ns=e.last_ns, event=e.n)
            for e in sorted(self._lost, key=lambda event: event.n)
            if isinstance(e, EventsLost)
        )

    def departures(self) -> tuple[MembershipLeft, ...]:
        """Give the moves out of the trial."""
        return tuple(e for e in sorted(self._left, key=lambda event: event.n) if isinstance(e, MembershipLeft))


def _collect_files(
    fold: FileFold,
    cast: Cast,
    places: Places,
    line: Timeline,
    processes: tuple[Process, ...],
    observe: Observe,
    changed: Callable[[], Iterable[bytes]],
) -> tuple[tuple[FileHistory, ...], tuple[Gap, ...]]:
    """Write every history and check it against the disk, a batch at a time; then what changed without a history."""
    tree = Tree(fold, cast)
    historian = Historian(fold, tree, line, _Lives(processes, line).last_exit_ns)
    explained = Explained(tree.boxed_paths())
    histories: list[FileHistory] = []
    found: list[Found] = []
    for path, draft in _write_histories(fold, tree, places, historian, observe):
        histories.append(draft.history)
        explained.add(path, draft)
        gap = check_history(draft)
        found += [(path, gap)] if gap else []
    found += check_changed(changed(), explained, tree, places, observe)
    gaps = (*without_symlinks(found, explained, places, observe), *overflow_gap(tree))
    return tuple(histories), gaps


def _write_histories(
    fold: FileFold, tree: Tree, places: Places, historian: Historian, observe: Observe
) -> Iterator[tuple[bytes, Draft]]:
    known = sorted(tree.by_path, key=fold.paths.__getitem__)
    ids = [path for path in known if path in tree.present or not fold.nameless(path)]
    for start in range(0, len(ids), BATCH):
        batch = [(path, fold.paths[path], places.locate(fold.paths[path])) for path in ids[start : start + BATCH]]
        origins = {path: fold.paths[tree.origin[path]] for path, _, _ in batch if tree.origin.get(path, -1) >= 0}
        seen = {name for _, name, place in batch if place.observable}
        states = observe(sorted(seen.union(origins.values()))) if seen or origins else {}
        for path, name, place in batch:
            observed = states.get(name) if name in seen else None
            draft = historian.write(path, place, observed, states.get(origins.get(path, b"")))
            if draft is not None:
                yield name, draft
            del tree.by_path[path]


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
