"""Writers who are no run, between runs: what a run found changed, and no run that is known had changed.

In: the heads of indexes, and the indexes whole, twice; out: findings. A change that nobody knows is told by the change
time, which whoever may write a file cannot set, and by another file, or nothing, where an earlier run had seen one.

The laws:

1. What was changed after a run had begun to change the same place may have come from that run: unknown writers read
   too. So the run that found it is unresolved with every such run, and with nobody else.
2. A change is known when a run that changed the path left it so. Where what it left was not recorded, a change of its
   time is.
3. What was put back to what was there before the other run changed anything carries nothing of it: that is told, and
   parts nobody.
4. The sight of a directory is that of its names and attributes. Outside of a run's own places it comes from who could
   change those: a run that worked in a place deeper inside, as in one of many workspaces side by side, could not.
5. A file outside of a run's own places may have come from whoever met it too, and changed anything anywhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from supervisor.evidence.file_facts import Sight
from supervisor.evidence.naming import listed, show
from supervisor.verdict.runs.findings import Finding
from supervisor.verdict.runs.placed import Placed, above, is_in, parent_of
from supervisor.verdict.runs.run_index import Contact, RunIndex

TICK_NS = 20_000_000
"""By how much a change time may lie before the event that tells of the change: two ticks of the coarsest clock."""

_AFTER_END_NS = 60_000_000_000
"""How long after its end a run may still have applied what it staged, where its index does not tell what it left."""

_FOR_EVER = 1 << 62
_SEVERAL = -1
_NAMED = 3

_Source = tuple[int, int]
"""Since when a run changed a place, and which run."""

_Spot = tuple[bytes, str]
"""Where something was seen, and what of it: all of a ``place``, or outside of those a ``directory`` or a ``file``."""


class _Seen(NamedTuple):
    """One path, as it was when a run began or at its end."""

    at_ns: int
    run: int
    sight: Sight


class _Changed(NamedTuple):
    """A span in which a run changed a path, or something in it."""

    first_ns: int
    last_ns: int
    run: int


class _Unknown(NamedTuple):
    """A path that a run found changed by nobody known.

    It may have come from runs that changed its place before ``before_ns``; not from those which did so at or after
    ``was_so_ns``, when it already was what was found. ``there``: anything was found.
    """

    path: bytes
    before_ns: int
    was_so_ns: int
    there: bool

    @property
    def bound_ns(self) -> int:
        """Before when a run has to have begun."""
        return min(self.before_ns, self.was_so_ns)


class Between:
    """Looks for such writers. Give it every index twice, by `begin` and then by `go_on`; then ask."""

    def __init__(self, heads: Sequence[RunIndex]) -> None:
        """Begin.

        Args:
            heads: see `supervisor.verdict.runs.run_index.head_of`.
        """
        self._heads = heads
        self._placed = Placed(
            (place, (since_ns, run)) for run, head in enumerate(heads) for place, since_ns in head.wrote
        )
        self._writers = sorted(
            (min(since_ns for _, since_ns in head.wrote), run) for run, head in enumerate(heads) if head.wrote
        )
        self._since = {run: since_ns for since_ns, run in self._writers}
        self._sources: dict[_Spot, list[_Source]] = {}
        self._met: dict[bytes, set[int]] = {}
        self._stamps: dict[int, int] = {}
        self._doubted: set[bytes] = set()
        self._wanted: set[bytes] = set()
        self._found: dict[bytes, list[_Seen]] = {}
        self._left: dict[bytes, list[_Seen]] = {}
        self._history: dict[bytes, list[_Seen]] = {}
        self._files: set[tuple[int, int]] = set()
        self._made: dict[tuple[int, ...], int] = {}
        self._changes: dict[bytes, list[_Changed]] = {}
        self._entries: dict[bytes, list[_Changed]] = {}
        self._events: dict[tuple[int, bytes], tuple[int, ...]] = {}

    # -- reading -------------------------------------------------------------------------------------------------

    def begin(self, run: int, index: RunIndex) -> None:
        """Find the paths that may have been changed by somebody else: all others are forgotten at once."""
        for sight in index.found:
            spot = self._spot(run, sight)
            # Who met a file is not known yet.
            sources = self._writers if spot[1] == "file" else self._sources_of(spot)
            if not sources:
                continue
            first_ns = next((since_ns for since_ns, source in sources if source != run), _FOR_EVER)
            stamp = hash(sight.stamp)
            if self._stamps.setdefault(hash(sight.path), stamp) != stamp or sight.ctime_ns + TICK_NS > first_ns:
                self._doubted.add(sight.path)
                self._files.add((sight.device, sight.inode))

    def go_on(self, run: int, index: RunIndex) -> None:
        """Collect what every run saw of those paths, and did to them."""
        if not self._doubted:
            return
        self._wanted = self._wanted or {one for path in self._doubted for one in (path, *above(path))}
        for sight in index.found:
            if sight.path in self._doubted:
                self._found.setdefault(sight.path, []).append(_Seen(index.released_ns, run, sight))
        for sight in index.left:
            if sight.inode and (sight.device, sight.inode) in self._files:
                made = self._made.setdefault(sight.stamp, run)
                self._made[sight.stamp] = run if made == run else _SEVERAL
            if sight.path in self._wanted:
                self._left.setdefault(sight.path, []).append(_Seen(index.left_ns, run, sight))
        for contact in index.contacts:
            if contact.path in self._doubted:
                self._meet(run, contact)
            if contact.how == "changed":
                self._change(run, contact)

    def _meet(self, run: int, contact: Contact) -> None:
        self._events.setdefault((run, contact.path), contact.events)
        if run in self._since:
            self._met.setdefault(contact.path, set()).add(run)

    def _change(self, run: int, contact: Contact) -> None:
        span = _Changed(contact.first_ns, contact.last_ns, run)
        if contact.path in self._wanted:
            self._changes.setdefault(contact.path, []).append(span)
        if not contact.given and (parent := parent_of(contact.path)) in self._wanted:
            self._entries.setdefault(parent, []).append(span)

    def _spot(self, run: int, sight: Sight) -> _Spot:
        """Give the place of a run that a path lies in; outside of them it stands for itself."""
        head = self._heads[run]
        inside = [place for place in (*head.places, head.workspace) if place and is_in(sight.path, place)]
        if inside:
            return max(inside, key=len), "place"
        return sight.path, "directory" if sight.is_directory else "file" if sight.inode else "place"

    def _sources_of(self, spot: _Spot) -> list[_Source]:
        """Give the runs that it may have come from, and since when; of a file that is known after `go_on`."""
        if spot not in self._sources:
            path, what = spot
            # Whoever changed a name in a directory had a place that holds it: the root of a place is a mount.
            near = self._placed.holding(path) if what == "directory" else self._placed.overlapping(path)
            also = ((self._since[run], run) for run in self._met.get(path, ()) if what == "file")
            self._sources[spot] = sorted({*near, *also})
        return self._sources[spot]

    # -- answering -------------------------------------------------------------------------------------------------

    def pairs(self) -> Iterator[Finding]:
        """Give a finding for every run that found something, and each that it may have come from."""
        for run, spot, unknown in self._unknown():
            for since_ns, source in self._sources_of(spot):
                if source == run:
                    continue
                carried = [one for one in unknown if since_ns < one.bound_ns]
                put_back = [one for one in unknown if one.there and one.bound_ns <= since_ns < one.before_ns]
                if carried:
                    yield self._finding(source, run, carried)
                elif put_back:
                    yield self._put_back(source, run, put_back)

    def units(self) -> Iterator[Finding]:
        """Give findings that join what `pairs` would join: each source once, and each run with the first of them."""
        joined: dict[_Spot, int] = {}
        for run, spot, unknown in self._unknown():
            sources = self._sources_of(spot)
            bound_ns = max(one.bound_ns for one in unknown)
            end = bisect_left(sources, (bound_ns, -1))
            start = min(joined.get(spot, 0), end)
            first = next((number for number in range(end) if sources[number][1] != run), None)
            for number in dict.fromkeys((*([first] if first is not None else []), *range(start, end))):
                if sources[number][1] != run:
                    yield self._finding(sources[number][1], run, [max(unknown, key=lambda one: one.bound_ns)])
            joined[spot] = max(joined.get(spot, 0), end)

    def _unknown(self) -> Iterator[tuple[int, _Spot, list[_Unknown]]]:
        """Give the paths that each run found changed by nobody known, by the place that they lie in."""
        by_run: dict[tuple[int, _Spot], list[_Unknown]] = {}
        for path in sorted(self._found):
            for seen in self._found[path]:
                spot = self._spot(seen.run, seen.sight)
                before_ns = self._when(path, seen)
                if before_ns is not None:
                    was_so_ns = self._was_so_ns(path, seen)
                    unknown = _Unknown(path, before_ns, was_so_ns, bool(seen.sight.inode))
                    by_run.setdefault((seen.run, spot), []).append(unknown)
        for (run, spot), found in sorted(by_run.items()):
            yield run, spot, found

    def _when(self, path: bytes, seen: _Seen) -> int | None:
        """Tell when the latest an unknown change of what a run found was made; None when all of it is known."""
        # What nobody finds at a path is told by its directory.
        names = (path,) if seen.sight.inode else tuple(above(path))
        left = [one for name in names for one in self._left.get(name, ()) if one.run != seen.run]
        if any(_same(one.sight, seen.sight) for one in left):
            return None
        changes = [
            span
            for spans in (self._changes.get(path, ()), *(self._entries.get(name, ()) for name in names))
            for span in spans
            if span.run != seen.run
        ]
        told = {one.run for one in left if one.at_ns <= seen.at_ns}
        changed_ns = seen.sight.ctime_ns + TICK_NS
        elsewhere = self._made.get(seen.sight.stamp, seen.run) != seen.run  # so left by a run, by another name
        if not elsewhere and not any(self._may_be(span, changed_ns) for span in changes if span.run not in told):
            sources = self._sources_of(self._spot(seen.run, seen.sight))
            if next((since_ns for since_ns, run in sources if run != seen.run), _FOR_EVER) < changed_ns:
                return changed_ns
        return self._replaced(path, seen, changes)

    def _replaced(self, path: bytes, seen: _Seen, changes: Sequence[_Changed]) -> int | None:
        """Tell when something that lay there in the sight of an earlier run was replaced at the latest; None: not."""
        earlier = self._earlier(path, seen)
        if earlier is None or _same(earlier.sight, seen.sight) or not (earlier.sight.inode or seen.sight.inode):
            return None
        moved = (span for name in above(path) for span in self._changes.get(name, ()))
        until_ns = max(seen.at_ns, self._heads[seen.run].left_ns)
        known = (
            span.first_ns <= until_ns and self._end_ns(span) >= earlier.at_ns
            for span in (*changes, *moved)
            if span.run != seen.run
        )
        return None if any(known) else seen.at_ns

    def _earlier(self, path: bytes, seen: _Seen) -> _Seen | None:
        """Give what another run saw of a path last, before this one."""
        if path not in self._history:
            sights = reversed((*self._left.get(path, ()), *self._found[path]))
            self._history[path] = sorted(sights, key=lambda one: (one.at_ns, one.run))
        history = self._history[path]
        until = bisect_right(history, seen.at_ns, key=lambda one: one.at_ns)
        return next((history[n] for n in range(until - 1, -1, -1) if history[n].run != seen.run), None)

    def _may_be(self, span: _Changed, at_ns: int) -> bool:
        return span.first_ns <= at_ns <= self._end_ns(span) + 2 * TICK_NS

    def _end_ns(self, span: _Changed) -> int:
        return max(span.last_ns, self._heads[span.run].left_ns or self._heads[span.run].ended_ns + _AFTER_END_NS)

    def _was_so_ns(self, path: bytes, seen: _Seen) -> int:
        """Tell since when it is known that a path once was what a run found."""
        if seen.sight.state is None:
            return _FOR_EVER
        same = (
            one.at_ns
            for one in (*self._found[path], *self._left.get(path, ()))
            if one is not seen and one.sight.state == seen.sight.state
        )
        return min(same, default=_FOR_EVER)

    # -- words -----------------------------------------------------------------------------------------------------

    def _finding(self, source: int, run: int, unknown: Sequence[_Unknown]) -> Finding:
        text = (
            f"{_names(unknown)}: changed by somebody who is no run that is known, after {self._heads[source].run} had "
            f"begun to change things, and {self._heads[run].run} found it so"
        )
        events = self._cited(run, unknown)
        return Finding(runs=(source, run), verdict="unresolved", rule="unknown-writer", text=text, events=events)

    def _put_back(self, source: int, run: int, unknown: Sequence[_Unknown]) -> Finding:
        text = (
            f"{_names(unknown)}: written by somebody who is no run that is known, and {self._heads[run].run} found it "
            f"as it was before {self._heads[source].run} changed anything there"
        )
        events = self._cited(run, unknown)
        return Finding(runs=(source, run), verdict="separate", rule="put-back-between", text=text, events=events)

    def _cited(self, run: int, unknown: Sequence[_Unknown]) -> tuple[str, ...]:
        numbers = (n for one in unknown[:_NAMED] for n in self._events.get((run, one.path), ()))
        return tuple(f"{self._heads[run].run}:{n}" for n in numbers)


def _same(one: Sight, other: Sight) -> bool:
    """Tell whether nothing was done between two sights; where nothing is, the directory's change time tells."""
    if one.inode and other.inode:
        return one.stamp == other.stamp
    return (one.device, one.ctime_ns) == (other.device, other.ctime_ns)


def _names(unknown: Sequence[_Unknown]) -> str:
    return listed([show(one.path) for one in unknown[:_NAMED]]) + (
        f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    )
