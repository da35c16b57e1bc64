"""``supervise settle``: goes on following what keeps a sealed run open, and seals what is seen as addenda to it.

Laws:
    * The run itself is never changed. An addendum is a directory ``addenda/NNN`` in that of the run, with a log, a
      signed completion argument and a manifest of its own, so that whatever verifies a run verifies it; its manifest
      binds the whole log of the run, and of every addendum before it.
    * Each route that is decided is sealed at once, as an addendum of its own: whoever is killed afterwards has lost
      nothing of it. It ends as soon as no route is left that following can decide, when the period is over, when the
      caller's time is, or at a signal; however it ends, it is sealed, and says what is still open.
    * One that was killed is left without a seal, or without the signature over it: it counts for nothing, and the next
      one begins anew.
    * One goes on at a time: two would each bind what was there before, and neither the other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from policies.canonical import policy_to_mapping
from policies.credentials import find_secrets
from policies.redaction import Redactor
from policies.services import is_local
from policies.types import Policy
from supervisor import clock
from supervisor.errors import LogError, UsageError
from supervisor.events import (
    Event,
    Origin,
    ScheduleFound,
    ServiceAnswered,
    StageCommitted,
    TrialEmptied,
    TrialHeld,
    TrialReleased,
    TrialSealed,
)
from supervisor.kept.reading import ADDENDA, addenda, events_of, read_run
from supervisor.kept.rejudging import open_kept
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.runs.state import Home, RunDir
from supervisor.log import envelope
from supervisor.log.bound import claim_digest
from supervisor.log.envelope import sign_envelope
from supervisor.log.keys import KeyStore, SigningKey
from supervisor.log.signer import Signer
from supervisor.log.verify import verify_log
from supervisor.log.writer import LogWriter
from supervisor.prepare.credentials import hide_secrets
from supervisor.prepare.manifest import Manifest, read_manifest
from supervisor.report.attestation import make_statement
from supervisor.settle.outcome_check import Checked, check_outcome
from supervisor.settle.resumed import Ended, Followed, Resumed, RunClock, deadline_ns
from supervisor.signals import Signals
from supervisor.values import dataclass, field
from supervisor.values import replace as replace_value
from supervisor.verdict.completion import Completion, LogFigures, to_json
from supervisor.verdict.settled_later import LeftSchedule, Waiting, open_routes, settle_later

SCHEMA = "addendum/1"
_NANO = 1_000_000_000
_NOTHING_STAGED = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What came of it.

    Attributes:
        completion: the latest argument.
        waited_for: what kept the run open and was followed; empty when there was nothing to do, and then no addendum.
        addendum: the directory of the last one, None when there was nothing to do.
    """

    completion: Completion
    waited_for: tuple[str, ...] = ()
    addendum: Path | None = None


def settle_run(home: Home, reference: str, environ: Mapping[str, str], *, for_s: float | None = None) -> Settled:
    """Go on with a run.

    Args:
        home: where it is kept, and whose key signs.
        reference: of the run.
        environ: of the caller, for the credentials of adapters.
        for_s: how long to wait at most, None for as long as the period asks.

    Raises:
        UsageError: there is no such run.
        LogError: it does not verify, or was never sealed.
    """
    run = home.find(reference)
    with _alone(run), Signals() as signals:
        return _settle(home, run, environ, signals, for_s)


@contextmanager
def _alone(run: RunDir) -> Iterator[None]:
    """Hold the lock of a run's addenda; it goes with whoever holds it.

    Raises:
        UsageError: somebody else goes on with this run.
    """
    top = run.path / ADDENDA
    top.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as err:
        hint = "it is followed there until nothing is left; call this again when that has ended"
        raise UsageError("expected nobody else to settle this run, got another one", place=run.id, hint=hint) from err
    finally:
        os.close(descriptor)


def _settle(home: Home, run: RunDir, environ: Mapping[str, str], signals: Signals, for_s: float | None) -> Settled:
    reading = read_run(run)
    if reading.problem is not None or reading.completion is None:
        message = f"expected a run whose log verifies, got: {reading.problem}"
        raise LogError(message, place=run.id)
    completion = reading.completion
    left = _Left.read(run, completion)
    first = left.waiting(completion)
    waiting, place = first, None
    until_ns = left.until_ns(completion, for_s)
    while waiting.names:
        with home.locked(shared=True):
            place = _next_place(run)
        addendum = _Addendum(run, place, completion, left, waiting, KeyStore(home.path).current(), environ)
        completion, ended = addendum.settle(signals, until_ns)
        waiting = left.waiting(completion) if ended is Ended.DECIDED else Waiting()
    return Settled(completion=completion, waited_for=first.names, addendum=place)


def _next_place(run: RunDir) -> Path:
    """Make the directory of the next addendum; whoever comes second takes the number after it."""
    top = run.path / ADDENDA
    top.mkdir(mode=0o700, exist_ok=True)
    number = len(list(top.iterdir()))
    while True:
        place = top / f"{number:03d}"
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
            continue
        return place


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """What a run has left to follow, as its own log tells it.

    Attributes:
        schedules: that stay where something may start them.
        places: where each of them lies on this host.
        announced: operations that the trial had announced, by service.
        released_ns, written_ns: when it began, and when it had written its last file; CLOCK_REALTIME.
        clock: of the run.
    """

    manifest: Manifest
    document: Mapping[str, object]
    schedules: tuple[LeftSchedule, ...]
    places: Mapping[bytes, bytes]
    announced: Mapping[str, tuple[str, ...]]
    released_ns: int | None
    written_ns: int
    clock: RunClock

    @classmethod
    def read(cls, run: RunDir, completion: Completion) -> _Left:
        document = run.read_manifest()
        manifest = read_manifest(document, place=str(run.manifest))
        host = document.get("host")
        seen = _Seen()
        for event in events_of(run):
            seen.take(event)
        offset_ns = seen.offset_ns or 0
        digests = {one.path: (one.before, one.after) for one in completion.effects.files}
        workspace = manifest.workspace.rstrip(b"/") + b"/"
        schedules = tuple(
            LeftSchedule(
                path=found.path,
                what=found.what,
                next_ns=found.next_ns,
                before=(digests.get(os.fsdecode(found.path)) or (None, None))[0],
                after=(digests.get(os.fsdecode(found.path)) or (None, None))[1],
            )
            for found in seen.schedules
        )
        return cls(
            manifest=manifest,
            document=document,
            schedules=schedules,
            places={one.path: one.path if one.path.startswith(b"/") else workspace + one.path for one in schedules},
            announced=seen.announced,
            released_ns=None if seen.released_ns is None else seen.released_ns + offset_ns,
            written_ns=seen.written_ns + offset_ns,
            clock=RunClock.of(host if isinstance(host, dict) else {}, seen.offset_ns),
        )

    def waiting(self, completion: Completion) -> Waiting:
        """Tell what can be followed from here: on another machine only what is asked over a network."""
        policy = self.manifest.policy
        if self.clock.same_host:
            return open_routes(completion, policy, self.schedules)
        away = tuple(one for one in policy.services if one.settle is None or not is_local(one.settle))
        return open_routes(completion, replace_value(policy, services=away))

    def deadline_ns(self, completion: Completion) -> int | None:
        at = completion.endpoint.at
        return deadline_ns(self.manifest.policy, None if at is None else parse_moment_ns(at))

    def until_ns(self, completion: Completion, for_s: float | None) -> int | None:
        """Tell until when to wait: the period, the caller's time, whichever is over first; None for no end."""
        ends = [end for end in (self.deadline_ns(completion),) if end is not None]
        if for_s is not None:
            ends.append(self.clock.now_ns() + round(for_s * _NANO))
        return min(ends, default=None)


@dataclass(slots=True)
class _Seen:
    """What the events of a run say of what may still act."""

    schedules: list[ScheduleFound] = field(default_factory=list)
    announced: dict[str, tuple[str, ...]] = field(default_factory=dict)
    offset_ns: int | None = None
    released_ns: int | None = None
    written_ns: int = 0

    def take(self, event: Event) -> None:
        match event:
            case ScheduleFound(when="autonomous", kept=True, gone=False):
                self.schedules.append(event)
            case ServiceAnswered() if event.operations:
                self.announced[event.service] = event.operations
            case TrialHeld():
                self.offset_ns = event.realtime_offset_ns
            case TrialReleased():
                self.released_ns = event.time_ns
            case TrialEmptied() | StageCommitted():
                self.written_ns = event.time_ns
            case _:
                pass


class _Addendum:
    """One addendum, from its manifest to its seal."""

    def __init__(
        self,
        run: RunDir,
        place: Path,
        before: Completion,
        left: _Left,
        waiting: Waiting,
        key: SigningKey,
        environ: Mapping[str, str],
    ) -> None:
        self.run, self.place, self.left, self.waiting = run, RunDir(place), left, waiting
        self.key, self.environ, self.before = key, environ, before
        self.policy: Policy = left.manifest.policy
        self.document = self._describe()
        self.manifest = self.place.write_manifest(self.document)

    def _describe(self) -> dict[str, object]:
        """Say what is gone on with, by the roots of the whole logs."""
        settled = [{"path": ".", "root": verify_log(self.run.path).root}]
        settled += [{"path": f"{ADDENDA}/{one.id}", "root": verify_log(one.path).root} for one in addenda(self.run)]
        document = policy_to_mapping(self.policy)
        return {
            "schema": SCHEMA,
            "run": self.run.id,
            "settles": settled,
            "started": clock.now_rfc3339(),
            "policy": {"name": self.policy.name, "digest": self.before.policy.digest, "document": document},
            "claim": document["claim"],
            "key": self.key.public,
        }

    def settle(self, signals: Signals, until_ns: int | None) -> tuple[Completion, Ended]:
        """Follow until something is decided or it is time, conclude, and seal."""
        with ExitStack() as stack:
            digest = hashlib.sha256(self.manifest).hexdigest()
            log = stack.enter_context(LogWriter.create(self.place.log, manifest_digest=f"sha256:{digest}"))
            signer = Signer(log, self.place.log, self.key, run_id=self.run.id)
            signer.start()
            stack.callback(signer.abandon)
            resumed = Resumed(log, self._redactor(), self._followed(), self.environ)
            stack.callback(resumed.close)
            ended = resumed.wait(signals, until_ns)
            if resumed.decided and self.policy.claim.service is None:
                resumed.check_outcome(self._check_outcome)
            signer.stop()
            log.sync()
            completion = self._conclude(log, resumed)
            self._seal(log, signer, completion)
        return completion, ended

    def _followed(self) -> Followed:
        left = self.left
        return Followed(
            run=self.run.id,
            policy=self.policy,
            waiting=self.waiting,
            places=left.places,
            announced=left.announced,
            deadline_ns=left.deadline_ns(self.before),
            since_s=None if left.released_ns is None else left.released_ns / _NANO,
            clock=left.clock,
        )

    def _check_outcome(self) -> Checked:
        if not self.left.clock.same_host:
            return Checked(problem="it lies on another machine")
        kept = open_kept(self.run)
        return check_outcome(
            self.run,
            kept.facts(self.policy),
            self.policy,
            workspace=self.left.manifest.workspace,
            stage=kept.stage,
            written_ns=self.left.written_ns,
        )

    def _redactor(self) -> Redactor:
        return hide_secrets(
            find_secrets(self.environ, self.policy),
            workspace=Path(os.fsdecode(self.left.manifest.workspace)),
            home=self.environ.get("HOME") or None,
            state=self.run.path,
        )

    def _conclude(self, log: LogWriter, resumed: Resumed) -> Completion:
        checkpoint = log.checkpoint()
        figures = LogFigures(
            frames=checkpoint.frames,
            events=checkpoint.events,
            lost=self.before.log.lost,
            root=checkpoint.root,
            sealed=True,
            key=self.key.public,
        )
        judged = settle_later(self.before, self.policy, resumed.since, self.left.deadline_ns(self.before))
        return replace(judged, log=figures)

    def _seal(self, log: LogWriter, signer: Signer, completion: Completion) -> None:
        document = to_json(completion)
        write_whole(self.place.completion, document)
        attestation = sign_envelope(make_statement(completion, document), self.key)
        write_whole(self.place.path / envelope.NAME, attestation)
        whole = log.seal(
            lambda n: TrialSealed(
                n=n,
                time_ns=clock.boottime_ns(),
                origin=Origin.SUPERVISOR,
                evidence_frames=completion.log.frames,
                evidence_root=completion.log.root,
                completion=_digest(document),
                stage=_NOTHING_STAGED,
                attestation=_digest(attestation),
                policy=completion.policy.digest,
                claim=claim_digest(self.document["claim"]),
            )
        )
        signer.sign_seal(whole)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def parse_moment_ns(text: str) -> int:
    """Read a moment as the completion argument writes it (RFC 3339, UTC, nanoseconds); CLOCK_REALTIME in ns."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return round(datetime.fromisoformat(f"{whole}+00:00").timestamp()) * _NANO + int(fraction.ljust(9, "0")[:9] or 0)


def told(run: str, settled: Settled) -> Iterator[str]:
    """Say what came of it, for people."""
    finality = settled.completion.finality
    if not settled.waited_for:
        why = "nothing keeps it open" if finality.verdict == "final" else "nothing that keeps it open can be followed"
        yield f"{run}: nothing to wait for: {why}; finality {finality.verdict}"
    else:
        names = ", ".join(settled.waited_for)
        label = f", {finality.label}" if finality.label else ""
        sealed = os.fspath(settled.addendum or "")
        yield f"{run}: followed {names}; finality {finality.verdict}{label}; sealed as {sealed}"
    if finality.verdict != "final":
        yield from (f"still open: {reason.text}" for reason in finality.reasons if reason.keeps_open)
