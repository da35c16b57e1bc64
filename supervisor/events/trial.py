"""The boundaries of a trial, its stage, its notes and its checkpoints: what the supervisor itself did."""

from __future__ import annotations

import msgspec

from supervisor.events.base import Event, ProcessKey


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
    """CMD was let go: what ``process`` and its descendants do from here on is the trial's.

    ``registered`` is the digest of its line in the registry of all runs; logs from before there was one lack it.
    """

    registered: str | msgspec.UnsetType = msgspec.UNSET


class TrialEndpoint(Event, frozen=True, kw_only=True):
    """The evaluator stopped asking for actions: CMD ended, or a limit ended it.

    ``reason`` is ``exit``, ``timeout`` or ``budget``. ``alive`` are the processes of the trial
    that existed then (CMD's own among them when an observation limit leaves it running).
    """

    reason: str
    alive: tuple[ProcessKey, ...]


class TrialFrozen(Event, frozen=True, kw_only=True):
    """The cgroup said ``frozen 1``."""


class TrialSnapshotted(Event, frozen=True, kw_only=True):
    """The outcome was captured while the trial was frozen. ``digest`` covers the captured footprint.

    ``kept_in`` is where, below the directory of the run: a later snapshot at the same place takes that of an earlier.
    ``form`` is 2 since every digest is of the copy that is kept, so that whoever verifies the run computes it again.
    """

    digest: str
    files: int
    size_bytes: int
    kept_in: str = "snapshot/upper"
    form: int = 1


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
    """What left for other than loopback addresses, by counters beside the events.

    ``egress_*`` is what nobody serves, and must be zero: refused traffic never gets there. ``gateway_*`` is what went
    to the gateway: connections begun, packets, and bytes without headers; its own account must fit in.
    """

    egress_packets: int
    egress_bytes: int
    gateway_starts: int = 0
    gateway_packets: int = 0
    gateway_bytes: int = 0


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
    """What became of the staged writes: ``state`` is ``applied``, ``kept``, ``discarded`` or ``failed``.

    ``entries`` is how many paths show something else on the host since, as people count. Not applied were ``left_out``,
    which may not be written, and ``conflicts``, which the host stood against.
    """

    state: str
    entries: int
    error: str | None = None
    left_out: tuple[bytes, ...] = ()
    conflicts: tuple[bytes, ...] = ()


class OutcomeChecked(Event, frozen=True, kw_only=True):
    """After the seal: whether the outcome is still what the run left, now that what could change it is over.

    Attributes:
        changed: paths that were touched since, or are gone; not more than a hundred.
        problem: why that cannot be told, None when it can.
    """

    changed: tuple[bytes, ...] = ()
    problem: str | None = None


class StatesRecorded(Event, frozen=True, kw_only=True):
    """The states of files before and after the trial, as found on disk, were kept in ``observed.jsonl``.

    With them and the log alone every verdict can be recomputed. ``digest`` is of that file, ``lines`` how long it is.
    """

    digest: str
    lines: int


class TrialSealed(Event, frozen=True, kw_only=True):
    """The end of the log: what follows is no part of it.

    ``evidence_frames`` and ``evidence_root`` are the log up to the evidence checkpoint; ``completion`` and ``stage``
    are the digests of what was concluded from it, ``attestation`` that of the signed statement about it; ``policy`` and
    ``claim`` are the digests of what was fixed before. Logs from before there were signatures lack these three.
    ``index`` is that of what the run says to others, from which pairs of runs are judged.
    """

    evidence_frames: int
    evidence_root: str
    completion: str
    stage: str
    attestation: str | msgspec.UnsetType = msgspec.UNSET
    policy: str | msgspec.UnsetType = msgspec.UNSET
    claim: str | msgspec.UnsetType = msgspec.UNSET
    index: str | msgspec.UnsetType = msgspec.UNSET


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
