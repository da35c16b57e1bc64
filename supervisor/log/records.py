"""JSON records of a log: one event each. Which events there are is taken from `supervisor.events`, once.

``bytes`` are base64 in a record (msgspec's form), process keys are ``[pid, start_ns]``. A record of a kind that is not
known here is given as `UnknownRecorded`: a newer writer's event is shown as such, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from supervisor import events
from supervisor.errors import InternalError
from supervisor.events import Event, Origin, ProcessKey, UnknownRecorded
from supervisor.log.frames import Frame, bad_frame

_ENCODER = msgspec.json.Encoder()
_SURROGATES = re.compile("[\ud800-\udfff]")


class _Outline(msgspec.Struct):
    # The fields that every event has, taken as they come: the rest of an unknown record may be anything.
    kind: str
    time_ns: int = 0
    origin: Origin = Origin.SUPERVISOR
    process: ProcessKey | None = None


def _leaves(base: type[Event]) -> Iterator[type[Event]]:
    subclasses = base.__subclasses__()
    for subclass in subclasses:
        yield from _leaves(subclass)
    if not subclasses and base.__module__.startswith(events.__name__):
        yield base


@cache
def event_types() -> dict[str, type[Event]]:
    """Give every event class by its wire kind; classes that only hold common fields are left out."""
    return {str(leaf.__struct_config__.tag): leaf for leaf in _leaves(Event)}


class _Kind(msgspec.Struct):
    kind: str


_KIND = msgspec.json.Decoder(_Kind)


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[Any] | None:
    """Give what reads one kind: one for all of them takes 20 ms to make, and most logs have a dozen."""
    found = event_types().get(kind)
    return msgspec.json.Decoder(found) if found else None


@cache
def _outline() -> msgspec.json.Decoder[_Outline]:
    return msgspec.json.Decoder(_Outline)


def encode_record(event: Event) -> bytes:
    """Write an event as the payload of a JSON record.

    A lone surrogate, which is no character and which UTF-8 does not have, is written as U+FFFD: no text of anybody's
    can keep an event out of the log.

    Raises:
        InternalError: it holds something that JSON cannot.
    """
    try:
        return _encode(event)
    except (TypeError, ValueError) as err:
        message = f"{event.kind}: expected an event that can be written as JSON, got: {err}"
        raise InternalError(message) from err


def _encode(event: Event) -> bytes:
    try:
        return _ENCODER.encode(event)
    except UnicodeEncodeError:
        clean = {name: _characters(getattr(event, name)) for name in event.__struct_fields__}
        return _ENCODER.encode(msgspec.structs.replace(event, **clean))


def _characters(value: Any) -> Any:  # noqa: ANN401 - any field of an event
    if isinstance(value, str) and not isinstance(value, StrEnum):
        return _SURROGATES.sub("\ufffd", value)
    return tuple(map(_characters, value)) if type(value) is tuple else value


def decode_record(frame: Frame) -> Event:
    """Read the event of a JSON record.

    Raises:
        LogError: it is no event, or its number is not the frame's.
    """
    number, payload = frame.header.number, frame.payload
    try:
        kind = _KIND.decode(payload).kind
        event: Event = decoder.decode(payload) if (decoder := _decoder(kind)) else _unknown(frame, _unheard(kind))
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        event = _unknown(frame, err)
    if event.n != frame.header.first_event:
        raise bad_frame(number, f"expected event {frame.header.first_event} in the record, got event {event.n}")
    return event


def _unheard(kind: str) -> Exception:
    return msgspec.ValidationError(f"{kind!r} is no kind of event")


def _unknown(frame: Frame, cause: Exception) -> Event:
    try:
        outline = _outline().decode(frame.payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        outline = None
    if outline is None or outline.kind in event_types():
        raise bad_frame(frame.header.number, f"expected an event as JSON, got: {cause}") from cause
    return UnknownRecorded(
        n=frame.header.first_event,
        time_ns=outline.time_ns,
        origin=outline.origin,
        process=outline.process,
        recorded_kind=outline.kind,
        record=frame.payload,
    )
