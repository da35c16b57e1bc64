"""The exit code of one trial, from what was concluded about it. Pure.

What the child's code is was told by the kernel witness; here it is only passed on.
"""

from __future__ import annotations

from supervisor.request import Requirement
from supervisor.verdict.completion import Completion, unmet_requirements

TIMED_OUT = 124
FAILED = 125
UNMET = 120
SIGNAL_BASE = 128


def exit_code(completion: Completion, require: frozenset[Requirement] = frozenset()) -> int:
    """Give the exit code of the command (the table of `supervise --help`).

    A requirement that is not met changes only a 0: a child that failed keeps its own code.
    """
    code = child_code(completion)
    return UNMET if code == 0 and unmet_requirements(completion, frozenset(require)) else code


def child_code(completion: Completion) -> int:
    """Give the child's code, 124 when a limit of ours ended it, 125 when nobody witnessed how it ended."""
    endpoint = completion.endpoint
    if endpoint.reason in {"timeout", "budget"}:
        return TIMED_OUT
    if endpoint.signal is not None:
        return SIGNAL_BASE + endpoint.signal
    return FAILED if endpoint.exit_code is None else endpoint.exit_code
