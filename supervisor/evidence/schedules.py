"""What was left to run later. In: file histories, or the events that tell what was found among them; out: `Schedule`.

The rule it keeps: a trigger is a file that is there at the end, or may be. One that was taken away again, or put back
as it was, is one too where it was read at once and something starts it by itself; elsewhere it is a file history only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from supervisor.events import Event, Kind, ScheduleFound
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import ChangeKind, FileHistory
from supervisor.evidence.routes import Schedule
from supervisor.values import dataclass, replace

if TYPE_CHECKING:
    from policies.triggers import Trigger

_RUNNABLE = frozenset({Kind.FILE, Kind.SYMLINK})
_MAKING = frozenset({ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.RENAMED, ChangeKind.LINKED, ChangeKind.MAPPED})
"""After any of these a path may have another content."""
_ANY_MODE = 0o777
"""Of a file whose mode is not known: it may be executable."""

Find = Callable[[bytes, int], "Trigger | None"]
"""Gives the kind of trigger that a file at an absolute path is, with its mode; `policies.triggers.Triggers.find`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file that is a trigger.

    Attributes:
        kept: it lies where writes are kept.
        live: it was read there at once, while the trial ran.
        gone: it is there no more, or not as it was.
    """

    history: FileHistory
    trigger: Trigger
    kept: bool
    live: bool
    gone: bool


def find_schedules(facts: Facts, workspace: bytes, find: Find, *, direct: bool = False) -> Iterator[Found]:
    """Find the triggers among the files that a trial changed.

    Args:
        facts: of the trial.
        workspace: absolute, as the trial sees it.
        find: knows the triggers.
        direct: the workspace was written in place.
    """
    shared = frozenset(touch.path for touch in facts.touches if touch.how == "changed")
    for history in facts.files:
        live = history.shared or (direct and history.in_workspace)
        gone = live and _is_gone(history)
        if history.private or not history.changes or not (gone or _may_be_there(history)):
            continue
        path, after = absolute(history, workspace), history.after
        known = after is not None and after.problem is None and not gone
        trigger = find(path, after.mode if known and after is not None else _ANY_MODE)
        if trigger is None or (gone and trigger.when.value == "dormant"):
            continue
        kept = path in shared or (history.in_workspace and history.allowed)
        yield Found(history=history, trigger=trigger, kept=kept or gone, live=live, gone=gone)


def _may_be_there(history: FileHistory) -> bool:
    """Tell whether a file that can be a trigger is, or may be, at the path at the end."""
    after = history.after
    if history.net in {"unchanged", "deleted"} or (after is None and history.net is not None):
        return False
    return after is None or after.problem is not None or after.kind in _RUNNABLE


def _is_gone(history: FileHistory) -> bool:
    """Tell whether something was at the path for a while that is not there at the end, whoever took it away."""
    away = history.net in {"unchanged", "deleted"} or (history.after is None and history.net is not None)
    return away and any(change.kind in _MAKING for change in history.changes)


def absolute(history: FileHistory, workspace: bytes) -> bytes:
    """Give the absolute path of a history, as the trial sees it."""
    return workspace.rstrip(b"/") + b"/" + history.path if history.in_workspace else history.path


class ScheduleFold:
    """Collects what was found; there are few."""

    def __init__(self) -> None:
        """Begin with none."""
        self._found: list[ScheduleFound] = []

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {ScheduleFound: self._add}

    def _add(self, event: Event) -> None:
        if isinstance(event, ScheduleFound):
            self._found.append(event)

    def finish(self, files: Iterable[FileHistory]) -> tuple[Schedule, ...]:
        """Build the schedules, with the events of the files that they are."""
        return _schedules(self._found, files)


def with_schedules(facts: Facts, found: Iterable[ScheduleFound]) -> Facts:
    """Add what was found after the facts were collected."""
    return replace(facts, schedules=(*facts.schedules, *_schedules(found, facts.files)))


def _schedules(found: Iterable[ScheduleFound], files: Iterable[FileHistory]) -> tuple[Schedule, ...]:
    events = sorted(found, key=lambda event: event.n)
    if not events:
        return ()
    wanted = {event.path for event in events}
    written = {history.path: history for history in files if history.path in wanted}
    return tuple(
        Schedule(
            path=event.path,
            what=event.what,
            autonomous=event.when != "dormant",
            route=event.route,
            kept=event.kept,
            next_ns=event.next_ns,
            gone=event.gone,
            events=(*(written[event.path].events[-1:] if event.path in written else ()), event.n),
        )
        for event in events
    )
