"""What was held back, and what was decided about it. In: events of the gateway and the supervisor; out: facts.

A connection is ``held`` until it is known that it was ``released`` (sent, at least in part) or ``discarded``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from supervisor.events import (
    ConnectionDiscarded,
    ConnectionHeld,
    ConnectionReleased,
    Event,
    ProcessKey,
    ValidationFinished,
    ValidationStarted,
)
from supervisor.evidence.acts import last_act_ns
from supervisor.values import dataclass, replace

HELD, RELEASED, DISCARDED = "held", "released", "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One connection that was held back.

    Attributes:
        state: ``held``, ``released`` or ``discarded``.
        host, ip, port, speaks, tls, size_bytes, digest, requests, count: as in `ConnectionHeld`.
        dialled, bytes_out, bytes_in: of what was released.
        why: why it was discarded, or not sent whole.
        at_ns, decided_ns: when it was held, and released or discarded, CLOCK_BOOTTIME.
        acted_ns: when the trial is known to have last asked for it or said something over it; 0 when nothing is known.
        offset: where it lies in the memory of the gateway.
        known: whether it is known what was sent of what was released.
    """

    connection: int
    state: str
    process: ProcessKey | None
    host: str | None
    ip: str
    port: int
    speaks: str | None
    tls: bool
    size_bytes: int
    digest: str
    requests: tuple[str, ...]
    count: int
    events: tuple[int, ...]
    rule: str | None = None
    dialled: str | None = None
    bytes_out: int = 0
    bytes_in: int = 0
    why: str | None = None
    at_ns: int = 0
    decided_ns: int = 0
    acted_ns: int = 0
    offset: int = 0
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What the validator said; ``accepted`` is None when it was asked and nothing is known of its answer."""

    accepted: bool | None
    exit_code: int | None
    problem: str | None
    said: str
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Everything that was held back in a trial, and what the validator said of it; None when it was not asked."""

    held: tuple[Held, ...] = ()
    validation: Validation | None = None

    @property
    def sent(self) -> tuple[Held, ...]:
        """What was sent of it, or may have been."""
        return tuple(one for one in self.held if one.state == RELEASED and (one.bytes_out or not one.known))


_Decided = ConnectionReleased | ConnectionDiscarded


class HeldFold:
    """Joins what was held with what became of it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._held: dict[int, ConnectionHeld] = {}
        self._decided: dict[int, _Decided] = {}
        self._started: ValidationStarted | None = None
        self._finished: ValidationFinished | None = None

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        kinds = (ConnectionHeld, ConnectionReleased, ConnectionDiscarded, ValidationStarted, ValidationFinished)
        return dict.fromkeys(kinds, self.take)

    def take(self, event: Event) -> None:
        """Take one event."""
        match event:
            case ConnectionHeld():
                self._held[event.connection] = event
            case ConnectionReleased() | ConnectionDiscarded():
                self._decided[event.connection] = event
            case ValidationStarted():
                self._started = event
            case ValidationFinished():
                self._finished = event

    def finish(self) -> Release:
        """Build the facts, first connection first."""
        held = tuple(_held(self._held[number]) for number in sorted(self._held))
        return Release(held=_decide(held, self._decided), validation=_validation(self._started, self._finished))


def add_decisions(release: Release, events: Iterable[Event]) -> Release:
    """Add what was decided to what was known before."""
    later = HeldFold()
    for event in events:
        later.take(event)
    added = later.finish()
    decided = {event.connection: event for event in events if isinstance(event, _Decided)}
    return Release(held=_decide(release.held, decided), validation=added.validation or release.validation)


def _held(event: ConnectionHeld) -> Held:
    return Held(
        connection=event.connection,
        state=HELD,
        process=event.process,
        host=event.host,
        ip=event.ip,
        port=event.port,
        speaks=event.speaks,
        tls=event.tls,
        size_bytes=event.size_bytes,
        digest=event.digest,
        requests=event.requests,
        count=event.count,
        events=(event.n,),
        rule=event.rule,
        at_ns=event.time_ns,
        acted_ns=last_act_ns(event),
        offset=event.offset,
    )


def _decide(held: tuple[Held, ...], decided: dict[int, _Decided]) -> tuple[Held, ...]:
    return tuple(_with(one, decided.get(one.connection)) for one in held)


def _with(held: Held, event: _Decided | None) -> Held:
    if event is None:
        return held
    numbers = tuple(dict.fromkeys((*held.events, event.n)))
    if isinstance(event, ConnectionDiscarded):
        return replace(held, state=DISCARDED, why=event.reason, events=numbers, decided_ns=event.time_ns)
    return replace(
        held,
        state=RELEASED,
        dialled=event.dialled,
        bytes_out=event.bytes_out,
        bytes_in=event.bytes_in,
        why=event.error,
        known=event.known,
        events=numbers,
        decided_ns=event.time_ns,
    )


def _validation(started: ValidationStarted | None, finished: ValidationFinished | None) -> Validation | None:
    events = tuple(event.n for event in (started, finished) if event is not None)
    if not events:
        return None
    return Validation(
        accepted=finished.accepted if finished else None,
        exit_code=finished.exit_code if finished else None,
        problem=finished.problem if finished else None,
        said=finished.said if finished else "",
        events=events,
    )
