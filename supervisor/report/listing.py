"""The list of ``supervise ls``: one run a line, the newest last; or the same as JSON."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from supervisor.report.lines import Line, Span, Tone, line, verdict_span
from supervisor.report.safe import safe, safe_command, shorten
from supervisor.values import dataclass

COMMAND_WIDTH = 60
"""How long the command may be."""


class RunState(StrEnum):
    """How far a run came. Whether its log is unaltered is asked of ``supervise verify``."""

    RUNNING = "running"
    UNSEALED = "unsealed"
    SEALED = "sealed"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One line of the table.

    Attributes:
        verdicts: finality, separation, scope; None for a run that has none, or whose argument cannot be read.
        command: empty when it was never written down; undecodable bytes are lone surrogates.
        unfinished: its commit was begun, and is not finished.
    """

    id: str
    state: RunState
    verdicts: tuple[str, str, str] | None = None
    name: str | None = None
    command: tuple[str, ...] = ()
    unfinished: bool = False


def listing(runs: Iterable[ListedRun]) -> Iterator[Line]:
    """Give the table, or one line that says there is none."""
    empty = True
    for run in runs:
        empty = False
        yield _row(run)
    if empty:
        yield line(Span("no runs", Tone.FAINT))


def _row(run: ListedRun) -> Line:
    if run.verdicts is None:
        verdicts: list[str | Span] = [Span(f"{run.state.value:<33}", Tone.OPEN)]
    else:
        verdicts = [part for verdict in run.verdicts for part in (*_padded(verdict), " ")]
    command = shorten(safe_command(run.command), COMMAND_WIDTH) if run.command else "?"
    name = f"{safe(run.name)}: " if run.name else ""
    unfinished = Span(f", commit not finished: supervise commit {run.id}", Tone.BAD) if run.unfinished else ""
    return line(f"{run.id}  ", *verdicts, f" {name}{command}", unfinished)


def _padded(verdict: str) -> tuple[Span, str]:
    return verdict_span(verdict), " " * (10 - len(verdict))


def listing_json(runs: Iterable[ListedRun]) -> list[dict[str, Any]]:
    """Give one mapping a run: what the table shows, whole."""
    return [_mapping(run) for run in runs]


def _mapping(run: ListedRun) -> dict[str, Any]:
    finality, separation, scope = run.verdicts or (None, None, None)
    item = {"run": run.id, "state": run.state.value, "finality": finality, "separation": separation, "scope": scope}
    return item | {"commit_unfinished": run.unfinished, "name": run.name} | _words(run.command)


def _words(command: tuple[str, ...]) -> dict[str, list[str]]:
    """Give the words as text, or all of them in base64 when one is none."""
    raw = [word.encode(errors="surrogateescape") for word in command]
    try:
        return {"command": [word.decode() for word in raw]}
    except UnicodeDecodeError:
        return {"command_b64": [b64encode(word).decode() for word in raw]}
