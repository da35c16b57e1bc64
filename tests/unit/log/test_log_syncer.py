"""The log is brought to the disk while it grows, and nobody waits for that."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from threading import enumerate as threads

import pytest
from log_builders import begin, slab_of

from supervisor.errors import LogError
from supervisor.log.syncer import EVERY_S, Syncer
from supervisor.log.writer import LogWriter

PATIENCE_S = 10.0


class Disk:
    """Stands between the log and the disk: counts syncs of segments, holds them up, or refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: bool = False) -> None:
        """Let everything through."""
        self.synced = Event()
        self.goes_on = Event()
        self.goes_on.set()
        self.count = 0
        self._refuses, self._fsync = refuses, os.fsync
        monkeypatch.setattr("supervisor.log.segments.os.fsync", self.fsync)

    def fsync(self, fd: int) -> None:
        """Sync, or refuse."""
        self.count += 1
        self.synced.set()
        assert self.goes_on.wait(PATIENCE_S)
        if self._refuses:
            raise OSError(5, "Input/output error")
        self._fsync(fd)


def started(log: LogWriter, errors: list[LogError]) -> Syncer:
    """Start a syncer that is quick."""
    syncer = Syncer(log, on_error=errors.append, every_s=0.01)
    syncer.start()
    return syncer


def test_the_log_is_synced_at_least_once_a_second() -> None:
    """That is the policy, and what docs/log.md says."""
    assert EVERY_S <= 1.0


def test_what_was_written_is_synced_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame is followed by a sync; a log that does not grow is left in peace."""
    disk, errors = Disk(monkeypatch), list[LogError]()
    with begin(tmp_path / "run") as log:
        syncer = started(log, errors)
        assert not disk.synced.wait(0.1)
        log.append_kernel(slab_of(3), 3)
        assert disk.synced.wait(PATIENCE_S)
        syncer.stop()
    assert errors == []
    assert "supervise-sync" not in {thread.name for thread in threads()}


def test_appending_does_not_wait_for_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk takes its time, frames are written as ever."""
    disk = Disk(monkeypatch)
    disk.goes_on.clear()
    with begin(tmp_path / "run", segment_bytes=4096) as log:
        syncer = started(log, [])
        log.append_kernel(slab_of(3), 3)
        assert disk.synced.wait(PATIENCE_S)
        for _ in range(100):
            log.append_kernel(slab_of(3), 3)
        assert log.frames == 101
        disk.goes_on.set()
        syncer.stop()


def test_what_the_disk_refuses_is_told_once_and_ends_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed sync nothing is appended any more, and whoever follows the trial is told."""
    Disk(monkeypatch, refuses=True)
    errors: list[LogError] = []
    with begin(tmp_path / "run") as log:
        syncer = started(log, errors)
        log.append_kernel(slab_of(3), 3)
        while not errors:
            assert "supervise-sync" in {thread.name for thread in threads()} or errors
        with pytest.raises(LogError, match="expected the log on the disk"):
            log.append_kernel(slab_of(3), 3)
        syncer.stop()
    assert len(errors) == 1


def test_a_disk_that_hangs_does_not_keep_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way out of a run that failed the sync under way is left to itself; ending twice is ending once."""
    disk = Disk(monkeypatch)
    disk.goes_on.clear()
    with begin(tmp_path / "run") as log:
        syncer = started(log, [])
        log.append_kernel(slab_of(3), 3)
        assert disk.synced.wait(PATIENCE_S)
        syncer.abandon()
        disk.goes_on.set()
        syncer.stop()
        syncer.stop()
