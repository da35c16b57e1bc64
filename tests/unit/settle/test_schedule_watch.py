"""Looking for schedules on the host after the seal: what is said of each, and when nothing is."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.settle.schedule_watch import Look, look_at, read_unit
from supervisor.verdict.settled_later import LeftSchedule

S = 1_000_000_000
GONE_JOB = b"/var/spool/cron/atjobs/a-never-there"


def schedule(*, next_ns: int | None = None, before: str | None = None, after: str | None = None) -> LeftSchedule:
    """Give one that was left."""
    return LeftSchedule(path=b"x", what="x", next_ns=next_ns, before=before, after=after)


def digest(text: str) -> str:
    """Give the digest of a content."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def look(place: bytes, left: LeftSchedule, *, now_ns: int = 10 * S, same_boot: bool = True) -> Look:
    """Look once."""
    return look_at(left, place, now_ns=now_ns, same_boot=same_boot)


@pytest.mark.parametrize(("next_ns", "fired"), [(11 * S, False), (10 * S, None), (9 * S, None), (None, None)], ids=repr)
def test_one_that_is_gone_has_not_run_if_it_was_not_due(next_ns: int | None, fired: bool | None) -> None:  # noqa: FBT001
    """After that, or where it was not known when, nobody can tell."""
    seen = look(GONE_JOB, schedule(next_ns=next_ns))
    assert (seen.state, seen.fired) == ("gone", fired)


def test_what_is_at_its_path_is_compared_with_what_the_trial_left(tmp_path: Path) -> None:
    """As it was left, as it was before the trial, or somebody else's."""
    timer = tmp_path / ".config" / "systemd" / "user" / "x.timer"
    timer.parent.mkdir(parents=True)
    left = schedule(before=digest("before"), after=digest("after"))
    for text, state in (("after", "there"), ("before", "restored"), ("else", "changed")):
        timer.write_text(text)
        assert look(bytes(timer), left).state == state
    timer.unlink()
    assert look(bytes(timer), left).state == "gone"
    assert look(bytes(timer), replace(left, before=None)).state == "gone"


def test_of_a_machine_that_was_started_anew_nothing_is_known(tmp_path: Path) -> None:
    """Whatever starts at boot may have started it."""
    timer = bytes(tmp_path / ".config" / "systemd" / "user" / "x.timer")
    assert look(timer, schedule(), same_boot=False).fired is None


def test_what_nobody_tells_the_time_of_is_not_known(tmp_path: Path) -> None:
    """A script of cron's directories, say, or a file that is no trigger any more."""
    assert look(b"/etc/cron.daily/never-there", schedule()).fired is None
    assert look(bytes(tmp_path / "nothing"), schedule()).fired is None


@pytest.mark.parametrize(
    ("shown", "fired"),
    [
        ("LoadState=loaded\nActiveState=active\nLastTriggerUSec=n/a\n", False),
        ("LoadState=loaded\nLastTriggerUSec=Mon 2026-11-30 14:00:00 UTC\n", True),
        ("LoadState=loaded\nActiveState=active\nLastTriggerUSec=0\n", False),
        ("LoadState=loaded\nActiveState=inactive\nLastTriggerUSec=n/a\n", None),
        ("LoadState=loaded\nActiveState=inactive\nExecMainStartTimestamp=\n", None),
        ("LoadState=loaded\nActiveState=active\n", None),
        ("LoadState=loaded\nExecMainStartTimestamp=Mon 2026-11-30 14:00:00 UTC\n", True),
        ("LoadState=not-found\nLastTriggerUSec=n/a\n", None),
        ("", None),
    ],
)
def test_systemd_is_believed_about_timers_that_are_active(shown: str, fired: bool | None) -> None:  # noqa: FBT001
    """A unit that was unloaded may have run before, and a `.path` unit says nothing of what it started."""
    assert read_unit(shown)[0] is fired
