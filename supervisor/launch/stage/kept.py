"""What was kept with a run, an outcome or a stage, held against the digests that its log has of it.

In: the directory of a run, and what was verified of its log. Out: the error that names the first that differs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from supervisor.errors import LogError
from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.snapshot import digest_kept
from supervisor.launch.stage.stage import Stage, read_map


def verify_kept(run: RunDir, workspace: bytes, captures: Mapping[str, str], *, stage: str | None) -> None:
    """Compute the digests of what was captured, and of a stage that was kept whole, again, and compare.

    A stage is compared no more once it was thrown away, its workspace is gone, or `supervise commit` began to apply
    it (there is its plan), which marks in it what has come to its place.

    Args:
        run: the run.
        workspace: of the run, absolute.
        captures: digests by the place of the capture below it, as `supervisor.log.verify.Verified` has them.
        stage: digest of the stage; None when it was not kept.

    Raises:
        LogError: a capture is not there, or something is no longer what it was.
    """
    for place, expected in captures.items():
        _compare(run.path / place, digest_capture(run.path / place, workspace), expected)
    if stage is None or not (run.stage / "upper").is_dir() or not Path(os.fsdecode(workspace)).is_dir():
        return
    try:
        with Stage(run, workspace) as kept:
            got = stage if any(layer.is_begun() for layer in kept.layers()) else kept.digest()
    except (OSError, ValueError) as err:
        raise LogError(f"expected what was staged, got: {err}", place=str(run.stage)) from err
    _compare(run.stage, got, stage)


def _compare(place: Path, got: str | None, expected: str) -> None:
    if got != expected:
        message = f"expected {expected} (the log says so), got {got or 'nothing'}: it was changed"
        raise LogError(message, place=str(place))


def digest_capture(target: Path, workspace: bytes) -> str | None:
    """Digest what lies in the directory of a capture, with the mounts of the workspace; None when there is nothing.

    Raises:
        LogError: it cannot be read as a capture.
    """
    if not (target / "upper").is_dir():
        return None
    try:
        top = workspace.rstrip(b"/") + b"/"
        nested = {point.removeprefix(top): place for point, place in read_map(target).items()}
        return digest_kept(target, nested)
    except (OSError, ValueError) as err:
        message = f"expected what was captured, got: {err}"
        raise LogError(message, place=str(target)) from err
