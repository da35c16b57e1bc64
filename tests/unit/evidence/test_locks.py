"""Spans of locks from lock events, in whatever order these came."""

from __future__ import annotations

import pytest

from supervisor.events import Event, FileLocked, FileLookedUp, ProcessKey
from supervisor.events.files import READ_WINDOW_NS
from supervisor.evidence.locks import LockFold
from supervisor.evidence.processes import Cast, ProcessFold
from supervisor.evidence.routes import LockUse

ME, CHILD = ProcessKey(7, 70), ProcessKey(8, 80)
ENDED_NS = {ME: 900, CHILD: 500, None: 1000}


def locked(at: int, lock: str = "exclusive", process: ProcessKey = ME, **fields: object) -> FileLocked:
    """One event of a flock of /s/x."""
    common = {"path": b"/s/x", "device": 1, "inode": 2, "how": "flock", "each": True}
    return FileLocked(n=at, time_ns=at, process=process, lock=lock, **{**common, **fields})  # type: ignore[arg-type]


def spans(*events: Event) -> list[LockUse]:
    """Fold them, the last one first."""
    fold = LockFold()
    for event in reversed(events):
        fold.handlers()[type(event)](event)
    return list(fold.finish(nobody(), lambda process: ENDED_NS[process], lambda path: b"/host" + path))


def nobody() -> Cast:
    """A cast in which nobody belongs to the box."""
    return ProcessFold().cast(None, None, execs_lost=False)


def told(*events: Event) -> list[tuple[str, int, int]]:
    """Give how, and from when to when."""
    return [(use.how, use.first_ns, use.last_ns) for use in spans(*events)]


def test_a_lock_is_held_until_it_is_given_back() -> None:
    """By the name of the place, with its file and its events."""
    (use,) = spans(locked(1), locked(5, "unlocked"))
    assert (use.path, use.device, use.inode, use.sort, use.how) == (b"/host/s/x", 1, 2, "flock", "held")
    assert (use.first_ns, use.last_ns, use.events, use.exact) == (1, 5, (1, 5), True)


def test_a_lock_that_nobody_gave_back_lasts_until_the_process_ends() -> None:
    """The release may be among the events that are missing."""
    assert told(locked(1, process=CHILD)) == [("held", 1, 500)]


def test_where_not_each_is_told_it_may_last_until_the_end() -> None:
    """Only the first lock of the file is."""
    (use,) = spans(locked(1, process=CHILD, each=False))
    assert (use.last_ns, use.exact) == (1000, False)


def test_a_wait_lasts_until_the_next_event_of_who_waits() -> None:
    """Then it is held."""
    assert told(locked(1, waits=True), locked(4, process=CHILD), locked(6)) == [("waited", 1, 6), ("held", 4, 900)]


def test_a_wait_that_never_ended_lasts_as_long_as_who_waits() -> None:
    """It was killed."""
    assert told(locked(1, waits=True, process=CHILD)) == [("waited", 1, 500)]


def test_a_wait_for_the_trial_itself_is_its_own_affair() -> None:
    """The holder is inside."""
    assert told(locked(1), locked(2, "shared", CHILD, waits=True, inside=True), locked(3, "unlocked")) == [
        ("held", 1, 3)
    ]


def test_refusals_close_together_are_one_span() -> None:
    """Each may be as late as the time for which they are not told again."""
    later = 5_000_000_000
    assert told(locked(1, error=11), locked(2, error=11), locked(later, error=11)) == [
        ("refused", 1, 2 + READ_WINDOW_NS),
        ("refused", later, later + READ_WINDOW_NS),
    ]


@pytest.mark.parametrize(("at", "own"), [(3, True), (800, False)])
def test_a_refusal_while_the_trial_held_the_file_may_be_its_own(at: int, own: bool) -> None:  # noqa: FBT001
    """Else somebody else must have held it."""
    uses = spans(locked(1), locked(at, error=11, process=CHILD), locked(5, "unlocked"))
    assert [use.own for use in uses if use.how == "refused"] == [own]


def test_records_and_whole_files_do_not_know_of_each_other() -> None:
    """Nor do two files."""
    uses = spans(locked(1), locked(2, how="process"), locked(3, how="description"), locked(4, inode=3))
    assert [(use.sort, use.inode) for use in uses] == [("flock", 2), ("record", 2), ("flock", 3)]


def test_asking_who_holds_it_is_a_contact() -> None:
    """By fcntl only; other look-ups are not."""
    common = {"process": ME, "path": b"/s/x", "device": 1, "inode": 2}
    asked = FileLookedUp(n=3, time_ns=3, how="getlk", **common)  # type: ignore[arg-type]
    looked = FileLookedUp(n=4, time_ns=4, how="fstat", **common)  # type: ignore[arg-type]
    assert told(asked, looked) == [("asked", 3, 3)]
