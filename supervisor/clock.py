"""The trusted clocks: CLOCK_BOOTTIME for what happened when, and its distance from the time of day."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def boottime_ns() -> int:
    """Give CLOCK_BOOTTIME: the clock of every event, which also counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def realtime_offset_ns() -> int:
    """Give what is added to CLOCK_BOOTTIME for the time of day."""
    return time.time_ns() - boottime_ns()


def now_rfc3339() -> str:
    """Give the time of day, UTC, as manifests hold it."""
    return datetime.now(tz=UTC).isoformat().replace("+00:00", "Z")


def now_utc() -> datetime:
    """Give the time of day, aware."""
    return datetime.now(tz=UTC)


def now_s() -> float:
    """Give the time of day in seconds since the epoch."""
    return time.time()
