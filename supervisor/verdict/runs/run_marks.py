"""What bears on pairs of runs beside paths: declarations, servers, credentials, locks, streams and gaps.

In: the heads of indexes; out: findings. `mark_pairs` tells every pair, `mark_units` only as many as form the units: the
two give the same components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

import msgspec

from supervisor.evidence.facts import Route
from supervisor.verdict.runs.findings import Finding
from supervisor.verdict.runs.locked import lock_meetings, with_lock_want
from supervisor.verdict.runs.placed import Placed, above, is_in, parent_of
from supervisor.verdict.runs.run_index import Mark, RunIndex, Secret, Server
from supervisor.verdict.runs.streamed import stream_keys, stream_meetings

DECLARED_DEPENDENCE = "declared-dependence"
"""The rule of what a policy says of two runs: the dependence is modelled, and removes no edge."""

_MADE = frozenset({"created", "written"})
_MET = frozenset({"read", "used", "passed", "leaked"})
_REACHING = frozenset({Route.NETWORK.value, Route.SERVICE.value, Route.CREDENTIAL.value})


def mark_pairs(heads: Sequence[RunIndex]) -> Iterator[Finding]:
    """Give every finding about every pair."""
    meetings = lock_meetings(heads)
    yield from meetings
    heads = with_lock_want(heads, meetings)
    for one, other in combinations(range(len(heads)), 2):
        yield from _between(heads, one, other)


def mark_units(heads: Sequence[RunIndex]) -> Iterator[Finding]:
    """Give findings that join what `mark_pairs` would join, in near-linear time."""
    meetings = lock_meetings(heads)
    yield from meetings
    heads = with_lock_want(heads, meetings)
    yield from _by_key(heads, _declared_keys)
    yield from _by_key(heads, _server_keys)
    yield from _by_key(heads, _secret_keys)
    yield from _by_key(heads, stream_keys)
    yield from _unproved_units(heads)
    yield from _later_units(heads)
    yield from _swept(heads)


def _between(heads: Sequence[RunIndex], one: int, other: int) -> Iterator[Finding]:
    pair = heads[one], heads[other]
    yield from _declared(heads, one, other)
    for run, beside in ((one, other), (other, one)):
        yield from _unproved(heads, run, beside)
        yield from _acting_later(heads, run, beside)
        yield from _in_want(heads, run, beside)
        yield from _secrets(heads, run, beside)
    yield from stream_meetings(heads, one, other)
    for mine in pair[0].servers:
        for theirs in pair[1].servers:
            yield from _server(heads, (one, mine), (other, theirs))


# -- one rule each -------------------------------------------------------------------------------------------------


def _declared(heads: Sequence[RunIndex], one: int, other: int) -> Iterator[Finding]:
    unit = heads[one].unit
    if unit != "run" and unit == heads[other].unit:
        text = f"both are declared to be of one {unit.replace(':', ' ')}: they are counted together"
        yield Finding(runs=(one, other), verdict="connected", rule="declared-stream", text=text)
    for run, beside in ((one, other), (other, one)):
        if heads[beside].run in heads[run].depends_on:
            text = f"{heads[run].run} is declared to depend on {heads[beside].run}: they are counted together"
            yield Finding(runs=(beside, run), verdict="connected", rule=DECLARED_DEPENDENCE, text=text)
    for third in sorted({*heads[one].depends_on}.intersection(heads[other].depends_on)):
        text = f"both are declared to depend on {third}: they are counted together"
        yield Finding(runs=(one, other), verdict="connected", rule=DECLARED_DEPENDENCE, text=text)


def _unproved(heads: Sequence[RunIndex], run: int, beside: int) -> Iterator[Finding]:
    index, name = heads[run], heads[run].run
    if index.problem is not None:
        text = f"{name}: {index.problem}; what it met and changed is not known"
        yield Finding(runs=(run, beside), verdict="unresolved", rule="run-without-proof", text=text)
    for gap in index.gaps:
        if _gap_reaches(gap, index, heads[beside]):
            text = f"{name}: {gap.route}: {gap.text}"
            yield Finding(
                runs=(run, beside), verdict="unresolved", rule=gap.rule, text=text, events=_numbered(name, gap)
            )


def _gap_reaches(gap: Mark, index: RunIndex, beside: RunIndex) -> bool:
    """Tell whether what a gap hides may have to do with another run: through the same place, or the same net."""
    if gap.route == Route.FILE.value:
        return any(_overlap(mine, theirs) for mine in _places(index) for theirs in (*_places(beside), *beside.reached))
    if gap.route in _REACHING:
        return bool(beside.servers or beside.secrets or any(other.route in _REACHING for other in beside.gaps))
    return True


def _acting_later(heads: Sequence[RunIndex], run: int, beside: int) -> Iterator[Finding]:
    for mark in heads[run].later:
        if heads[beside].ended_ns > heads[run].ended_ns:
            text = f"{heads[run].run} left something that acts later: {mark.text}"
            yield Finding(
                runs=(run, beside),
                verdict="unresolved",
                rule=mark.rule,
                text=text,
                events=_numbered(heads[run].run, mark),
            )


def _in_want(heads: Sequence[RunIndex], run: int, beside: int) -> Iterator[Finding]:
    index, other = heads[run], heads[beside]
    if index.contention and _at_once(index, other):
        mark = index.contention[0]
        text = f"{index.run} and {other.run} overlap, and the first was short of something: {mark.text}"
        yield Finding(
            runs=(beside, run), verdict="unresolved", rule="contention", text=text, events=_numbered(index.run, mark)
        )


def _secrets(heads: Sequence[RunIndex], run: int, beside: int) -> Iterator[Finding]:
    made = {secret.fingerprint: secret for secret in heads[run].secrets if secret.action in _MADE}
    for secret in heads[beside].secrets:
        if secret.action in _MET and secret.fingerprint in made:
            yield _secret(heads, (run, made[secret.fingerprint]), (beside, secret))


def _secret(heads: Sequence[RunIndex], maker: tuple[int, Secret], user: tuple[int, Secret]) -> Finding:
    text = f"{heads[maker[0]].run} made the credential {maker[1].name}, and {heads[user[0]].run} {user[1].action} it"
    events = (*_of(heads, maker[0], maker[1].events), *_of(heads, user[0], user[1].events))
    return Finding(runs=(maker[0], user[0]), verdict="connected", rule="credential-met", text=text, events=events)


def _server(heads: Sequence[RunIndex], one: tuple[int, Server], other: tuple[int, Server]) -> Iterator[Finding]:
    """Judge one server that both reached, by what both declare of it."""
    mine, theirs = one[1], other[1]
    same = not set(mine.keys).isdisjoint(theirs.keys)
    if not same and (mine.name is None or mine.name != theirs.name):
        return
    name, states = mine.name or mine.address, (mine.state, theirs.state)
    runs = (one[0], other[0])
    events = (*_of(heads, one[0], mine.events), *_of(heads, other[0], theirs.events))
    if not all(state in {"stateless", "per-run"} for state in states):
        text = (
            f"both used {name}, and what one left there the other may have met; "
            'a [[services]] entry with state = "stateless" or "per-run" says that it cannot'
        )
        yield Finding(runs=runs, verdict="unresolved", rule="service-shared", text=text, events=events)
    elif same and states == ("per-run", "per-run"):
        text = f"{name} is declared to be per run, but one server, {mine.address}, served both"
        yield Finding(runs=runs, verdict="unresolved", rule="service-not-per-run", text=text, events=events)
    else:
        declared = " and ".join(dict.fromkeys(str(state) for state in states))
        alone = (
            "" if not _at_once(*(heads[run] for run in runs)) else "; nor that neither had to wait for the other there"
        )
        yield Finding(
            runs=runs,
            verdict="separate",
            rule="service-declared",
            text=f"both used {name}, which is declared {declared}",
            events=events,
            assumption=f"{name} is {declared}, as declared; nobody witnessed it{alone}",
        )


# -- many runs -----------------------------------------------------------------------------------------------------


def _by_key(
    heads: Sequence[RunIndex], keys: Callable[[RunIndex], Iterator[tuple[str, bool, bool]]]
) -> Iterator[Finding]:
    """Join runs by keys: each with the hub of its key, and hubs with who only meets them.

    A key says whether its run makes others meet it, and whether it meets others. Where time decides, the first to make
    and the last to meet stand for all.
    """
    groups: dict[str, dict[int, tuple[bool, bool]]] = {}
    for run, head in enumerate(heads):
        for key, makes, meets in keys(head):
            made, met = groups.setdefault(key, {}).get(run, (False, False))
            groups[key][run] = (made or makes, met or meets)
    for group in groups.values():
        makers = sorted((run for run, (makes, _) in group.items() if makes), key=lambda run: heads[run].released_ns)
        meeting = sorted((run for run, (_, meets) in group.items() if meets), key=lambda run: heads[run].ended_ns)
        if not makers or not meeting:
            continue
        for run in meeting:
            yield from _joining(heads, makers[0], run)
        for run in makers:
            yield from _joining(heads, run, meeting[-1])


def _joining(heads: Sequence[RunIndex], one: int, other: int) -> Iterator[Finding]:
    if one != other:
        yield from (found for found in _between(heads, one, other) if found.verdict != "separate")


def _declared_keys(head: RunIndex) -> Iterator[tuple[str, bool, bool]]:
    if head.unit != "run":
        yield head.unit, True, True
    yield from ((f"depends {third}", True, True) for third in head.depends_on)
    yield f"depends {head.run}", True, False


def _server_keys(head: RunIndex) -> Iterator[tuple[str, bool, bool]]:
    for server in head.servers:
        trusted = server.state in {"stateless", "per-run"}
        for key in (*server.keys, *([f"name {server.name}"] if server.name else [])):
            yield key, not trusted, True
        if server.state == "per-run":
            yield from ((f"per-run {key}", True, True) for key in server.keys)


def _secret_keys(head: RunIndex) -> Iterator[tuple[str, bool, bool]]:
    for secret in head.secrets:
        yield secret.fingerprint, secret.action in _MADE, secret.action in _MET


def _unproved_units(heads: Sequence[RunIndex]) -> Iterator[Finding]:
    """Join what cannot be told apart with everything that it may have to do with.

    Of the runs that one gap reaches, the first to have it stands for all: the next ones are joined with that one.
    """
    everybody = range(len(heads))
    places = Placed((place, run) for run, head in enumerate(heads) for place in (*_places(head), *head.reached))
    hubs: dict[object, int] = {}
    for run, head in enumerate(heads):
        for gap in (*([Mark("", "")] if head.problem is not None else ()), *head.gaps):
            keys: list[tuple[object, Iterable[int]]] = [("all", everybody)]
            if gap.route == Route.FILE.value:
                keys = [((place,), places.overlapping(place)) for place in _places(head)]
            elif gap.route in _REACHING:
                keys = [("net", [beside for beside in everybody if _gap_reaches(gap, head, heads[beside])])]
            for key, beside in keys:
                hub = hubs.setdefault(key, run)
                for other in beside if hub == run else (hub,):
                    if other != run:
                        yield from list(_unproved(heads, run, other))[:1]


def _later_units(heads: Sequence[RunIndex]) -> Iterator[Finding]:
    """Join what acts later with what ended after it: the first of them to end with all, the others with the last."""
    acting = sorted((run for run, head in enumerate(heads) if head.later), key=lambda run: heads[run].ended_ns)
    last = max(range(len(heads)), key=lambda run: heads[run].ended_ns, default=0)
    for place, run in enumerate(acting):
        for beside in range(len(heads)) if place == 0 else (last,):
            if beside != run:
                yield from list(_acting_later(heads, run, beside))[:1]


def _swept(heads: Sequence[RunIndex]) -> Iterator[Finding]:
    """Join runs that overlap one that was in want, in the order of their starts.

    Of runs that are joined already, the one that lasts longest stands for all.
    """
    order = sorted(range(len(heads)), key=lambda run: (heads[run].released_ns, run))
    quiet: list[int] = []
    wanting: int | None = None
    for run in order:
        head = heads[run]
        if wanting is not None and heads[wanting].ended_ns <= head.released_ns:
            wanting = None
        if head.contention:
            quiet = [other for other in quiet if heads[other].ended_ns > head.released_ns]
            beside = [*quiet, *([] if wanting is None else [wanting])]
            for other in beside:
                yield from list(_in_want(heads, run, other))[:1]
            longest = max(beside, key=lambda other: heads[other].ended_ns, default=None)
            quiet = [] if longest is None or longest == wanting else [longest]
            if wanting is None or head.ended_ns > heads[wanting].ended_ns:
                wanting = run
        else:
            if wanting is not None:
                yield from list(_in_want(heads, wanting, run))[:1]
            quiet.append(run)


# -- small things --------------------------------------------------------------------------------------------------


def _places(index: RunIndex) -> tuple[bytes, ...]:
    """Give where file events tell what a run did: its places, and what it was given, which it may open anew."""
    own = (index.workspace,) if index.workspace else ()
    return (*index.places, *own, *dict.fromkeys(stream.path for stream in index.streams or ()))


class Reach:
    """Finds who met anything in the places of runs of which file events are missing: see `RunIndex.reached`.

    Give it every index once, by `begin`; it is a `supervisor.verdict.runs.meetings.Reader`.
    """

    def __init__(self, heads: Sequence[RunIndex]) -> None:
        """Begin."""
        hiding = (head for head in heads if any(gap.route == Route.FILE.value for gap in head.gaps))
        self._places = frozenset(place for head in hiding for place in _places(head))
        self._reached: dict[int, set[bytes]] = {}

    def begin(self, run: int, index: RunIndex) -> None:
        """Take an index."""
        if not self._places:
            return
        directories = {parent_of(contact.path) for contact in index.contacts} | {one.path for one in index.contacts}
        near = {top for path in directories for top in (path, *above(path))}
        self._reached[run] = near & self._places

    def go_on(self, run: int, index: RunIndex) -> None:
        """Take it again: nothing is left to be known."""

    def add_to(self, heads: Sequence[RunIndex]) -> list[RunIndex]:
        """Give the heads with what was found."""
        return [
            msgspec.structs.replace(head, reached=tuple(sorted(self._reached[run]))) if self._reached.get(run) else head
            for run, head in enumerate(heads)
        ]


def _at_once(one: RunIndex, other: RunIndex) -> bool:
    return one.released_ns < other.ended_ns and other.released_ns < one.ended_ns


def _overlap(one: bytes, other: bytes) -> bool:
    return is_in(one, other) or is_in(other, one)


def _numbered(run: str, mark: Mark) -> tuple[str, ...]:
    return tuple(f"{run}:{n}" for n in mark.events)


def _of(heads: Sequence[RunIndex], run: int, events: tuple[int, ...]) -> Iterator[str]:
    return (f"{heads[run].run}:{n}" for n in events)
