"""The standard streams of CMD: what the caller handed over that others can meet too, and how it was left."""

from __future__ import annotations

from supervisor.events.base import Event
from supervisor.events.files import Kind


class StreamGiven(Event, frozen=True, kw_only=True):
    """The caller handed over a file, a fifo, a pipe or a socket as a standard stream of CMD, by its ``number``.

    Terminals, ``/dev/null`` and its like are not told: nothing stays in them for another run. A pipe is a fifo that is
    not ``named``. Of what is written to it file events tell, with ``reachable: false``; of what is read nothing does.

    Attributes:
        number: 0, 1 or 2, as CMD has it.
        path: absolute, as the host names it, or what /proc says of what has no name.
        named: it is there by this name.
        device, inode: as in file events.
        born_ns: when the file was made, so that an inode that is used again is another file; 0 where it is not known.
        names: how many names it has.
        reads, writes: what the descriptor may be used for.
        ended: nothing was to be read from it, and nobody had it open for writing any more.
        position: where reading begins, None where there is no such thing.
        size_bytes, mtime_ns, ctime_ns: of a file, then.
        state: digest of kind, content, mode, owner and attributes; None where that was not looked at.
    """

    number: int
    what: Kind
    path: bytes
    named: bool
    device: int
    inode: int
    born_ns: int = 0
    names: int = 0
    reads: bool = False
    writes: bool = False
    ended: bool = False
    position: int | None = None
    size_bytes: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    state: str | None = None


class StreamLeft(Event, frozen=True, kw_only=True):
    """A file that was given as a standard stream, as it was when nothing of the trial was alive any more.

    ``position`` is where whoever has it open like the trial reads on. The others are as in `StreamGiven`.
    """

    number: int
    position: int | None
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
