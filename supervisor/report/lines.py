"""A report as lines with a tone each span: one form for plain text and for colour."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Tone(StrEnum):
    """What a span means; `supervisor.report.colour` says how that looks."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    OPEN = "open"
    HEADING = "heading"
    FAINT = "faint"


class Span(NamedTuple):
    """A piece of one line. The text is harmless already (`supervisor.report.safe`)."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Span, ...]
"""One line, without its end."""

VERDICT_TONES = {
    "final": Tone.GOOD,
    "separate": Tone.GOOD,
    "clean": Tone.GOOD,
    "unresolved": Tone.OPEN,
    "connected": Tone.BAD,
    "violated": Tone.BAD,
}
"""How each verdict is told."""


def line(*spans: str | Span) -> Line:
    """Make a line of texts and spans."""
    return tuple(span if isinstance(span, Span) else Span(span) for span in spans)


def verdict_span(verdict: str) -> Span:
    """Give a verdict with its tone; one that is not known here is told as open."""
    return Span(verdict, VERDICT_TONES.get(verdict, Tone.OPEN))


def plain(lines: Iterable[Line]) -> str:
    """Give the text without tones, every line ended."""
    return "".join(f"{''.join(span.text for span in spans)}\n" for spans in lines)
