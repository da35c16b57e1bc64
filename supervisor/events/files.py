"""What happened to files, as the kernel saw it."""

from __future__ import annotations

from enum import StrEnum

from supervisor.events.base import Event


class FileEvent(Event, frozen=True, kw_only=True):
    """What file events have in common.

    Attributes:
        path: absolute, as the trial sees it; whole unless ``path_truncated``.
        path_truncated: the path did not fit; ``path`` then holds its end.
        verified: the kernel's own view (from ``struct file``), or an argument that nobody else could have changed.
            False: a user pointer that was read after the call; the final state must agree before it is believed.
        device, inode: of the file, 0 when not known (the call failed, or only a name was given).
        error: errno of a refused or failed attempt, None when it happened.
        reachable: False for a file that is not below the trial's root: it was inherited or received from outside.
        given: of a name that a call was given with ``..`` in it, the whole name: ``path`` leaves ``..`` out by its
            letters, which is another path where a symlink lies before it.
        unlinked: the file had lost this name when it happened, or, made without a name, had none yet.
    """

    path: bytes
    path_truncated: bool = False
    verified: bool = True
    device: int = 0
    inode: int = 0
    error: int | None = None
    reachable: bool = True
    unlinked: bool = False
    given: bytes = b""


class Kind(StrEnum):
    """What sort of thing a directory entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"
    UNKNOWN = "unknown"


class FileOpened(FileEvent, frozen=True, kw_only=True):
    """A file was opened. Reads are told once per trial and inode, opens for writing every time."""

    reads: bool
    writes: bool
    created: bool = False
    truncates: bool = False
    flags: int = 0
    what: Kind = Kind.FILE


class FileWritten(FileEvent, frozen=True, kw_only=True):
    """Bytes were written through one open file by one process.

    The first write is told at once; what follows is told as totals when the descriptor is closed, or at a boundary of
    the trial (endpoint, freeze, seal). ``totals`` marks the second form: it counts again what the first one said, and
    has no path: device, inode and process name the write it completes.
    """

    count: int
    size_bytes: int
    last_ns: int
    totals: bool = False
    how: str = "write"
    what: Kind = Kind.FILE


class FileKept(FileEvent, frozen=True, kw_only=True):
    """The beginning of what was written, as it was in the writer's memory: only where the policy asks for it.

    A burst is what one process writes through one open file; its first 4 KiB are kept, in as many events as it took.

    Attributes:
        content: the bytes, empty when the call (``how``) moved them inside the kernel.
        offset: where in the file the call wrote.
        size_bytes: how much the call wrote.
        verified: nobody else could have changed that memory between the call and our look.
    """

    content: bytes
    offset: int
    size_bytes: int
    how: str = "write"


class FileCreated(FileEvent, frozen=True, kw_only=True):
    """A directory, node, socket or named temporary file was made by a call other than open."""

    what: Kind


class FileDeleted(FileEvent, frozen=True, kw_only=True):
    """A name was removed."""

    what: Kind = Kind.UNKNOWN


class FileRenamed(FileEvent, frozen=True, kw_only=True):
    """``path`` became ``new_path``; with ``exchange`` the two changed places, with ``whiteout`` a device 0/0 stays."""

    new_path: bytes
    new_given: bytes = b""
    exchange: bool = False
    whiteout: bool = False


class FileLinked(FileEvent, frozen=True, kw_only=True):
    """``new_path`` was made a name of ``path`` (hard), or a symlink whose text is ``path`` (symbolic).

    Where ``path`` is a symlink, ``follows`` tells whether its target got the name, and not it itself.
    """

    new_path: bytes
    new_given: bytes = b""
    symbolic: bool = False
    follows: bool = False


class FileTruncated(FileEvent, frozen=True, kw_only=True):
    """The size was set, or a range was punched or added (fallocate)."""

    size_bytes: int
    how: str = "truncate"


class FileMapped(FileEvent, frozen=True, kw_only=True):
    """A shared mapping of a file open for writing was made: later stores into it are not seen."""

    size_bytes: int


class FileChanged(FileEvent, frozen=True, kw_only=True):
    """An attribute was set: ``mode``, ``owner``, ``xattr``, ``flags`` or ``times``.

    Where the name is that of a symlink, ``follows`` tells whether its target was meant.
    """

    attribute: str
    follows: bool = True
    value: int | None = None


READ_WINDOW_NS = 10_000_000
"""For so long after a read was told, further ones through the same open file are not."""


class FileRead(FileEvent, frozen=True, kw_only=True):
    """Content of a file in a shared place was read through an open file, or mapped.

    Told each time, but for reads that follow the last one told through the same open file within `READ_WINDOW_NS`.
    ``how`` is the call's name; what is mapped can be read until the process ends.
    """

    how: str
    size_bytes: int = 0


class FileListed(FileEvent, frozen=True, kw_only=True):
    """The names in a directory of a shared or hidden place were read."""

    how: str = "getdents64"


class FileLookedUp(FileEvent, frozen=True, kw_only=True):
    """A name, or an attribute, was looked up without an open, in a shared or hidden place or where it may be one.

    ``device`` and ``inode`` are of what was found, where the call told them; ``error`` is what it failed with.
    """

    how: str


class FileLocked(FileEvent, frozen=True, kw_only=True):
    """A lock of a file was asked for: had, waited for (``waits``), refused (``error``), or given back (``unlocked``).

    In a shared place all of this is told; elsewhere the first lock of each file, and whoever waits or is refused. A
    wait ends with the next event of this process and file, or with the process. A refusal is told again after
    `READ_WINDOW_NS`.

    Attributes:
        how: ``flock``, ``process`` (fcntl, lockf) or ``description`` (fcntl's locks of an open file).
        lock: ``shared``, ``exclusive`` or ``unlocked``.
        holder: of a wait, the pid (of the host) whose lock is in the way; 0 when that is not known.
        inside: the holder is a process of this trial.
        each: every lock and release here is told.
    """

    how: str
    lock: str
    waits: bool = False
    holder: int = 0
    inside: bool = False
    each: bool = False
