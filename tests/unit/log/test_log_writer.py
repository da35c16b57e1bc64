"""The writer keeps order for all threads, and loses nothing that was written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from log_builders import MAIN, STAGE, begin, decode_opaque, end, fill, segments, slab_of

from supervisor.errors import InternalError, LogError, LogUnsealedError
from supervisor.events import NoteReceived, ServiceAnswered, TrialReleased, TrialSealed
from supervisor.log.frames import HEADER_BYTES, MAX_PAYLOAD, FrameType
from supervisor.log.reader import read_events, read_frames
from supervisor.log.records import encode_record
from supervisor.log.segments import SegmentWriter
from supervisor.log.verify import verify_log
from supervisor.log.writer import LogWriter


def released(n: int) -> TrialReleased:
    """Make some event."""
    return TrialReleased(n=n, time_ns=n, process=MAIN)


@contextmanager
def full_at(size_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size, as a full disk would: the write that meets the limit is a short one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_events_are_numbered_across_slabs_and_records(tmp_path: Path) -> None:
    """A slab takes as many numbers as it holds records, and every call says the first one."""
    with begin(tmp_path / "run") as log:
        assert log.record(released) == 0
        assert log.append_kernel(slab_of(3), 3) == 1
        assert log.append_kernel(memoryview(slab_of(2)), 2) == 4
        assert log.record(released) == 6
        assert (log.frames, log.events) == (4, 7)
    events = list(read_events(tmp_path / "run" / "log", decode_opaque))
    assert [event.n for event in events] == list(range(7))


def test_many_threads_write_one_whole_log(tmp_path: Path) -> None:
    """Threads that append at once, with syncs between, leave a log that verifies and misses none of them."""
    run = tmp_path / "run"
    with begin(run, segment_bytes=100_000) as log:

        def work(seed: int) -> None:
            for index in range(300):
                log.append_kernel(slab_of(4, fill=seed), 4)
                log.record(lambda n: NoteReceived(n=n, time_ns=0, text=f"{seed}:{index}"))  # noqa: B023 - called at once
                if index % 50 == 0:
                    log.sync()
                    log.root()

        threads = [Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end(run, log)
    assert verify_log(run).events == 6 * 300 * 5 + 1
    notes = [event.text for event in read_events(run / "log", decode_opaque) if isinstance(event, NoteReceived)]
    assert len(set(notes)) == 1800
    assert [note for note in notes if note.startswith("3:")] == [f"3:{index}" for index in range(300)]


def test_segments_rotate_and_hold_whole_frames(tmp_path: Path) -> None:
    """No segment is longer than the limit, and one frame that is longer gets a segment of its own."""
    run = tmp_path / "run"
    with begin(run, segment_bytes=1000) as log:
        for count in (10, 10, 100, 10, 10):
            log.append_kernel(slab_of(count), count)
        end(run, log)
    sizes = [path.stat().st_size for path in segments(run)]
    assert sizes[1] == 24 * 100 + HEADER_BYTES
    assert all(size <= 1000 for index, size in enumerate(sizes) if index != 1)
    assert verify_log(run).frames == 7


def test_many_segments_without_a_sync_keep_few_files_open(tmp_path: Path) -> None:
    """Full segments that nobody synced do not pile up as open files."""
    with begin(tmp_path / "run", segment_bytes=300) as log:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(50):
            log.append_kernel(slab_of(10), 10)
        assert len(list(Path("/proc/self/fd").iterdir())) < before + 8


def test_files_are_private(tmp_path: Path) -> None:
    """Directory and segments are for their owner alone."""
    with begin(tmp_path / "run") as log:
        log.record(released)
    assert (tmp_path / "run" / "log").stat().st_mode & 0o777 == 0o700
    assert segments(tmp_path / "run")[0].stat().st_mode & 0o777 == 0o600


def test_a_full_disk_loses_nothing_that_was_written(tmp_path: Path) -> None:
    """A frame that does not fit is cut off again, the error says where, and with space the same log goes on."""
    run = tmp_path / "run"
    with begin(run) as log:
        fill(log)
        size = segments(run)[0].stat().st_size
        with full_at(size + 100), pytest.raises(LogError, match=r"000000\.seg: expected to append a frame") as caught:
            log.append_kernel(slab_of(50), 50)
        assert caught.value.hint is not None
        assert segments(run)[0].stat().st_size == size
        assert len(list(read_frames(run / "log"))) == log.frames == 7
        log.append_kernel(slab_of(50), 50)
        end(run, log)
    assert verify_log(run).frames == 10


def test_a_full_disk_at_a_new_segment_leaves_no_empty_one(tmp_path: Path) -> None:
    """A segment whose first frame did not fit is taken away, and made again when there is space."""
    run = tmp_path / "run"
    with begin(run, segment_bytes=500) as log:
        log.append_kernel(slab_of(10), 10)
        with full_at(0), pytest.raises(LogError, match=r"000001\.seg"):
            log.append_kernel(slab_of(20), 20)
        log.sync()
        assert [path.name for path in segments(run)] == ["000000.seg"]
        assert len(list(read_frames(run / "log"))) == 1
        log.append_kernel(slab_of(20), 20)
        end(run, log)
    assert verify_log(run).events == 31


def test_a_failed_sync_stops_the_log(tmp_path: Path) -> None:
    """After a sync that failed nobody knows what is on the disk: nothing more is written."""
    writer = SegmentWriter(tmp_path, 1000)
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(LogError, match="expected the log on the disk"):
        writer.flush([reading])
    with pytest.raises(LogError, match="expected the log on the disk"):
        writer.write(b"header", b"payload")


def test_a_seal_that_found_no_space_can_be_repeated(tmp_path: Path) -> None:
    """When only the seal did not fit, sealing again adds the seal alone; nothing else may come between."""
    run = tmp_path / "run"
    with begin(run) as log:
        fill(log)
        evidence = log.checkpoint()

        def make(n: int) -> TrialSealed:
            return TrialSealed(
                n=n,
                time_ns=0,
                evidence_frames=evidence.frames,
                evidence_root=evidence.root,
                completion=STAGE,
                stage=STAGE,
            )

        record = HEADER_BYTES + len(encode_record(make(log.events)))
        with full_at(segments(run)[0].stat().st_size + record + 5), pytest.raises(LogError, match="append"):
            log.seal(make)
        assert log.frames == 8
        with pytest.raises(InternalError, match="nothing after the seal"):
            log.record(released)
        with pytest.raises(LogUnsealedError):
            verify_log(run)
        assert log.seal(make).frames == 9
    assert len(list(read_frames(run / "log"))) == 9


def test_nothing_follows_the_seal(tmp_path: Path) -> None:
    """After the seal every way to append is refused."""
    run = tmp_path / "run"
    log = begin(run)
    fill(log)
    end(run, log)
    with pytest.raises(InternalError, match="nothing after the seal"):
        log.append_kernel(b"x", 1)
    with pytest.raises(InternalError, match="nothing after the seal"):
        log.record(released)
    with pytest.raises(InternalError, match="nothing after the seal"):
        log.seal(lambda _: pytest.fail("nothing is made for a sealed log"))
    log.close()
    assert verify_log(run).frames == 9


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    """A log that was closed without a seal is not written to again."""
    with begin(tmp_path / "run") as log:
        log.record(released)
    with pytest.raises(LogError, match="closed"):
        log.record(released)


def test_bounds_are_enforced(tmp_path: Path) -> None:
    """Slabs have a documented maximum, and what is no slab or a wrongly numbered event is our bug, said at once."""
    limit = MAX_PAYLOAD[FrameType.KERNEL]
    with begin(tmp_path / "run") as log:
        log.append_kernel(bytes(limit), 1)
        for slab, count in ((bytes(limit + 1), 1), (b"", 0), (b"x", -1)):
            with pytest.raises(InternalError):
                log.append_kernel(slab, count)
        with pytest.raises(InternalError, match="expected event number 1, got 2"):
            log.record(lambda n: released(n + 1))
        assert log.frames == 1


def test_no_text_keeps_an_event_out_of_the_log(tmp_path: Path) -> None:
    """Half of a character, which JSON can hold and UTF-8 cannot, is written as the sign for an unknown one."""
    run = tmp_path / "run"
    with begin(run) as log:
        log.record(lambda n: NoteReceived(n=n, time_ns=0, text="a\udcffb"))
        log.record(
            lambda n: ServiceAnswered(
                n=n, time_ns=0, service="s", moment="m", status="x", detail="", asked_ns=0, operations=("\ud800",)
            )
        )
    note, answer = read_events(run / "log", decode_opaque)
    assert isinstance(note, NoteReceived)
    assert note.text == "a\ufffdb"
    assert isinstance(answer, ServiceAnswered)
    assert answer.operations == ("\ufffd",)


def test_a_log_is_begun_once(tmp_path: Path) -> None:
    """Where a log is, no other is begun; and a digest must be one."""
    with begin(tmp_path / "run") as log:
        log.record(released)
    with pytest.raises(LogError, match=r"expected no log yet, got 000000\.seg"):
        LogWriter.create(tmp_path / "run" / "log", manifest_digest=STAGE)
    with pytest.raises(LogError, match="digest"):
        LogWriter.create(tmp_path / "other", manifest_digest="sha256:12")
    with pytest.raises(LogError, match="make the log directory"):
        LogWriter.create(tmp_path / "missing" / "log", manifest_digest=STAGE)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from log_builders import begin, slab_of
log = begin(Path(sys.argv[1]), segment_bytes=300_000)
while True:
    log.append_kernel(slab_of(400), 400)
    print(log.frames, flush=True)
"""


def test_a_killed_writer_leaves_every_whole_frame(tmp_path: Path) -> None:
    """SIGKILL in mid-write: every frame whose append had returned is read; the log is unsealed, never good."""
    run = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(run), str(Path(__file__).parent)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.3)
        writer.kill()
        told = int(writer.stdout.read().splitlines()[-1])
    damage: list[LogError] = []
    frames = list(read_frames(run / "log", on_damage=damage.append))
    assert len(frames) >= told > 10
    assert len(list(read_events(run / "log", decode_opaque, on_damage=damage.append))) == len(frames) * 400
    with pytest.raises(LogError):
        verify_log(run)
