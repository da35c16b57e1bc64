"""What is done with a run's stage after it ended: ``supervise commit`` and ``supervise discard``.

A commit that was interrupted is finished; one that was made or refused before is said so. The log of a sealed run stays
as it is: what became of its stage afterwards is in ``stage/`` beside it.
"""

from __future__ import annotations

import shutil

from policies.types import FilesMode
from supervisor.concluding import APPLIED, apply_stage
from supervisor.errors import UsageError
from supervisor.launch.stage import Stage
from supervisor.launch.state import RunDir
from supervisor.manifest import Manifest, read_manifest


def commit_staged(run: RunDir) -> str:
    """Apply what a run staged, or finish a commit that was interrupted; gives a sentence for the user.

    Raises:
        UsageError: nothing is staged, or it could not be applied.
    """
    manifest = _manifest(run)
    with Stage(run, manifest.workspace) as stage:
        state, entries, error = apply_stage(stage, manifest.policy.files.write)
    if state != APPLIED:
        raise UsageError(f"the stage was not applied: {error}", place=run.id)
    return f"{run.id}: {entries} entries applied to {manifest.workspace.decode(errors='replace')}"


def discard_staged(run: RunDir) -> str:
    """Forget what a run staged; gives a sentence for the user.

    Raises:
        UsageError: nothing is staged.
    """
    manifest = _manifest(run)
    with Stage(run, manifest.workspace) as stage:
        stage.discard()
    shutil.rmtree(run.stage, ignore_errors=True)
    return f"{run.id}: the stage is discarded"


def _manifest(run: RunDir) -> Manifest:
    owner = run.read_owner()
    if owner is not None and owner.alive() and not run.completion.exists():
        message = "expected a run that is over, got one that goes on"
        raise UsageError(message, place=run.id)
    manifest = read_manifest(run.read_manifest(), place=str(run.manifest))
    if manifest.policy.files.mode is FilesMode.DIRECT:
        raise UsageError("nothing is staged: the run wrote in place", place=run.id)
    if not (run.stage / "upper").is_dir():
        raise UsageError("nothing is staged (any more)", place=run.id)
    return manifest
