"""What the events add up to. Values only; `supervisor.evidence` makes them, `supervisor.verdict` reads them.

What a trial may have a hundred thousand of (changes, file histories) is a `msgspec.Struct` that the collector of cycles
never looks at: it is made in a fifth of the time of a frozen dataclass, and smaller. It cannot be part of a cycle.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from supervisor.events import CaptureCompared, ProcessKey
from supervisor.evidence.file_facts import FileHistory, Observed
from supervisor.evidence.held import Release
from supervisor.evidence.requests import Request, Unread
from supervisor.evidence.routes import LockUse, Schedule, ServiceSeen, Stream, Usage
from supervisor.evidence.said import EventMatch, GradeRun, OrderKept, ReferenceMet
from supervisor.values import dataclass, field


class Route(StrEnum):
    """The ways an effect reaches the outcome or another run."""

    PROCESS = "process"
    FILE = "file"
    NETWORK = "network"
    SERVICE = "service"
    CREDENTIAL = "credential"
    IPC = "ipc"
    SCHEDULE = "schedule"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One successful exec of a process; ``event`` is its number, ``at_ns`` its time."""

    exe: bytes
    argv: tuple[bytes, ...]
    argv_truncated: bool
    event: int
    at_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the trial, helpers of the box left out.

    Attributes:
        pid: as the trial sees it.
        parent: who made it, None for CMD's own process.
        executions: in order; empty for one that only forked.
        exe, argv: of the last exec, else the creator's at the time of the fork.
        exited_ns: CLOCK_BOOTTIME, None while there is no exit event.
        events: numbers of its start, execs and exit.
    """

    key: ProcessKey
    pid: int
    parent: ProcessKey | None
    exe: bytes
    argv: tuple[bytes, ...]
    argv_truncated: bool
    executions: tuple[Execution, ...]
    started_ns: int
    exited_ns: int | None
    exit_code: int | None
    signal: int | None
    alive_at_endpoint: bool
    outlived: bool
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What one process did to reach one host: ``decision`` is ``blocked|sinkholed|allowed``.

    Attributes:
        protocol: ``tcp``, ``udp`` or another transport; ``dns`` for what was asked of a server for names and not
            answered.
        host: the name that it went by, or that was asked for; None for a bare address, and where none could be read.
        server: ``ip:port`` of whom was asked, for ``dns``; None where that is not known, and where a name was asked for
            of the box's own resolver.
        unread: for ``dns``, how what was no question went there: ``udp`` or ``tcp``. None for a question. ``ip`` is
            then the server's.
        bytes_out, bytes_in: that were passed on, to the other side and back.
        connections: how many.
        kept_bytes: what was sent and passed on to nobody.
        rule, reason, would_allow: what decided, why, and the option that would let it through.
        open_at_endpoint: how many of the connections the trial still had when it ended.
        under_way_at_endpoint: how many others it had left by then, with something of it still to be passed on.
        unfinished: how many were never seen ending.
        after_endpoint: the trial is known to have asked for, or said, something in it after the endpoint.
        dialled: the servers that were really reached, ``ip:port``.
        first_ns, last_ns: when it was first and last told of, CLOCK_BOOTTIME.
        passed_ns: when the last of ``bytes_out`` was passed on; 0 when that is not known.
    """

    protocol: str
    host: str | None
    ip: str | None
    port: int | None
    decision: str
    bytes_out: int
    bytes_in: int
    process: ProcessKey | None
    events: tuple[int, ...]
    connections: int = 0
    kept_bytes: int = 0
    rule: str | None = None
    reason: str | None = None
    would_allow: str | None = None
    open_at_endpoint: int = 0
    under_way_at_endpoint: int = 0
    unfinished: int = 0
    after_endpoint: bool = False
    dialled: tuple[str, ...] = ()
    first_ns: int = 0
    last_ns: int = 0
    passed_ns: int = 0
    server: str | None = None
    unread: str | None = None


class Touch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One way in which the trial met a path that another run can meet too: a shared place, a workspace used in place.

    Attributes:
        path: absolute, as the host names it.
        how: ``read``, ``listed``, ``looked`` (stat, access or a failed open), ``executed``, ``mapped`` or ``changed``.
        first_ns, last_ns: CLOCK_BOOTTIME.
        error: errno of the look-ups that failed, None where it was found.
        events: numbers; the first and the last ones of many.
    """

    path: bytes
    how: str
    process: ProcessKey | None
    first_ns: int
    last_ns: int
    events: tuple[int, ...]
    error: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedLook:
    """What one process tried with a place that the policy hides; it saw nothing of it.

    Attributes:
        path: absolute, by the place's own name.
        how: ``opened``, ``listed``, ``looked``, ``executed`` or ``changed``.
        error: errno when no attempt succeeded (what it then found was the mask), else None.
    """

    path: bytes
    how: str
    process: ProcessKey | None
    error: int | None
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignChange:
    """What somebody else did to a shared place: ``changes`` are the words of `PlaceChanged`; times CLOCK_BOOTTIME."""

    path: bytes
    changes: tuple[str, ...]
    first_ns: int
    last_ns: int
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialUse:
    """What was done with one credential. A value is never here: ``fingerprint`` is keyed by the machine.

    Attributes:
        what: ``file``, ``env``, ``keyring``, ``agent``, ``metadata``, ``canary`` or ``privilege``.
        action: ``read``, ``denied``, ``written``, ``created``, ``passed``, ``used`` or ``leaked``.
        violates: what the policy says of it.
        where: in words, where it was met; for what is ``leaked`` or ``used``.
        run: whose canary it is.
    """

    what: str
    name: str
    action: str
    process: ProcessKey | None
    events: tuple[int, ...]
    violates: bool = False
    fingerprint: str | None = None
    where: str | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideContact:
    """A route of the operating system to somebody outside the box: a unix socket's peer, a passed descriptor.

    Attributes:
        descriptor: a descriptor was passed: somebody who is not witnessed may hold what it names.
        first_ns: when it first happened.
        error: errno when no attempt succeeded, else None.
        path: of the socket, as the trial names it; None for one without a name.
        service: the service of the policy whose socket it is, by the kernel's account; None for any other.
    """

    what: str
    process: ProcessKey | None
    events: tuple[int, ...]
    descriptor: bool = False
    first_ns: int = 0
    error: int | None = None
    path: bytes | None = None
    last_ns: int = 0
    service: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Calls that the box refuses to everybody, tried by one process; no violation by themselves."""

    what: str
    error: int
    process: ProcessKey | None
    count: int
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A time range of which events are missing; ``hook`` is the place where they were lost.

    A program that was skipped because it was running already (``recursion``) left no time behind.
    """

    hook: str
    count: int
    first_ns: int
    last_ns: int
    event: int

    @property
    def timed(self) -> bool:
        """Whether the range says when; else it may have been at any moment."""
        return self.last_ns > 0 and self.hook != "recursion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The footprint as captured at one moment; ``frozen_ns`` is None when the trial was not frozen for it."""

    at_ns: int
    frozen_ns: int | None
    digest: str
    event: int
    frozen_event: int | None = None
    kept_in: str = "snapshot/upper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One act of ours that ended processes of the trial."""

    why: str
    killed: tuple[ProcessKey, ...]
    at_ns: int
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Evidence that is missing on one route.

    Attributes:
        rule: noun phrase, e.g. ``lost-events``, ``unexplained-change``, ``missing-exit``, ``left-membership``.
        costs: which verdicts depend on it: ``finality``, ``separation``, ``scope``.
    """

    route: Route
    rule: str
    text: str
    events: tuple[int, ...]
    costs: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """One route and who witnessed it; ``complete`` only with a witness and no gap."""

    route: str
    witnesses: tuple[str, ...]
    complete: bool
    gaps: tuple[Gap, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When the trial passed its boundaries: CLOCK_BOOTTIME ns, None for one that it did not pass.

    ``endpoint_ns`` is CMD's exit when that is what ended the trial, else the moment of the limit. ``snapshot_*``
    and ``frozen_ns`` are of the first snapshot, ``killed_*`` of the last kill; ``snapshots`` and ``kills`` have all.
    ``events`` maps the wire kind of each boundary to its event number. ``pids_left`` is what the cgroup still held
    at the end, None when nobody looked. At each of ``boundaries_ns`` the witness began to tell first writes anew.
    """

    realtime_offset_ns: int
    released_ns: int | None = None
    endpoint_ns: int | None = None
    endpoint_reason: str | None = None
    frozen_ns: int | None = None
    snapshot_ns: int | None = None
    snapshot_digest: str | None = None
    settled_ns: int | None = None
    settled_emptied: bool | None = None
    killed_ns: int | None = None
    killed_why: str | None = None
    emptied_ns: int | None = None
    alive_at_endpoint: tuple[ProcessKey, ...] = ()
    alive_at_settled: tuple[ProcessKey, ...] = ()
    killed: tuple[ProcessKey, ...] = ()
    opening_findings: tuple[str, ...] | None = None
    closing_findings: tuple[str, ...] | None = None
    events: dict[str, int] = field(default_factory=dict)
    snapshots: tuple[Snapshot, ...] = ()
    kills: tuple[Kill, ...] = ()
    pids_left: int | None = None
    boundaries_ns: tuple[int, ...] = ()
    isolated_ns: int | None = None
    isolation_error: str | None = None
    committed: Committed | None = None

    @property
    def kept(self) -> tuple[Snapshot, ...]:
        """The snapshots that are still there: the last one of each place."""
        return tuple({snapshot.kept_in: snapshot for snapshot in self.snapshots}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The path that a claim names, and what was found there; ``observed`` is None where nobody could look."""

    path: bytes
    observed: Observed | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What became of the staged writes: the fields of `supervisor.events.StageCommitted`."""

    state: str
    error: str | None
    left_out: tuple[bytes, ...] = ()
    conflicts: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitMet:
    """A limit of the trial's resources that it met.

    Attributes:
        resource: ``pids``, ``memory`` or ``cpu``.
        limit: processes, bytes or processors.
        effect: ``refused``, ``killed``, ``reclaimed`` or ``throttled``.
        times: as the kernel counted.
        processes: those whose end nothing else explains, where the effect is ``killed``.
    """

    resource: str
    limit: float
    effect: str
    times: int
    processes: tuple[ProcessKey, ...]
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it.

    Attributes:
        main: CMD's process, ``0@0`` when none was ever held.
        lost: how many events were lost.
        outcome: the path that the claim names, None when it names none.
        touches: contacts with places where every contact is told.
        reads: what was read elsewhere, told once a file.
        executed: whether CMD's process ever became CMD; None when that event may be among those lost.
        exec_error: errno of why it did not.
        grades: every run of a grader.
        references: reference material of the grader that the trial met.
        settled_digest: of the outcome that was kept when the trial was over.
        orders: what became of each rule of order.
        decider: the events by which the claim is decided.
        requests, unread: what was read inside TLS, and what could not be.
        captured: what paths were in a capture that changed afterwards.
    """

    main: ProcessKey
    timeline: Timeline
    processes: tuple[Process, ...]
    files: tuple[FileHistory, ...]
    flows: tuple[Flow, ...]
    contacts: tuple[OutsideContact, ...]
    coverage: tuple[Coverage, ...]
    events: int
    lost: int
    losses: tuple[Loss, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    outcome: Outcome | None = None
    executed: bool | None = True
    exec_error: int | None = None
    limits: tuple[LimitMet, ...] = ()
    touches: tuple[Touch, ...] = ()
    reads: tuple[Touch, ...] = ()
    denied: tuple[DeniedLook, ...] = ()
    foreign: tuple[ForeignChange, ...] = ()
    locks: tuple[LockUse, ...] = ()
    streams: tuple[Stream, ...] = ()
    credentials: tuple[CredentialUse, ...] = ()
    grades: tuple[GradeRun, ...] = ()
    references: tuple[ReferenceMet, ...] = ()
    settled_digest: str | None = None
    orders: tuple[OrderKept, ...] = ()
    decider: tuple[EventMatch, ...] = ()
    requests: tuple[Request, ...] = ()
    unread: tuple[Unread, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    services: tuple[ServiceSeen, ...] = ()
    usage: Usage = field(default_factory=Usage)
    release: Release = field(default_factory=Release)
    captured: tuple[CaptureCompared, ...] = ()

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Every gap of every route."""
        return tuple(gap for entry in self.coverage for gap in entry.gaps)
