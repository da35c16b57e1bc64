"""Run one trial of any agent runner in a box, watch it from outside, and judge it from the log alone.

For harnesses, `run` does what the command ``supervise`` does, `read` gives what it concluded, and `Completion` is the
type of both. Importing this package imports nothing else: what a call needs is imported by the call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from policies.types import Policy
    from supervisor.kept.separating import RunsSeparated
    from supervisor.verdict.completion import Completion

__all__ = ["Completion", "read", "run", "separate"]


def run(
    command: Sequence[str | bytes | Path],
    policy: str | Path | Policy | None = None,
    **options: Any,  # noqa: ANN401
) -> Completion:
    """Run one command as a trial, and give the completion argument.

    Args:
        command: CMD and its arguments, a list of words, never joined into a shell string.
        policy: a built-in name, a file, a policy, or None for the default one.
        **options: the options of the command line that change the policy, by name and written as there
            (``period="within:10s"``, ``write=["*.md"]``, ``env=["NAME=V"]``, ``direct=True``); ``timeout`` and
            ``settle`` may be numbers of seconds. Besides ``name`` and ``user``; ``cwd`` and ``environ`` of the caller;
            ``home``, the directory that runs are kept in; ``on_progress``, which is called with each
            `supervisor.request.Progress`; ``on_notice``, which gets lines that cannot wait; and ``room_wait_s``, as in
            `supervisor.request.RunRequest`. None is the same as not given. docs/python.md has them all.

    Raises:
        UsageError: a keyword is not known or has a value of another type; its place is the keyword.
        SuperviseError: the trial was not started, or could not be judged. What CMD does is no error.
    """
    from supervisor.harness import run_command  # noqa: PLC0415

    return run_command(command, policy, options)


def read(reference: str | Path, home: str | Path | None = None) -> Completion:
    """Give what was concluded about a run.

    Args:
        reference: an id, a unique beginning or the last part of one, ``last``, or a directory.
        home: the directory that runs are kept in; None for that of the environment.

    Raises:
        UsageError: there is no such run.
        LogError: the run was never sealed, or its log does not verify.
    """
    from supervisor.harness import read_reference  # noqa: PLC0415

    return read_reference(reference, home)


def separate(runs: Sequence[str | Path], home: str | Path | None = None) -> RunsSeparated:
    """Judge runs against each other: could one have changed another?

    Args:
        runs: ids, their beginnings or last parts, ``last``, or directories; two or more.
        home: the directory that runs are kept in; None for that of the environment.

    Returns:
        Units and edges; ``to_json()`` gives the form that ``supervise separate --json`` prints. A run that is missing,
        unsealed or does not verify is among the ``heads`` with a ``problem``.

    Raises:
        UsageError: fewer than two different runs are named.
    """
    from supervisor.harness import separate_references  # noqa: PLC0415

    return separate_references(runs, home)


def __getattr__(name: str) -> object:
    """Import `Completion` when it is first asked for: msgspec costs 30 ms."""
    if name != "Completion":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from supervisor.verdict.completion import Completion  # noqa: PLC0415

    return Completion


class _Package(ModuleType):
    """Keeps ``supervisor.run`` the function: importing the module ``supervisor/run.py`` would put itself there."""

    def __setattr__(self, name: str, value: object) -> None:
        """Let everything be set but a module where the function stands."""
        if not (name == "run" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
