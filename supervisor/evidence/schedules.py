"""What was left to run later. In: file histories, or the events that tell what was found among them; out: `Schedule`.

The rule it keeps: a trigger is a file that is there at the end, or may be. One that was taken away again is a file
history, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from supervisor.events import Event, Kind, ScheduleFound
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import FileHistory
from supervisor.evidence.routes import Schedule
from supervisor.values import replace

if TYPE_CHECKING:
    from policies.triggers import Trigger

_RUNNABLE = frozenset({Kind.FILE, Kind.SYMLINK})
_ANY_MODE = 0o777
"""Of a file whose mode is not known: it may be executable."""

Find = Callable[[bytes, int], "Trigger | None"]
"""Gives the kind of trigger that a file at an absolute path is, with its mode; `policies.triggers.Triggers.find`."""


def find_schedules(facts: Facts, workspace: bytes, find: Find) -> Iterator[tuple[FileHistory, Trigger, bool]]:
    """Find the triggers among the files that a trial changed; gives with each whether it lies where writes are kept.

    Args:
        facts: of the trial.
        workspace: absolute, as the trial sees it.
        find: knows the triggers.
    """
    shared = frozenset(touch.path for touch in facts.touches if touch.how == "changed")
    for history in facts.files:
        if history.private or not history.changes or history.net in {"unchanged", "deleted"}:
            continue
        after = history.after
        if after is None and history.net is not None:
            continue
        unknown = after is None or after.problem is not None
        if after is not None and not unknown and after.kind not in _RUNNABLE:
            continue
        path = absolute(history, workspace)
        trigger = find(path, _ANY_MODE if after is None or unknown else after.mode)
        if trigger is not None:
            yield history, trigger, path in shared or (history.in_workspace and history.allowed)


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
            events=(*(written[event.path].events[-1:] if event.path in written else ()), event.n),
        )
        for event in events
    )
