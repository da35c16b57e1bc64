"""Second places: where checkpoints are sent as they are made, so that a log cannot be rewritten unnoticed.

Laws:
    * Nobody waits for a place: each has a thread and a queue of its own. What does not fit, fails or is late was
      missed; a later checkpoint makes up for it, since it vouches for the same frames.
    * A place gets whole notes, in order: a file by one write at its end, a URL by one POST each.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit

from supervisor.errors import UsageError
from supervisor.log.notes import Note

if TYPE_CHECKING:
    from http.client import HTTPSConnection

_QUEUE = 32
_TIMEOUT_S = 5.0
_TELL_EVERY_S = 60.0
_MAX_ANSWER_BYTES = 1 << 16
_OK = range(200, 300)

Deliver = Callable[[bytes], None]
"""Brings one note to a place; raises whatever went wrong."""


class Missed(NamedTuple):
    """Checkpoints that a place did not get, by number, and the problem with the last of them."""

    place: str
    first: int
    last: int
    problem: str


def check_place(place: str, *, option: str) -> None:
    """Find a mistake in a place before anything runs.

    Raises:
        UsageError: it is a URL that is not https, or a file whose directory is not there.
    """
    if "://" in place:
        url = _split(place, option)
        if url.scheme != "https" or not url.hostname or url.username or url.fragment:
            message = f"expected a file, a directory or an https URL without a password, got {place!r}"
            raise UsageError(message, place=option)
        return
    path = Path(place)
    if not path.is_dir() and not path.absolute().parent.is_dir():
        raise UsageError(f"expected a file in a directory that is there, got {place!r}", place=option)


def _split(place: str, option: str) -> SplitResult:
    try:
        url = urlsplit(place)
        _ = url.port
    except ValueError as err:
        raise UsageError(f"expected an https URL, got {place!r}: {err}", place=option) from err
    return url


def deliverer(place: str, run_id: str) -> Deliver:
    """Give what brings notes to a place: an https URL, a directory (a file for each run), or a file."""
    if "://" in place:
        return Poster(place)
    path = Path(place).absolute()
    return lambda note: _append(path / f"{run_id}.checkpoints" if path.is_dir() else path, note)


def _append(path: Path, note: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
    try:
        if os.write(fd, note) != len(note):
            raise OSError(0, "the note was written in part")
        with suppress(OSError):  # a pipe or a device cannot
            os.fdatasync(fd)
    finally:
        os.close(fd)


class Poster:
    """Posts notes to a URL, over one connection as long as it lasts."""

    def __init__(self, url: str) -> None:
        """Prepare; nothing is sent yet."""
        self._url = urlsplit(url)
        self._connection: HTTPSConnection | None = None

    def __call__(self, note: bytes) -> None:
        """Post one note.

        Raises:
            OSError: the server cannot be reached, or does not answer with 2xx.
        """
        from http.client import HTTPException  # noqa: PLC0415 - 20 ms, in the place's own thread

        fresh = self._connection is None
        try:
            self._post(note)
        except (OSError, HTTPException) as err:
            self._close()
            if fresh or isinstance(err, TimeoutError):
                raise OSError(0, str(err) or type(err).__name__) from err
            self(note)  # the connection that was kept may have been closed meanwhile: once more with a new one

    def _post(self, note: bytes) -> None:
        connection = self._connected()
        target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        connection.request("POST", target, body=note, headers={"Content-Type": "text/plain; charset=utf-8"})
        answer = connection.getresponse()
        answer.read(_MAX_ANSWER_BYTES)
        if not answer.isclosed():
            self._close()
        if answer.status not in _OK:
            self._close()
            raise OSError(0, f"HTTP status {answer.status}")

    def _connected(self) -> HTTPSConnection:
        if self._connection is None:
            import ssl  # noqa: PLC0415 - as above
            from http.client import HTTPSConnection  # noqa: PLC0415 - as above

            context = ssl.create_default_context()
            host = self._url.hostname or ""
            self._connection = HTTPSConnection(host, self._url.port, timeout=_TIMEOUT_S, context=context)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SecondPlace:
    """One place with its thread. What it missed is asked for by whoever offers it notes."""

    def __init__(self, place: str, deliver: Deliver) -> None:
        """Begin to wait for notes."""
        self.place = place
        self._deliver = deliver
        self._queue: queue.Queue[tuple[int, Note] | None] = queue.Queue(_QUEUE)
        self._lock = Lock()
        self._missed: Missed | None = None
        self._told_s: float | None = None
        self._under_way: tuple[int, Note] | None = None
        self._thread = Thread(target=self._run, name="supervise-place", daemon=True)
        self._thread.start()

    def offer(self, number: int, note: Note) -> None:
        """Hand over one note; never waits. With a full queue the oldest one is given up."""
        while True:
            try:
                self._queue.put_nowait((number, note))
            except queue.Full:
                self._give_up_oldest()
            else:
                return

    def take_missed(self, *, final: bool = False) -> Missed | None:
        """Give what was missed and not told yet: at once when an outage begins, then once a minute, and at the end."""
        with self._lock:
            now = time.monotonic()
            if self._missed is None or (not final and self._told_s is not None and now < self._told_s + _TELL_EVERY_S):
                return None
            missed, self._missed, self._told_s = self._missed, None, now
            return missed

    def finish(self, timeout_s: float) -> None:
        """Wait until everything was delivered, but no longer; what is left then was missed. For the last time."""
        self._close(timeout_s)
        left = [item for item in (self._under_way, *self._drained()) if item is not None]
        for number, _ in left:
            self._miss(number, f"expected it to be taken within {timeout_s:g} s")

    def flush(self, timeout_s: float) -> None:
        """Wait until everything was delivered, but no longer; nothing is given up."""
        end_s = time.monotonic() + timeout_s
        while (self._queue.unfinished_tasks or self._under_way) and time.monotonic() < end_s:
            time.sleep(0.002)

    def _close(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        self._thread.join(max(0.0, end_s - time.monotonic()))

    def _drained(self) -> list[tuple[int, Note]]:
        found = []
        with suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                found += [item] if item else []
        return found

    def _give_up_oldest(self) -> None:
        with suppress(queue.Empty):
            oldest = self._queue.get_nowait()
            self._queue.task_done()
            if oldest is not None:
                self._miss(oldest[0], "the place was too slow")

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            self._under_way = item
            number, note = item
            try:
                self._deliver(note.raw)
            except Exception as err:  # noqa: BLE001 - whatever a place does, the others and the trial go on
                self._miss(number, getattr(err, "strerror", None) or str(err) or type(err).__name__)
            else:
                self._arrived()
            self._under_way = None
            self._queue.task_done()

    def _arrived(self) -> None:
        with self._lock:
            if self._missed is None:
                self._told_s = None  # the outage is over: the next one is told at once

    def _miss(self, number: int, problem: str) -> None:
        with self._lock:
            first = number if self._missed is None else min(self._missed.first, number)
            last = number if self._missed is None else max(self._missed.last, number)
            self._missed = Missed(self.place, first, last, problem[:200])
