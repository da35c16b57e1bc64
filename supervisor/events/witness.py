"""What the witness and the log say of themselves: losses, waits, records that this version does not know."""

from __future__ import annotations

from supervisor.events.base import Event


class EventsLost(Event, frozen=True, kw_only=True):
    """Events that should be here are not. ``count`` is a lower bound."""

    count: int
    hook: str
    first_ns: int
    last_ns: int


class LogWaited(Event, frozen=True, kw_only=True):
    """There was no room for the log, and the trial was frozen until there was."""

    first_ns: int
    last_ns: int


class UnknownRecorded(Event, frozen=True, kw_only=True):
    """The log holds a record of a kind that this version does not know. ``record`` is the whole of it, as JSON."""

    recorded_kind: str
    record: bytes
