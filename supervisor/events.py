"""The events: what was seen, as past facts, subject first.

A class ``FileOpened`` has the wire kind ``file.opened``; the kind is derived from the name, once, here. Events are
`msgspec.Struct` values instead of dataclasses because a log holds millions of them and a struct is made in a sixth of
the time. Paths, arguments and names stay ``bytes`` until the report.

Every event has:
    n: its number in the log, from 0, in log order.
    time_ns: CLOCK_BOOTTIME in nanoseconds.
    process: who did it, or None when nobody in the trial did.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

import msgspec


class Origin(StrEnum):
    """Who vouches for an event. Only ``trial`` is not trusted: it closes no route."""

    KERNEL = "kernel"
    GATEWAY = "gateway"
    SUPERVISOR = "supervisor"
    SERVICE = "service"
    TRIAL = "trial"


class ProcessKey(NamedTuple):
    """One process for ever: host pid of the thread group, and its start on CLOCK_BOOTTIME."""

    pid: int
    start_ns: int

    def __str__(self) -> str:
        """Give the form that reports and ``supervise why`` use: ``412@8123456789``."""
        return f"{self.pid}@{self.start_ns}"


def wire_kind(class_name: str) -> str:
    """Derive the wire kind from a class name: ``FileOpened`` is ``file.opened``.

    The first word is the subject; what follows is joined by ``_``.
    """
    subject, *fact = re.findall(r"[A-Z][a-z]*", class_name)
    return f"{subject.lower()}.{'_'.join(fact).lower()}"


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=wire_kind):
    """What all events have in common."""

    n: int
    time_ns: int
    origin: Origin = Origin.KERNEL
    process: ProcessKey | None = None

    @property
    def kind(self) -> str:
        """The wire kind, e.g. ``file.opened``."""
        return str(self.__struct_config__.tag)


# -- processes -----------------------------------------------------------------------------------------------------


class ProcessStarted(Event, frozen=True, kw_only=True):
    """A process was made: ``process`` is the child, ``parent`` the process that really made it.

    ``parent`` is None for members that were in the cgroup when the witness was attached.
    """

    parent: ProcessKey | None
    pid_inside: int
    uid: int = 0


class ProcessExecuted(Event, frozen=True, kw_only=True):
    """A process became another program. ``argv`` is what the kernel put on the new stack, before it ran."""

    exe: bytes
    argv: tuple[bytes, ...]
    argv_truncated: bool = False
    cwd: bytes = b""
    device: int = 0
    inode: int = 0
    path_truncated: bool = False


class ProcessExecFailed(Event, frozen=True, kw_only=True):
    """A process tried to become another program and could not."""

    path: bytes
    error: int
    verified: bool = True


class ProcessReached(Event, frozen=True, kw_only=True):
    """A process reached into another one: ``how`` is ptrace, process_vm_writev or process_vm_readv.

    From then on the arguments of calls that were read from the target's memory prove nothing.
    """

    target_inside: int
    how: str
    error: int | None = None


class ProcessExited(Event, frozen=True, kw_only=True):
    """The last thread of a process ended. One of ``exit_code`` and ``signal`` is set."""

    exit_code: int | None
    signal: int | None


class SignalSent(Event, frozen=True, kw_only=True):
    """A process of the trial sent a signal to another one."""

    target: ProcessKey
    signal: int
    inside: bool
    error: int | None = None


class MembershipLeft(Event, frozen=True, kw_only=True):
    """A process of the trial was moved out of its cgroup: from here on it is not witnessed."""

    cgroup: int


class SyscallRefused(Event, frozen=True, kw_only=True):
    """A call that the box refuses to everybody was tried (mount, bpf, keyctl, io_uring, …)."""

    name: str
    arguments: tuple[int, ...]
    error: int


# -- files ---------------------------------------------------------------------------------------------------------


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
    """

    path: bytes
    path_truncated: bool = False
    verified: bool = True
    device: int = 0
    inode: int = 0
    error: int | None = None
    reachable: bool = True


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


class FileCreated(FileEvent, frozen=True, kw_only=True):
    """A directory, node, socket or named temporary file was made by a call other than open."""

    what: Kind


class FileDeleted(FileEvent, frozen=True, kw_only=True):
    """A name was removed."""

    what: Kind = Kind.UNKNOWN


class FileRenamed(FileEvent, frozen=True, kw_only=True):
    """``path`` became ``new_path``; with ``exchange`` the two changed places."""

    new_path: bytes
    exchange: bool = False


class FileLinked(FileEvent, frozen=True, kw_only=True):
    """``new_path`` was made a name of ``path`` (hard), or a symlink whose text is ``path`` (symbolic)."""

    new_path: bytes
    symbolic: bool = False


class FileTruncated(FileEvent, frozen=True, kw_only=True):
    """The size was set, or a range was punched or added (fallocate)."""

    size_bytes: int
    how: str = "truncate"


class FileMapped(FileEvent, frozen=True, kw_only=True):
    """A shared mapping of a file open for writing was made: later stores into it are not seen."""

    size_bytes: int


class FileChanged(FileEvent, frozen=True, kw_only=True):
    """An attribute was set: ``mode``, ``owner``, ``xattr`` or ``times``."""

    attribute: str
    value: int | None = None


# -- sockets -------------------------------------------------------------------------------------------------------


class SocketCreated(Event, frozen=True, kw_only=True):
    """A socket was made, or refused with ``error``."""

    family: int
    socket_type: int
    protocol: int
    error: int | None = None


class SocketBound(Event, frozen=True, kw_only=True):
    """A socket was given a local address."""

    transport: str
    ip: str | None
    port: int | None
    path: bytes | None = None
    error: int | None = None


class ConnectionAttempted(Event, frozen=True, kw_only=True):
    """A connection to loopback, or to a unix socket.

    ``outside``: the peer is no process of this trial: a route to a service that this box does not hold.
    """

    transport: str
    ip: str | None = None
    port: int | None = None
    path: bytes | None = None
    outside: bool = False
    error: int | None = None


class ConnectionBlocked(Event, frozen=True, kw_only=True):
    """A connection to an address outside was refused at the call, before anything was sent."""

    transport: str
    ip: str
    port: int


class DatagramBlocked(Event, frozen=True, kw_only=True):
    """A datagram to an address outside was refused at the call."""

    transport: str
    ip: str
    port: int


class DescriptorPassed(Event, frozen=True, kw_only=True):
    """A descriptor was sent (or received) over a unix socket. ``outside`` as for connections."""

    received: bool
    outside: bool
    path: bytes | None = None


# -- the witness itself --------------------------------------------------------------------------------------------


class EventsLost(Event, frozen=True, kw_only=True):
    """Events that should be here are not. ``count`` is a lower bound."""

    count: int
    hook: str
    first_ns: int
    last_ns: int


class LogWaited(Event, frozen=True, kw_only=True):
    """There was no room for the log, and the trial was frozen until there was."""

    first_ns: int
    last_ns: int


# -- the supervisor ------------------------------------------------------------------------------------------------


class TrialHeld(Event, frozen=True, kw_only=True):
    """The box stands and CMD's process waits in it. ``process`` is CMD's process, ``init`` the box's pid 1."""

    init: ProcessKey
    helpers: tuple[ProcessKey, ...]
    cgroup: int
    realtime_offset_ns: int


class TrialTested(Event, frozen=True, kw_only=True):
    """The box tested itself (``canary`` is ``opening`` or ``closing``). ``findings`` is empty when it passed."""

    canary: str
    findings: tuple[str, ...]
    witnessed: tuple[int, ...]


class TrialReleased(Event, frozen=True, kw_only=True):
    """CMD was let go: what ``process`` and its descendants do from here on is the trial's."""


class TrialEndpoint(Event, frozen=True, kw_only=True):
    """The evaluator stopped asking for actions: CMD ended, or a limit ended it.

    ``reason`` is ``exit`` or ``timeout``. ``alive`` are the processes of the trial
    that existed then (CMD's own among them when an observation limit leaves it running).
    """

    reason: str
    alive: tuple[ProcessKey, ...]


class TrialFrozen(Event, frozen=True, kw_only=True):
    """The cgroup said ``frozen 1``."""


class TrialSnapshotted(Event, frozen=True, kw_only=True):
    """The outcome was captured while the trial was frozen, or empty. ``digest`` covers the captured footprint."""

    digest: str
    files: int
    size_bytes: int


class TrialIsolated(Event, frozen=True, kw_only=True):
    """The workspace was taken from what is alive; ``error`` is None when nobody in the box can write it any more."""

    error: str | None


class TrialThawed(Event, frozen=True, kw_only=True):
    """The frozen trial goes on."""


class TrialSettled(Event, frozen=True, kw_only=True):
    """Following ended. ``emptied``: nothing of the trial is alive; else ``alive`` still was when ``settle`` ended."""

    emptied: bool
    alive: tuple[ProcessKey, ...]


class TrialKilled(Event, frozen=True, kw_only=True):
    """What was alive was killed by us. ``why`` is ``cancel``, ``hygiene`` or ``stopped``."""

    why: str
    killed: tuple[ProcessKey, ...]


class TrialEmptied(Event, frozen=True, kw_only=True):
    """The cgroup said ``populated 0``: an account of the end that does not depend on exit events."""

    pids_left: int


class TrialCounted(Event, frozen=True, kw_only=True):
    """What left for other than loopback addresses, by a counter beside the events: refused traffic never gets there."""

    egress_packets: int
    egress_bytes: int


class LimitReached(Event, frozen=True, kw_only=True):
    """A limit of the trial's resources was met: ``effect`` is ``refused``, ``killed``, ``reclaimed`` or ``throttled``.

    ``resource`` is ``pids`` (``limit`` processes; so many forks were refused), ``memory`` (bytes; so many processes
    were killed, or, if none was, so often caches had to be given up) or ``cpu`` (processors; so many periods had a wait
    in them). ``times`` is the kernel's own count, read when the trial was empty.
    """

    resource: str
    limit: int | float
    effect: str
    times: int


class StageCommitted(Event, frozen=True, kw_only=True):
    """Staged writes were applied to the host (or left: ``state`` is ``applied``, ``kept`` or ``failed``).

    ``entries`` is how many paths show something else on the host since, as people count. Not applied were ``left_out``,
    which may not be written, and ``conflicts``, which the host stood against.
    """

    state: str
    entries: int
    error: str | None = None
    left_out: tuple[bytes, ...] = ()
    conflicts: tuple[bytes, ...] = ()


class TrialSealed(Event, frozen=True, kw_only=True):
    """The end of the log: what follows is no part of it.

    ``evidence_frames`` and ``evidence_root`` are the log up to the evidence checkpoint; ``completion`` and ``stage``
    are the digests of what was concluded from it, ``attestation`` that of the signed statement about it; ``policy`` and
    ``claim`` are the digests of what was fixed before. Logs from before there were signatures lack these three.
    """

    evidence_frames: int
    evidence_root: str
    completion: str
    stage: str
    attestation: str | msgspec.UnsetType = msgspec.UNSET
    policy: str | msgspec.UnsetType = msgspec.UNSET
    claim: str | msgspec.UnsetType = msgspec.UNSET


class NoteReceived(Event, frozen=True, kw_only=True):
    """Something the trial said about itself through ``$SUPERVISE_NOTIFY``. Kept, never believed: it closes no route."""

    text: str
    truncated: bool | msgspec.UnsetType = msgspec.UNSET


class CheckpointSigned(Event, frozen=True, kw_only=True):
    """The log up to here was signed: checkpoint ``number``, over the first ``frames`` frames.

    ``note`` is the digest of the signed note, so that one that is taken out of ``log/checkpoints`` is missed.
    """

    number: int
    frames: int
    note: str


class CheckpointMissed(Event, frozen=True, kw_only=True):
    """Checkpoints ``first`` to ``last`` did not reach a second place, which was to keep them. The trial went on.

    A later checkpoint that did arrive vouches for the same frames; until then nobody else could tell a changed log.
    """

    place: str
    first: int
    last: int
    problem: str


# -- the log itself ------------------------------------------------------------------------------------------------


class UnknownRecorded(Event, frozen=True, kw_only=True):
    """The log holds a record of a kind that this version does not know. ``record`` is the whole of it, as JSON."""

    recorded_kind: str
    record: bytes
