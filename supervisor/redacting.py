"""Taking known values out of events before they are recorded, and out of what is said beside the log."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from policies.redaction import Redactor
from supervisor.events import Event

WHERE = "records"
_E = TypeVar("_E", bound=Event)


def redact_event(event: _E, redactor: Redactor, *, where: str = WHERE) -> _E:
    """Give the event without the values that the redactor knows: the same one when it has none.

    Args:
        event: any event.
        redactor: knows the values.
        where: what they are counted under; empty for an event that was counted already.
    """
    changed = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        clean = _redact(value, redactor, where)
        if clean is not value:
            changed[name] = clean
    return msgspec.structs.replace(event, **changed) if changed else event


def _redact(value: object, redactor: Redactor, where: str) -> object:
    kind = type(value)
    if kind is str:
        return redactor.redact_text(str(value), where=where)
    if kind is bytes:
        assert isinstance(value, bytes)  # noqa: S101 - for the type checker
        return redactor.sweep(value, where=where)
    if kind is tuple:
        assert isinstance(value, tuple)  # noqa: S101 - as above
        clean = tuple(_redact(part, redactor, where) for part in value)
        return clean if any(new is not old for new, old in zip(clean, value, strict=True)) else value
    return value
