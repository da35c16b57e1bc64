"""What the events add up to beside processes and files: what runs later, what services said, locks, streams, usage.

Values only; `supervisor.evidence.facts.Facts` has them.
"""

from __future__ import annotations

import msgspec

from supervisor.events import Kind, ProcessKey
from supervisor.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A trigger that was left: a file that makes something run later.

    Attributes:
        path: as in its `FileHistory`.
        autonomous: a clock or a daemon starts it; else somebody who does something must.
        route: ``schedule`` or ``container``.
        kept: it lies where writes are kept, unless they stay staged.
        next_ns: when it runs next, CLOCK_REALTIME; None when that is not known.
        gone: it was there for a while only, where something may have started it.
    """

    path: bytes
    what: str
    autonomous: bool
    route: str
    kept: bool
    next_ns: int | None
    events: tuple[int, ...]
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAnswer:
    """What a service said: asked at ``asked_ns``, answered at ``at_ns``, CLOCK_BOOTTIME; see `ServiceAnswered`."""

    moment: str
    status: str
    detail: str
    asked_ns: int
    at_ns: int
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSeen:
    """A service, and its answers in order of time; ``cancelled``: events in which it took our request to call off."""

    name: str
    answers: tuple[ServiceAnswer, ...]
    cancelled: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A budget that was used up; ``claimed`` when the count is what the trial said of itself."""

    name: str
    limit: int
    counted: int
    claimed: bool
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How much of its budgets a trial used.

    Attributes:
        tool_calls: that were passed on to a server, counted outside the box; ``failed`` of them were answered with an
            error, ``retries`` were the same call again.
        refused: calls above the budget.
        claimed_tool_calls, claimed_tokens: what the trial said of itself.
        unanswered: calls that had no answer, ``NAME (ID)``; not more than a hundred.
        reached: the budget that ended the trial.
    """

    tool_calls: int = 0
    failed: int = 0
    retries: int = 0
    refused: int = 0
    claimed_tool_calls: int = 0
    claimed_tokens: int = 0
    unanswered: tuple[str, ...] = ()
    reached: Budget | None = None
    events: tuple[int, ...] = ()


class LockUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One span in which locks of one file were used in one way; times CLOCK_BOOTTIME.

    Attributes:
        path: absolute, as the host names it in shared places.
        sort: ``flock``, or ``record`` for fcntl's: the two do not know of each other.
        how: ``held``, ``waited``, ``refused``, or ``asked`` for who was told whether there is a lock.
        own: of what was refused: the trial held locks of that file itself.
        exact: every lock and release of the file was told.
    """

    path: bytes
    device: int
    inode: int
    sort: str
    how: str
    first_ns: int
    last_ns: int
    process: ProcessKey | None
    events: tuple[int, ...]
    own: bool = False
    exact: bool = True


class Stream(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A standard stream that the caller handed over, see `supervisor.events.StreamGiven`.

    Attributes:
        reads: it was given for reading, or opened anew for that.
        writes: something was, or may have been, written to it.
        start, reached: the position at which reading began, and the one that it left.
        left_ns: when the file had last been touched at the end, wall clock; 0 where that is not known.
        events: when it was given, and opened anew or written.
    """

    number: int
    what: Kind
    path: bytes
    named: bool
    device: int
    inode: int
    born_ns: int
    names: int
    reads: bool
    writes: bool
    ended: bool
    start: int | None
    reached: int | None
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    left_ns: int
    state: str | None
    events: tuple[int, ...]
