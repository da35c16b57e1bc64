"""Words for people, as sentences of evidence and verdict use them: paths, and one way to name a process everywhere.

A process is ``sleep 61.5 (pid 12)``: its command line, and its pid as the trial sees it. Where another process of the
trial had the same pid, its id follows, which is what ``supervise why`` takes: ``sleep 61.5 (pid 12, 412@8123456789)``.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from supervisor.events import ProcessKey
from supervisor.evidence.facts import Process

_LONGEST = 120
NOBODY_KNOWN = "nobody known"
"""Stands for the process of an event that has none."""


class Names:
    """Names of the processes of one trial."""

    def __init__(self, processes: Iterable[Process]) -> None:
        """Find out which pids were given twice."""
        self._by_key = {process.key: process for process in processes}
        times = Counter(process.pid for process in self._by_key.values())
        self._reused = frozenset(pid for pid, count in times.items() if count > 1)

    def of(self, process: Process) -> str:
        """Name a process."""
        return name_process(process, unique=process.pid in self._reused)

    def find(self, key: ProcessKey | None) -> str:
        """Name whoever has a key."""
        process = self._by_key.get(key) if key else None
        return self.of(process) if process else f"process {key}" if key else NOBODY_KNOWN


def name_process(process: Process, *, unique: bool = False) -> str:
    """Name a process; ``unique`` adds its id."""
    words = " ".join(shlex.quote(show(word)) for word in process.argv) or show(process.exe) or "a process"
    words = words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
    return f"{words} (pid {process.pid}, {process.key})" if unique else f"{words} (pid {process.pid})"


def show(raw: bytes) -> str:
    """Give bytes for people: UTF-8, on one line, the rest escaped."""
    text = raw.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def listed(names: Sequence[str], *, width: int = 100) -> str:
    """Join names by commas, as many whole ones as fit (one always does), and count the rest."""
    kept: list[str] = []
    for name in names:
        if kept and sum(map(len, kept)) + 2 * len(kept) + len(name) > width:
            break
        kept.append(name)
    rest = len(names) - len(kept)
    return ", ".join(kept) + (f" and {rest:,} more" if rest else "")
