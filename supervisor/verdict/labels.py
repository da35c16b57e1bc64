"""What a grader's runs are worth. In: facts and policy; out: one `Grade` for the state that the claim is about.

The laws:

1. Exit code 0 is a success and 1 a failure; JSON on stdout can only lower that: ``"passed": false`` makes a success a
   failure, a ``passed`` that is neither true nor false makes it none. Anything else is no label.
2. No label when the grader failed one of its examples, when the trial met its reference material, when it ran a file
   that the trial wrote without that being declared, or when two runs on one state differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from policies.globs import compile_globs
from policies.types import PeriodKind, Policy
from supervisor.evidence.facts import Facts
from supervisor.evidence.naming import listed, show
from supervisor.evidence.said import GradeRun
from supervisor.values import dataclass
from supervisor.verdict.bounds import label_of
from supervisor.verdict.situation import Situation


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What a declared grader said of the state that the claim is about.

    Attributes:
        label: ``success``, ``failure``, or None when it gave none (``cause`` then says why).
        at_ns: when that state was, CLOCK_BOOTTIME.
        digest: of that state.
        rule: of why there is no label.
        said: what it said in JSON, and ``reason`` the words among it.
        run: the run of a grader that decided it.
        by: who gave it: ``grader``, the ``service`` that the claim is about, or the ``log`` that decides it.
    """

    label: str | None
    at_ns: int
    digest: str | None = None
    cause: str | None = None
    rule: str = "no-label"
    events: tuple[int, ...] = ()
    said: str | None = None
    reason: str | None = None
    run: GradeRun | None = None
    by: str = "grader"


def _claimed_runs(situation: Situation) -> tuple[GradeRun, ...]:
    """Give the runs on the state that the claim is about.

    That is its snapshot where there is one: what was graded later stands for it only if nothing that the claim is about
    changed in between.
    """
    kind = situation.policy.claim.period.kind
    wanted = {PeriodKind.ENDPOINT: "endpoint", PeriodKind.WITHIN: "within"}.get(kind, "settled")
    captured = {"endpoint": situation.at_endpoint, "within": situation.at_deadline}.get(wanted)
    grades = situation.facts.grades
    found = tuple(run for run in grades if run.state == wanted)
    stands = captured is None or captured.snapshot is None or not captured.changed_since
    return found or (tuple(run for run in grades if run.state == "settled") if stands else ())


def read_grade(situation: Situation) -> Grade | None:
    """Read what the grader said; None when the policy declares none."""
    facts, policy = situation.facts, situation.policy
    if policy.grade.command is None:
        return None
    runs = _claimed_runs(situation)
    at_ns, digest = _moment(situation, runs)
    refused = next(
        chain(_selftests(facts, policy), _references(facts), _repeats(runs), _trial_code(facts, policy, runs)), None
    )
    first = runs[0] if runs else None
    label = label_of(first)[0] if first else None
    if refused is None and label is not None and first is not None:
        events = tuple(n for run in runs for n in run.events)
        return Grade(
            label=label, at_ns=at_ns, digest=digest, events=events, said=first.said, reason=first.reason, run=first
        )
    rule, cause, events = refused or ("no-label", _ungraded(facts), ())
    decisive = next((run for run in facts.grades if run.events == events), first)
    return Grade(label=None, at_ns=at_ns, digest=digest, rule=rule, cause=cause, events=events, run=decisive)


def _ungraded(facts: Facts) -> str:
    if any(run.state == "settled" for run in facts.grades):
        return "it saw the outcome as it was later, and not in the state that the claim is about"
    return "it was never run"


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
