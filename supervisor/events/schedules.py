"""What will run later by itself: triggers that a trial left, as found when it had ended, and looked for since."""

from __future__ import annotations

from supervisor.events.base import Event


class ScheduleFound(Event, frozen=True, kw_only=True):
    """A file that makes something run later was left behind, or was where it is read while the trial ran.

    Attributes:
        path: relative to the workspace inside it, absolute elsewhere.
        what: which kind of trigger, see ``policies/triggers.toml``.
        when: ``autonomous`` or ``dormant``.
        route: ``schedule`` or ``container``.
        kept: it lies where writes are kept; elsewhere they are discarded.
        next_ns: when it runs next, CLOCK_REALTIME, from the beginning of the trial where it was read at once; None when
            it does not say, or not in a way that we can read.
        gone: it is not there any more, or not as it was; whether it was started meanwhile is not known.
    """

    path: bytes
    what: str
    when: str
    route: str
    kept: bool
    next_ns: int | None = None
    gone: bool = False


class ScheduleChecked(Event, frozen=True, kw_only=True):
    """A trigger that was left was looked for on the host after the seal; told first, when it differs, and at the end.

    Attributes:
        path: as in `ScheduleFound`.
        state: ``there`` as the trial left it, ``gone``, ``restored`` to what was before the trial, ``running`` (its
            daemon has taken it), ``changed`` by somebody else, or ``unreadable``.
        fired: whether it has run since; None when nobody can tell.
        why: what that rests on, in words.
    """

    path: bytes
    state: str
    fired: bool | None
    why: str
