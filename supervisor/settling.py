"""``supervise settle``: goes on asking the services of a sealed run, and seals what they say as an addendum to it.

Laws:
    * The run itself is never changed. An addendum is a directory ``addenda/NNN`` in that of the run, with a log, a
      signed completion argument and a manifest of its own, so that whatever verifies a run verifies it; its manifest
      binds the whole log of the run, and of every addendum before it.
    * It ends as soon as no service keeps the run open, when the period is over, when the caller's time is, or at a
      signal; however it ends, it is sealed, and says what is still open.
    * One that was killed is left without a seal: it counts for nothing, and the next one begins anew.
    * One goes on at a time: two would each bind what was there before, and neither the other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import select
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from policies.canonical import policy_digest, policy_to_mapping
from policies.credentials import find_secrets
from policies.redaction import Redactor
from policies.types import PeriodKind, Policy
from probes.services.answers import Answer
from supervisor import clock
from supervisor.credentials import hide_secrets
from supervisor.errors import LogError, UsageError
from supervisor.events import Origin, ServiceAnswered, TrialSealed
from supervisor.launch.durable import write_whole
from supervisor.launch.state import Home, RunDir
from supervisor.log import envelope
from supervisor.log.bound import claim_digest
from supervisor.log.envelope import sign_envelope
from supervisor.log.keys import KeyStore, SigningKey
from supervisor.log.signer import Signer
from supervisor.log.verify import verify_log
from supervisor.log.writer import LogWriter
from supervisor.manifest import read_manifest
from supervisor.reading import ADDENDA, Reading, addenda, read_run
from supervisor.report.attestation import make_statement
from supervisor.service_watch import ServiceWatch
from supervisor.signals import ENDING, Signals
from supervisor.tape import record
from supervisor.verdict.completion import Completion, LogFigures, to_json
from supervisor.verdict.settled_later import LaterAnswer, open_services, settle_later

SCHEMA = "addendum/1"
_NANO = 1_000_000_000
_NOTHING_STAGED = "none"
_LONGEST_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What came of it.

    Attributes:
        completion: the latest argument.
        waited_for: services that kept the run open; empty when there was nothing to do, and then no addendum.
        addendum: its directory, None when there was nothing to do.
    """

    completion: Completion
    waited_for: tuple[str, ...] = ()
    addendum: Path | None = None


@dataclass(slots=True)
class _Heard:
    """Collects answers from any thread, beside the log; what must not be written is in neither."""

    log: LogWriter
    redactor: Redactor
    answers: dict[str, list[LaterAnswer]] = field(default_factory=dict)

    def tell(self, *, service: str, moment: str, answer: Answer, asked_ns: int, operations: tuple[str, ...]) -> None:
        """Record an answer."""
        event = record(
            self.log,
            ServiceAnswered,
            origin=Origin.SERVICE,
            service=service,
            moment="resumed" if moment == "settling" else moment,
            status=answer.status.value,
            detail=self.redactor.redact_text(answer.detail, where=""),
            asked_ns=asked_ns,
            operations=tuple(self.redactor.redact_text(one, where="") for one in operations),
        )
        offset_ns = clock.realtime_offset_ns()
        later = LaterAnswer(
            service=service,
            status=event.status,
            detail=event.detail,
            asked_ns=asked_ns + offset_ns,
            at_ns=event.time_ns + offset_ns,
            event=event.n,
        )
        self.answers.setdefault(service, []).append(later)


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
    with _alone(run):
        return _settle(home, run, environ, for_s)


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
        hint = "it is asked there until its services have answered; call this again when that has ended"
        raise UsageError("expected nobody else to settle this run, got another one", place=run.id, hint=hint) from err
    finally:
        os.close(descriptor)


def _settle(home: Home, run: RunDir, environ: Mapping[str, str], for_s: float | None) -> Settled:
    reading = read_run(run)
    if reading.problem is not None or reading.completion is None:
        message = f"expected a run whose log verifies, got: {reading.problem}"
        raise LogError(message, place=run.id)
    manifest = read_manifest(run.read_manifest(), place=str(run.manifest))
    policy = manifest.policy
    waiting = open_services(reading.completion, policy)
    if not waiting:
        return Settled(completion=reading.completion)
    with home.locked(shared=True):
        place = _next_place(run)
    completion = _Addendum(run, place, reading, policy, KeyStore(home.path).current(), environ).settle(for_s)
    return Settled(completion=completion, waited_for=waiting, addendum=place)


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


class _Addendum:
    """One addendum, from its manifest to its seal."""

    def __init__(
        self,
        run: RunDir,
        place: Path,
        reading: Reading,
        policy: Policy,
        key: SigningKey,
        environ: Mapping[str, str],
    ) -> None:
        if reading.completion is None:
            message = "expected a completion argument to go on from, got none"
            raise UsageError(message, place=run.id)
        self.run, self.place, self.policy, self.key, self.environ = run, RunDir(place), policy, key, environ
        self.before = reading.completion
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
            "policy": {"name": self.policy.name, "digest": policy_digest(self.policy), "document": document},
            "claim": document["claim"],
            "key": self.key.public,
        }

    def settle(self, for_s: float | None) -> Completion:
        """Ask until there is nothing to wait for, conclude, and seal."""
        with ExitStack() as stack:
            signals = stack.enter_context(Signals())
            digest = hashlib.sha256(self.manifest).hexdigest()
            log = stack.enter_context(LogWriter.create(self.place.log, manifest_digest=f"sha256:{digest}"))
            signer = Signer(log, self.place.log, self.key, run_id=self.run.id)
            signer.start()
            stack.callback(signer.abandon)
            heard = _Heard(log, self._redactor())
            self._wait(heard, signals, for_s)
            signer.stop()
            log.sync()
            completion = self._conclude(log, heard)
            self._seal(log, signer, completion)
        return completion

    def _redactor(self) -> Redactor:
        return hide_secrets(
            find_secrets(self.environ, self.policy),
            workspace=Path(str(self.run.read_manifest().get("workspace"))),
            home=self.environ.get("HOME") or None,
            state=self.run.path,
        )

    def _wait(self, heard: _Heard, signals: Signals, for_s: float | None) -> None:
        waiting = open_services(self.before, self.policy)
        services = tuple(one for one in self.policy.services if one.name in waiting)
        waited = dataclass_replace(self.policy, services=services)
        watch = ServiceWatch(waited, run=self.run.id, environ=self.environ, tell=heard.tell)
        for service, operations in self._announced().items():
            for operation in operations:
                watch.announce_one(service, operation)
        watch.start()
        try:
            watch.follow(on=True)
            until_ns = self._until_ns(for_s)
            if not self._until(watch, signals, until_ns):
                watch.ask("deadline" if self._is_over() else "last")
                select.select([watch.answered, signals.fileno()], [], [], watch.patience_s)
            watch.stop()
        finally:
            watch.close()

    def _until(self, watch: ServiceWatch, signals: Signals, until_ns: int | None) -> bool:
        """Wait until nothing may still act; False when the time is over or we were told to stop."""
        while True:
            left_s = _LONGEST_S if until_ns is None else (until_ns - self._now_ns()) / _NANO
            if left_s <= 0:
                return False
            ready, _, _ = select.select([watch.settled, signals.fileno()], [], [], min(left_s, _LONGEST_S))
            if watch.settled in ready:
                return True
            if signals.fileno() in ready and ENDING.intersection(signals.take()):
                return False

    def _announced(self) -> dict[str, tuple[str, ...]]:
        """Give what the trial had announced, as its own log and the addenda have it."""
        from supervisor.reading import events_of  # noqa: PLC0415

        found = (one for one in events_of(self.run) if isinstance(one, ServiceAnswered))
        return {one.service: one.operations for one in found if one.operations}

    def _until_ns(self, for_s: float | None) -> int | None:
        ends = [end for end in (self._deadline_ns(),) if end is not None and end > self._now_ns()]
        if for_s is not None:
            ends.append(self._now_ns() + round(for_s * _NANO))
        return min(ends, default=self._now_ns() if self._deadline_ns() is not None else None)

    def _deadline_ns(self) -> int | None:
        period = self.policy.claim.period
        if period.kind is not PeriodKind.WITHIN or period.within_s is None or self.before.endpoint.at is None:
            return None
        return parse_moment_ns(self.before.endpoint.at) + round(period.within_s * _NANO)

    def _is_over(self) -> bool:
        deadline_ns = self._deadline_ns()
        return deadline_ns is not None and self._now_ns() >= deadline_ns

    @staticmethod
    def _now_ns() -> int:
        return clock.boottime_ns() + clock.realtime_offset_ns()

    def _conclude(self, log: LogWriter, heard: _Heard) -> Completion:
        checkpoint = log.checkpoint()
        figures = LogFigures(
            frames=checkpoint.frames,
            events=checkpoint.events,
            lost=self.before.log.lost,
            root=checkpoint.root,
            sealed=True,
            key=self.key.public,
        )
        judged = settle_later(self.before, self.policy, heard.answers, self._deadline_ns())
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
        yield f"{run}: nothing to wait for: no service keeps it open; finality {finality.verdict}"
        return
    names = ", ".join(settled.waited_for)
    label = f", {finality.label}" if finality.label else ""
    yield f"{run}: asked {names}; finality {finality.verdict}{label}; sealed as {os.fspath(settled.addendum or '')}"
    yield from (f"still open: {reason.text}" for reason in finality.reasons if reason.keeps_open)
