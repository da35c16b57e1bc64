"""Waiting for room: the trial stands still, the operator is told, and it ends one way or the other."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread

import pytest
from log_builders import begin_with, end, fill, slab_of

from supervisor.errors import LogError, LogFullError, PolicyError
from supervisor.log.reader import read_frames
from supervisor.log.room import WAIT_S, WAIT_VARIABLE, Room, find_wait_s, fullness_told
from supervisor.log.segments import SegmentWriter
from supervisor.log.verify import verify_log


class Trial:
    """A trial that can be frozen, and an operator who can be told."""

    def __init__(self) -> None:
        """Run, and know nothing."""
        self.held: set[str] = set()
        self.told: list[str] = []

    def hold(self, holder: str, *, wait: bool = True) -> bool:
        """Freeze."""
        self.held.add(holder)
        return wait

    def release(self, holder: str) -> None:
        """Thaw."""
        self.held.discard(holder)

    def tell(self, lines: Sequence[str]) -> None:
        """Hear."""
        self.told += lines

    def room(self, run: Path, *, wait_s: float = 5.0) -> Room:
        """Give the room of this trial."""
        return Room(run, brake=self, tell=self.tell, wait_s=wait_s)


class FullDisk:
    """Refuses writes to segments until it is told otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refusals: int, number: int = errno.ENOSPC) -> None:
        """Refuse so many."""
        self.left, self.number = refusals, number
        self.when_refused: Callable[[], object] = lambda: None
        self._write = os.pwritev
        monkeypatch.setattr("supervisor.log.segments.os.pwritev", self.pwritev)

    def pwritev(self, fd: int, buffers: Sequence[bytes], offset: int) -> int:
        """Write, or refuse."""
        if not self.left:
            return self._write(fd, buffers, offset)
        self.left -= 1
        self.when_refused()
        raise OSError(self.number, os.strerror(self.number))


def readable(room: Room) -> bool:
    """Tell whether whoever follows the trial is woken."""
    return bool(select.select([room.failed], [], [], 0)[0])


def test_before_anything_runs_nothing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room at the beginning is an error at once; from when the trial is about to run it is waited for."""
    trial, run = Trial(), tmp_path / "run"
    room = Room(run, brake=trial, tell=trial.tell, is_worth_it=False)
    with begin_with(run, room) as log:
        disk = FullDisk(monkeypatch, refusals=1)
        room.begin_waiting()
        fill(log)
        assert trial.told
    early, run = Room(run, brake=trial, tell=trial.tell, is_worth_it=False), tmp_path / "early"
    with begin_with(run, early) as log:
        trial.told.clear()
        disk.left = 1
        with pytest.raises(LogFullError, match="nothing was run") as raised:
            fill(log)
        assert (trial.told, trial.held, disk.left) == ([], set(), 0)
        assert raised.value.hint == "make room there"
        assert readable(early)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_log_goes_on_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Refused twice: the trial is frozen meanwhile, the operator is told once of each, and the log is whole."""
    trial, run = Trial(), tmp_path / "run"
    room = trial.room(run)
    with begin_with(run, room) as log:
        fill(log)
        disk = FullDisk(monkeypatch, refusals=2, number=number)
        held: list[set[str]] = []
        disk.when_refused = lambda: held.append(set(trial.held))
        log.append_kernel(slab_of(50), 50)
        end(run, log)
    (wait,) = room.take_waits()
    room.close()
    assert held == [set(), {"log"}]
    assert trial.held == set()
    assert wait.first_ns < wait.last_ns
    assert room.take_waits() == ()
    assert [word in line for word, line in zip(("no room", "frozen", "room again"), trial.told, strict=True)] == [
        True
    ] * 3
    assert verify_log(run).frames == 10


def test_a_log_without_room_for_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over the error says where, what is kept and what to do; nothing waits after that."""
    trial, run = Trial(), tmp_path / "run"
    room = trial.room(run, wait_s=0.1)
    with begin_with(run, room) as log:
        fill(log)
        disk = FullDisk(monkeypatch, refusals=1000)
        with pytest.raises(LogFullError, match=r"no room for the log.*unresolved") as caught:
            log.append_kernel(slab_of(50), 50)
        before = disk.left
        with pytest.raises(LogFullError):
            log.append_kernel(slab_of(50), 50)
    assert disk.left == before - 1
    assert caught.value.hint is not None
    assert "supervise commit run" in caught.value.hint
    assert trial.held == {"log"}
    assert readable(room)
    with pytest.raises(LogFullError):
        room.check()
    room.close()
    assert len(list(read_frames(run / "log"))) == 7


def test_an_operator_can_end_the_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for ten minutes stops at once when asked."""
    trial, run = Trial(), tmp_path / "run"
    room = trial.room(run, wait_s=600)
    with begin_with(run, room) as log:
        disk = FullDisk(monkeypatch, refusals=1000)
        disk.when_refused = room.end_waiting
        with pytest.raises(LogFullError):
            log.append_kernel(slab_of(1), 1)
    room.close()


def test_other_threads_wait_too_and_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread waits for room no other one appends; afterwards all frames are there."""
    trial, run = Trial(), tmp_path / "run"
    room = trial.room(run)
    with begin_with(run, room) as log:
        FullDisk(monkeypatch, refusals=3)
        threads = [Thread(target=log.append_kernel, args=(slab_of(2), 2)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(room.take_waits()) == 1
    room.close()
    assert [frame.header.first_event for frame in read_frames(run / "log")] == list(range(0, 16, 2))


def test_other_files_wait_for_room_as_the_log_does(tmp_path: Path) -> None:
    """What is written beside the log is tried again and again; an error that is no want of room is raised at once."""
    trial = Trial()
    room = trial.room(tmp_path)
    errors = [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "full")]

    def write() -> int:
        if errors:
            raise errors.pop()
        return 7

    assert room.persist(write) == 7
    assert len(room.take_waits()) == 1
    errors.append(OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        room.persist(write)
    room.close()


def test_the_first_failure_is_the_one_that_is_told(tmp_path: Path) -> None:
    """A disk that failed otherwise ends the waiting as well, and is what is raised."""
    room = Trial().room(tmp_path)
    room.fail(LogError("first"))
    room.fail(LogError("second"))
    with pytest.raises(LogError, match="first"):
        room.wait(LogFullError("full"))
    assert readable(room)
    room.close()


def test_a_full_disk_anywhere_is_told_in_our_words(tmp_path: Path) -> None:
    """Whichever file it was: an error of ours with its name, and with what to do."""
    with pytest.raises(LogFullError, match="/x: expected room, got: No space left") as caught, fullness_told(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device", "/x")
    assert caught.value.hint is not None
    with pytest.raises(FileNotFoundError), fullness_told(tmp_path):
        (tmp_path / "missing").stat()


def test_how_long_to_wait_is_said_by_the_environment() -> None:
    """A duration, 30 s without it; what is none is the caller's mistake."""
    assert find_wait_s({}) == WAIT_S == 30
    assert find_wait_s({WAIT_VARIABLE: "2m"}) == 120
    with pytest.raises(PolicyError, match=WAIT_VARIABLE):
        find_wait_s({WAIT_VARIABLE: "soon"})


def test_other_refusals_are_no_want_of_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is broken is not waited for."""
    FullDisk(monkeypatch, refusals=1, number=errno.EIO)
    with pytest.raises(LogError) as caught:
        SegmentWriter(tmp_path, 1000).write(b"header", b"payload")
    assert not isinstance(caught.value, LogFullError)
