"""The standard streams that were given, and what was done with them. In: events in any order; out: one value a stream.

The laws:

1. Who was given something to read from has read it, and who was given something to write to has written it, unless it
   is shown that nothing was written: no event tells of it, and the file is as it was.
2. What a descriptor is not open for can be had by opening it anew below ``/proc/self/fd``: those opens are told, as of
   files that are not below the trial's root.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.events import (
    Event,
    FileChanged,
    FileEvent,
    FileMapped,
    FileOpened,
    FileTruncated,
    FileWritten,
    Kind,
    StreamGiven,
    StreamLeft,
)
from supervisor.evidence.routes import Stream

_CHANGING = (FileWritten, FileTruncated, FileMapped, FileChanged)


class StreamFold:
    """Keeps what was given, and what was opened and changed of what is not below the trial's root, by inode.

    The device is left out: on some file systems stat(2), of which we know a stream, has another one than the witness.
    """

    def __init__(self) -> None:
        """Begin with no stream."""
        self._given: list[StreamGiven] = []
        self._left: dict[int, StreamLeft] = {}
        self._read: dict[int, int] = {}
        self._written: dict[int, int] = {}

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        handlers: dict[type[Event], Callable[[Event], object]] = dict.fromkeys(_CHANGING, self._changed)
        return handlers | {StreamGiven: self._give, StreamLeft: self._leave, FileOpened: self._opened}

    def _give(self, event: Event) -> None:
        if isinstance(event, StreamGiven):
            self._given.append(event)

    def _leave(self, event: Event) -> None:
        if isinstance(event, StreamLeft):
            self._left[event.number] = event

    def _opened(self, event: Event) -> None:
        if isinstance(event, FileOpened) and not event.reachable and event.error is None:
            for wanted, numbers in ((event.reads, self._read), (event.writes, self._written)):
                if wanted:
                    _note(numbers, event)

    def _changed(self, event: Event) -> None:
        if isinstance(event, FileEvent) and not event.reachable and event.error is None:
            _note(self._written, event)

    def finish(self) -> tuple[Stream, ...]:
        """Give the streams by number."""
        return tuple(map(self._stream, sorted(self._given, key=lambda event: event.number)))

    def _stream(self, event: StreamGiven) -> Stream:
        left = self._left.get(event.number)
        read, written = self._read.get(event.inode), self._written.get(event.inode)
        as_it_was = left is not None and _stamp(left) == _stamp(event)
        writes = written is not None or (event.writes and not (event.what is Kind.FILE and as_it_was))
        reopened = (number for number in (read, written) if number is not None)
        return Stream(
            number=event.number,
            what=event.what,
            path=event.path,
            named=event.named,
            device=event.device,
            inode=event.inode,
            born_ns=event.born_ns,
            names=event.names,
            reads=event.reads or read is not None,
            writes=writes,
            ended=event.ended,
            start=event.position,
            reached=None if left is None else left.position,
            size_bytes=event.size_bytes,
            mtime_ns=event.mtime_ns,
            ctime_ns=event.ctime_ns,
            left_ns=0 if left is None else left.ctime_ns,
            state=event.state,
            events=(event.n, *sorted(reopened)),
        )


def _note(numbers: dict[int, int], event: FileEvent) -> None:
    """Keep the first of the events about a file."""
    numbers[event.inode] = min(event.n, numbers.get(event.inode, event.n))


def _stamp(event: StreamGiven | StreamLeft) -> tuple[int, int, int]:
    return event.size_bytes, event.mtime_ns, event.ctime_ns
