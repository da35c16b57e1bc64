"""When a schedule that was left fires next."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from policies.triggers import triggers
from supervisor.conclude.schedules import next_firing_ns

NOW_S = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC).timestamp()
CRONTAB = b"/var/spool/cron/crontabs/root"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read crontabs in one zone, whatever this machine's is."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def firing(content: bytes, path: bytes = CRONTAB) -> datetime | None:
    """Ask, and give the answer as a moment."""
    trigger = triggers().find(path, 0o644)
    assert trigger is not None
    found = next_firing_ns(trigger, path, content, NOW_S)
    return None if found is None else datetime.fromtimestamp(found / 1e9, tz=UTC)


def test_the_first_line_to_fire_decides() -> None:
    """Settings and comments are passed over; the earliest of all lines counts."""
    content = b"# mine\nMAILTO=me\n0 3 * * * a\n30 18 * * * b\n"
    assert firing(content) == datetime(2026, 3, 1, 18, 30, tzinfo=UTC)


def test_the_running_minute_counts() -> None:
    """A daemon that looks a moment later may still start what is due in this minute."""
    assert firing(b"* * * * * a\n") == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_a_nickname_is_read() -> None:
    """crontab(5) has words for the usual times."""
    assert firing(b"@daily a\n") == datetime(2026, 3, 2, tzinfo=UTC)


def test_a_system_crontab_names_a_user_too() -> None:
    """The sixth word is no command there."""
    assert firing(b"0 13 * * * root a\n", b"/etc/cron.d/x") == datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert firing(b"0 13 * * * root\n", b"/etc/cron.d/x") is None


@pytest.mark.parametrize(
    "content", [b"@reboot a\n", b"0 3 * * * a\nnonsense\n", b"99 * * * * a\n", b"a = b\n", b""], ids=repr
)
def test_what_cannot_be_read_is_not_known(content: bytes) -> None:
    """One line that is not understood, or none at all: nobody can say when."""
    assert firing(content) is None


def test_a_job_of_at_says_its_minute_by_its_name() -> None:
    """Queue, number, minutes since the epoch."""
    minute = int(NOW_S) // 60 + 5
    assert firing(b"#!/bin/sh\n", b"/var/spool/cron/atjobs/a00001%08x" % minute) == datetime(
        2026, 3, 1, 12, 5, tzinfo=UTC
    )
    assert firing(b"", b"/var/spool/cron/atjobs/zzz") is None
