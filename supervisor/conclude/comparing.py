"""What the claim is about, as it was captured, beside what the trial left when it was over.

In: a trial that has ended, before anything is applied. Out: facts, with an event for each path that changed after the
capture that the verdict rests on. The rule it keeps: what cannot be read is not the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.events import CaptureCompared
from supervisor.evidence.captured import NOTHING, UNKNOWN, with_captured
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import FileState
from supervisor.launch.disk.tree import join
from supervisor.launch.stage.stage import Stage
from supervisor.values import dataclass
from supervisor.verdict.situation import Captured, read_situation

if TYPE_CHECKING:
    from supervisor.launch.stage.inplace import InPlace
    from supervisor.trial.trial import Trial


@dataclass(frozen=True, slots=True)
class _End:
    """One path when the trial was over, and before it."""

    before: FileState | None
    after: FileState | None


def compare_captured(trial: Trial, stage: Stage | InPlace, facts: Facts, on_disk: Mapping[bytes, bytes]) -> Facts:
    """Compare what changed after the capture that the claim is about; without any nothing is read.

    Args:
        trial: that has ended.
        stage: of it.
        facts: of it.
        on_disk: paths that the log has under another name, with their own.
    """
    captured = read_situation(facts, trial.prepared.told_policy, sealed=True).claimed
    if captured is None or captured.snapshot is None or not captured.changed_since:
        return facts
    ends = dict(_ends(facts, captured))
    names = {_on_disk(name, stage.workspace, on_disk): name for name in ends if not name.startswith(b"/")}
    place = trial.prepared.run.path / Path(captured.snapshot.kept_in).parent
    found = _read(stage, place, {path: ends[name] for path, name in names.items()})
    then = {names[path]: state for path, state in found.items()}
    kept_in = captured.snapshot.kept_in
    return with_captured(facts, [_record(trial, kept_in, name, end, then) for name, end in ends.items()])


def _ends(facts: Facts, captured: Captured) -> Iterator[tuple[bytes, _End]]:
    """Give the paths to be compared: those that changed, and the one that the claim names."""
    if facts.outcome is not None and facts.outcome.observed is not None:
        yield facts.outcome.path, _End(facts.outcome.observed.before, facts.outcome.observed.after)
    for history in captured.changed_since:
        yield history.path, _End(history.before, history.after)


def _on_disk(name: bytes, workspace: bytes, on_disk: Mapping[bytes, bytes]) -> bytes:
    path = workspace if name == b"." else join(workspace.rstrip(b"/"), name)
    return on_disk.get(path, path)


def _read(stage: Stage | InPlace, place: Path, ends: Mapping[bytes, _End]) -> dict[bytes, FileState | None]:
    from supervisor.launch.stage.then import staged_then, written_then  # noqa: PLC0415 - few outcomes change later

    if isinstance(stage, Stage):
        return staged_then(stage, place, ends)
    return written_then(stage.workspace, place, {path: end.before for path, end in ends.items()})


def _record(
    trial: Trial, kept_in: str, name: bytes, end: _End, then: Mapping[bytes, FileState | None]
) -> CaptureCompared:
    state = then.get(name)
    known = name in then and (state is None or state.problem is None)
    return trial.record(
        CaptureCompared,
        path=name,
        kept_in=kept_in,
        captured=UNKNOWN if not known else NOTHING if state is None else state.kind.value,
        size_bytes=state.size_bytes if known and state is not None else 0,
        digest=state.digest if known and state is not None else None,
        again=known and state == end.after,
    )
