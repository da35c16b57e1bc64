"""What is done with a run's stage after it ended: ``supervise commit``, ``supervise discard`` and ``supervise diff``.

A commit that was interrupted is finished; one that was made before is said so, and nothing is done again. The log of a
sealed run stays as it is: what became of its stage afterwards is in ``afterwards.json`` and ``dropped.json`` beside it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime

import msgspec

from policies.globs import compile_globs
from policies.types import FilesMode
from supervisor import clock
from supervisor.conclude.concluding import APPLIED, apply_stage
from supervisor.conclude.differing import FileDiff, diff_in_place, diff_stage
from supervisor.errors import UsageError
from supervisor.evidence.naming import listed, show
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.stage import Stage
from supervisor.prepare.manifest import Manifest, read_manifest
from supervisor.report.live import count
from supervisor.report.safe import harmless
from supervisor.verdict.completion import Completion, from_json

_AFTERWARDS, _DROPPED = "afterwards.json", "dropped.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Afterwards:
    """What was done with a stage after its run, and when (RFC 3339).

    ``committed`` or ``discarded``; ``dropped``, beside that, of what a commit had left alone.
    """

    what: str
    at: str


def commit_staged(run: RunDir, *, force: bool = False) -> str:
    """Apply what a run staged, or finish a commit that was interrupted; gives a sentence for the user.

    Args:
        run: that is over.
        force: overwrite what was changed on the host meanwhile.

    Raises:
        UsageError: nothing is staged, or some of it could not be applied.
    """
    manifest = _staged_manifest(run)
    where = manifest.workspace.decode(errors="replace")
    with Stage(run, manifest.workspace) as stage:
        before = stage.committed
        if before and not stage.upper.is_dir():
            return f"{run.id}: {_already(run)}: nothing is left to do"
        _require_stage(run, stage)
        before = before and not (force and stage.conflicts())
        applied = apply_stage(stage, manifest.policy.files.write, force=force)
        if stage.committed and applied.entries and not before:
            _record(run, "committed")
    changes = count(applied.entries, "change")
    if applied.state != APPLIED:
        done = f"{changes} applied{' before' if before else ''}, the rest not"
        raise UsageError(f"{done}: {applied.error}", place=run.id, hint=_by_hand(run))
    if before:
        return f"{run.id}: {_already(run)}: nothing is left to do"
    left = f", {count(len(applied.left_out), 'path')} not allowed and left out" if applied.left_out else ""
    half = "" if run.completion.exists() else "; its supervisor was ended before it was: they may be half-done"
    return f"{run.id}: {changes} applied to {where}{left}{half}{_not_judged(run)}"


def discard_staged(run: RunDir) -> str:
    """Forget what a run staged; gives a sentence for the user.

    Raises:
        UsageError: nothing is staged, or a commit was interrupted.
    """
    manifest = _staged_manifest(run)
    with Stage(run, manifest.workspace) as stage:
        _require_stage(run, stage)
        committed, left = stage.committed, _left(run, stage)
        stage.discard()
    if committed and left:
        told = f"{run.id}: dropped: {harmless(listed(left))}; {_rest(run)}"
        _record(run, "dropped", name=_DROPPED)
        return told
    if committed:
        return f"{run.id}: {_already(run)}; what was kept of the stage is removed"
    shutil.rmtree(run.stage, ignore_errors=True)
    _record(run, "discarded")
    return f"{run.id}: the stage is discarded"


def _left(run: RunDir, stage: Stage) -> tuple[str, ...]:
    """Give what a commit left alone: the host stood against it, or it may not be written."""
    seen = _completion(run)
    left_out = seen.stage.left_out if seen is not None and seen.stage is not None else ()
    return tuple(dict.fromkeys((*(show(path) for path in stage.conflicts()), *left_out)))


def _rest(run: RunDir) -> str:
    """Say what became of the writes that a commit did not leave alone."""
    return f"the rest of {_already(run)}" if _applied_any(run) else "none of its writes were applied"


def _applied_any(run: RunDir) -> bool:
    """Tell whether a commit applied anything, by hand or when the run ended; as far as can be told."""
    done, seen = read_afterwards(run), _completion(run)
    if (done is not None and done.what == "committed") or seen is None or seen.stage is None:
        return True
    stage = seen.stage
    return stage.state == APPLIED or (stage.state == "failed" and stage.changes > len(stage.conflicts))


def diff_staged(run: RunDir) -> Iterator[FileDiff]:
    """Compare what a run staged with the workspace as it is now, or what it wrote in place with what was before.

    Nothing is given of a run whose stage is gone with its commit: see `applied_whole`.

    Raises:
        UsageError: nothing is staged, or what was before was not kept.
    """
    manifest = _manifest(run)
    write = manifest.policy.files.write
    globs = None if write is None else compile_globs(write, workspace=manifest.workspace)

    def allowed(path: bytes) -> bool:
        return globs is None or globs.match(path)

    if manifest.policy.files.mode is FilesMode.DIRECT:
        from supervisor.launch.stage.inplace import InPlace  # noqa: PLC0415 - staged runs need none of it

        with InPlace(run, manifest.workspace) as writes:
            yield from diff_in_place(writes, allowed)
        return
    with Stage(run, manifest.workspace) as stage:
        if _was_applied(run, stage):
            return
        _require_stage(run, stage)
        yield from diff_stage(stage, allowed)


def applied_whole(run: RunDir) -> str | None:
    """Say of a run whose stage is gone with its commit that there is nothing to compare; None of any other."""
    manifest = _manifest(run)
    if manifest.policy.files.mode is FilesMode.DIRECT:
        return None
    with Stage(run, manifest.workspace) as stage:
        if not _was_applied(run, stage):
            return None
    why = ", and what was there before was not kept, as it is with `--direct`" if _applied_any(run) else ""
    return f"{run.id}: {_already(run)}{why}: `supervise show {run.id}` lists what changed"


def _was_applied(run: RunDir, stage: Stage) -> bool:
    """Tell whether nothing is staged any more because it was applied; of a run that wrote nothing, too."""
    if stage.upper.is_dir():
        return False
    seen = _completion(run)
    return stage.committed or (seen is not None and seen.stage is not None and seen.stage.state == APPLIED)


def _completion(run: RunDir) -> Completion | None:
    try:
        return from_json(run.completion.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def read_afterwards(run: RunDir) -> Afterwards | None:
    """Tell what was done with the stage after the run; None when nothing was."""
    return _read(run, _AFTERWARDS)


def read_dropped(run: RunDir) -> Afterwards | None:
    """Tell when what a commit had left alone was dropped; None when it was not."""
    return _read(run, _DROPPED)


def _read(run: RunDir, name: str) -> Afterwards | None:
    try:
        return Afterwards(**json.loads((run.path / name).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def applied_afterwards(run: RunDir) -> tuple[int, int] | None:
    """Tell when a stage that was kept began to be applied after the run, and when that was done: wall clock, ns.

    The journal tells of a commit that was begun; one that went only half way counts, until now. None for no commit.
    """
    try:
        begun_ns: int | None = (run.stage / "commit.json").stat().st_mtime_ns
    except OSError:
        begun_ns = None
    done = read_afterwards(run)
    if done is not None and done.what == "committed":
        done_ns = int(datetime.fromisoformat(done.at).timestamp() * 1_000_000) * 1000 + 1000
        return min(begun_ns or done_ns, done_ns), done_ns
    return None if begun_ns is None else (begun_ns, int(clock.now_s() * 1e9))


def _record(run: RunDir, what: str, *, name: str = _AFTERWARDS) -> None:
    made = Afterwards(what=what, at=clock.now_rfc3339())
    write_whole(run.path / name, json.dumps(asdict(made)).encode() + b"\n")


def _already(run: RunDir) -> str:
    done, dropped = read_afterwards(run), read_dropped(run)
    if not _applied_any(run):
        applied = "none of its writes were applied"
    else:
        applied = f"its writes were applied {f'before, at {done.at}' if done else 'when the run ended'}"
    return applied if dropped is None else f"{applied}, and what was left of them was dropped at {dropped.at}"


def _not_judged(run: RunDir) -> str:
    """Say of what was applied that the verdict is about another state of it, where it is."""
    seen = _completion(run)
    found = seen.finality.observed.differs if seen is not None else ()
    told = f"; the verdict is about another state: changed after it was captured: {harmless(listed(found))}"
    return told if found else ""


def _by_hand(run: RunDir) -> str:
    shown = f"supervise diff {run.id} shows what differs; the files are in {run.stage / 'upper'}"
    return f"{shown}; supervise commit --force {run.id} overwrites what the host has"


def _require_stage(run: RunDir, stage: Stage) -> None:
    if stage.upper.is_dir():
        return
    done = read_afterwards(run)
    if done is not None and done.what == "discarded":
        message = f"nothing is staged: it was discarded at {done.at}"
    else:
        message = f"nothing is staged: {_already(run)}" if stage.committed else "nothing is staged"
    hint = "with `--commit never` a stage is kept, what is not allowed among it" if done is None else None
    raise UsageError(message, place=run.id, hint=hint)


def _manifest(run: RunDir) -> Manifest:
    owner = run.read_owner()
    if owner is not None and owner.alive() and not run.completion.exists():
        message = "expected a run that is over, got one that goes on"
        raise UsageError(message, place=run.id)
    return read_manifest(run.read_manifest(), place=str(run.manifest))


def _staged_manifest(run: RunDir) -> Manifest:
    manifest = _manifest(run)
    if manifest.policy.files.mode is FilesMode.DIRECT:
        hint = f"supervise diff {run.id} shows what it changed"
        raise UsageError("nothing is staged: the run wrote in place", place=run.id, hint=hint)
    return manifest
