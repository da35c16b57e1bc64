"""What is told while a trial runs: the live line of a terminal, and the records of ``--status-fd``."""

from __future__ import annotations

from enum import StrEnum

from supervisor.values import dataclass


class Phase(StrEnum):
    """Where a trial stands."""

    HELD = "held"
    RELEASED = "released"
    ENDPOINT = "endpoint"
    SETTLING = "settling"
    SETTLED = "settled"
    JUDGING = "judging"
    SEALED = "sealed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a trial is, told at each change of phase and several times a second while it settles.

    Attributes:
        run: id.
        elapsed_s: since the release; 0 before it.
        processes: of the trial, alive now.
        events: in the log so far.
        deadline_s: when settling ends, on the scale of ``elapsed_s``, or None.
        heard: Ctrl-C at the terminal ends the following.
    """

    run: str
    phase: Phase
    elapsed_s: float = 0.0
    processes: int = 0
    events: int = 0
    deadline_s: float | None = None
    heard: bool = False


def live_line(progress: Progress) -> str | None:
    """Give the line to show, or None for no line: until the endpoint the terminal is CMD's."""
    if progress.phase is not Phase.SETTLING:
        return None
    until = "" if progress.deadline_s is None else f" of {progress.deadline_s:.1f}"
    return (
        f"supervise: settling, {progress.elapsed_s:.1f}{until} s, "
        f"{count(progress.processes, 'process', 'processes')}, {count(progress.events, 'event')}"
        f"{'; Ctrl-C ends following' if progress.heard else ''}"
    )


def progress_record(progress: Progress) -> dict[str, object]:
    """Give the JSON object of one status line."""
    return {
        "phase": progress.phase.value,
        "run": progress.run,
        "elapsed_s": round(progress.elapsed_s, 3),
        "processes": progress.processes,
        "events": progress.events,
    }


def count(number: int, one: str, many: str | None = None) -> str:
    """Give a number and its word: ``1 file``, ``12,000 events``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
