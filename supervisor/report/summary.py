"""The few lines on stderr at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.evidence.naming import listed
from supervisor.report.files import is_own
from supervisor.report.live import count
from supervisor.report.safe import harmless, safe, trim
from supervisor.report.words import (
    brief,
    captured_words,
    cited,
    effect_of,
    endpoint_words,
    limit_of,
    never_executed,
    outcome_words,
    path_of,
    stage_words,
)
from supervisor.verdict.completion import NEVER, Completion

_GRAVEST = frozenset({"leaked-canary"})
"""Rules that are told before the others, when only one is told."""
_KILLED_BY_US = {"alive-when-following-ended": "when following ended", "cancelled": "as declared"}
"""Rules of finality under which those that outlived the endpoint died of our SIGKILL, and when that was."""
_SIGKILL = 9
WIDTH = 160
"""How long the sentence of a reason may be."""


def summary(completion: Completion) -> Iterator[str]:
    """Give the verdicts, what speaks against each, what needs care, limits that bit, counts, where to read on."""
    finality, separation, scope = completion.finality, completion.separation, completion.scope
    words = [finality.label or "", "we intervened" if finality.intervened else ""]
    label = f" ({', '.join(filter(None, words))})" if any(words) else ""
    yield f"supervise: finality {finality.verdict}{label} · separation {separation.verdict} · scope {scope.verdict}"
    yield from _against(completion)
    yield from (f"supervise: {told}" for told in _care(completion))
    for met in completion.effects.limits:
        if met.effect in {"killed", "refused"}:
            yield f"supervise: {limit_of(met)}: {effect_of(met)}{cited(met.events).text}"
    yield f"supervise: {_counts(completion)}"
    good = finality.verdict == "final" and scope.verdict == "clean"
    name = f" ({trim(harmless(completion.name), WIDTH)})" if completion.name else ""
    care = "final and clean do not mean safe; " if good else ""
    yield f"supervise: {care}read on: supervise show {completion.run}{name}"


def _against(completion: Completion) -> Iterator[str]:
    found = (
        ("finality", completion.finality.verdict == "final", completion.finality.reasons),
        ("separation", completion.separation.verdict == "separate", completion.separation.reasons),
        ("scope", completion.scope.verdict == "clean", completion.scope.violations or completion.scope.reasons),
    )
    for name, good, reasons in found:
        if not good and reasons:
            first = min(reasons, key=lambda reason: reason.rule not in _GRAVEST)
            more = f"; and {len(reasons) - 1:,} more" if len(reasons) > 1 else ""
            yield f"supervise: {name}: {brief(first, WIDTH)}{cited(first.events).text}{more}"


def _care(completion: Completion) -> Iterator[str]:
    """Tell what a reader of good verdicts would miss."""
    if completion.endpoint.reason in {"timeout", "budget"}:
        yield f"ended by us: {endpoint_words(completion)}"
    if (never := never_executed(completion)) is not None:
        yield never
    state, captured = completion.finality.observed.state, captured_words(completion)
    if state is not None and state.exists is False:
        yield f"outcome {trim(outcome_words(state, completion.claim.period), WIDTH)}"
    if captured is not None:
        yield f"outcome {captured}"
    yield from _killed(completion)
    yield from _not_applied(completion)
    if discarded := [safe(path_of(file)) for file in completion.effects.files if file.discarded is True]:
        yield f"allowed, and discarded: outside the workspace: {listed(discarded)}"


def _killed(completion: Completion) -> Iterator[str]:
    """Say how many we ended: where we killed at all, every death by SIGKILL after the endpoint counts as our doing."""
    rules = {reason.rule for reason in completion.finality.reasons}
    killed = sum(1 for process in completion.effects.processes if process.outlived and process.signal == _SIGKILL)
    when = next((told for rule, told in _KILLED_BY_US.items() if rule in rules), None)
    if killed and when is not None:
        yield f"we killed {count(killed, 'process', 'processes')} that {'was' if killed == 1 else 'were'} left, {when}"


def unasked_for(completion: Completion) -> Iterator[str]:
    """Tell of writes that were not applied though nobody asked for that: what even a quiet caller must know."""
    if completion.stage is not None and completion.stage.why != NEVER:
        yield from (f"supervise: {told}" for told in _not_applied(completion))


def _not_applied(completion: Completion) -> Iterator[str]:
    stage = completion.stage
    if stage is None or not (
        stage.left_out
        or stage.state == "failed"
        or (stage.state in {"kept", "discarded"} and stage.changes)
        or (stage.state == "kept" and stage.why != NEVER and completion.finality.observed.differs)
    ):
        return
    told, todo = stage_words(completion)
    yield f"changes: {told}"
    if todo is not None:
        yield f"  {todo}"


def _counts(completion: Completion) -> str:
    effects, log = completion.effects, completion.log
    files = [file for file in effects.files if file.history and not is_own(file)]
    passing = sum(1 for file in files if file.net == "unchanged")
    stage = completion.stage
    applied = (
        f" ({count(stage.changes, 'change')} applied)" if stage and stage.state == "applied" and stage.changes else ""
    )
    parts = [
        count(len(effects.processes), "process", "processes"),
        count(len(files) - passing, "changed file")
        + applied
        + (f" and {passing:,} put back or gone again" if passing else ""),
        count(len(effects.network), "connection attempt"),
        count(len(completion.open_effects), "open effect"),
        count(log.events, "event"),
    ]
    return ", ".join([*parts, f"{log.lost:,} LOST"] if log.lost else parts)
