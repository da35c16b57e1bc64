"""The signer: puts a signature under the log every second while a trial runs, and under the seal.

Laws:
    * A note is in ``log/checkpoints`` before the event that tells of it is in the log; when the event cannot be
      written, the note is taken back. So every note but the seal's is vouched for by an event, and the other way round.
    * Appending to the log never waits for the signer: it takes the log's lock for the root and for one event only.
    * What a second place missed is an event; what it missed of the last checkpoint, which nothing can follow, is given
      to the caller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING

from supervisor.errors import LogError, LogFullError, SuperviseError
from supervisor.events import CheckpointMissed, CheckpointSigned, Origin
from supervisor.log.chain import Checkpoint
from supervisor.log.frames import parse_sha256
from supervisor.log.keys import SigningKey, parse_public
from supervisor.log.notes import Note, origin_of, sign_note
from supervisor.log.segments import NO_ROOM
from supervisor.log.writer import LogWriter

if TYPE_CHECKING:
    from supervisor.log.places import Missed, SecondPlace

NAME = "checkpoints"
EVERY_S = 0.9
_LAST_S = 3.0
_STOP_S = 1.0


def _boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Signer:
    """Signs one log. `start`, then `stop` before the evidence is closed, then `sign_seal`."""

    def __init__(
        self,
        log: LogWriter,
        log_dir: Path,
        key: SigningKey,
        *,
        run_id: str,
        places: Sequence[str] = (),
        every_s: float = EVERY_S,
        now_ns: Callable[[], int] = _boottime_ns,
    ) -> None:
        """Prepare; nothing is signed and no thread runs yet.

        Args:
            log: what is signed.
            log_dir: where ``checkpoints`` is put.
            key: signs.
            run_id: gives the origin.
            places: where each checkpoint is sent, see `supervisor.log.places`.
            every_s: seconds between two checkpoints.
            now_ns: gives CLOCK_BOOTTIME.
        """
        self._log = log
        self._path = log_dir / NAME
        self._key, self._public = key, parse_public(key.public)
        self._origin, self._run = origin_of(run_id), run_id
        self._names = tuple(places)
        self._places: tuple[SecondPlace, ...] = ()
        self._every_s, self._now_ns = every_s, now_ns
        self._ending = Flag()
        self._thread = Thread(target=self._loop, name="supervise-signer", daemon=True)
        self._stopped = False
        self._fd = -1
        self._size = 0
        self.signed = 0

    def start(self) -> None:
        """Sign for the first time, and then every second."""
        self._thread.start()

    def stop(self) -> None:
        """Sign for the last time before the seal, and end the thread. Twice is once; what failed may be tried again.

        Raises:
            LogError: the disk refused the checkpoint, or its event. `LogFullError` for want of room.
        """
        if self._stopped:
            return
        self._end_thread()
        self.sign()
        end_s = time.monotonic() + _STOP_S
        for place in self._places:
            place.flush(end_s - time.monotonic())
        self._tell_missed(final=True)
        self._stopped = True

    def sign_seal(self, whole: Checkpoint) -> tuple[Missed, ...]:
        """Sign the sealed log; gives what second places missed of it.

        Raises:
            LogError: the disk refused: the log is sealed and not signed, which `verify` tells.
        """
        note = self._append(whole)
        self._sync()
        for place in self._places:
            place.offer(self.signed - 1, note)
        end_s = time.monotonic() + _LAST_S
        for place in self._places:
            place.finish(max(0.0, end_s - time.monotonic()))
        self._close()
        return tuple(missed for place in self._places if (missed := place.take_missed(final=True)))

    def abandon(self) -> None:
        """End without a further signature, on the way out of a run that failed."""
        if not self._ending.is_set():
            self._end_thread()
        self._close()

    def _open_places(self) -> None:
        if not self._names:
            return
        from supervisor.log.places import SecondPlace, deliverer  # noqa: PLC0415 - few runs have one

        self._places = tuple(SecondPlace(name, deliverer(name, self._run)) for name in self._names)

    def _end_thread(self) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _loop(self) -> None:
        self._open_places()
        while not self._ending.is_set():
            # A full disk is told by whoever writes the log; the next second it is tried again.
            with suppress(SuperviseError):
                self.sign()
                self._tell_missed()
            self._ending.wait(self._every_s)

    def sign(self) -> None:
        """Sign the log as it stands, and tell of it in the log; one without a frame says nothing yet.

        From one thread at a time.

        Raises:
            LogError: the disk refused the checkpoint, or its event.
        """
        now = self._log.checkpoint()
        if not now.frames:
            return
        number, before = self.signed, self._size
        note = self._append(now)
        try:
            self._log.record(lambda n: self._signed(n, number, note))
        except SuperviseError:
            self._take_back(before)
            raise
        for place in self._places:
            place.offer(number, note)

    def _tell_missed(self, *, final: bool = False) -> None:
        for missed in [found for place in self._places if (found := place.take_missed(final=final))]:
            self._log.record(partial(self._told, missed))

    def _signed(self, n: int, number: int, note: Note) -> CheckpointSigned:
        own = Origin.SUPERVISOR
        return CheckpointSigned(
            n=n, time_ns=self._now_ns(), origin=own, number=number, frames=note.size, note=note.digest()
        )

    def _told(self, missed: Missed, n: int) -> CheckpointMissed:
        return CheckpointMissed(n=n, time_ns=self._now_ns(), origin=Origin.SUPERVISOR, **missed._asdict())

    def _append(self, log: Checkpoint) -> Note:
        note = sign_note(self._origin, log.frames, parse_sha256(log.root), public=self._public, sign=self._key.sign)
        try:
            self._write(note.raw)
        except OSError as err:
            with suppress(OSError):
                self._cut(self._size)
            message = f"expected to append a signed checkpoint, got: {err.strerror}"
            kind = LogFullError if err.errno in NO_ROOM else LogError
            raise kind(message, place=str(self._path)) from err
        self._size += len(note.raw)
        self.signed += 1
        return note

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        written = 0
        while written < len(data):
            written += os.pwrite(self._fd, data[written:], self._size + written)

    def _take_back(self, size: int) -> None:
        self._cut(size)
        self._size = size
        self.signed -= 1

    def _cut(self, size: int) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, size)

    def _sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as err:
            message = f"expected the checkpoints on the disk, got: {err.strerror}"
            raise LogError(message, place=str(self._path)) from err

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
