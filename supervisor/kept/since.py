"""What was done with a sealed run afterwards, for those who read about it. In: a run; out: sentences, or `Since`.

Nothing is verified here: what is told is what lies beside the log, not in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.kept.reading import ADDENDA, addenda
from supervisor.launch.runs.state import RunDir
from supervisor.report.since import Since

_KEPT = "kept"


def read_since(run: RunDir, stage: str | None) -> Since:
    """Tell what was done with the staged writes of a run after it was sealed.

    Args:
        run: the run.
        stage: what its completion argument says became of them.
    """
    begun = stage == _KEPT and (run.stage / "commit.json").exists()
    if not begun and not any((run.path / name).exists() for name in ("afterwards.json", "dropped.json")):
        return Since()
    from supervisor.kept.staged import read_afterwards, read_dropped  # noqa: PLC0415  (rarely needed)

    done, dropped = read_afterwards(run), read_dropped(run)
    applied_at = done.at if done is not None and done.what == "committed" else None
    return Since(
        applied_at=applied_at,
        discarded_at=done.at if done is not None and applied_at is None else None,
        dropped_at=None if dropped is None else dropped.at,
        begun=begun and applied_at is None,
    )


def followed_since(run: RunDir) -> Iterator[str]:
    """Say that a run was followed after its seal, by asking its services again."""
    later = addenda(run)
    if later:
        yield f"what kept it open was followed after the seal: finality is that of {ADDENDA}/{later[-1].id},"
        yield f"whose events are told by: supervise events {later[-1].path}"
