"""Events as JSON lines, for ``supervise events``: events in, one line of JSON each out.

A line begins with ``n``, ``t`` (RFC 3339, UTC, nanoseconds), ``kind``, ``origin`` and ``process``; then the event's own
fields. What is None is left out. Bytes are text when they are UTF-8; else the field is called ``<field>_b64`` (for a
list: all its items). Process keys are ``pid@start_ns``.

Rule: a line is one line and one JSON object, whatever names the trial chose, and shows as what it is: control
characters (C0, DEL, C1), line separators and directional marks are written as escapes: no name acts on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from supervisor.events import Event, ProcessKey, TrialHeld
from supervisor.evidence.acting import escape_acting
from supervisor.log.records import event_types

_SECOND = 1_000_000_000
_HELD_BACK = 65536
_CONTENT = frozenset({"content"})
"""Fields that hold what a file held, which is no name: always written in base64."""
_COMMON = ("n", "time_ns", "origin", "process")
_ENCODER = msgspec.json.Encoder()


def kinds() -> tuple[str, ...]:
    """Name every kind of event that a log can hold, sorted."""
    return tuple(sorted(event_types()))


def to_line(event: Event, *, realtime_offset_ns: int | None) -> bytes:
    r"""Write one event as a line, without the line feed.

    Args:
        event: any event.
        realtime_offset_ns: what must be added to CLOCK_BOOTTIME to get the time of day (`TrialHeld` records it). None
            when it is not known: ``t`` is then null and ``boottime_ns`` given.
    """
    item = _to_mapping(event, realtime_offset_ns)
    try:
        line = _ENCODER.encode(item)
    except UnicodeEncodeError:
        line = _ENCODER.encode(_without_surrogates(item))
    return escape_acting(line)


def to_lines(events: Iterable[Event], *, realtime_offset_ns: int | None = None) -> Iterator[bytes]:
    """Write events as lines; the offset, unless given, is taken from the log's `TrialHeld`.

    The few events before that one are held back until it comes, at most 65,536; in a log without it ``t`` is null.
    """
    source, first = iter(events), list[Event]()
    while realtime_offset_ns is None and len(first) < _HELD_BACK and (event := next(source, None)) is not None:
        first.append(event)
        if isinstance(event, TrialHeld):
            realtime_offset_ns = event.realtime_offset_ns
    for event in chain(first, source):
        yield to_line(event, realtime_offset_ns=realtime_offset_ns)


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _time(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, _SECOND)
    return f"{_second(seconds)}.{rest:09d}Z"


@lru_cache(maxsize=256)
def _own_fields(event_type: type[Event]) -> tuple[str, ...]:
    return tuple(name for name in event_type.__struct_fields__ if name not in _COMMON)


@lru_cache(maxsize=4096)
def _key(process: ProcessKey) -> str:
    return str(process)


def _to_mapping(event: Event, offset_ns: int | None) -> dict[str, Any]:
    event_type = type(event)
    item: dict[str, Any] = {
        "n": event.n,
        "t": None if offset_ns is None else _time(event.time_ns + offset_ns),
        "kind": event_type.__struct_config__.tag,
        "origin": event.origin,
    }
    if offset_ns is None:
        item["boottime_ns"] = event.time_ns
    if event.process is not None:
        item["process"] = _key(event.process)
    for name in _own_fields(event_type):
        value = getattr(event, name)
        kind = type(value)
        if name in _CONTENT:
            item[f"{name}_b64"] = value
        elif kind is bytes:
            _put_bytes(item, name, value)
        elif kind is ProcessKey:
            item[name] = _key(value)
        elif kind is tuple:
            _put_tuple(item, name, value)
        elif value is not None and value is not msgspec.UNSET:
            item[name] = value
    return item


def _put_bytes(item: dict[str, Any], name: str, value: bytes) -> None:
    try:
        item[name] = value.decode()
    except UnicodeDecodeError:
        item[f"{name}_b64"] = value  # msgspec writes bytes as base64


def _put_tuple(item: dict[str, Any], name: str, value: tuple[Any, ...]) -> None:
    if value and type(value[0]) is bytes:
        try:
            item[name] = [part.decode() for part in value]
        except UnicodeDecodeError:
            item[f"{name}_b64"] = value
    elif value and type(value[0]) is ProcessKey:
        item[name] = [_key(part) for part in value]
    else:
        item[name] = value


def _without_surrogates(item: dict[str, Any]) -> dict[str, Any]:
    # Texts that were decoded with surrogates stand for bytes: give those.
    plain: dict[str, Any] = {}
    for name, value in item.items():
        parts = value if isinstance(value, list | tuple) else (value,)
        raw = [part.encode(errors="surrogatepass") if isinstance(part, str) else part for part in parts]
        if any(isinstance(part, str) and _is_broken(part) for part in parts):
            plain[f"{name}_b64"] = raw if isinstance(value, list | tuple) else raw[0]
        else:
            plain[name] = value
    return plain


def _is_broken(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
