"""What one run of a grader says, and what the possible states of open effects say together. In: facts and policy.

The laws:

1. Exit code 0 is a success and 1 a failure; JSON on stdout can only lower that: ``"passed": false`` makes a success a
   failure, a ``passed`` that is neither true nor false makes it none. Anything else is no label.
2. Possible states bound an effect only when every combination of them could be made and graded, and all have one label.
3. A live process whose writes are not restricted is bounded by nothing: no list of states is all that it could do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from policies.types import Policy
from policies.wildcards import matches
from supervisor.evidence.facts import Facts
from supervisor.evidence.said import GradeRun
from supervisor.values import dataclass

SUCCESS, FAILURE = "success", "failure"

_SHELL_SAYS = {
    125: "it failed by itself (125)",
    126: "its command cannot be run (126)",
    127: "its command was not found (127)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundFound:
    """What the possible states of open effects say together.

    Attributes:
        label: the one that all combinations have, None when they differ or one has none.
        differing: what each combination was labelled, when they differ.
    """

    label: str | None
    effects: tuple[str, ...]
    differing: tuple[str, ...]
    events: tuple[int, ...]

    def covers(self, route: str, what: str) -> bool:
        """Tell whether an effect is one of those whose possible states were declared."""
        for effect in self.effects:
            named, _, glob = effect.partition(":")
            if named == route and matches(what, f"*{glob}*"):
                return True
        return False


def label_of(run: GradeRun) -> tuple[str | None, str]:
    """Give the label of one run, or None and why it has none."""
    if run.problem is not None:
        return None, run.problem
    if run.exit_code == 1 or (run.exit_code == 0 and run.passed is False):
        return FAILURE, ""
    if run.exit_code == 0:
        return (None, "it said that it cannot tell") if run.undecided else (SUCCESS, "")
    if run.signal is not None:
        return None, f"it died of signal {run.signal}"
    return None, _SHELL_SAYS.get(run.exit_code or 0, f"it exited with {run.exit_code}")


def read_bound(facts: Facts, policy: Policy) -> BoundFound | None:
    """Read what the possible states say; None when none were declared."""
    states = policy.grade.states
    if not states:
        return None
    runs = [run for run in facts.grades if run.state.startswith("bound:")]
    effects = tuple(dict.fromkeys(state.effect for state in states))
    expected = math.prod(sum(1 for state in states if state.effect == effect) for effect in effects)
    labels = [label_of(run)[0] for run in runs]
    events = tuple(n for run in runs for n in run.events)
    one = set(labels) if len(runs) == expected else {None}
    if len(one) == 1 and None not in one:
        return BoundFound(label=labels[0], effects=effects, differing=(), events=events)
    told = [f"{_named(run.applied, policy)}: {label or 'no label'}" for run, label in zip(runs, labels, strict=True)]
    if len(runs) < expected:
        told.append(f"{expected - len(runs)} of {expected} could not be made")
    return BoundFound(label=None, effects=effects, differing=tuple(told), events=events)


def _named(places: Iterable[int], policy: Policy) -> str:
    states = policy.grade.states
    return " and ".join(f"{states[place].effect}: {states[place].reason}" for place in places if place < len(states))
