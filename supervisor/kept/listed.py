"""The runs of a home as `supervise ls` tells them, and what the registry says beside.

In: a home. Out: one `ListedRun` a directory. The rule: logs are not verified here, that would read all of them; whether
one is sealed is seen from its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from supervisor.kept.reading import addenda, is_closed, manifest_if_any
from supervisor.kept.since import read_since
from supervisor.launch.leftovers import in_commit
from supervisor.launch.runs.registry import read_registry
from supervisor.launch.runs.state import Home, RunDir
from supervisor.report.listing import ListedRun, RunState
from supervisor.report.since import separation_since
from supervisor.values import dataclass

_NAMED = 5
"""How many missing runs are named."""


class _Verdict(msgspec.Struct):
    verdict: str


class _State(msgspec.Struct):
    state: str


class _Outline(msgspec.Struct):
    # All that a list needs of a completion argument, which may hold thousands of processes.
    finality: _Verdict
    separation: _Verdict
    scope: _Verdict
    stage: _State | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What the registry says that the directories do not.

    Attributes:
        started: how many runs were started here.
        missing: those of them that are not there any more.
        problems: what is wrong with the registry itself.
    """

    started: int
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def warnings(self) -> Iterator[str]:
        """Say it in sentences; a few of many runs are named."""
        yield from self.problems
        if self.missing:
            names = ", ".join(self.missing[:_NAMED]) + (", …" if len(self.missing) > _NAMED else "")
            count, are = ("1 run", "is") if len(self.missing) == 1 else (f"{len(self.missing)} runs", "are")
            yield f"{count} of {self.started} that were started here {are} not there any more: {names}"


def list_runs(home: Home) -> tuple[ListedRun, ...]:
    """List every run, the oldest first."""
    return tuple(map(_listed, home.all()))


def missed_runs(home: Home) -> Missed:
    """Compare the registry with what is there."""
    registry = read_registry(home.path)
    there = {run.id for run in home.all()}
    started = dict.fromkeys(entry.run for entry in registry.entries)
    return Missed(
        started=len(registry.entries),
        missing=tuple(name for name in started if name not in there),
        problems=registry.problems,
    )


def is_running(run: RunDir) -> bool:
    """Tell whether the supervisor of a run is still at it, and has not sealed it yet."""
    owner = run.read_owner()
    return owner is not None and owner.alive() and not is_closed(run)


def _listed(run: RunDir) -> ListedRun:
    manifest = manifest_if_any(run)
    name, command = manifest.get("name"), manifest.get("command", ())
    closed = is_closed(run)
    verdicts = _verdicts(run) if closed else None
    state = _state(run, closed=closed, judged=verdicts is not None)
    return ListedRun(
        id=run.id,
        state=state,
        verdicts=verdicts,
        name=name if isinstance(name, str) else None,
        command=tuple(map(str, command)) if isinstance(command, list) else (),
        unfinished=state is not RunState.RUNNING and in_commit(run),
    )


def _verdicts(run: RunDir) -> tuple[str, str, str] | None:
    try:
        latest = (run, *addenda(run))[-1]
        found = msgspec.json.decode(latest.completion.read_bytes(), type=_Outline)
    except (OSError, ValueError):
        return None
    since = read_since(run, found.stage.state if found.stage is not None else None)
    return found.finality.verdict, separation_since(found.separation.verdict, since), found.scope.verdict


def _state(run: RunDir, *, closed: bool, judged: bool) -> RunState:
    if closed:
        return RunState.SEALED if judged else RunState.UNREADABLE
    return RunState.RUNNING if is_running(run) else RunState.UNSEALED
