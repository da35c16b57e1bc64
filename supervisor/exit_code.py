"""The exit code of one trial, from what was concluded about it. Pure.

What the child's code is was told by the kernel witness; here it is only passed on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from supervisor.request import Requirement

if TYPE_CHECKING:
    from supervisor.verdict.completion import Completion

TIMED_OUT = 124
FAILED = 125
UNMET = 120
SIGNAL_BASE = 128


def exit_code(completion: Completion, require: Collection[Requirement] = ()) -> int:
    """Give the exit code of the command (the table of `supervise --help`).

    A requirement that is not met changes only a 0: a child that failed keeps its own code.
    """
    code = child_code(completion)
    return UNMET if code == 0 and unmet(completion, require) else code


def child_code(completion: Completion) -> int:
    """Give the child's code, 124 when a limit of ours ended it, 125 when nobody witnessed how it ended."""
    endpoint = completion.endpoint
    if endpoint.reason in {"timeout", "budget"}:
        return TIMED_OUT
    if endpoint.signal is not None:
        return SIGNAL_BASE + endpoint.signal
    return FAILED if endpoint.exit_code is None else endpoint.exit_code


def unmet(completion: Completion, require: Collection[Requirement]) -> tuple[Requirement, ...]:
    """Give the requirements that the verdicts do not meet, in the order of the report."""
    reached = {
        Requirement.FINAL: completion.finality.verdict == "final",
        Requirement.SEPARATE: completion.separation.verdict == "separate",
        Requirement.CLEAN: completion.scope.verdict == "clean",
    }
    return tuple(word for word, met in reached.items() if word in require and not met)
