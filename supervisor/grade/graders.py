"""The two places of a grader on the line; what runs one is imported only where one is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisor.grade.grading import Grader
    from supervisor.launch.stage.inplace import InPlace
    from supervisor.launch.stage.stage import Stage
    from supervisor.signals import Signals
    from supervisor.trial.trial import Trial


def show_examples(trial: Trial, signals: Signals) -> Grader | None:
    """Show the grader its examples before CMD is released; gives the grader, None when no grader is declared.

    Raises:
        UsageError: an example does not exist.
    """
    if trial.prepared.request.policy.grade.command is None:
        return None
    from supervisor.grade.grading import selftest  # noqa: PLC0415 - 10 ms that a run without a grader does not need

    return selftest(trial, signals)


def grade(trial: Trial, stage: Stage | InPlace, grader: Grader | None) -> None:
    """Grade the outcome that the claim is about, once nothing of the trial is alive."""
    if grader is not None:
        from supervisor.grade.grading import grade_outcome  # noqa: PLC0415 - as above

        grade_outcome(trial, stage, grader)
