"""The writer: slabs and events in, frames on disk out, in one order for all threads.

Rule: the log is only appended to, and ends with the seal. Several threads may append; each frame gets its number, its
event numbers and its link under one lock, and is written before the next one is made.

The end of a run::

    checkpoint = log.checkpoint()               # the evidence: what completion.json says under "log"
    ...                                         # completion.json is made of it, and written
    log.seal(lambda n: TrialSealed(n=n, evidence_frames=checkpoint.frames, evidence_root=checkpoint.root, ...))

Signed checkpoints of the running log (``log/checkpoints``) are made from the same `LogWriter.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Protocol, Self, TypeVar

from supervisor.errors import InternalError, LogError, LogFullError
from supervisor.events import Event, TrialSealed
from supervisor.log.chain import Chain, Checkpoint
from supervisor.log.frames import MAX_FRAMES, MAX_PAYLOAD, FrameType, pack_header, parse_sha256
from supervisor.log.merkle import leaf_hash
from supervisor.log.records import encode_record
from supervisor.log.segments import SEGMENT_BYTES, SegmentWriter, list_segments

_E = TypeVar("_E", bound=Event)
Redact = Callable[[Event], Event]


class Patience(Protocol):
    """What is done when there is no room for a frame. It is called by whoever appends, and others wait meanwhile."""

    def wait(self, refusal: LogFullError) -> None:
        """Return to have the frame tried again; raise to give up."""

    def over(self) -> None:
        """Be told that the frame that was waited for is written."""


class LogWriter:
    """An open log. Every method may be called from any thread; a ``make`` must not call the log.

    A `LogError` from appending means that the disk refused: the log still ends with a whole frame, and the same call
    may be tried again when there is space.
    """

    def __init__(
        self, segments: SegmentWriter, chain: Chain, patience: Patience | None, redact: Redact | None = None
    ) -> None:
        """Use `LogWriter.create`."""
        self._patience = patience
        self._redact = redact
        self._segments = segments
        self._chain = chain
        self._lock = Lock()
        self._sync_lock = Lock()
        self._bound = False
        self._sealed = False

    @classmethod
    def create(
        cls,
        log_dir: Path,
        *,
        manifest_digest: str,
        segment_bytes: int = SEGMENT_BYTES,
        patience: Patience | None = None,
        redact: Redact | None = None,
    ) -> Self:
        """Begin a log.

        Args:
            log_dir: made with mode 0700 when it is not there.
            manifest_digest: ``sha256:…`` of the bytes of ``manifest.json``, which frame 0 binds.
            segment_bytes: a segment is left when the next frame would make it longer.
            patience: waits when there is no room; without it that is an error at once.
            redact: takes out of an event what must not be written.

        Raises:
            LogError: there is a log already, or the directory cannot be made.
        """
        link = parse_sha256(manifest_digest)
        try:
            log_dir.mkdir(mode=0o700, exist_ok=True)
        except OSError as err:
            message = f"expected to make the log directory, got: {err.strerror}"
            raise LogError(message, place=str(log_dir)) from err
        if names := list_segments(log_dir):
            message = f"expected no log yet, got {names[0]}"
            raise LogError(message, place=str(log_dir))
        return cls(SegmentWriter(log_dir, segment_bytes), Chain(link), patience, redact)

    @property
    def frames(self) -> int:
        """How many frames are written."""
        return self._chain.frames

    @property
    def events(self) -> int:
        """How many events are written, which is the number of the next one."""
        return self._chain.events

    def append_kernel(self, slab: bytes | memoryview, count: int) -> int:
        """Append whole records of the kernel witness, as they are.

        Args:
            slab: 1 byte to 1 MiB (``MAX_PAYLOAD[FrameType.KERNEL]``); a longer stretch of the ring is given in parts.
            count: how many events it holds.

        Returns:
            The number of its first event.

        Raises:
            LogError: the disk refused; nothing of the slab is in the log.
            InternalError: it is empty or too long, or the log is sealed.
        """
        if not slab or count < 0:
            message = f"kernel slab: expected records, got {len(slab)} bytes and {count} records"
            raise InternalError(message)
        with self._lock:
            return self._append(FrameType.KERNEL, slab, count)

    def record(self, make: Callable[[int], Event]) -> int:
        """Append one event of the supervisor.

        Args:
            make: gets the number of the event, gives the event with that number.

        Returns:
            The number.

        Raises:
            LogError: the disk refused; the event is not in the log.
            InternalError: the event has another number or is too long, or the log is sealed.
        """
        with self._lock:
            event = self._numbered(make)
            return self._append(FrameType.JSON, encode_record(self._redact(event) if self._redact else event), 1)

    def root(self) -> str:
        """Give the RFC 6962 root over all frames so far, ``sha256:…``."""
        return self.checkpoint().root

    def checkpoint(self) -> Checkpoint:
        """Say where the log stands."""
        with self._lock:
            return self._chain.checkpoint()

    def seal(self, make: Callable[[int], TrialSealed]) -> Checkpoint:
        """Append the ``trial.sealed`` record and the seal over everything, bring the log to the disk and close it.

        When the disk refuses, it may be called again; the record is not repeated.

        Args:
            make: as for `record`; the event's evidence must be a checkpoint of this log with no kernel slab after it
                and at most ``MAX_AFTERMATH`` records.

        Returns:
            The whole log, the seal included.

        Raises:
            LogError: the disk refused; the log is not sealed.
            InternalError: the evidence is not as it must be, or the log is sealed.
        """
        with self._lock:
            if not self._bound:
                self._bind(make)
            self._append(FrameType.SEAL, self._chain.seal_payload(self._chain.frames), 0)
            self._sealed = True
        self.sync()
        self.close()
        return self._chain.checkpoint()

    def sync(self) -> None:
        """Bring what is written to the disk. Others may append meanwhile.

        Raises:
            LogError: the disk refused; nothing more will be written.
        """
        with self._sync_lock:
            with self._lock:
                descriptors = self._segments.take_unsynced()
            self._segments.flush(descriptors)

    def close(self) -> None:
        """Close the files. A log that was not sealed before stays unsealed for ever."""
        with self._lock:
            self._segments.close()

    def __enter__(self) -> Self:
        """Close the log at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log."""
        self.close()

    def _bind(self, make: Callable[[int], TrialSealed]) -> None:
        event = self._numbered(make)
        problem = self._chain.check_evidence(event.evidence_frames, event.evidence_root, record=self._chain.frames)
        if problem is not None:
            message = f"seal: {problem}"
            raise InternalError(message)
        self._append(FrameType.JSON, encode_record(event), 1)
        self._bound = True

    def _numbered(self, make: Callable[[int], _E]) -> _E:
        event = make(self._chain.events)
        if event.n != self._chain.events:
            message = f"{event.kind}: expected event number {self._chain.events}, got {event.n}"
            raise InternalError(message)
        return event

    def _append(self, frame_type: FrameType, payload: bytes | memoryview, count: int) -> int:
        chain = self._chain
        if self._sealed or (self._bound and frame_type is not FrameType.SEAL):
            message = f"frame {chain.frames}: expected nothing after the seal, got a frame of type {frame_type.name}"
            raise InternalError(message)
        if len(payload) > MAX_PAYLOAD[frame_type] or chain.frames >= MAX_FRAMES:
            limit = MAX_PAYLOAD[frame_type]
            message = (
                f"frame {chain.frames}: expected at most {limit} bytes and {MAX_FRAMES} frames, got {len(payload)}"
            )
            raise InternalError(message)
        first, link = chain.events, chain.link or b""
        header = pack_header(frame_type, payload, count=count, number=chain.frames, first=first, link=link)
        leaf = leaf_hash(header, payload)
        self._write(header, payload)
        chain.advance(frame_type, count, leaf)
        return first

    def _write(self, header: bytes, payload: bytes | memoryview) -> None:
        waited = False
        while True:
            try:
                self._segments.write(header, payload)
            except LogFullError as err:
                if self._patience is None:
                    raise
                waited = True
                self._patience.wait(err)
                continue
            break
        if waited and self._patience is not None:
            self._patience.over()
