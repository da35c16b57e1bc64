"""Separation of runs, pair by pair. In: the indexes of runs; out: edges, and the units that they make.

The laws:

1. An edge needs an effect of one run that another one met; the same read-only input is none.
2. Whoever met a thing before another run first changed it, and changed nothing that the other met, is separate.
3. A reset parts two runs only if it was checked: the later one found what the earlier one had found, after everything
   of the earlier one had ended, and somebody else had put it there: what a run put back itself still shows when.
4. What a run with a problem, a gap or an unfinished effect did is not known: its edges are unresolved, never left out.
5. Units are the components over connected and unresolved edges.

Up to `FULL` runs every pair that shares something is told. Above it only the edges that form the units are: every group
of parties is then read once, in the order of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from supervisor.evidence.naming import show
from supervisor.values import dataclass
from supervisor.verdict.runs.between import Between
from supervisor.verdict.runs.findings import Edge, Finding, mildest
from supervisor.verdict.runs.grounds import further_names
from supervisor.verdict.runs.meetings import Group, Indexes, Party, Resource, gather
from supervisor.verdict.runs.run_index import Contact, RunIndex, head_of
from supervisor.verdict.runs.run_marks import Reach, mark_pairs, mark_units
from supervisor.verdict.runs.units import Components, components

FULL = 50
"""Up to how many runs every pair is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Separated:
    """The answer: ``units`` over run numbers.

    ``surely`` are the units if nothing that is unresolved joins. ``omitted`` counts findings that are not told because
    they join what is joined already.
    """

    units: list[list[int]]
    edges: list[Edge]
    surely: list[list[int]]
    omitted: int = 0

    @property
    def fewest(self) -> int:
        """How many units there are at least: what is unresolved joins."""
        return len(self.units)

    @property
    def most(self) -> int:
        """How many there are at most: what is unresolved joins nothing."""
        return len(self.surely)


def separate_pairs(heads: Sequence[RunIndex], indexes: Indexes, *, asked: int | None = None) -> Separated:
    """Judge runs against each other.

    Args:
        heads: the indexes in order; contacts may have been taken off to save memory.
        indexes: gives them whole, in the same order, each time that it is asked.
        asked: how many of them, the first ones, are asked about; the others can only lie in between. None: all.
    """
    material = _read(heads, indexes)
    found = _every_pair(material) if len(heads) <= FULL else _spanning(material)
    if asked is None or asked == len(heads):
        return found
    return _of_those_asked(material, found, asked)


class _Material(NamedTuple):
    """What pairs are judged from; no index is needed any more."""

    heads: Sequence[RunIndex]
    groups: list[Group]
    between: Between


def _read(heads: Sequence[RunIndex], indexes: Indexes) -> _Material:
    """Read every index twice."""
    heads = [head_of(head) if head.contacts else head for head in heads]
    add = further_names(heads)
    if add is not None:
        heads = [add(head) for head in heads]
    between, reach = Between(heads), Reach(heads)
    groups = gather(indexes if add is None else lambda: map(add, indexes()), between, reach)
    return _Material(reach.add_to(heads), groups, between)


# -- few runs: every pair ------------------------------------------------------------------------------------------


def _every_pair(material: _Material) -> Separated:
    heads, groups, between = material
    edges: dict[tuple[int, int], Edge] = {}
    for finding in (*_met_by_pairs(heads, groups), *between.pairs(), *mark_pairs(heads)):
        one, other = sorted(finding.runs)
        edges.setdefault((one, other), Edge((one, other))).findings.append(finding)
    joined = [key for key, edge in edges.items() if edge.verdict != "separate"]
    units = components(len(heads), joined)
    connected = [key for key in joined if edges[key].verdict == "connected"]
    _through_others(units, edges, set(joined))
    return Separated(
        units=units,
        edges=[edges[key] for key in sorted(edges)],
        surely=components(len(heads), connected),
    )


def _met_by_pairs(heads: Sequence[RunIndex], groups: Iterable[Group]) -> Iterator[Finding]:
    for group in groups:
        epochs = _epochs(heads, group)
        for number, epoch in enumerate(epochs):
            for later in epochs[number + 1 :]:
                yield from (_reset(heads, one, other) for one in epoch for other in later)
            for place, one in enumerate(epoch):
                for other in epoch[place + 1 :]:
                    yield from _relation(heads, group.resource, one, other)


def _relation(heads: Sequence[RunIndex], resource: Resource, one: Party, other: Party) -> Iterator[Finding]:
    """Say what two parties of one group are to each other."""
    found = [
        _meeting(heads, resource, cause, effect)
        for cause, effect in ((one, other), (other, one))
        if effect.meets(cause)
    ]
    yield from found
    for first, changer in ((one, other), (other, one)):
        if not found and changer.changed is not None and first.met is not None and resource is not Resource.ANYTHING:
            yield Finding(
                runs=(first.run, changer.run),
                verdict="separate",
                rule="met-before-it-changed",
                text=f"{heads[first.run].run} met {_name(first.met)} for the last time before "
                f"{heads[changer.run].run} first {_done(changer.changed, _name(changer.changed))}",
                events=(*_events(heads, first.run, first.met), *_events(heads, changer.run, changer.changed)),
            )


def _meeting(heads: Sequence[RunIndex], resource: Resource, cause: Party, effect: Party) -> Finding:
    earlier, later = heads[cause.run].run, heads[effect.run].run
    events = (*_events(heads, cause.run, cause.changed), *_events(heads, effect.run, effect.met))
    runs = (cause.run, effect.run)
    if resource is Resource.ANYTHING:
        where = show(heads[effect.run].workspace)
        text = (
            f"{earlier} left changes in {where}, where {later} worked afterwards: what it looked up there is not "
            "witnessed one by one; with `--commit never`, or a workspace of its own, each is separate"
        )
        return Finding(runs=runs, verdict="unresolved", rule="workspace-reused", text=text, events=events)
    what = "it" if effect.met and cause.changed and effect.met.path == cause.changed.path else _name(effect.met)
    text = f"{earlier} {_done(cause.changed, _name(cause.changed))}, and {later} {_done(effect.met, what, also=True)}"
    return Finding(runs=runs, verdict="connected", rule="met-a-change", text=text, events=events)


_DONE = {"changed": "changed {}", "listed": "listed {}", "looked": "looked {} up", "executed": "executed {}"}
_GIVEN = {"changed": "was given {} to write to", "read": "was given {} to read from"}


def _done(contact: Contact | None, what: str, *, also: bool = False) -> str:
    """Say what a run did with a thing; ``also``: after another one had changed it."""
    how = contact.how if contact is not None else ""
    given = contact is not None and contact.given
    did = _GIVEN[how].format(what) if given else _DONE.get(how, "read {}").format(what)
    if not also:
        return did
    return f"{did} too afterwards" if how == "changed" else f"{did} afterwards"


def _reset(heads: Sequence[RunIndex], one: Party, other: Party) -> Finding:
    text = (
        f"{heads[other.run].run} found {_name(other.changed or other.met)} as {heads[one.run].run} had found it, "
        "after everything of the earlier run had ended"
    )
    events = (*_events(heads, one.run, one.changed or one.met), *_events(heads, other.run, other.changed or other.met))
    return Finding(runs=(one.run, other.run), verdict="separate", rule="reset-checked", text=text, events=events)


def _epochs(heads: Sequence[RunIndex], group: Group) -> list[list[Party]]:
    """Part the parties of a path where it was shown to have been put back; others are one epoch."""

    def by_time(party: Party) -> tuple[int, int, int, bool, str]:  # what is equal in all of it can stand in any order
        head = heads[party.run]
        return party.first_ns, head.released_ns, head.ended_ns, party.changed is None, party.found(group.path) or ""

    parties = sorted(group.parties.values(), key=by_time)
    epochs: list[list[Party]] = [[]]
    baseline: str | None = None
    for party in parties:
        changers = [earlier for earlier in epochs[-1] if earlier.changed is not None]
        over = all(_over_ns(heads[earlier.run]) < heads[party.run].released_ns for earlier in epochs[-1])
        known = baseline is not None and group.path != b"" and party.found(group.path) == baseline
        if changers and over and known and not _shows_when(party, changers, group.path):
            epochs.append([])
        if not any(earlier.changed is not None for earlier in epochs[-1]) and party.changed is not None:
            baseline = party.found(group.path)
        epochs[-1].append(party)
    return epochs


def _shows_when(party: Party, changers: Iterable[Party], path: bytes) -> bool:
    """Tell whether a path bears the time at which one of those who changed it last did, so that nobody put it back."""
    touched_ns = party.touched_ns(path)
    changes = (changer.changed.times for changer in changers if changer.changed is not None)
    return any(times is not None and touched_ns == times[1] != 0 for times in changes)


def _over_ns(head: RunIndex) -> int:
    """Tell when nothing of a run could change anything any more."""
    return max(head.ended_ns, head.applied_ns)


def _of_those_asked(material: _Material, found: Separated, asked: int) -> Separated:
    """Leave out the runs that only lie in between, but for what they join."""
    heads, groups, between = material
    edges = {edge.runs: edge for edge in found.edges}
    if len(heads) > FULL >= asked:
        for finding in (*_met_by_pairs(heads, _parts(groups, asked)), *between.pairs(), *mark_pairs(heads[:asked])):
            one, other = sorted(finding.runs)
            if other < asked:
                edges.setdefault((one, other), Edge((one, other))).findings.append(finding)
        _through_others(found.units, edges, {key for key, edge in edges.items() if edge.verdict != "separate"}, asked)
    told = [edges[key] for key in sorted(edges) if asked > FULL or key[1] < asked]
    return Separated(
        units=_among(found.units, asked), edges=told, surely=_among(found.surely, asked), omitted=found.omitted
    )


def _parts(groups: Iterable[Group], asked: int) -> Iterator[Group]:
    for group in groups:
        parties = {run: party for run, party in group.parties.items() if run < asked}
        if len(parties) > 1:
            yield Group(group.resource, parties, group.path)


def _among(units: Iterable[Iterable[int]], asked: int) -> list[list[int]]:
    return [part for unit in units if (part := [run for run in unit if run < asked])]


def _through_others(
    units: list[list[int]],
    edges: dict[tuple[int, int], Edge],
    joined: set[tuple[int, int]],
    asked: int | None = None,
) -> None:
    """Name the runs in the middle for every pair of one unit that no finding joins directly."""
    near: dict[int, list[int]] = {}
    for one, other in sorted(joined):
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    direct = {pair: edges[pair].verdict for pair in joined}
    for unit in units if asked is None else _among(units, asked):
        for start in unit:
            paths = _paths(start, near)
            for end in (member for member in unit if member > start and (start, member) not in joined):
                steps = list(zip(paths[end], paths[end][1:], strict=False))
                weakest = mildest(direct[min(step), max(step)] for step in steps)
                edge = edges.setdefault((start, end), Edge((start, end)))
                edge.via = tuple(paths[end][1:-1])
                text = "through the runs in between: each met the one before it"
                edge.findings.append(Finding(runs=(start, end), verdict=weakest, rule="through-others", text=text))


def _paths(start: int, near: dict[int, list[int]]) -> dict[int, list[int]]:
    paths = {start: [start]}
    waiting = deque([start])
    while waiting:
        run = waiting.popleft()
        for neighbour in near.get(run, ()):
            if neighbour not in paths:
                paths[neighbour] = [*paths[run], neighbour]
                waiting.append(neighbour)
    return paths


# -- many runs: only what forms units ------------------------------------------------------------------------------


def _spanning(material: _Material) -> Separated:
    heads, groups, between = material
    sets, surely = Components(len(heads)), Components(len(heads))
    edges: dict[tuple[int, int], Edge] = {}
    omitted = 0
    grave_first = sorted(groups, key=lambda group: group.resource is Resource.ANYTHING)
    for finding in (*_met_in_order(heads, grave_first), *between.units(), *mark_units(heads)):
        if finding.verdict == "separate":
            continue
        joins = sets.join(*finding.runs)
        if finding.verdict == "connected":
            joins = surely.join(*finding.runs) or joins
        if joins:
            one, other = sorted(finding.runs)
            edges.setdefault((one, other), Edge((one, other))).findings.append(finding)
        else:
            omitted += 1
    units = sets.sets()
    return Separated(
        units=units,
        edges=[edges[key] for key in sorted(edges)],
        surely=surely.sets(),
        omitted=omitted,
    )


def _met_in_order(heads: Sequence[RunIndex], groups: list[Group]) -> Iterator[Finding]:
    """Give the meetings from which all others follow: with the first who changed, and with the last who met.

    If any party met any change, the last to meet has met the first change; so the two stand for all.
    """
    for group in groups:
        for epoch in _epochs(heads, group):
            changers = [party for party in epoch if party.changed is not None]
            meeting = [party for party in epoch if party.met is not None]
            if not changers or not meeting:
                continue
            first = min(changers, key=lambda party: (party.changed.first_ns if party.changed else 0, party.run))
            last = max(meeting, key=lambda party: (party.met.last_ns if party.met else 0, party.run))
            for party in epoch:
                if party is not first and party.meets(first):
                    yield _meeting(heads, group.resource, first, party)
                if party is not last and last.meets(party):
                    yield _meeting(heads, group.resource, party, last)


# -- words ---------------------------------------------------------------------------------------------------------


def _events(heads: Sequence[RunIndex], run: int, contact: Contact | None) -> Iterable[str]:
    return () if contact is None else (f"{heads[run].run}:{n}" for n in contact.events)


def _name(contact: Contact | None) -> str:
    return "it" if contact is None else show(contact.path)
