"""The process tree. In: fork, exec and exit events in any order; out: the trial's processes, without the box's helpers.

The laws:

1. Lineage comes from fork events alone (who really made it), so a double fork, setsid or a new parent changes nothing.
2. Order comes from the kernel's clock, never from the order of delivery.
3. The trial is CMD's process and everything that descends from it. Other members of the cgroup are the box's when they
   are helpers, descend from one or were gone before the release; what remains is shown, as a gap in the lineage.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Callable, Iterable

from supervisor.events import (
    Event,
    ProcessExecFailed,
    ProcessExecuted,
    ProcessExited,
    ProcessKey,
    ProcessStarted,
    TrialHeld,
)
from supervisor.evidence.facts import Execution, Process
from supervisor.values import dataclass

NOBODY = ProcessKey(0, 0)
"""Stands for CMD's process when none was ever held."""

_FOR_EVER = 1 << 62
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class Cast:
    """Who is who in the box.

    Attributes:
        main: CMD's process.
        outsiders: members of the cgroup that are the box's, not the trial's.
        released_ns: before this, CMD's process acts for the box; None when it was never let go. One that never became
            CMD acts for the box to its end: what it writes is our message.
        executed: whether CMD's process became CMD, None when that is not known.
    """

    main: ProcessKey
    outsiders: frozenset[ProcessKey]
    released_ns: int | None
    executed: bool | None = True

    def ignores(self, process: ProcessKey | None, at_ns: int) -> bool:
        """Tell whether an act is the box's own, or nobody's."""
        if process is None or process in self.outsiders:
            return True
        return process == self.main and (self.released_ns is None or at_ns < self.released_ns)


class ProcessFold:
    """Collects forks, execs and exits by process."""

    def __init__(self) -> None:
        """Begin with no process."""
        self._started: dict[ProcessKey, tuple[ProcessKey | None, int, int, int]] = {}
        self._executed: defaultdict[ProcessKey, list[ProcessExecuted]] = defaultdict(list)
        self._exited: dict[ProcessKey, tuple[int, int, int | None, int | None]] = {}
        self._failed: list[ProcessExecFailed] = []
        self._released_ns: int | None = None

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {
            ProcessStarted: self._start,
            ProcessExecuted: self._execute,
            ProcessExecFailed: self._fail,
            ProcessExited: self._exit,
        }

    def _start(self, event: Event) -> None:
        if not isinstance(event, ProcessStarted) or event.process is None:
            return
        known = self._started.get(event.process)
        # A seeded member (no parent) may also have been seen being forked: the fork knows more.
        if known is None or (known[0] is None and event.parent is not None):
            self._started[event.process] = (event.parent, event.pid_inside, event.time_ns, event.n)

    def _execute(self, event: Event) -> None:
        if isinstance(event, ProcessExecuted) and event.process is not None:
            self._executed[event.process].append(event)

    def _fail(self, event: Event) -> None:
        if isinstance(event, ProcessExecFailed):
            self._failed.append(event)

    def _exit(self, event: Event) -> None:
        if isinstance(event, ProcessExited) and event.process is not None:
            self._exited[event.process] = (event.time_ns, event.n, event.exit_code, event.signal)

    def exited_ns(self, key: ProcessKey) -> int | None:
        """Tell when a process ended, None while there is no exit event."""
        exited = self._exited.get(key)
        return exited[0] if exited else None

    def exec_error(self, cast: Cast) -> int | None:
        """Give the errno of why CMD was never executed: as a shell would tell it, of all places that were tried."""
        released_ns = self._released_ns
        if cast.executed is not False or released_ns is None:
            return None
        errors = [e.error for e in self._failed if e.process == cast.main and e.time_ns >= released_ns]
        telling = [error for error in errors if error not in _ABSENT]
        return next(iter([*telling, *errors]), None)

    def _became(self, main: ProcessKey, released_ns: int | None, *, execs_lost: bool) -> bool | None:
        if released_ns is None:
            return False
        if any(event.time_ns >= released_ns for event in self._executed.get(main, ())):
            return True
        return None if execs_lost else False

    def cast(self, held: TrialHeld | None, released_ns: int | None, *, execs_lost: bool = False) -> Cast:
        """Tell the trial's processes from the box's."""
        self._released_ns = released_ns
        main = held.process if held and held.process else NOBODY
        helpers = {held.init, *held.helpers} - {main} if held else set()
        belongs: dict[ProcessKey, bool] = {main: True, **dict.fromkeys(helpers, False)}
        for key in self._known():
            self._settle_membership(key, belongs, released_ns)
        outsiders = frozenset(key for key, inside in belongs.items() if not inside)
        executed = self._became(main, released_ns, execs_lost=execs_lost)
        acts_from = _FOR_EVER if executed is False and released_ns is not None else released_ns
        return Cast(main=main, outsiders=outsiders, released_ns=acts_from, executed=executed)

    def _settle_membership(self, key: ProcessKey, belongs: dict[ProcessKey, bool], released_ns: int | None) -> None:
        """Climb to the first ancestor that is known; a root of nobody's counts by whether it saw the release."""
        path: list[ProcessKey] = []
        current: ProcessKey | None = key
        while current is not None and current not in belongs:
            path.append(current)
            belongs[current] = True  # ends the climb if damaged events ever form a ring
            started = self._started.get(current)
            current = started[0] if started else None
        answer = belongs[current] if current is not None and current not in path else self._saw(path[-1:], released_ns)
        belongs.update(dict.fromkeys(path, answer))

    def _saw(self, root: list[ProcessKey], released_ns: int | None) -> bool:
        exited = self._exited.get(root[0]) if root else None
        return released_ns is None or exited is None or exited[0] >= released_ns

    def _known(self) -> Iterable[ProcessKey]:
        return {**self._started, **self._executed, **self._exited}

    def finish(
        self,
        cast: Cast,
        endpoint_ns: int | None,
        seen: Iterable[ProcessKey] = (),
        listed: Iterable[ProcessKey] = (),
    ) -> tuple[Process, ...]:
        """Build the trial's processes in order of their start.

        Args:
            cast: who is who.
            endpoint_ns: of the trial, None when it has none.
            seen: processes that other events name; one without a fork event is shown all the same.
            listed: processes that the cgroup named; one of which nobody knew the start (it had just ended) has 0
                there, and stands for the one of that pid that events know.
        """
        executions = {key: self._executions(key, cast) for key in self._executed if key not in cast.outsiders}
        images = _Images(self._started, executions, cast)
        known = {*self._known(), *seen}
        pids = {key.pid for key in known}
        known.update(key for key in listed if key.start_ns or key.pid not in pids)
        keys = known - cast.outsiders - {NOBODY}
        return tuple(
            self._process(key, cast, images, executions.get(key, ()), endpoint_ns)
            for key in sorted(keys, key=lambda key: (key.start_ns, key.pid))
        )

    def _executions(self, key: ProcessKey, cast: Cast) -> tuple[Execution, ...]:
        events = sorted(self._executed[key], key=lambda event: (event.time_ns, event.n))
        return tuple(
            Execution(exe=e.exe, argv=e.argv, argv_truncated=e.argv_truncated, event=e.n, at_ns=e.time_ns)
            for e in events
            if not cast.ignores(key, e.time_ns)
        )

    def _process(
        self,
        key: ProcessKey,
        cast: Cast,
        images: _Images,
        executions: tuple[Execution, ...],
        endpoint_ns: int | None,
    ) -> Process:
        started, exited = self._started.get(key), self._exited.get(key)
        image = executions[-1] if executions else images.at_fork(key)
        parent = started[0] if started and key != cast.main else None
        ended_ns = exited[0] if exited else _FOR_EVER
        outlived = endpoint_ns is not None and ended_ns > endpoint_ns
        numbers = [e.event for e in executions]
        numbers += [started[3]] if started else []
        numbers += [exited[1]] if exited else []
        return Process(
            key=key,
            pid=started[1] if started else key.pid,
            parent=None if parent in cast.outsiders else parent,
            exe=image.exe if image else b"",
            argv=image.argv if image else (),
            argv_truncated=image.argv_truncated if image else False,
            executions=executions,
            started_ns=key.start_ns,
            exited_ns=exited[0] if exited else None,
            exit_code=exited[2] if exited else None,
            signal=exited[3] if exited else None,
            alive_at_endpoint=outlived and key.start_ns <= (endpoint_ns or 0),
            outlived=outlived,
            events=tuple(sorted(numbers)),
        )


class _Images:
    """What each process was running when it was forked: its creator's program at that moment."""

    def __init__(
        self,
        started: dict[ProcessKey, tuple[ProcessKey | None, int, int, int]],
        executions: dict[ProcessKey, tuple[Execution, ...]],
        cast: Cast,
    ) -> None:
        self._started, self._executions, self._cast = started, executions, cast
        self._known: dict[ProcessKey, Execution | None] = {}

    def at_fork(self, key: ProcessKey) -> Execution | None:
        """Climb until an ancestor had executed something; iterative, because a fork chain can be thousands deep."""
        path: list[ProcessKey] = []
        current, found = key, None
        while current not in self._known:
            path.append(current)
            self._known[current] = None
            started = self._started.get(current)
            if started is None or started[0] is None or current == self._cast.main:
                break
            found = self._running(started[0], started[2])
            if found is not None:
                break
            current = started[0]
        else:
            found = self._known[current]
        self._known.update(dict.fromkeys(path, found))
        return found

    def _running(self, key: ProcessKey, at_ns: int) -> Execution | None:
        earlier = [e for e in self._executions.get(key, ()) if e.at_ns <= at_ns]
        return earlier[-1] if earlier else None
