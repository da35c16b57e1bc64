"""Triggers that a trial left: found among its files, read where they may fire, and told as events.

In: facts, and the stage to read from. Out: the same facts with what was found, every piece of it in the log, so that
whoever reads the log later needs no disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from policies.triggers import Reads, Trigger, triggers
from policies.types import FilesMode
from supervisor import clock
from supervisor.events import ScheduleFound
from supervisor.evidence.facts import Facts, Timeline
from supervisor.evidence.schedules import Found, absolute, find_schedules, with_schedules

if TYPE_CHECKING:
    from supervisor.launch.stage.inplace import InPlace
    from supervisor.launch.stage.stage import Stage
    from supervisor.trial.trial import Trial

MAX_BYTES = 64 << 10
"""Of a schedule that is longer the next firing is not known."""

_NANO = 1_000_000_000
_USER_FIELDS, _SYSTEM_FIELDS = 5, 6
_NICKNAMES = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_AT_JOB_LENGTH = 14


def record_schedules(trial: Trial, stage: Stage | InPlace, facts: Facts) -> Facts:
    """Record what was left to run later, and give the facts with it."""
    if not facts.files:
        return facts
    direct = trial.prepared.request.policy.files.mode is FilesMode.DIRECT
    found = [
        _record(trial, stage, facts, one)
        for one in find_schedules(facts, stage.workspace, triggers().find, direct=direct)
    ]
    return with_schedules(facts, found)


def _record(trial: Trial, stage: Stage | InPlace, facts: Facts, found: Found) -> ScheduleFound:
    """Tell of one; what was read at once may have been started from the beginning of the trial on."""
    path, trigger = absolute(found.history, stage.workspace), found.trigger
    reads = found.kept and not found.gone and trigger.reads is not Reads.NOTHING
    content = stage.read(path, MAX_BYTES) if reads else None
    from_s = read_from_s(found, facts.timeline, clock.now_s())
    return trial.record(
        ScheduleFound,
        path=found.history.path,
        what=trigger.what,
        when=trigger.when.value,
        route=trigger.route,
        kept=found.kept,
        next_ns=None if content is None else next_firing_ns(trigger, path, content, from_s),
        gone=found.gone,
    )


def read_from_s(found: Found, line: Timeline, now_s: float) -> float:
    """Tell from when on a trigger may have been read, CLOCK_REALTIME; ``now_s`` is when it is looked at."""
    if not found.live or line.released_ns is None:
        return now_s
    return (line.released_ns + line.realtime_offset_ns) / _NANO


def next_firing_ns(trigger: Trigger, path: bytes, content: bytes, now_s: float) -> int | None:
    """Tell when a schedule fires next, CLOCK_REALTIME in ns; None when it does not say, or not so that we can read it.

    One line that cannot be read makes the whole unknown: it may be the one that fires first.

    Args:
        trigger: its kind.
        path: absolute; a job of at says its time by its name.
        content: of the file.
        now_s: from when on it may be started, CLOCK_REALTIME.
    """
    if trigger.reads is Reads.AT_JOB:
        return _at_job_ns(path)
    try:
        moments = [_next_ns(words, now_s) for words in _cron_lines(content, trigger.reads)]
    except ValueError:
        return None
    return min(moments, default=None)


def _at_job_ns(path: bytes) -> int | None:
    """Read a job's name, hexadecimal: queue, five digits of its number, eight of the minute since the epoch."""
    name = path.rpartition(b"/")[2].decode("ascii", "replace")
    try:
        return int(name[6:], 16) * 60 * _NANO if len(name) == _AT_JOB_LENGTH else None
    except ValueError:
        return None


def _cron_lines(content: bytes, reads: Reads) -> Iterator[str]:
    """Give the times of every line, as crontab(5) has them.

    Raises:
        ValueError: a line is none of it.
    """
    fields = _SYSTEM_FIELDS if reads is Reads.SYSTEM_CRONTAB else _USER_FIELDS
    for raw in content.decode("utf-8", "replace").splitlines():
        line = raw.strip()
        if not line or line.startswith("#") or _is_setting(line):
            continue
        words = line.split()
        if words[0] in _NICKNAMES:
            yield words[0]
        elif len(words) <= fields or words[0].startswith("@"):
            raise ValueError(line)
        else:
            yield " ".join(words[:_USER_FIELDS])


def _is_setting(line: str) -> bool:
    name, equals, _ = line.partition("=")
    return bool(equals) and name.strip().isidentifier()


def _next_ns(words: str, now_s: float) -> int:
    """Give the first moment at or after the minute that runs, in the zone of this machine.

    Raises:
        ValueError: these are no times.
    """
    from croniter import croniter  # noqa: PLC0415 - only a run that leaves a crontab needs it

    here = datetime.fromtimestamp(now_s, tz=UTC).astimezone()
    minute = here.replace(second=0, microsecond=0) - timedelta(minutes=1)
    try:
        moment: datetime = croniter(words, minute).get_next(datetime)
    except (KeyError, TypeError) as err:
        raise ValueError(words) from err
    return round(moment.timestamp()) * _NANO
