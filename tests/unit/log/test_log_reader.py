"""The reader gives what is whole, says what is not, and loses no kind of event."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from log_builders import begin, decode_opaque, fill, header_of, make_run, segments, slab_of, split_frames

from supervisor.errors import LogError, LogUnsealedError
from supervisor.events import Event, Origin, ProcessKey, TrialHeld, UnknownRecorded
from supervisor.log.frames import FrameType, pack_header
from supervisor.log.reader import read_events, read_frames
from supervisor.log.records import event_types
from supervisor.log.verify import verify_log


def one_record(run: Path, payload: bytes) -> Path:
    """Make a log of one JSON record."""
    (run / "log").mkdir(parents=True)
    header = pack_header(FrameType.JSON, payload, count=1, number=0, first=0, link=bytes(32))
    (run / "log" / "000000.seg").write_bytes(header + payload)
    return run / "log"


def only_event(log_dir: Path) -> Event:
    """Read a log of one event."""
    (event,) = read_events(log_dir, decode_opaque)
    return event


def test_an_unsealed_log_is_read_whole(tmp_path: Path) -> None:
    """The evidence is read before there is a seal: that is no damage."""
    with begin(tmp_path / "run") as log:
        fill(log)
        assert len(list(read_events(tmp_path / "run" / "log", decode_opaque))) == log.events


def test_events_come_back_as_they_went_in(tmp_path: Path) -> None:
    """Records keep their types: process keys, bytes, enums, tuples."""
    first = next(read_events(make_run(tmp_path / "run") / "log", decode_opaque))
    assert isinstance(first, TrialHeld)
    assert isinstance(first.init, ProcessKey)
    assert first.origin is Origin.SUPERVISOR


@pytest.mark.parametrize("cut", [1, 63, 64, 100, 300])
def test_a_cut_tail_is_told_after_all_whole_frames(tmp_path: Path, cut: int) -> None:
    """A strict reader raises at the cut, a tolerant one reports it; both give every whole frame first."""
    run = make_run(tmp_path / "run")
    frames = split_frames(run)
    segment = segments(run)[0]
    segment.write_bytes(segment.read_bytes()[:-cut])
    damage: list[LogError] = []
    whole = list(read_frames(run / "log", on_damage=damage.append))
    assert [error.frame for error in damage] == [len(whole)]
    assert len(whole) >= len(frames) - 3
    strict = read_frames(run / "log")
    assert [next(strict).header.number for _ in whole] == list(range(len(whole)))
    with pytest.raises(LogError, match="the log is cut here"):
        next(strict)


def test_reading_waits_for_nobody(tmp_path: Path) -> None:
    """Frames are given one at a time: the first is there before a later segment is looked at."""
    run = make_run(tmp_path / "run", segment_bytes=400)
    frames = read_frames(run / "log")
    assert next(frames).header.number == 0
    segments(run)[-2].write_bytes(b"")
    with pytest.raises(LogError, match="empty file"):
        list(frames)


def test_an_empty_last_segment_is_no_damage(tmp_path: Path) -> None:
    """Whoever died between making a segment and writing its first frame lost nothing: the log is unsealed, no more."""
    run = tmp_path / "run"
    with begin(run, segment_bytes=400) as log:
        fill(log)
    number = len(segments(run))
    (run / "log" / f"{number:06d}.seg").touch()
    assert len(list(read_frames(run / "log"))) == log.frames
    with pytest.raises(LogUnsealedError, match=f"frame {log.frames}: expected a seal"):
        verify_log(run)


def test_a_log_that_is_one_empty_segment_is_unsealed(tmp_path: Path) -> None:
    """The same at the very beginning."""
    run = tmp_path / "run"
    begin(run).close()
    (run / "log" / "000000.seg").touch()
    assert list(read_frames(run / "log")) == []
    with pytest.raises(LogUnsealedError, match="frame 0: expected a seal"):
        verify_log(run)


def test_an_empty_segment_after_the_seal_is_found(tmp_path: Path) -> None:
    """Nobody makes a segment after the seal: what is there was added."""
    run = make_run(tmp_path / "run", segment_bytes=400)
    (run / "log" / f"{len(segments(run)):06d}.seg").touch()
    with pytest.raises(LogError, match="empty file"):
        verify_log(run)


def test_an_unknown_kind_is_shown_not_lost(tmp_path: Path) -> None:
    """A record of a newer writer becomes an event that holds it whole, with the fields all events have."""
    record = b'{"kind":"moon.risen","n":0,"time_ns":5,"origin":"gateway","process":[7,9],"phase":"full"}'
    event = only_event(one_record(tmp_path, record))
    assert event == UnknownRecorded(
        n=0,
        time_ns=5,
        origin=Origin.GATEWAY,
        process=ProcessKey(7, 9),
        recorded_kind="moon.risen",
        record=record,
    )


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"no json",
        b"[]",
        b'{"n":0}',
        b'{"kind":"trial.released","n":0,"time_ns":"soon"}',
        b'{"kind":"trial.released","n":1,"time_ns":0}',
        b'{"kind":"\xff","n":0}',
    ],
)
def test_a_record_that_is_no_event_names_its_frame(tmp_path: Path, record: bytes) -> None:
    """A whole frame that holds no event, or one with another number, is the log's fault."""
    with pytest.raises(LogError, match="frame 0: expected"):
        only_event(one_record(tmp_path, record))


@pytest.mark.parametrize("count", [2, 4])
def test_a_slab_must_hold_the_events_it_says(tmp_path: Path, count: int) -> None:
    """A decoder that finds more or fewer events than were counted is not believed."""
    with begin(tmp_path / "run") as log:
        log.append_kernel(slab_of(3), count)
    with pytest.raises(LogError, match=f"frame 0: expected {count} events in the slab, got 3"):
        list(read_events(tmp_path / "run" / "log", decode_opaque))


def test_a_newer_version_is_told_as_such(tmp_path: Path) -> None:
    """A frame of another LOG_VERSION is not guessed at."""
    log_dir = one_record(tmp_path, b"{}")
    segment = log_dir / "000000.seg"
    data = bytearray(segment.read_bytes())
    data[4] = 2
    segment.write_bytes(data)
    with pytest.raises(LogError, match="expected log version 1, got 2") as caught:
        only_event(log_dir)
    assert caught.value.hint is not None


def test_every_event_class_can_be_recorded_and_read() -> None:
    """Each kind is in the union once, classes of common fields are not, and kinds come from the names."""
    types = event_types()
    assert "file.event" not in types
    assert types["trial.held"] is TrialHeld
    assert len(set(types.values())) == len(types)
    assert all(issubclass(event_type, msgspec.Struct) for event_type in types.values())


def test_a_header_reads_back(tmp_path: Path) -> None:
    """What is packed is parsed."""
    frames = split_frames(make_run(tmp_path / "run"))
    headers = [header_of(frame) for frame in frames]
    assert [header.number for header in headers] == list(range(len(frames)))
    assert [header.first_event for header in headers] == [0, 1, 4, 5, 10, 11, 12, 13, 14]
