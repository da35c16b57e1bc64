"""Looks for schedules that a trial left, on the host and after its seal: are they there, and have they run?

In: the schedules that keep a run open. Out: looks, in words that can be recorded. The rule it keeps: that something has
not run is said only where it was gone, or nobody could start it, before it was due; all else is not known.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from policies.triggers import Reads, triggers
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.tree import Tree
from supervisor.values import dataclass
from supervisor.verdict.settled_later import LeftSchedule

_NANO = 1_000_000_000
_SYSTEMD = Path("/run/systemd/system")
"""There while systemd runs the machine: sd_booted(3)."""
_PATIENCE_S = 5.0
_HOUR = 60
_RAN = ("LastTriggerUSec", "ExecMainStartTimestamp")
_ASKED = ("LoadState", "ActiveState", *_RAN)
_NEVER = frozenset({"", "0", "n/a"})
_UNITS = (".timer", ".path", ".service", ".socket", ".target")
_RUNNING = b"="
"""Begins the name that atd gives to a job that it has taken: atd(8), `=` queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen: see `supervisor.events.ScheduleChecked`."""

    state: str
    fired: bool | None
    why: str


def look_at(schedule: LeftSchedule, place: bytes, *, now_ns: int, same_boot: bool) -> Look:
    """Look once.

    Args:
        schedule: that was left.
        place: its absolute path on the host.
        now_ns: CLOCK_REALTIME, before anything was looked at.
        same_boot: the machine runs since before the trial.
    """
    state = _state(schedule, place)
    if state == "gone" and _is_taken(place):
        return Look(state="running", fired=True, why="its daemon has taken it")
    trigger = triggers().find(place, 0o777)
    if trigger is not None and trigger.reads is not Reads.NOTHING:
        return _by_time(schedule, state, now_ns, job=trigger.reads is Reads.AT_JOB)
    if trigger is not None and trigger.what.startswith("systemd"):
        return _by_systemd(state, place, same_boot=same_boot)
    return Look(state=state, fired=None, why="nobody tells when it runs")


def _state(schedule: LeftSchedule, place: bytes) -> str:
    """Compare what is at its path with what the trial left there, and with what was before."""
    above, _, name = place.rpartition(b"/")
    try:
        with Tree(above or b"/") as tree:
            found = Observer().state(tree, name)
    except FileNotFoundError:
        return "gone"
    except OSError:
        return "unreadable"
    if found is None:
        return "gone"
    if found.digest is None:
        return "unreadable"
    if found.digest == schedule.after:
        return "there"
    return "restored" if schedule.before is not None and found.digest == schedule.before else "changed"


def _is_taken(place: bytes) -> bool:
    """Tell whether atd is at a job: it then has the same name, with another first character."""
    above, _, name = place.rpartition(b"/")
    return os.path.lexists(above + b"/" + _RUNNING + name[1:])


def _by_time(schedule: LeftSchedule, state: str, now_ns: int, *, job: bool) -> Look:
    """Tell by when it was due: before that a daemon starts nothing."""
    due_ns = schedule.next_ns
    if due_ns is None:
        return Look(state=state, fired=None, why="when it runs was not known")
    if now_ns < due_ns:
        return Look(state=state, fired=False, why=f"it was due {_span(due_ns - now_ns)} later")
    if job and state == "there":
        return Look(state=state, fired=False, why="it is due, and still waits in the queue")
    return Look(state=state, fired=None, why="it was due before this was looked at")


def _by_systemd(state: str, place: bytes, *, same_boot: bool) -> Look:
    """Ask systemd where it runs the machine; where it does not, and did not since before the trial, nothing ran."""
    if not same_boot:
        return Look(state=state, fired=None, why="the machine was started anew since")
    if not _SYSTEMD.is_dir():
        if any(_comm(entry) == "systemd" for entry in Path("/proc").glob("[0-9]*")):
            return Look(state=state, fired=None, why="a systemd runs here that cannot be asked")
        return Look(state=state, fired=False, why="no systemd runs on this machine")
    name = os.fsdecode(place.rpartition(b"/")[2])
    if not name.endswith(_UNITS):
        return Look(state=state, fired=None, why="it is no unit that systemd could be asked about")
    fired, why = read_unit(_show(name, user=b"/user/" in place))
    return Look(state=state, fired=fired, why=why)


def _comm(entry: Path) -> str:
    try:
        return (entry / "comm").read_text().strip()
    except OSError:
        return ""


def _show(unit: str, *, user: bool) -> str:
    words = ["systemctl", *(["--user"] if user else []), "show", "-p", ",".join(_ASKED), unit]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_PATIENCE_S, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def read_unit(shown: str) -> tuple[bool | None, str]:
    """Read what ``systemctl show`` says of a unit: whether it ran since boot, None when that is not known, and why."""
    said = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if said.get("LoadState") != "loaded":
        return None, "systemd does not know it any more"
    if any(said.get(name, "") not in _NEVER for name in _RAN):
        return True, "systemd says that it ran"
    if "LastTriggerUSec" not in said or said.get("ActiveState") != "active":
        # Only a timer says when it started something, and only while it is active: any other unit is forgotten when it
        # has ended, and known again, without its past, as soon as somebody asks for it.
        return None, "systemd does not tell whether it ran before"
    return False, "systemd says that it has not run since boot"


def _span(ns: int) -> str:
    minutes, seconds = divmod(ns // _NANO, 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= _HOUR else f"{minutes} min {seconds} s"
