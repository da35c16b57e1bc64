"""What paths were in a capture that changed afterwards. In: events of the supervisor, in any order; out: facts.

They are compared when the trial is over, so facts that were collected before that get them by `with_captured`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from supervisor.events import CaptureCompared, Event
from supervisor.evidence.facts import Facts
from supervisor.values import replace

NOTHING, UNKNOWN = "nothing", "unknown"
"""What was captured where nothing was, and where that cannot be told."""


class CaptureFold:
    """Collects what was compared."""

    def __init__(self) -> None:
        """Begin with nothing compared."""
        self._seen: list[CaptureCompared] = []

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {CaptureCompared: self._take}

    def _take(self, event: Event) -> None:
        if isinstance(event, CaptureCompared):
            self._seen.append(event)

    def finish(self) -> tuple[CaptureCompared, ...]:
        """Give them in the order of the log."""
        return tuple(sorted(self._seen, key=lambda event: event.n))


def with_captured(facts: Facts, compared: Iterable[CaptureCompared]) -> Facts:
    """Add what was compared to facts that were collected before."""
    return replace(facts, captured=tuple(compared))


def captured_in(facts: Facts, kept_in: str | None) -> Mapping[bytes, CaptureCompared]:
    """Give what paths were in one capture, named by its place below the directory of the run."""
    return {event.path: event for event in facts.captured if event.kept_in == kept_in}
