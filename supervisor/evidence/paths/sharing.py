"""What shared places cost: who else wrote there, and what was not captured. In: contacts and histories; out: gaps."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from policies.types import PeriodKind, Policy
from supervisor.evidence.facts import Gap, Route
from supervisor.evidence.file_facts import FileHistory
from supervisor.evidence.naming import listed, show
from supervisor.evidence.paths.looks import Met
from supervisor.evidence.places import Places


def place_gaps(met: Met, files: Sequence[FileHistory], places: Places, policy: Policy) -> Iterator[Gap]:
    """Say what is not known because others, too, can write where the trial did."""
    yield from met.gaps
    yield from _foreign(met, places)
    yield from _uncaptured(files, policy)


def _foreign(met: Met, places: Places) -> Iterator[Gap]:
    """Say where somebody whom nobody watches wrote what the claim is about, or what the trial met."""
    touched = frozenset(touch.path for touch in met.touches)
    for change in met.foreign:
        place = places.locate(change.path)
        costs = {"finality"} if place.in_scope else set()
        if change.path in touched or posixpath.dirname(change.path) in touched:
            costs.add("separation")
        if costs:
            text = f"{show(place.shown)}: somebody else changed it ({', '.join(change.changes)})"
            yield Gap(route=Route.FILE, rule="foreign-writer", text=text, events=change.events, costs=frozenset(costs))


def _uncaptured(files: Sequence[FileHistory], policy: Policy) -> Iterator[Gap]:
    """Say which part of the claim was changed after the endpoint in shared places, of which no snapshot is taken."""
    late = [history for history in files if history.shared and history.in_scope and history.written_after]
    if late and policy.claim.period.kind is not PeriodKind.EVENTUALLY:
        names = listed([show(history.path) for history in late])
        text = f"changed after the endpoint in a shared place, of which no state at the endpoint is kept: {names}"
        events = tuple(number for history in late for number in history.events[-1:])
        costs = frozenset({"finality"})
        yield Gap(route=Route.FILE, rule="uncaptured-place", text=text, events=events, costs=costs)
