"""The events: what was seen, as past facts, subject first.

A class ``FileOpened`` has the wire kind ``file.opened``; the kind is derived from the name, once, here. Events are
`msgspec.Struct` values instead of dataclasses because a log holds millions of them and a struct is made in a sixth of
the time. Paths, arguments and names stay ``bytes`` until the report.

Every event has:
    n: its number in the log, from 0, in log order.
    time_ns: CLOCK_BOOTTIME in nanoseconds.
    process: who did it, or None when nobody in the trial did.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

import msgspec


class Origin(StrEnum):
    """Who vouches for an event. Only ``trial`` is not trusted: it closes no route."""

    KERNEL = "kernel"
    GATEWAY = "gateway"
    SUPERVISOR = "supervisor"
    SERVICE = "service"
    TRIAL = "trial"


class ProcessKey(NamedTuple):
    """One process for ever: host pid of the thread group, and its start on CLOCK_BOOTTIME."""

    pid: int
    start_ns: int

    def __str__(self) -> str:
        """Give the form that reports and ``supervise why`` use: ``412@8123456789``."""
        return f"{self.pid}@{self.start_ns}"


def wire_kind(class_name: str) -> str:
    """Derive the wire kind from a class name: ``FileOpened`` is ``file.opened``.

    The first word is the subject; what follows is joined by ``_``.
    """
    subject, *fact = re.findall(r"[A-Z][a-z]*", class_name)
    return f"{subject.lower()}.{'_'.join(fact).lower()}"


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=wire_kind):
    """What all events have in common."""

    n: int
    time_ns: int
    origin: Origin = Origin.KERNEL
    process: ProcessKey | None = None

    @property
    def kind(self) -> str:
        """The wire kind, e.g. ``file.opened``."""
        return str(self.__struct_config__.tag)
