"""Staged writes after the run: applied to the workspace, or forgotten, by somebody who has read the report."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.errors import MachineError, UsageError
from supervisor.evidence.places import Places
from supervisor.launch.commit import CommitResult
from supervisor.launch.stage import Stage
from supervisor.launch.state import RunDir
from supervisor.manifest import Manifest, read_manifest
from supervisor.report.live import count
from supervisor.report.safe import safe

_SHOWN = 5


def commit_staged(run: RunDir) -> str:
    """Apply the staged writes that the run's policy allows; an interrupted commit is finished.

    Returns:
        What was done, in one sentence.

    Raises:
        UsageError: nothing is staged, or the run is not over.
        MachineError: the host has changed what the trial started from, or refused.
    """
    manifest = _manifest_of_a_run_that_is_over(run)
    with Stage(run, manifest.workspace) as stage:
        result = stage.commit(_allowed(manifest), durable=True)
    if result.conflicts:
        message = f"expected the workspace that the run began with, got a changed one: {_left(result)}"
        raise MachineError(
            message, place=safe(manifest.workspace), hint="the rest was applied; compare and do it by hand"
        )
    text = f"{count(result.entries, 'entry', 'entries')} applied to {safe(manifest.workspace)}"
    text += " (begun before, finished now at the latest)" if result.resumed else ""
    return f"{text}; left out: {_left(result)}" if result.left else text


def discard_staged(run: RunDir) -> str:
    """Forget the staged writes.

    Returns:
        What was done, in one sentence.

    Raises:
        UsageError: nothing is staged, or the run is not over.
    """
    manifest = _manifest_of_a_run_that_is_over(run)
    with Stage(run, manifest.workspace) as stage:
        stage.discard()
    return f"staged writes of {run.id} discarded; {safe(manifest.workspace)} is as it was"


def _manifest_of_a_run_that_is_over(run: RunDir) -> Manifest:
    owner = run.read_owner()
    if owner is not None and owner.alive() and not run.completion.exists():
        message = "expected a run that is over, got one that goes on"
        raise UsageError(message, place=run.id)
    if not (run.stage / "upper").is_dir():
        message = "expected staged writes, got none: they were discarded, or the run wrote directly"
        raise UsageError(message, place=run.id)
    return read_manifest(run.read_manifest(), place=str(run.manifest))


def _allowed(manifest: Manifest) -> Callable[[bytes], bool]:
    """Give the test that the verdict on scope used, for paths relative to the workspace."""
    places = Places(manifest.policy, manifest.workspace)
    return lambda path: places.allows(manifest.workspace if path == b"." else manifest.workspace + b"/" + path)


def _left(result: CommitResult) -> str:
    shown = ", ".join(f"{safe(entry.path)} ({entry.why})" for entry in result.left[:_SHOWN])
    more = f" and {len(result.left) - _SHOWN} more" if len(result.left) > _SHOWN else ""
    return f"{shown}{more}"
