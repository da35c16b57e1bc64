"""A sealed run judged under another claim, or graded again: ``supervise judge``.

In: a run, and a claim or a grader that was not declared before it. Out: ``judgements/N`` below the run's directory, in
the form of a run: its log tells of the graders, its ``completion.json`` holds the argument, and it verifies by itself.

Laws:
    * The run's log is read and never written.
    * A claim that was not bound before the run says so: ``declared_before`` is false, and what was declared is shown.
    * A grader sees what was kept. Where that is no longer the outcome as it was then, there is no label.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from policies.canonical import policy_digest, policy_to_mapping
from policies.credentials import filter_environ
from policies.parse import check_policy, load_policy
from policies.types import FilesMode, Policy
from supervisor import clock
from supervisor.errors import UsageError
from supervisor.events import Event, Origin, TrialSealed
from supervisor.evidence.facts import Facts
from supervisor.evidence.grader import GraderDid
from supervisor.grade_box import SCRATCH, GraderBox
from supervisor.grading import Grader, Subject, claimed_state, nested_layers
from supervisor.launch.durable import write_whole
from supervisor.launch.stage import Stage
from supervisor.launch.state import Home, RunDir
from supervisor.launch.stored import find_changed
from supervisor.log.bound import claim_digest
from supervisor.log.keys import KeyStore, SigningKey
from supervisor.log.signer import Signer
from supervisor.log.writer import LogWriter
from supervisor.preparing import User, find_user
from supervisor.reading import events_of
from supervisor.rejudging import Kept, open_kept
from supervisor.verdict.completion import Completion

SCHEMA = "judgement/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of it.

    Attributes:
        directory: of the judgement.
        document: what ``completion.json`` of it says.
        completion: the argument under the claim that was asked for.
        declared: the one that the run was sealed with.
        declared_before: the claim and the grader are those that were bound before the run.
    """

    directory: Path
    document: bytes
    completion: Completion
    declared: Completion
    declared_before: bool


def judge_run(home: Home, run: RunDir, *, claim: str | None, grade: str | None, environ: Mapping[str, str]) -> Judged:
    """Judge a run under another claim or grader.

    Args:
        home: whose key signs the judgement.
        run: sealed.
        claim: file or name of a policy, of which the claim, the order of events and the grader are taken.
        grade: command of a grader that takes the place of the declared one.
        environ: of the caller, for the grader.

    Raises:
        UsageError: nothing of the outcome was kept that a grader could see.
        PolicyError: the claim cannot be read.
        LogError: the run does not verify.
    """
    kept = open_kept(run)
    policy = _asked(kept.manifest.policy, claim, grade)
    with ExitStack() as stack:
        return _Judging(home, kept, policy, environ, stack).whole()


def _asked(declared: Policy, claim: str | None, grade: str | None) -> Policy:
    asked = declared
    if claim is not None:
        named = load_policy(claim)
        grader = named.grade if named.grade.command is not None else declared.grade
        asked = replace(asked, claim=named.claim, order=named.order, grade=grader)
    if grade is not None:
        asked = replace(asked, grade=replace(asked.grade, command=grade))
    check_policy(asked)
    return asked


class _Judging:
    def __init__(self, home: Home, kept: Kept, policy: Policy, environ: Mapping[str, str], stack: ExitStack) -> None:
        self._home, self._kept, self._policy, self._environ, self._stack = home, kept, policy, environ, stack
        self._key: SigningKey = KeyStore(home.path).current()
        self._directory = _next(kept.run.path / "judgements")

    def whole(self) -> Judged:
        directory = self._directory
        directory.path.mkdir(mode=0o700, parents=True)
        manifest = directory.write_manifest(self._manifest())
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        log = LogWriter.create(directory.log, manifest_digest=digest)
        self._stack.callback(log.close)
        signer = Signer(log, directory.log, self._key, run_id=self._name)
        signer.start()
        self._stack.callback(signer.abandon)
        facts = self._graded(log)
        completion = self._kept.argue(facts, self._policy)
        signer.stop()
        document = self._seal(log, signer, completion)
        return Judged(
            directory=directory.path,
            document=document,
            completion=completion,
            declared=self._kept.completion,
            declared_before=self._declared_before,
        )

    @property
    def _name(self) -> str:
        return f"{self._kept.run.id}/judgements/{self._directory.id}"

    @property
    def _declared_before(self) -> bool:
        declared = self._kept.manifest.policy
        asked = self._policy
        return (asked.claim, asked.order, asked.grade) == (declared.claim, declared.order, declared.grade)

    def _manifest(self) -> dict[str, Any]:
        policy, kept = policy_to_mapping(self._policy), self._kept
        return {
            "schema": "manifest/1",
            "run": self._name,
            "started": clock.now_rfc3339(),
            "name": None,
            "command": kept.document["command"],
            "workspace": kept.document["workspace"],
            "policy": {"name": self._policy.name, "digest": policy_digest(self._policy), "document": policy},
            "claim": policy["claim"],
            "declared_before": self._declared_before,
            "judges": {"run": kept.run.id, "root": kept.completion.log.root},
            "key": self._key.public,
            "host": kept.document.get("host", {}),
            "versions": kept.document.get("versions", {}),
        }

    def _graded(self, log: LogWriter) -> Facts:
        """Collect the facts; graders are run again where the run has not graded what this claim is about."""
        facts = self._kept.facts(self._policy)
        if self._policy.grade.command is None:
            return facts
        state, captured = claimed_state(self._kept.run, self._policy)
        same = self._policy.grade == self._kept.manifest.policy.grade
        if same and any(run.state == state for run in facts.grades):
            return facts
        grader = self._grader(log)
        grader.show_examples(Path(os.fsdecode(_bytes(self._kept.document["cwd"]))), self._policy.claim.outcome)
        subject = self._stored(facts, state, captured)
        if grader.repeat(subject, lambda did: self._unlike(facts, subject, did)):
            grader.bound(subject)
        return self._kept.facts(self._policy, grades=self._told(log))

    def _told(self, log: LogWriter) -> list[Event]:
        """Read what this judgement's log tells, numbered after the run's events."""
        log.sync()
        last = max((event.n for event in events_of(self._kept.run)), default=-1)
        return [msgspec.structs.replace(event, n=last + 1 + event.n) for event in events_of(self._directory)]

    def _stored(self, facts: Facts, state: str, captured: Path) -> Subject:
        """Give what was kept of the state: a capture, the stage, or the workspace that it was applied to."""
        run, workspace = self._kept.run, self._kept.manifest.workspace
        line = facts.timeline
        digests = {"endpoint": line.snapshots[:1], "within": line.snapshots[-1:]}.get(state, ())
        digest = digests[0].digest if digests else facts.settled_digest
        if (captured / "upper").is_dir() and self._policy.files.mode is FilesMode.STAGED:
            with Stage(run, workspace) as stage:
                nested = nested_layers(stage, captured)
            layers = (os.fsencode(captured / "upper"),)
            return Subject(state=state, layers=layers, base=workspace, digest=digest, nested=nested)
        applied = line.committed is not None and line.committed.state == "applied"
        if applied or self._policy.files.mode is FilesMode.DIRECT:
            return Subject(state=state, layers=(), base=workspace, digest=digest)
        if (run.stage / "upper").is_dir():
            return Subject(state=state, layers=(os.fsencode(run.stage / "upper"),), base=workspace, digest=digest)
        message = "nothing of the outcome was kept that could be graded"
        raise UsageError(message, place=run.id, hint="a run with --grade keeps it, and so does --commit never")

    def _unlike(self, facts: Facts, subject: Subject, did: GraderDid) -> str | None:
        """Say which of what the grader looked at is no longer as it was."""
        ended_ns = (facts.timeline.emptied_ns or 0) + facts.timeline.realtime_offset_ns
        captures = subject.captures(self._kept.manifest.workspace)
        changed = find_changed(
            did.footprint, did.listed, captures, subject.base, facts.files, ended_ns, early=subject.state != "settled"
        )
        if not changed:
            return None
        names = ", ".join(path.decode("utf-8", "backslashreplace") for path in changed[:5])
        return f"what it looked at is no longer as it was then: {names}"

    def _grader(self, log: LogWriter) -> Grader:
        user: User = find_user(None, self._environ)
        environ, _ = filter_environ(self._environ, self._policy)
        kept, document = self._kept, self._kept.document
        trial_user = document.get("user")
        gid = trial_user.get("gid", user.gid) if isinstance(trial_user, dict) else user.gid
        box = GraderBox(
            name=self._name,
            state=self._home.path,
            workspace=kept.manifest.workspace,
            environ={**environ, "TMPDIR": SCRATCH.decode(), "PYTHONDONTWRITEBYTECODE": "1"},
            uid=user.uid,
            gid=user.gid,
            groups=(*user.groups, gid),
            limits=(),
            key=self._key,
            policy={"name": self._policy.name, "digest": policy_digest(self._policy)},
            host=document.get("host") or {},
            cache=self._home.path / "cache",
            timeout_s=self._policy.grade.timeout_s,
        )
        return Grader(box=box, policy=self._policy.grade, log=log, directory=self._directory.grades)

    def _seal(self, log: LogWriter, signer: Signer, completion: Completion) -> bytes:
        log.sync()
        evidence = log.checkpoint()
        declared = self._kept.completion
        told = {
            "schema": SCHEMA,
            "run": self._name,
            "judges": {"run": self._kept.run.id, "root": declared.log.root},
            "declared_before": self._declared_before,
            "policy": {"name": self._policy.name, "digest": policy_digest(self._policy)},
            **{name: getattr(completion, name) for name in _JUDGED},
            "declared": {name: getattr(declared, name) for name in _JUDGED},
            "log": {"frames": evidence.frames, "root": evidence.root, "key": self._key.public},
        }
        document = msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"
        write_whole(self._directory.completion, document)
        claim = json.loads(self._directory.manifest.read_bytes())["claim"]
        whole = log.seal(
            lambda n: TrialSealed(
                n=n,
                time_ns=clock.boottime_ns(),
                origin=Origin.SUPERVISOR,
                evidence_frames=evidence.frames,
                evidence_root=evidence.root,
                completion=f"sha256:{hashlib.sha256(document).hexdigest()}",
                stage="none",
                policy=policy_digest(self._policy),
                claim=claim_digest(claim),
            )
        )
        signer.sign_seal(whole)
        return document


_JUDGED = ("claim", "finality", "separation", "scope", "result")


def _next(folder: Path) -> RunDir:
    taken = [int(place.name) for place in folder.iterdir() if place.name.isdigit()] if folder.is_dir() else []
    return RunDir(folder / str(max(taken, default=-1) + 1))


def _bytes(word: object) -> bytes:
    return str(word).encode(errors="surrogateescape")
