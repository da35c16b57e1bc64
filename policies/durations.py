"""Durations and periods as people write them: ``500ms``, ``1s``, ``2m``, ``within:10s``.

A duration is one number and one unit. A bare number is refused: ``--settle 2`` could mean two of anything.
"""

from __future__ import annotations

import re

from policies.types import Period, PeriodKind
from supervisor.errors import PolicyError

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds in each unit."""

DURATION_PATTERN = r"[0-9]+(\.[0-9]+)?(ms|s|m|h|d)"
"""What a duration looks like, whole; also given to the JSON Schema."""

PERIOD_PATTERN = rf"endpoint|eventually|within[: ]{DURATION_PATTERN}"
"""What a period looks like, whole."""


def parse_duration(text: str, *, place: str) -> float:
    """Read a duration.

    Args:
        text: such as ``1s``, ``500ms``, ``1.5m``.
        place: the key or option, for the error.

    Returns:
        Seconds, 0 or more.

    Raises:
        PolicyError: when the text is no duration.
    """
    if not re.fullmatch(DURATION_PATTERN, text):
        message = f"expected a duration such as 500ms, 10s, 2m or 1h, got {text!r}"
        raise PolicyError(message, place=place)
    number, unit = re.split(r"(?<=[0-9])(?=[a-z])", text)
    return round(float(number) * UNITS_S[unit], 9)


def format_duration(seconds: float) -> str:
    """Give the form that `parse_duration` reads back as the same number of seconds."""
    if seconds < 1 and seconds > 0:
        return f"{_plain(seconds * 1000)}ms"
    return f"{_plain(seconds)}s"


def parse_period(text: str, *, place: str) -> Period:
    """Read a period: ``endpoint``, ``eventually`` or ``within:D`` (``within D`` as reports print it is read too).

    Raises:
        PolicyError: when the text is none of them, or D is no duration above zero.
    """
    kind, _, rest = text.replace(" ", ":", 1).partition(":")
    if kind == PeriodKind.WITHIN and rest:
        return _within(parse_duration(rest, place=place), place)
    if text in {PeriodKind.ENDPOINT, PeriodKind.EVENTUALLY}:
        return Period(kind=PeriodKind(text))
    message = f"expected endpoint, eventually or within:D such as within:10s, got {text!r}"
    raise PolicyError(message, place=place)


def format_period(period: Period) -> str:
    """Give the form that `parse_period` reads: ``within:10s``."""
    return period.kind.value if period.within_s is None else f"within:{format_duration(period.within_s)}"


def _within(seconds: float, place: str) -> Period:
    if seconds <= 0:
        message = "expected a duration above zero after within:, got 0 (the period `endpoint` says that)"
        raise PolicyError(message, place=place)
    return Period(kind=PeriodKind.WITHIN, within_s=seconds)


def _plain(number: float) -> str:
    """Write a number without an exponent and without needless zeros."""
    text = f"{number:.9f}"
    return text.rstrip("0").rstrip(".")
