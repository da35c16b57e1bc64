"""Separation of a single run. In: its open effects and gaps; out: the routes that it leaves open.

A single run is never ``connected``: an edge needs an effect of one run met by another. ``separate`` means that no route
is open from here; one open route, or a gap on one, is ``unresolved``.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.types import FilesMode, Policy
from supervisor.evidence.facts import Facts, Route
from supervisor.verdict import services
from supervisor.verdict.completion import OpenEffect, OpenRoute, Reason, Separation
from supervisor.verdict.open_effects import IN_SHARED
from supervisor.verdict.situation import Situation

_COUNTING = "about counting runs, not about this one's label"


def judge_separation(situation: Situation, effects: tuple[OpenEffect, ...]) -> Separation:
    """Find the routes from this run to others that are open, or not known to be closed."""
    routes = tuple(
        OpenRoute(route=effect.route, text=effect.what, events=effect.events)
        for effect in effects
        if _reaches_runs(effect, situation)
    )
    reasons = (*_open(routes, situation.policy), *_gaps(situation))
    closed = () if reasons else (_closed(situation.facts),)
    return Separation(
        verdict="unresolved" if reasons else "separate",
        routes=routes,
        assumptions=(*services.assumptions(situation), *_assumptions(situation.facts)),
        reasons=(*reasons, *closed),
    )


def _reaches_runs(effect: OpenEffect, situation: Situation) -> bool:
    """A process reaches other runs only while it is alive; once the cgroup is empty it reaches none."""
    return "runs" in effect.could_affect or (effect.route == "process" and not situation.emptied)


def _open(routes: tuple[OpenRoute, ...], policy: Policy) -> Iterator[Reason]:
    for route in routes:
        text = f"{route.route}: {route.text}"
        if route.route == Route.FILE:  # what it means before what it names: a summary has no room for many names
            what, _, names = route.text.partition(": ")
            closing = "" if route.text.startswith(IN_SHARED) else f" ({_to_close(policy)})"
            text = f"{what}, which a later run can meet; {_COUNTING}: {names}{closing}"
        yield Reason(rule="open-route", text=text, events=route.events)


def _to_close(policy: Policy) -> str:
    """Say what would close the route through committed files."""
    direct = policy.files.mode is FilesMode.DIRECT
    return f"{'staged and ' if direct else ''}with `--commit never` they stay {'apart' if direct else 'staged'}"


def _gaps(situation: Situation) -> Iterator[Reason]:
    if not situation.sealed:
        yield Reason(rule="unsealed-log", text="the log was never sealed: it may be cut or still change", events=())
    if not situation.emptied:
        yield Reason(rule="not-emptied", text="nobody saw the trial empty", events=())
    for gap in situation.facts.gaps:
        if "separation" in gap.costs:
            yield Reason(rule=gap.rule, text=f"{gap.route}: {gap.text}", events=gap.events)


def _closed(facts: Facts) -> Reason:
    events = tuple(facts.timeline.events[k] for k in ("trial.released", "trial.emptied") if k in facts.timeline.events)
    text = "nothing of this run is alive, and no change of it stays where another run can meet it"
    return Reason(rule="no-open-route", text=text, events=events)


def _assumptions(facts: Facts) -> tuple[str, ...]:
    """List the routes that nobody witnesses: that nothing passes there is assumed, not shown."""
    return tuple(f"{entry.route}: {entry.note}" for entry in facts.coverage if not entry.witnesses and entry.note)
