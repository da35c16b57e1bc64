"""Words for people. In: facts; out: how the completion argument writes bytes and moments."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime

_BILLION = 1_000_000_000


def exact(raw: bytes) -> str | None:
    """Give bytes as text when they are UTF-8, else None."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def exact_all(words: Iterable[bytes]) -> list[str] | None:
    """Give all words as text, None when one of them is no UTF-8."""
    texts = [exact(word) for word in words]
    known = [text for text in texts if text is not None]
    return known if len(known) == len(texts) else None


def b64(raw: bytes) -> str:
    """Give bytes in base64."""
    return base64.b64encode(raw).decode("ascii")


def moment(boottime_ns: int, offset_ns: int) -> str:
    """Give a CLOCK_BOOTTIME moment as RFC 3339 in UTC with nanoseconds.

    Args:
        boottime_ns: the moment.
        offset_ns: what CLOCK_REALTIME was ahead when the trial was held.
    """
    seconds, rest = divmod(boottime_ns + offset_ns, _BILLION)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def span_s(span_ns: int) -> str:
    """Give a time span for people, in seconds."""
    return f"{span_ns / _BILLION:.3g} s"
