"""Standard streams from their events, in whatever order these came."""

from __future__ import annotations

from itertools import permutations

import pytest

from supervisor.events import Event, FileOpened, FileWritten, Kind, StreamGiven, StreamLeft
from supervisor.evidence.given import StreamFold
from supervisor.evidence.routes import Stream

INODE = 7
OUTSIDE = {"path": b"/srv/log", "device": 1, "inode": INODE, "reachable": False}


def given(number: int = 1, **fields: object) -> StreamGiven:
    """A log of the host that was given for writing."""
    common = {"what": Kind.FILE, "path": b"/srv/log", "named": True, "device": 1, "inode": INODE, "writes": True}
    return StreamGiven(n=1, time_ns=1, number=number, **{**common, "ctime_ns": 5, **fields})  # type: ignore[arg-type]


def left(number: int = 1, **fields: object) -> StreamLeft:
    """The same log at the end, as it was."""
    common = {"position": 0, "size_bytes": 0, "mtime_ns": 0, "ctime_ns": 5}
    return StreamLeft(n=9, time_ns=9, number=number, **{**common, **fields})  # type: ignore[arg-type]


def opened(**fields: object) -> FileOpened:
    """A file that is not below the trial's root was opened, as through /proc/self/fd."""
    return FileOpened(n=4, time_ns=4, **{**OUTSIDE, "reads": True, "writes": False, **fields})  # type: ignore[arg-type]


def written(**fields: object) -> FileWritten:
    """Something was written to it."""
    common = {**OUTSIDE, "count": 1, "size_bytes": 1, "last_ns": 5}
    return FileWritten(n=5, time_ns=5, **{**common, **fields})  # type: ignore[arg-type]


def fold(*events: Event) -> Stream:
    """Fold them in every order, and give the only stream."""
    found = set()
    for order in permutations(events):
        one = StreamFold()
        for event in order:
            one.handlers()[type(event)](event)
        found.add(one.finish())
    ((stream,),) = found
    return stream


def test_what_was_given_for_writing_was_not_read() -> None:
    """Nor is it known to be unwritten while nobody looked at it again."""
    stream = fold(given())
    assert (stream.reads, stream.writes, stream.events) == (False, True, (1,))


def test_what_is_as_it_was_and_of_which_no_write_is_told_was_not_written() -> None:
    """Both: either alone proves nothing."""
    assert not fold(given(), left()).writes
    assert fold(given(), left(), written()).writes
    assert fold(given(), left(ctime_ns=6)).writes


def test_a_pipe_may_always_have_been_written() -> None:
    """Nothing tells of what goes through it."""
    assert fold(given(what=Kind.FIFO, named=False)).writes


@pytest.mark.parametrize(("fields", "reads"), [({}, True), ({"inode": 8}, False), ({"error": 13}, False)])
def test_a_log_that_was_opened_anew_for_reading_was_read(fields: dict[str, object], *, reads: bool) -> None:
    """By its inode; a refused attempt gives nothing. A file of the trial's own is another one."""
    assert fold(given(), left(), opened(**fields)).reads is reads
    assert not fold(given(), left(), opened(reachable=True)).reads


def test_where_reading_began_and_ended_is_kept() -> None:
    """Both by the descriptor that the trial had."""
    stream = fold(given(0, reads=True, writes=False, position=4), left(0, position=9))
    assert (stream.number, stream.start, stream.reached) == (0, 4, 9)
