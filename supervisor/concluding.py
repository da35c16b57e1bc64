"""What is concluded from a trial that has ended: facts, verdicts, the commit, the argument, the seal.

In: a trial of which nothing is alive, with its whole log on disk. The rule it keeps: everything is read from the log as
written; the disk is looked at only to reconcile it with what the log says.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from policies.canonical import policy_digest
from policies.globs import compile_globs
from policies.types import Commit, FilesMode
from probes.kernel.decode import decode_slab
from supervisor import clock
from supervisor.errors import SuperviseError
from supervisor.events import Event, Origin, StageCommitted, TrialSealed
from supervisor.evidence.collect import collect
from supervisor.evidence.facts import Facts
from supervisor.evidence.timeline import with_commit
from supervisor.launch.durable import write_whole
from supervisor.launch.stage import Stage
from supervisor.log import envelope
from supervisor.log.envelope import sign_envelope
from supervisor.log.reader import read_events
from supervisor.report.attestation import make_statement
from supervisor.request import Outcome, Phase
from supervisor.trial import Trial
from supervisor.verdict.argue import argue
from supervisor.verdict.completion import Completion, LogFigures, to_json
from supervisor.verdict.judge import judge

_NOTHING_STAGED = "none"
APPLIED = "applied"


def conclude(trial: Trial, stage: Stage) -> Outcome:
    """Judge the trial, apply its stage, and seal its log."""
    trial.tell(Phase.JUDGING)
    trial.consumer.stop()
    trial.syncer.stop()
    trial.room.persist(trial.signer.stop)
    facts = _collect(trial, stage)
    facts = _commit(trial, stage, facts)
    completion = _argue(trial, facts)
    raw = to_json(completion)
    trial.room.persist(lambda: write_whole(trial.prepared.run.completion, raw))
    missed = _seal(trial, completion, raw, stage)
    if facts.timeline.commit_state == APPLIED:
        stage.discard()  # what was applied is on the host, and its digest is in the seal
    return Outcome(
        run=trial.prepared.run.id, directory=trial.prepared.run.path, completion=completion, unwitnessed=missed
    )


def _read(trial: Trial) -> Iterator[Event]:
    machine = os.uname().machine
    return read_events(trial.prepared.run.log, lambda slab, first: decode_slab(slab, first, machine))


def _collect(trial: Trial, stage: Stage) -> Facts:
    return collect(
        _read(trial),
        policy=trial.prepared.request.policy,
        workspace=os.fsencode(trial.prepared.workspace),
        observe=stage.observe,
        changed=stage.changed,
    )


def _commit(trial: Trial, stage: Stage, facts: Facts) -> Facts:
    """Apply the stage if the policy says so; what became of it is an event and a fact."""
    files = trial.prepared.request.policy.files
    if files.mode is FilesMode.DIRECT:
        return facts
    if files.commit is Commit.NEVER or (files.commit is Commit.FINAL and not _is_final(trial, facts)):
        state, entries, error = "kept", 0, None
    else:
        state, entries, error = apply_stage(stage, files.write)
    return with_commit(facts, trial.record(StageCommitted, state=state, entries=entries, error=error))


def apply_stage(stage: Stage, write: tuple[str, ...] | None) -> tuple[str, int, str | None]:
    """Commit a stage; gives state, entries and what went wrong. Only what may be written is applied."""
    globs = None if write is None else compile_globs(write, workspace=stage.workspace)
    try:
        result = stage.commit(lambda path: globs is None or globs.match(path))
    except (SuperviseError, OSError) as err:
        return "failed", 0, str(err)
    if result.conflicts:
        paths = ", ".join(os.fsdecode(left.path) for left in result.conflicts[:5])
        return "failed", result.entries, f"changed on the host meanwhile: {paths}"
    return APPLIED, result.entries, None


def _is_final(trial: Trial, facts: Facts) -> bool:
    return judge(facts, trial.prepared.request.policy).finality.verdict == "final"


def _argue(trial: Trial, facts: Facts) -> Completion:
    policy = trial.prepared.request.policy
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
        judge(facts, policy),
        run=trial.prepared.run.id,
        command=trial.prepared.request.argv,
        log=figures,
        policy_digest=policy_digest(policy),
    )


def _seal(trial: Trial, completion: Completion, raw: bytes, stage: Stage) -> tuple[tuple[str, str], ...]:
    """Bind everything and seal the log; gives the second places that missed the last checkpoint."""
    prepared = trial.prepared
    attestation = sign_envelope(make_statement(completion, raw), prepared.key)
    trial.room.persist(lambda: write_whole(prepared.run.path / envelope.NAME, attestation))
    staged = trial.prepared.request.policy.files.mode is FilesMode.STAGED
    digest = stage.digest() if staged else _NOTHING_STAGED
    whole = trial.log.seal(
        lambda n: TrialSealed(
            n=n,
            time_ns=clock.boottime_ns(),
            origin=Origin.SUPERVISOR,
            evidence_frames=completion.log.frames,
            evidence_root=completion.log.root,
            completion=_digest(raw),
            stage=digest,
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
