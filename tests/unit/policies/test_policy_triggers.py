"""What makes something run later, by where it lies."""

from __future__ import annotations

import pytest

from policies.triggers import Reads, When, parse_triggers, triggers

AUTONOMOUS = [
    "/var/spool/cron/crontabs/root",
    "/var/spool/cron/root",
    "/etc/crontab",
    "/etc/cron.d/job",
    "/etc/anacrontab",
    "/var/spool/cron/atjobs/a0000101c9b1f5",
    "/etc/systemd/system/x.timer",
    "/etc/systemd/system/multi-user.target.wants/x.service",
    "/root/.config/systemd/user/x.path",
    "/srv/somebody/.config/systemd/user/timers.target.wants/x.timer",
    "/etc/rc.local",
    "/etc/udev/rules.d/99-x.rules",
]
DORMANT = [
    "/home/me/.bashrc",
    "/srv/work/.profile",
    "/home/me/work/.git/config",
    "/home/me/.config/autostart/x.desktop",
    "/etc/profile.d/x.sh",
    "/home/me/work/.github/workflows/ci.yml",
    "/etc/ld.so.preload",
]
NEITHER = [
    "/home/me/code/tool.c",
    "/home/me/work/cron/crontabs/root",
    "/home/me/work/bashrc",
    "/etc/passwd",
    "/var/spool/cron/atjobs/.SEQ",
    "/home/me/work/.git/objects/ab/cd",
]


@pytest.mark.parametrize("path", AUTONOMOUS)
def test_what_a_clock_or_a_daemon_starts_is_autonomous(path: str) -> None:
    """It runs although nobody does anything."""
    found = triggers().find(path.encode(), 0o644)
    assert found is not None
    assert found.when is When.AUTONOMOUS


@pytest.mark.parametrize("path", DORMANT)
def test_what_waits_for_somebody_is_dormant(path: str) -> None:
    """It runs only when somebody logs in, commits or opens something."""
    found = triggers().find(path.encode(), 0o644)
    assert found is not None
    assert found.when is When.DORMANT


@pytest.mark.parametrize("path", NEITHER)
def test_other_files_start_nothing(path: str) -> None:
    """A file that only looks like one, or lies elsewhere, is none."""
    assert triggers().find(path.encode(), 0o755) is None


def test_a_hook_counts_when_it_may_be_executed() -> None:
    """Git passes over a hook that is not executable, and over the samples."""
    hook = b"/home/me/work/.git/hooks/post-commit"
    assert triggers().find(hook, 0o644) is None
    assert triggers().find(hook, 0o755) is not None
    assert triggers().find(hook + b".sample", 0o755) is None


def test_the_way_to_read_the_next_firing_is_known_for_cron_and_at() -> None:
    """Only those say it in a form that is read here."""
    read = {kind.reads for kind in triggers().kinds}
    assert read == {Reads.CRONTAB, Reads.SYSTEM_CRONTAB, Reads.AT_JOB, Reads.NOTHING}


def test_a_glob_without_a_literal_component_is_refused() -> None:
    """It would have to be matched against every file of every run."""
    with pytest.raises(ValueError, match="without wildcards"):
        parse_triggers([{"what": "x", "when": "dormant", "paths": ["/**/*"]}])
