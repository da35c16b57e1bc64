"""Waiting for room on the disk of the log: the trial stands still, the operator is told, and it does not last for ever.

Laws:
    * Before the trial is about to run there is nothing to keep: no room then ends it at once.
    * While there is no room the trial is frozen, so that nothing happens that could not be logged.
    * The operator is told at the first refusal: what is full, what to do, and how long we wait.
    * A wait ends with room, after ``wait_s``, or when the operator says so. Once given up nothing waits any more, and
      ``failed`` is readable: whoever follows the trial ends it, whichever thread it was that waited.
    * Each wait that ended well is kept, to be told in the log.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from policies.durations import parse_duration
from supervisor.errors import LogError, LogFullError
from supervisor.log.segments import NO_ROOM

WAIT_S = 30.0
WAIT_VARIABLE = "SUPERVISE_WAIT_FOR_ROOM"
"""Environment variable that says how long to wait for room, as a duration; `WAIT_S` without it."""

_TRY_EVERY_S = 0.2
_HOLDER = "log"
_MIB = 1 << 20
T = TypeVar("T")


class Brake(Protocol):
    """What stops the trial."""

    def hold(self, holder: str, *, wait: bool = True) -> bool:
        """Freeze on behalf of ``holder``, and ``wait`` for the kernel's word that it is done."""

    def release(self, holder: str) -> None:
        """Thaw unless somebody else holds."""


class Wait(NamedTuple):
    """A time without room, CLOCK_BOOTTIME ns."""

    first_ns: int
    last_ns: int


class Room:
    """The room of one run. `wait` and `over` are for whoever writes, the rest is for whoever follows the trial."""

    def __init__(
        self,
        run: Path,
        *,
        brake: Brake,
        tell: Callable[[Sequence[str]], object] = lambda _: None,
        wait_s: float = WAIT_S,
        is_worth_it: bool = True,
    ) -> None:
        """Begin with room.

        Args:
            run: the directory of the run.
            brake: stops the trial.
            tell: gets the lines that the operator must see at once, from any thread.
            wait_s: how long to wait for room at most.
            is_worth_it: whether something would be lost already; see `begin_waiting`.
        """
        self._is_worth_it = is_worth_it
        self._run, self._brake, self._tell = run, brake, tell
        self._wait_s = wait_s
        self._since_ns = 0
        self._waits: list[Wait] = []
        self._lock = threading.Lock()
        self._asked_to_end = threading.Event()
        self._error: LogError | None = None
        self.failed = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for room."""
        return self._since_ns != 0 and self._error is None

    def begin_waiting(self) -> None:
        """Wait for room from now on: the trial is about to run."""
        self._is_worth_it = True

    def wait(self, refusal: LogFullError) -> None:
        """Wait a moment for room; return to have it tried again.

        Raises:
            LogError: there was none for too long, or when nothing had run yet; or the disk failed otherwise.
        """
        self.check()
        if not self._is_worth_it:
            message = f"no room for the log, and nothing was run: {refusal}"
            self.fail(LogFullError(message, place=_described(self._run), hint="make room there"))
            self.check()
        with self._lock:
            first, self._since_ns = not self._since_ns, self._since_ns or _now_ns()
        if first:
            self._brake.hold(_HOLDER, wait=False)
            self._tell(self._told())
        if self._asked_to_end.wait(_TRY_EVERY_S) or _now_ns() - self._since_ns > self._wait_s * 1e9:
            self.fail(self._given_up(refusal))
            self.check()

    def over(self) -> None:
        """Go on: there is room again."""
        with self._lock:
            wait, self._since_ns = Wait(self._since_ns, _now_ns()), 0
        if not wait.first_ns:
            return  # another thread that waited was faster
        self._waits.append(wait)
        self._brake.release(_HOLDER)
        self._tell([f"supervise: there is room again after {(wait.last_ns - wait.first_ns) / 1e9:.1f} s: it goes on"])

    def persist(self, write: Callable[[], T]) -> T:
        """Do something else that needs room, again and again until there is some. Not while others append.

        Raises:
            LogFullError: there was none for too long.
        """
        waited = False
        while True:
            try:
                done = write()
            except LogFullError as err:
                waited = True
                self.wait(err)
                continue
            except OSError as err:
                if err.errno not in NO_ROOM:
                    raise
                waited = True
                self.wait(full(err, self._run))
                continue
            if waited:
                self.over()
            return done

    def end_waiting(self) -> None:
        """Give up: somebody waits who has been told to stop."""
        self._asked_to_end.set()

    def fail(self, error: LogError) -> None:
        """Let nothing be waited for any more, and wake whoever follows the trial."""
        if self._error is None:
            self._error = error
            os.eventfd_write(self.failed, 1)

    def check(self) -> None:
        """Raise what went wrong for good, if anything did."""
        if self._error is not None:
            raise self._error

    def take_waits(self) -> tuple[Wait, ...]:
        """Give the waits that ended well, each once."""
        taken, self._waits = tuple(self._waits), []
        return taken

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.failed)

    def _told(self) -> list[str]:
        return [
            f"supervise: {_described(self._run)}: no room for the log",
            f"  the trial is frozen; make room there and it goes on by itself, else it is ended in {self._wait_s:g} s",
        ]

    def _given_up(self, refusal: LogFullError) -> LogFullError:
        run = self._run.name
        message = (
            f"no room for the log: the run was ended and is not sealed, so its verdicts are unresolved ({refusal})"
        )
        hint = (
            f"nothing that was logged or staged is lost: with room again `supervise show {run}` tells what there is, "
            f"`supervise commit {run}` applies what it staged"
        )
        return LogFullError(message, place=_described(self._run), hint=hint)


def find_wait_s(environ: Mapping[str, str]) -> float:
    """Find how long to wait for room.

    Raises:
        PolicyError: what the environment says is no duration.
    """
    said = environ.get(WAIT_VARIABLE)
    return WAIT_S if said is None else parse_duration(said, place=WAIT_VARIABLE)


def full(err: OSError, place: Path) -> LogFullError:
    """Say that a disk is full, in our words."""
    named = os.fsdecode(err.filename) if isinstance(err.filename, str | bytes) else str(place)
    return LogFullError(f"expected room, got: {err.strerror}", place=named, hint=f"make room: {_described(place)}")


@contextmanager
def fullness_told(place: Path) -> Iterator[None]:
    """Say in our words that a disk is full, wherever in the block it is met.

    Raises:
        LogFullError: instead of the system's error.
    """
    try:
        yield
    except OSError as err:
        if err.errno not in NO_ROOM:
            raise
        raise full(err, place) from err


def _described(place: Path) -> str:
    """Name the file system that something lies on, and how full it is."""
    mount = place.absolute()
    while not mount.is_mount() and mount != mount.parent:
        mount = mount.parent
    try:
        found = os.statvfs(mount)
    except OSError:
        return str(mount)
    free, size = found.f_bavail * found.f_frsize / _MIB, found.f_blocks * found.f_frsize / _MIB
    return f"{mount} ({free:,.1f} of {size:,.1f} MiB free)"


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
