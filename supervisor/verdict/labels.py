"""What a grader's runs are worth. In: facts and policy; out: one `Grade` for the state that the claim is about.

The laws:

1. Exit code 0 is a success and 1 a failure; JSON on stdout can only lower that: ``"passed": false`` makes a success a
   failure, a ``passed`` that is neither true nor false makes it none. Anything else is no label.
2. No label when the grader failed one of its examples, when the trial met its reference material, when it ran a file
   that the trial wrote without that being declared, or when two runs on one state differ.
3. A possible state bounds an effect only if it could be made and graded; one that could not bounds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

from policies.globs import compile_globs
from policies.types import PeriodKind, Policy
from supervisor.evidence.facts import Facts, GradeRun
from supervisor.evidence.naming import listed, show
from supervisor.verdict.situation import Situation

SUCCESS, FAILURE = "success", "failure"

_SHELL_SAYS = {
    125: "it failed by itself (125)",
    126: "its command cannot be run (126)",
    127: "its command was not found (127)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What a declared grader said of the state that the claim is about.

    Attributes:
        label: ``success``, ``failure``, or None when it gave none (``cause`` then says why).
        at_ns: when that state was, CLOCK_BOOTTIME.
        digest: of that state.
        rule: of why there is no label.
        said: what it said in JSON, and ``reason`` the words among it.
    """

    label: str | None
    at_ns: int
    digest: str | None = None
    cause: str | None = None
    rule: str = "no-label"
    events: tuple[int, ...] = ()
    said: str | None = None
    reason: str | None = None


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
            if named == route and (not glob or fnmatchcase(what, glob)):
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


def claimed_runs(facts: Facts, policy: Policy) -> tuple[GradeRun, ...]:
    """Give the runs on the state that the claim is about: its snapshot where one was graded, else the settled one."""
    kind = policy.claim.period.kind
    preferred = {PeriodKind.ENDPOINT: "endpoint", PeriodKind.WITHIN: "within"}.get(kind, "settled")
    found = tuple(run for run in facts.grades if run.state == preferred)
    return found or tuple(run for run in facts.grades if run.state == "settled")


def read_grade(situation: Situation) -> Grade | None:
    """Read what the grader said; None when the policy declares none."""
    facts, policy = situation.facts, situation.policy
    if policy.grade.command is None:
        return None
    runs = claimed_runs(facts, policy)
    at_ns, digest = _moment(situation, runs)
    refused = next(
        chain(_selftests(facts, policy), _references(facts), _repeats(runs), _trial_code(facts, policy, runs)), None
    )
    first = runs[0] if runs else None
    label = label_of(first)[0] if first else None
    if refused is None and label is not None and first is not None:
        events = tuple(n for run in runs for n in run.events)
        return Grade(label=label, at_ns=at_ns, digest=digest, events=events, said=first.said, reason=first.reason)
    rule, cause, events = refused or ("no-label", "it was never run", ())
    return Grade(label=None, at_ns=at_ns, digest=digest, rule=rule, cause=cause, events=events)


def _moment(situation: Situation, runs: tuple[GradeRun, ...]) -> tuple[int, str | None]:
    line = situation.facts.timeline
    digest = runs[0].digest if runs else situation.facts.settled_digest
    captured = line.snapshots if runs and runs[0].state != "settled" else ()
    taken = next((snapshot for snapshot in reversed(captured) if snapshot.digest == digest), None)
    return (taken.at_ns if taken else line.emptied_ns or line.endpoint_ns or 0), digest


_Refused = tuple[str, str, tuple[int, ...]]


def _selftests(facts: Facts, policy: Policy) -> Iterator[_Refused]:
    ran = {run.state: run for run in facts.grades}
    for place, example in enumerate(policy.grade.selftest):
        run = ran.get(f"selftest:{place}")
        label, why = (None, "it was never run on it") if run is None else label_of(run)
        if label != example.expect.value:
            said = label or f"no label: {why}"
            text = f"it failed its example {example.outcome}: expected {example.expect.value}, got {said}"
            yield "selftest-failed", text, run.events if run else ()


def _references(facts: Facts) -> Iterator[_Refused]:
    if facts.references:
        names = listed([show(met.path) for met in facts.references])
        events = tuple(n for met in facts.references for n in met.events[:2])
        yield "reference-opened", f"the trial opened its reference material: {names}", events


def _repeats(runs: tuple[GradeRun, ...]) -> Iterator[_Refused]:
    found = [label_of(run) for run in runs]
    for run, (label, why) in zip(runs, found, strict=True):
        if label is None:
            yield "no-label", why, run.events
    labels = dict.fromkeys(label for label, _ in found)
    if len(labels) > 1:
        text = f"flaky: run {len(runs)} times on one state it said {' and '.join(map(str, labels))}"
        yield "flaky", text, tuple(n for run in runs for n in run.events)


def _trial_code(facts: Facts, policy: Policy, runs: tuple[GradeRun, ...]) -> Iterator[_Refused]:
    """A grader that ran what the trial wrote says what the trial made it say, unless that was the point."""
    declared = compile_globs(policy.grade.executes)
    ran = [path for run in runs for path in run.executed if not declared.match(path)]
    written = {history.path for history in facts.files if history.in_workspace and history.changes} if ran else set()
    found = [path for path in dict.fromkeys(ran) if _is_written(path, written)]
    if found:
        names = listed([show(path) for path in found])
        yield "ran-trial-code", f"it ran what the trial wrote: {names}", tuple(n for run in runs for n in run.events)


def _is_written(path: bytes, written: set[bytes]) -> bool:
    """Tell whether a file, or a directory above it that was moved there, is the trial's."""
    while path:
        if path in written:
            return True
        path = path.rpartition(b"/")[0]
    return False


def read_bound(facts: Facts, policy: Policy) -> BoundFound | None:
    """Read what the possible states say; None when none were declared."""
    states = policy.grade.states
    if not states:
        return None
    runs = [run for run in facts.grades if run.state.startswith("bound:")]
    effects = tuple(dict.fromkeys(state.effect for state in states))
    expected = 1
    for effect in effects:
        expected *= sum(1 for state in states if state.effect == effect)
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
