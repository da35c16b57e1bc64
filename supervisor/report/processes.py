"""The processes of a report: those that outlived the endpoint, then CMD, what it started, and what that started.

Laws:
    1. One that outlived the endpoint is never folded into a line with others.
    2. Every process is told in a line, in a line with others of its command line, or in the count of what is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supervisor.report.lines import Line, Span, Tone, line
from supervisor.report.live import count
from supervisor.report.words import name_of, process_of
from supervisor.verdict.completion import Completion
from supervisor.verdict.doings import ProcessSeen

LIMIT = 12
"""How many lines there are."""


def process_lines(completion: Completion) -> Iterator[Line]:
    """Tell of every process."""
    processes = completion.effects.processes
    if not processes:
        return
    groups = _grouped(processes)
    yield line()
    yield line(Span(f"processes ({len(processes):,})", Tone.HEADING))
    yield from (_group(group) for group in groups[:LIMIT])
    if left := sum(len(group) for group in groups[LIMIT:]):
        yield line(Span(f"  … {left:,} more not shown: supervise show RUN --format json", Tone.FAINT))


def _grouped(processes: Sequence[ProcessSeen]) -> list[list[ProcessSeen]]:
    """Group those that ran one command line, the ones nearest to CMD first."""
    deep = _depths(processes)
    groups: dict[tuple[str, str | None], list[ProcessSeen]] = {}
    for process in sorted(processes, key=lambda process: (not process.outlived, deep[process.id])):
        alone = process.id if process.outlived else None
        groups.setdefault((name_of(process), alone), []).append(process)
    return list(groups.values())


def _depths(processes: Sequence[ProcessSeen]) -> dict[str, int]:
    """Give how many ancestors each process has among these. Parents come before what they start."""
    deep: dict[str, int] = {}
    for process in processes:
        deep[process.id] = deep.get(process.parent or "", -1) + 1
    return deep


def _group(group: Sequence[ProcessSeen]) -> Line:
    first = group[0]
    more = f" and {count(len(group) - 1, 'other')} that ran the same" if len(group) > 1 else ""
    return line(f"  {process_of(first)}{more}", Span(", outlived the endpoint", Tone.OPEN) if first.outlived else "")
