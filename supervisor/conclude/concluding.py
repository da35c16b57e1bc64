"""What is concluded from a trial that has ended: facts, verdicts, the commit, the argument, the seal.

In: a trial of which nothing is alive, with its whole log on disk. The rule it keeps: everything is read from the log as
written; the disk is looked at only to reconcile it with what the log says.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from policies.canonical import policy_digest
from policies.globs import compile_globs
from policies.types import Commit
from probes.kernel.decode import decode_slab
from supervisor import clock
from supervisor.conclude import recorded
from supervisor.conclude.comparing import compare_captured
from supervisor.conclude.recorded import Recorder
from supervisor.conclude.searching import Outgoing, redacted_paths, search
from supervisor.conclude.sighting import add_sights, look_at_found
from supervisor.errors import SuperviseError
from supervisor.events import Event, Origin, StageCommitted, StatesRecorded, TrialCounted, TrialSealed
from supervisor.evidence.collect import collect
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import ChangeKind, Observed, SharedNames, Sight
from supervisor.evidence.held import Release
from supervisor.evidence.naming import listed, show
from supervisor.evidence.timeline import with_commit
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.runs.left import note_left
from supervisor.launch.stage.stage import Stage
from supervisor.log import envelope
from supervisor.log.envelope import sign_envelope
from supervisor.log.reader import read_events
from supervisor.prepare.declared import read_links
from supervisor.report.attestation import make_statement
from supervisor.request import Outcome, Phase
from supervisor.trial.given import record_left
from supervisor.trial.trial import Trial
from supervisor.trial.watching import changed, observed, record_foreign, shared_names
from supervisor.values import dataclass, replace
from supervisor.verdict.argue import argue
from supervisor.verdict.captures import withheld
from supervisor.verdict.completion import NEVER, Completion, LogFigures, StageSeen, json_parts
from supervisor.verdict.judge import Judgement, judge
from supervisor.verdict.runs.indexing import index_run
from supervisor.verdict.runs.run_index import encode_index
from supervisor.verdict.situation import read_situation

if TYPE_CHECKING:
    from supervisor.conclude.validating import Waiting
    from supervisor.launch.stage.inplace import InPlace
    from supervisor.launch.stage.journal import Left
    from supervisor.signals import Signals

_NOTHING_STAGED = "none"
_LEFT_MAX = 1000
"""How many paths that were not applied are named in one event."""

_OF_OLD_FILES = frozenset({ChangeKind.MODIFIED, ChangeKind.DELETED, ChangeKind.ATTRIBUTES, ChangeKind.MAPPED})
"""What can only happen to what is there; a rename is told the same at both of its names."""

APPLIED = "applied"
DISCARDED = "discarded"


def conclude(trial: Trial, stage: Stage | InPlace, signals: Signals) -> Outcome:
    """Judge the trial, apply its stage, and seal its log."""
    trial.tell(Phase.JUDGING)
    trial.gateway.stop()
    counters = trial.consumer.stop()
    trial.syncer.stop()
    trial.record(
        TrialCounted,
        egress_packets=counters.egress_packets,
        egress_bytes=counters.egress_bytes,
        gateway_starts=counters.gateway_starts,
        gateway_packets=counters.gateway_packets,
        gateway_bytes=counters.gateway_bytes,
    )
    trial.room.persist(trial.signer.stop)
    record_left(trial)
    record_foreign(trial, _read(trial), lambda paths: _links_of(stage, paths))
    if isinstance(stage, Stage):
        stage.rest()
    outgoing = Outgoing(trial.prepared.credentials)
    on_disk = redacted_paths(trial, changed(trial, stage.changed))
    facts = search(trial, _collect(trial, stage, outgoing, on_disk), outgoing, on_disk)
    facts = _schedules(trial, stage, facts)
    facts = compare_captured(trial, stage, facts, on_disk)
    found = look_at_found(trial, stage, facts, os.fsencode(trial.prepared.workspace))
    staged = stage.digest() if isinstance(stage, Stage) else _NOTHING_STAGED  # a commit gives away what it applies
    facts = _commit(trial, stage, facts, signals)
    judgement = judge(facts, trial.prepared.told_policy)
    index = _write_index(trial, facts, judgement, found)
    completion = _argue(trial, facts, judgement)
    missed = _seal(trial, completion, _Written(completion=_write(trial, completion), index=index, stage=staged))
    if trial.sharing is not None:
        trial.sharing.states.reduce()
    if not isinstance(stage, Stage):
        stage.reduce()
    elif completion.stage is not None and not _is_needed(completion.stage):
        stage.discard()  # what was applied is on the host or not wanted, and its digest is in the seal
    return Outcome(
        run=trial.prepared.run.id, directory=trial.prepared.run.path, completion=completion, unwitnessed=missed
    )


def _is_needed(stage: StageSeen) -> bool:
    """Tell whether somebody may still want what is staged: it was not applied, or not all of it."""
    return stage.state not in {APPLIED, DISCARDED} or (stage.state == APPLIED and bool(stage.left_out))


def _read(trial: Trial) -> Iterator[Event]:
    machine = os.uname().machine
    return read_events(trial.prepared.run.log, lambda slab, first: decode_slab(slab, first, machine))


def _links_of(stage: Stage | InPlace, paths: Sequence[bytes]) -> dict[bytes, bytes]:
    """Give the text of each path that was a symlink before the trial, also where the trial removed it in place."""
    return read_links(paths) | {path: text for path in paths if (text := stage.beginning(path))}


def _collect(trial: Trial, stage: Stage | InPlace, outgoing: Outgoing, on_disk: Mapping[bytes, bytes]) -> Facts:
    """Fold the log, and keep what was found on disk: with it the log alone tells the same again.

    A path that the log has without a credential's value is looked at under the name that it has on disk.
    """
    in_log = {path: name for name, path in on_disk.items()}
    prepared = trial.prepared

    def observe(names: Sequence[bytes]) -> dict[bytes, Observed]:
        found = observed(trial, [on_disk.get(name, name) for name in names], stage.observe)
        return {in_log.get(path, path): state for path, state in found.items()}

    def aliases(linked: bool) -> SharedNames:  # noqa: FBT001 - see `supervisor.evidence.collect`
        found = shared_names(trial, stage, linked=linked)
        before, after = (
            tuple(tuple(in_log.get(path, path) for path in names) for names in groups)
            for groups in (found.before, found.after)
        )
        return SharedNames(
            before=before, after=after, elsewhere=tuple(in_log.get(path, path) for path in found.elsewhere)
        )

    def beginning(path: bytes) -> bytes | None:
        return stage.beginning(on_disk.get(path, path))

    def links(paths: Sequence[bytes]) -> dict[bytes, bytes]:
        found = _links_of(stage, [on_disk.get(path, path) for path in paths])
        return {in_log.get(path, path): text for path, text in found.items()}

    def whole() -> tuple[Facts, str, int]:
        recorder = Recorder(
            prepared.run.path / recorded.NAME,
            observe,
            lambda: (in_log.get(path, path) for path in changed(trial, stage.changed)),
            links=links,
            aliases=aliases,
            beginning=beginning,
        )
        facts = collect(
            outgoing.through(_read(trial)),
            policy=prepared.told_policy,
            workspace=os.fsencode(prepared.workspace),
            observe=recorder.observe,
            changed=recorder.changed,
            aliases=recorder.aliases,
            beginning=recorder.beginning,
            links=recorder.links,
        )
        return facts, recorder.close(), recorder.lines

    facts, digest, lines = trial.room.persist(whole)
    trial.record(StatesRecorded, digest=digest, lines=lines)
    return facts


def _schedules(trial: Trial, stage: Stage | InPlace, facts: Facts) -> Facts:
    """Look for what was left to run later; a trial that changed nothing left nothing."""
    if not facts.files:
        return facts
    from supervisor.conclude.schedules import record_schedules  # noqa: PLC0415 - see above

    return record_schedules(trial, stage, facts)


def _commit(trial: Trial, stage: Stage | InPlace, facts: Facts, signals: Signals) -> Facts:
    """Apply the stage if the policy says so; what became of it is an event and a fact."""
    files = trial.prepared.request.policy.files
    if not isinstance(stage, Stage):
        return facts
    stage.note_existed(_existed(facts))
    waiting = _waiting(trial, stage, facts, signals)
    refusal = _kept_back(trial, facts)
    if refusal is not None:
        applied = Applied(state="kept")
    elif (refusal := withheld(read_situation(facts, trial.prepared.told_policy, sealed=True))) is not None:
        applied = Applied(state="kept", error=refusal)
    elif waiting is not None and (refusal := waiting.decide()) is not None:
        applied = Applied(state="kept" if waiting.accepted else DISCARDED, error=refusal)
    else:
        applied = apply_stage(stage, files.write, gives=True)
    facts = with_commit(
        facts,
        trial.record(
            StageCommitted,
            state=applied.state,
            entries=applied.entries,
            error=applied.error,
            left_out=applied.left_out[:_LEFT_MAX],
            conflicts=applied.conflicts[:_LEFT_MAX],
        ),
    )
    if waiting is None:
        return facts
    waiting.facts = facts
    return waiting.finish(refusal, applied=applied.state == APPLIED)


def _existed(facts: Facts) -> Iterator[bytes]:
    """Give the files that were there before the trial, as the first thing that happened to each tells."""
    for history in facts.files:
        if history.in_workspace and history.changes and history.changes[0].kind in _OF_OLD_FILES:
            yield history.path


def _waiting(trial: Trial, stage: Stage, facts: Facts, signals: Signals) -> Waiting | None:
    """Give what waits for a validator; None when the policy names none."""
    if trial.prepared.request.policy.validate.command is None:
        return None
    from supervisor.conclude.validating import Waiting  # noqa: PLC0415 - hardly any policy has one

    return Waiting(trial=trial, stage=stage, facts=facts, signals=signals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of a stage: the fields of `StageCommitted`."""

    state: str
    entries: int = 0
    error: str | None = None
    left_out: tuple[bytes, ...] = ()
    conflicts: tuple[bytes, ...] = ()


def apply_stage(stage: Stage, write: tuple[str, ...] | None, *, force: bool = False, gives: bool = False) -> Applied:
    """Commit a stage. Only what may be written is applied; anything else that is left has failed.

    Args:
        stage: of a trial of which nothing is alive.
        write: globs of what may be written; None is everything.
        force: overwrite what the host changed meanwhile.
        gives: what is applied need not be left in the stage, so files are given instead of copied where they can be.
    """
    if stage.untouched():
        return Applied(state=APPLIED)
    from supervisor.launch.stage.plan import REFUSED  # noqa: PLC0415 - a trial that writes nothing needs none of it

    globs = None if write is None else compile_globs(write, workspace=stage.workspace)
    try:
        result = stage.commit(lambda path: globs is None or globs.match(path), force=force, gives=gives)
    except (SuperviseError, OSError) as err:
        return Applied(state="failed", error=str(err))
    left_out = tuple(left.path for left in result.left if left.why == REFUSED)
    against = result.against
    if not against:
        return Applied(state=APPLIED, entries=result.changes, left_out=left_out)
    return Applied(
        state="failed",
        entries=result.changes,
        error=_against(against),
        left_out=left_out,
        conflicts=tuple(left.path for left in against),
    )


def _against(left: tuple[Left, ...]) -> str:
    """Say what the host stood against, by what it did."""
    from supervisor.launch.stage.plan import CHANGED  # noqa: PLC0415 - as above

    whys = dict.fromkeys(entry.why for entry in left)
    return "; ".join(
        f"{'changed on the host meanwhile' if why == CHANGED else why}: "
        f"{listed([show(entry.path) for entry in left if entry.why == why])}"
        for why in whys
    )


def _kept_back(trial: Trial, facts: Facts) -> str | None:
    """Say why the stage is not to be applied; None when it is."""
    commit = trial.prepared.request.policy.files.commit
    if commit in {Commit.ALWAYS, Commit.NEVER}:
        return NEVER if commit is Commit.NEVER else None
    held_apart = replace(facts, release=Release())  # what waits for this very decision keeps nothing open
    found = judge(held_apart, trial.prepared.told_policy)
    if commit.asks_final and found.finality.verdict != "final":
        return "only a final outcome is released, and this one is not"
    if commit.asks_clean and found.scope.verdict != "clean":
        return f"only a clean run is released, and this one is {found.scope.verdict}"
    return None


def _argue(trial: Trial, facts: Facts, judgement: Judgement) -> Completion:
    policy, name = trial.prepared.told_policy, trial.prepared.request.name
    redactor = trial.prepared.credentials.redactor
    trial.log.sync()
    checkpoint = trial.log.checkpoint()
    figures = LogFigures(
        frames=checkpoint.frames,
        events=checkpoint.events,
        lost=facts.lost,
        root=checkpoint.root,
        sealed=True,
        key=trial.prepared.key.public,
    )
    return argue(
        facts,
        policy,
        judgement,
        run=trial.prepared.run.id,
        command=[redactor.redact(word, where="") for word in trial.prepared.request.argv],
        log=figures,
        policy_digest=policy_digest(trial.prepared.request.policy),
        name=None if name is None else redactor.redact_text(name, where=""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The digests of what was concluded and written."""

    completion: str
    index: str
    stage: str


def _write_index(trial: Trial, facts: Facts, judgement: Judgement, found: tuple[Sight, ...]) -> str:
    """Write what the run says to others; gives its digest."""
    prepared = trial.prepared
    index = index_run(
        facts,
        prepared.told_policy,
        judgement,
        run=prepared.run.id,
        workspace=os.fsencode(prepared.workspace),
        places=tuple(prepared.declared.shared),
        left=trial.left_names,
        registered=trial.registered,
    )
    note_left(prepared.home.path, (contact.path for contact in index.contacts if contact.how == "changed"))
    data = encode_index(add_sights(index, found))
    trial.room.persist(lambda: write_whole(prepared.run.index, data))
    return _digest(data)


def _write(trial: Trial, completion: Completion) -> str:
    """Write completion.json part by part; gives its digest."""

    def write() -> str:
        digest = hashlib.sha256()

        def parts() -> Iterator[bytes]:
            for part in json_parts(completion):
                digest.update(part)
                yield part

        write_whole(trial.prepared.run.completion, parts())
        return f"sha256:{digest.hexdigest()}"

    return trial.room.persist(write)


def _seal(trial: Trial, completion: Completion, written: _Written) -> tuple[tuple[str, str], ...]:
    """Bind everything and seal the log; gives the second places that missed the last checkpoint."""
    prepared = trial.prepared
    attestation = sign_envelope(make_statement(completion, prepared.run.completion.read_bytes()), prepared.key)
    trial.room.persist(lambda: write_whole(prepared.run.path / envelope.NAME, attestation))
    whole = trial.log.seal(
        lambda n: TrialSealed(
            n=n,
            time_ns=clock.boottime_ns(),
            origin=Origin.SUPERVISOR,
            evidence_frames=completion.log.frames,
            evidence_root=completion.log.root,
            completion=written.completion,
            index=written.index,
            stage=written.stage,
            attestation=_digest(attestation),
            policy=completion.policy.digest,
            claim=prepared.claim_digest,
        )
    )
    missed = trial.room.persist(lambda: trial.signer.sign_seal(whole))
    trial.tell(Phase.SEALED)
    return tuple((one.place, one.problem) for one in missed)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
