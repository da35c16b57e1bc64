"""What graders said, what they must have had for themselves, and what the patterns of a policy found. Values only."""

from __future__ import annotations

from supervisor.events import ProcessKey
from supervisor.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeRun:
    """One run of a grader, as it went.

    Attributes:
        state: ``endpoint``, ``within`` or ``settled``; ``selftest:N``, ``bound:N`` or ``script:N``.
        digest: of the state that it saw, None for an example.
        applied: for ``bound:N``, which of the declared states were applied.
        problem: why it can give no label, None when it ran as it must.
        passed, undecided, reason, said: what it said in JSON: ``undecided`` is a ``passed`` that is neither true nor
            false.
        output: the end of what it wrote for people.
        executed: files of the workspace that it ran.
        footprint, listed, elsewhere: what it met, as `supervisor.events.GradeFinished` has it.
        began_ns, ended_ns: CLOCK_BOOTTIME; 0 when it was never seen finishing.
    """

    number: int
    state: str
    events: tuple[int, ...]
    digest: str | None = None
    turn: int = 0
    applied: tuple[int, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    problem: str | None = None
    passed: bool | None = None
    undecided: bool = False
    reason: str | None = None
    said: str | None = None
    output: str = ""
    executed: tuple[bytes, ...] = ()
    footprint: tuple[bytes, ...] = ()
    listed: tuple[bytes, ...] = ()
    elsewhere: tuple[bytes, ...] = ()
    began_ns: int = 0
    ended_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceMet:
    """The trial opened, ran, linked or moved a file of its grader's reference material."""

    path: bytes
    process: ProcessKey | None
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMatch:
    """One event that a pattern of the policy means.

    Attributes:
        at_ns: when it was told.
        since_ns, until_ns: the earliest and the latest that what it tells of can have been done.
    """

    at_ns: int
    event: int
    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderKept:
    """What became of one rule of order: ``early`` are the events like ``then`` that came before any like ``first``."""

    first: str
    then: str
    first_event: int | None
    early: tuple[EventMatch, ...]
    then_events: tuple[int, ...]
