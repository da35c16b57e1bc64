"""What was captured of an outcome, held against the digests that a log has of it.

In: the directory of a run, and digests by place. Out: nothing, or the error that names the first that differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from supervisor.errors import LogError
from supervisor.launch.snapshot import digest_kept
from supervisor.launch.stage import read_map


def verify_captures(run_dir: Path, workspace: bytes, captures: Mapping[str, str]) -> None:
    """Compute the digest of everything that was captured again, and compare.

    Args:
        run_dir: of the run.
        workspace: of the run, absolute.
        captures: digests by the place of the capture below it, as `supervisor.log.verify.Verified` has them.

    Raises:
        LogError: a capture is not there, or is no longer what was captured.
    """
    for place, expected in captures.items():
        got = digest_capture(run_dir / place, workspace)
        if got != expected:
            message = f"expected {expected} (the log says so), got {got or 'nothing'}: it was changed"
            raise LogError(message, place=str(run_dir / place))


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
