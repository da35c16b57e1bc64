"""Who holds a run: one process, told apart from every other that ever had its pid.

A pid alone names nobody for long; with the process's start time and the boot it belongs to, it names one process for
ever. Runs and cgroups carry their owner, so that a later start can tell a live run from what a dead supervisor left.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from supervisor.values import dataclass

_START_TICKS_FIELD = 19
"""Index of ``starttime`` among the fields of /proc/PID/stat that follow the command name (proc(5), field 22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process for ever: its pid, its start in clock ticks since boot, and the id of that boot."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def current(cls) -> Owner:
        """Describe the calling process."""
        pid = os.getpid()
        return cls(pid=pid, start_ticks=_start_ticks(pid) or 0, boot_id=_boot_id())

    @classmethod
    def from_json(cls, data: bytes) -> Owner | None:
        """Read what `to_json` wrote; None when it is anything else."""
        try:
            fields = json.loads(data)
            return cls(pid=int(fields["pid"]), start_ticks=int(fields["start_ticks"]), boot_id=str(fields["boot_id"]))
        except (ValueError, KeyError, TypeError):
            return None

    def to_json(self) -> bytes:
        """Give the form that is kept in ``supervisor.json`` and on the cgroup."""
        fields = {"boot_id": self.boot_id, "pid": self.pid, "start_ticks": self.start_ticks}
        return json.dumps(fields, sort_keys=True).encode()

    def alive(self) -> bool:
        """Tell whether this very process still runs; a zombie has ended."""
        return self.boot_id == _boot_id() and _start_ticks(self.pid) == self.start_ticks


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_ticks(pid: int) -> int | None:
    """Read the start of a process, or None when it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in {b"Z", b"X"} else int(fields[_START_TICKS_FIELD])
