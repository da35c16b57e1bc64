"""Events → the JSON objects of ``supervise events``.

Every object begins with ``n, t, kind, origin, process``. Bytes are text where they are UTF-8, else base64 in a field
``<name>_b64`` (for lists: all elements, or the list would mix the two).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from supervisor.events import Event, ProcessKey

_COMMON = {"n", "time_ns", "origin", "process"}
_NS = 1_000_000_000


def event_to_json(event: Event, *, realtime_offset_ns: int | None) -> dict[str, Any]:
    """Give the JSON object of one event.

    Args:
        event: as it was read from the log.
        realtime_offset_ns: what to add to CLOCK_BOOTTIME for the time of day; None when not known (``t`` is then null).
    """
    found: dict[str, Any] = {
        "n": event.n,
        "t": None if realtime_offset_ns is None else rfc3339(event.time_ns + realtime_offset_ns),
        "kind": event.kind,
        "origin": event.origin.value,
        "process": None if event.process is None else str(event.process),
    }
    for name in _own_fields(type(event)):
        _put(found, name, getattr(event, name))
    return found


def encode_event(event: Event, *, realtime_offset_ns: int | None) -> bytes:
    """Give the JSON object of one event as one line, its end included."""
    return _encode(event_to_json(event, realtime_offset_ns=realtime_offset_ns)) + b"\n"


def rfc3339(time_ns: int) -> str:
    """Write nanoseconds since the epoch as RFC 3339 in UTC, all nine digits kept."""
    from datetime import UTC, datetime  # noqa: PLC0415

    seconds, rest = divmod(time_ns, _NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


_encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode


@cache
def _own_fields(kind: type[Event]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name not in _COMMON)


def _put(found: dict[str, Any], name: str, value: object) -> None:
    try:
        found[name] = _text(value)
    except UnicodeDecodeError:
        found[f"{name}_b64"] = _base64(value)


def _text(value: object) -> Any:  # noqa: ANN401  (whatever JSON can hold)
    match value:
        case bytes():
            return value.decode()
        case ProcessKey():
            return str(value)
        case tuple() | list():
            return [_text(item) for item in value]
        case _:
            return value


def _base64(value: object) -> Any:  # noqa: ANN401  (whatever JSON can hold)
    match value:
        case bytes():
            return b64encode(value).decode()
        case tuple() | list():
            return [_base64(item) for item in value]
        case _:
            return value
