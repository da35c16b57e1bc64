"""Two judgements of one log beside each other: the one under the claim that was asked for, and the declared one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from supervisor.report.lines import Line, Span, Tone, line, verdict_span
from supervisor.report.safe import safe
from supervisor.report.words import cited
from supervisor.verdict.completion import Completion


def judged_lines(asked: Completion, declared: Completion, *, before: bool, kept_in: Path) -> Iterator[Line]:
    """Give the verdicts under both claims, and the reasons of the first.

    Args:
        asked: under the claim that was asked for.
        declared: what the run was sealed with.
        before: it is the claim, and the grader, that were bound before the run.
        kept_in: where the judgement is kept.
    """
    word = "declared before the run" if before else "not declared before the run"
    yield line(f"{'claim':<12}{_claim(asked)} ", Span(f"({word})", Tone.PLAIN if before else Tone.OPEN))
    yield from _verdicts(asked)
    for reason in asked.finality.reasons:
        yield line(f"{'because':<12}{safe(reason.text)}", cited(reason.events))
    yield line(f"{'declared':<12}{_claim(declared)}")
    yield from _verdicts(declared)
    yield line(Span(f"kept in {safe(str(kept_in))}, and verified like a run", Tone.FAINT))


def _claim(completion: Completion) -> str:
    claim = completion.claim
    about = claim.outcome if claim.outcome is not None else "the exit code and the workspace"
    return f"{safe(about)}, {safe(claim.period)}, unit {safe(claim.unit)}"


def _verdicts(completion: Completion) -> Iterator[Line]:
    finality = completion.finality
    observed = f", observed {finality.observed.label}" if finality.observed.label and not finality.label else ""
    label = f": {finality.label or 'no label'}{observed}"
    yield line(f"{'finality':<12}", verdict_span(finality.verdict), label)
    yield line(f"{'scope':<12}", verdict_span(completion.scope.verdict))
