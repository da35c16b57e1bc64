"""The reader: a log directory in, frames or events out, one at a time, every frame checked against the one before it.

Rule: what is given was whole and in its place; the first frame that is not ends the reading, loudly. A log without a
seal is read like any other (the evidence is read before there is one); `verify_log` says whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from supervisor.errors import LogError
from supervisor.events import Event
from supervisor.log.chain import Chain
from supervisor.log.frames import Frame, FrameType, bad_frame
from supervisor.log.records import decode_record
from supervisor.log.segments import read_raw

Decode = Callable[[bytes, int], Iterable[Event]]
"""Decodes a kernel slab: its bytes and the number of its first event in, one event for each record counted out."""


def walk(log_dir: Path, chain: Chain) -> Iterator[Frame]:
    """Read frames and check each against the chain, which is advanced before the frame is given.

    Raises:
        LogError: names the first bad frame; all frames before it were given. (When the bad one can only be told by the
            frame after it, it was given too.)
    """
    sealed = False
    frames = read_raw(log_dir)
    for frame in frames:
        header = frame.header
        if sealed:
            raise bad_frame(chain.frames, "expected the end of the log after the seal, got another frame")
        chain.check_place(header)
        if chain.link is not None and header.link != chain.link:
            raise chain.broken_link(frame, _next_whole(frames))
        chain.advance(header.type, header.events, frame.leaf)
        sealed = header.type == FrameType.SEAL
        yield frame


def read_frames(log_dir: Path, *, on_damage: Callable[[LogError], None] | None = None) -> Iterator[Frame]:
    """Read every whole frame of a log.

    Args:
        log_dir: the directory of the segments.
        on_damage: the tolerant mode: gets the error that ended the reading (a cut tail after a crash), instead of its
            being raised.

    Raises:
        LogError: a frame is bad; all frames before it were given.
    """
    frames = walk(log_dir, Chain())
    while True:
        try:
            frame = next(frames, None)
        except LogError as err:
            if on_damage is None:
                raise
            on_damage(err)
            return
        if frame is None:
            return
        yield frame


def read_events(
    log_dir: Path, decode: Decode, *, on_damage: Callable[[LogError], None] | None = None
) -> Iterator[Event]:
    """Read every event of a log, in order, with bounded memory.

    Args:
        log_dir: the directory of the segments.
        decode: for kernel slabs.
        on_damage: as for `read_frames`. What cannot be decoded inside a whole frame is raised in any case.

    Raises:
        LogError: a frame is bad, or does not hold the events it says.
    """
    for frame in read_frames(log_dir, on_damage=on_damage):
        yield from read_frame(frame, decode)


def read_frame(frame: Frame, decode: Decode) -> Iterator[Event]:
    """Read the events of one frame; a seal has none.

    Raises:
        LogError: it does not hold the events it says.
    """
    match frame.header.type:
        case FrameType.KERNEL:
            yield from _slab_events(frame, decode)
        case FrameType.JSON:
            yield decode_record(frame)


def _slab_events(frame: Frame, decode: Decode) -> Iterator[Event]:
    number, expected = frame.header.number, frame.header.first_event
    for event in decode(frame.payload, expected):
        if event.n != expected:
            raise bad_frame(number, f"expected event {expected} in the slab, got event {event.n}")
        expected += 1
        yield event
    if (count := expected - frame.header.first_event) != frame.header.events:
        raise bad_frame(number, f"expected {frame.header.events} events in the slab, got {count}")


def _next_whole(frames: Iterator[Frame]) -> Frame | None:
    try:
        return next(frames, None)
    except LogError:
        return None
