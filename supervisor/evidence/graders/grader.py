"""What a grader did, from its own log. In: its events in any order; out: a `GraderDid`.

The rule it keeps: what a grader opened, looked up, listed or ran is told as it was witnessed, whatever it says itself.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from supervisor.events import (
    ConnectionAttempted,
    DescriptorPassed,
    Event,
    EventsLost,
    FileEvent,
    FileListed,
    FileOpened,
    MembershipLeft,
    ProcessExecuted,
    ProcessExited,
    ProcessKey,
    TrialHeld,
    TrialReleased,
)
from supervisor.evidence.file_facts import EVERYTHING
from supervisor.evidence.graders.grader_code import loaded, scripts
from supervisor.values import dataclass

_KERNEL = (b"/proc/", b"/sys/", b"/dev/")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderDid:
    """What the log of a grader says.

    Attributes:
        exit_code, signal: of its shell; both None when no exit was seen.
        footprint: paths of the workspace that it opened or looked up, relative to it; `EVERYTHING` alone when there
            are more than can be told.
        listed: directories of the workspace whose names it read.
        elsewhere: absolute paths outside the workspace that it met, but for ``/proc``, ``/sys`` and ``/dev``.
        executed: files of the workspace that it ran as code: see `supervisor.evidence.graders.grader_code`.
        outside: whom it reached outside its box.
        lost: how many events are missing.
        left: processes of it that were moved out of its cgroup.
    """

    exit_code: int | None
    signal: int | None
    footprint: tuple[bytes, ...]
    listed: tuple[bytes, ...]
    elsewhere: tuple[bytes, ...]
    executed: tuple[bytes, ...]
    outside: tuple[str, ...]
    lost: int
    left: int


def read_grader(events: Iterable[Event], *, workspace: bytes) -> GraderDid:
    """Read what a grader did.

    Args:
        events: of its log.
        workspace: absolute, as it sees it.
    """
    return _Reading(workspace.rstrip(b"/")).read(sorted(events, key=lambda event: (event.time_ns, event.n)))


class _Reading:
    def __init__(self, workspace: bytes) -> None:
        self._workspace = workspace
        self._paths: set[bytes] = set()
        self._listed: set[bytes] = set()
        self._elsewhere: set[bytes] = set()
        self._executed: dict[bytes, None] = {}
        self._outside: dict[str, None] = {}
        self._exe: dict[ProcessKey, bytes] = {}
        self._lost = self._left = 0

    def read(self, events: list[Event]) -> GraderDid:
        held = next((event for event in events if isinstance(event, TrialHeld)), None)
        released_ns = min((event.time_ns for event in events if isinstance(event, TrialReleased)), default=None)
        main = held.process if held else None
        helpers = {held.init, *held.helpers} - {main} if held else set()
        ended: ProcessExited | None = None
        for event in events:
            if isinstance(event, EventsLost):
                self._lost += event.count
            elif event.process is None or event.process in helpers or _is_before(event, main, released_ns):
                continue
            elif isinstance(event, ProcessExited):
                ended = event if event.process == main else ended
            else:
                self._take(event)
        return GraderDid(
            exit_code=ended.exit_code if ended else None,
            signal=ended.signal if ended else None,
            footprint=_bounded(self._paths),
            listed=_bounded(self._listed),
            elsewhere=_bounded(self._elsewhere),
            executed=tuple(self._executed),
            outside=tuple(self._outside),
            lost=self._lost,
            left=self._left,
        )

    def _take(self, event: Event) -> None:
        match event:
            case ProcessExecuted():
                self._ran(event)
            case FileListed():
                self._met(event.path)
                self._listed.update(self._inside(event.path))
            case FileOpened():
                self._met(event.path)
                exe = self._exe.get(event.process, b"") if event.process else b""
                for path in loaded(exe, event.path, opened=event.error is None):
                    self._executed.update(dict.fromkeys(self._inside(path)))
            case FileEvent():
                self._met(event.path)
            case ConnectionAttempted() if event.outside and event.error is None:
                self._outside[f"{event.transport} socket {_text(event.path) or event.ip or 'without a name'}"] = None
            case DescriptorPassed() if event.outside:
                self._outside["a passed descriptor"] = None
            case MembershipLeft():
                self._left += 1

    def _met(self, path: bytes) -> None:
        inside = self._inside(path)
        self._paths.update(inside)
        if not inside and path.startswith(b"/") and not path.startswith(_KERNEL):
            self._elsewhere.add(path)

    def _inside(self, path: bytes) -> tuple[bytes, ...]:
        """Give a path relative to the workspace, in a tuple; an empty one when it lies elsewhere."""
        if path == self._workspace:
            return (b".",)
        return (path[len(self._workspace) + 1 :],) if path.startswith(self._workspace + b"/") else ()

    def _ran(self, event: ProcessExecuted) -> None:
        if event.process is not None:
            self._exe[event.process] = event.exe
        self._met(event.exe)
        for path in (event.exe, *scripts(event.exe, event.argv)):
            for inside in self._inside(posixpath.normpath(posixpath.join(event.cwd or b"/", path))):
                self._paths.add(inside)
                self._executed[inside] = None


def _is_before(event: Event, main: ProcessKey | None, released_ns: int | None) -> bool:
    return event.process == main and (released_ns is None or event.time_ns < released_ns)


def _bounded(paths: set[bytes]) -> tuple[bytes, ...]:
    return tuple(sorted(paths)) if sum(map(len, paths)) <= _MOST_BYTES else (EVERYTHING,)


def _text(path: bytes | None) -> str:
    return path.decode("utf-8", "backslashreplace") if path else ""
