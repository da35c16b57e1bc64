"""A sealed run judged under another claim, or graded again: ``supervise judge``.

In: a run, and a claim or a grader that was not declared before it. Out: ``judgements/N`` below the run's directory, in
the form of a run: its log tells of the graders, its ``completion.json`` holds the argument, and it verifies by itself.

Laws:
    * The run's log is read and never written.
    * A claim that was not bound before the run says so: ``declared_before`` is false, and what was declared is shown.
    * A grader sees what was kept, only while that has the digest that the log says. Where the rest, which lies
      in the workspace, is no longer the outcome as it was then, there is no label.
    * A judgement that fails leaves nothing behind; one that was killed has no seal, and counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from policies.canonical import policy_to_mapping
from policies.checking import check_policy
from policies.credentials import find_secrets
from policies.parse import load_policy
from policies.types import FilesMode, Policy
from supervisor import clock
from supervisor.errors import LogError, UsageError
from supervisor.events import Event, Origin, TrialSealed
from supervisor.evidence.facts import Facts
from supervisor.evidence.graders.grader import GraderDid
from supervisor.grade.grade_box import GraderBox
from supervisor.grade.grading import Grader, Subject, claimed_state, grader_environ, leads_outward, nested_layers
from supervisor.kept.reading import JUDGEMENTS, events_of
from supervisor.kept.rejudging import Kept, open_kept
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.disk.stored import find_changed
from supervisor.launch.runs.state import Home, RunDir
from supervisor.launch.stage.kept import digest_capture
from supervisor.launch.stage.stage import Stage
from supervisor.log.bound import claim_digest
from supervisor.log.keys import KeyStore, SigningKey
from supervisor.log.signer import Signer
from supervisor.log.writer import LogWriter
from supervisor.prepare.credentials import hide_secrets, typed_secrets
from supervisor.prepare.preparing import User, find_user
from supervisor.prepare.redacting import redact_event, redact_policy
from supervisor.values import dataclass, replace
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
        LogError: the run does not verify, or what was kept of the outcome is no longer what it was.
    """
    kept = open_kept(run)
    policy = _asked(kept.manifest.policy, claim, grade)
    judging = _Judging(home, kept, policy, environ)
    try:
        return judging.whole()
    except BaseException:
        shutil.rmtree(judging.directory.path, ignore_errors=True)
        raise


def _asked(declared: Policy, claim: str | None, grade: str | None) -> Policy:
    asked = declared
    if claim is not None:
        named = load_policy(claim, place="--claim")
        grader = named.grade if named.grade.command is not None else declared.grade
        asked = replace(asked, claim=named.claim, order=named.order, grade=grader)
    if grade is not None:
        asked = replace(asked, grade=replace(asked.grade, command=grade))
    check_policy(asked)
    return asked


class _Judging:
    def __init__(self, home: Home, kept: Kept, policy: Policy, environ: Mapping[str, str]) -> None:
        self._home, self._kept, self._policy, self._environ = home, kept, policy, environ
        self._key: SigningKey = KeyStore(home.path).current()
        self._redactor = hide_secrets(
            (*find_secrets(environ, policy), *typed_secrets(policy)),
            workspace=Path(os.fsdecode(kept.manifest.workspace)),
            home=environ.get("HOME") or None,
            state=home.path,
        )
        self._told_policy = redact_policy(policy, self._redactor)
        self.directory = _make_next(kept.run.path / JUDGEMENTS)

    def whole(self) -> Judged:
        with ExitStack() as stack:
            return self._judge(stack)

    def _judge(self, stack: ExitStack) -> Judged:
        directory = self.directory
        manifest = directory.write_manifest(self._manifest())
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        redactor = self._redactor
        log = LogWriter.create(
            directory.log,
            manifest_digest=digest,
            redact=None if redactor.empty else lambda event: redact_event(event, redactor),
        )
        stack.callback(log.close)
        signer = Signer(log, directory.log, self._key, run_id=self._name)
        signer.start()
        stack.callback(signer.abandon)
        facts = self._graded(log)
        completion = self._kept.argue(facts, self._told_policy)
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
        return f"{self._kept.run.id}/judgements/{self.directory.id}"

    @property
    def _digest(self) -> str:
        return self._kept.digest(self._policy)

    @property
    def _declared_before(self) -> bool:
        declared = self._kept.manifest.policy
        asked = self._told_policy
        return (asked.claim, asked.order, asked.grade) == (declared.claim, declared.order, declared.grade)

    def _manifest(self) -> dict[str, Any]:
        policy, kept = policy_to_mapping(self._told_policy), self._kept
        return {
            "schema": "manifest/1",
            "run": self._name,
            "started": clock.now_rfc3339(),
            "name": None,
            "command": kept.document["command"],
            "workspace": kept.document["workspace"],
            "policy": {"name": self._policy.name, "digest": self._digest, "document": policy},
            "claim": policy["claim"],
            "declared_before": self._declared_before,
            "judges": {"run": kept.run.id, "root": kept.completion.log.root},
            "key": self._key.public,
            "host": kept.document.get("host", {}),
            "versions": kept.document.get("versions", {}),
        }

    def _graded(self, log: LogWriter) -> Facts:
        """Collect the facts; graders are run again where the run has not graded what this claim is about."""
        facts = self._kept.facts(self._told_policy)
        if self._policy.grade.command is None:
            return facts
        state, captured = claimed_state(self._kept.run, self._policy)
        same = self._policy.grade == self._kept.manifest.policy.grade
        if same and any(run.state == state for run in facts.grades):
            return facts
        self._demand_whole_grader()
        grader = self._grader(log)
        grader.show_examples(Path(os.fsdecode(_bytes(self._kept.document["cwd"]))), self._policy.claim.outcome)
        subject = self._stored(facts, state, captured)
        outward = leads_outward(subject, self._policy, self._kept.manifest.workspace)
        if grader.repeat(subject, lambda did: outward or self._unlike(facts, subject, did)):
            grader.bound(subject)
        return self._kept.facts(self._told_policy, grades=self._told(log))

    def _demand_whole_grader(self) -> None:
        """Refuse to run a command that is not what it was: a value of a credential was taken out of it."""
        declared = self._kept.manifest
        if not declared.whole and self._policy.grade.command == declared.policy.grade.command:
            message = "expected the grader's command as it was declared, got one that a credential may be missing from"
            raise UsageError(message, place=self._kept.run.id, hint="name it again: supervise judge RUN --grade CMD")

    def _told(self, log: LogWriter) -> list[Event]:
        """Read what this judgement's log tells, numbered after the run's events."""
        log.sync()
        last = max((event.n for event in events_of(self._kept.run)), default=-1)
        return [msgspec.structs.replace(event, n=last + 1 + event.n) for event in events_of(self.directory)]

    def _stored(self, facts: Facts, state: str, captured: Path) -> Subject:
        """Give what was kept of the state: a capture, the stage, or the workspace that it was applied to."""
        run, workspace = self._kept.run, self._kept.manifest.workspace
        line = facts.timeline
        taken = next((snapshot for snapshot in line.kept if snapshot.kept_in == f"{captured.name}/upper"), None)
        digest = taken.digest if taken else facts.settled_digest
        if (captured / "upper").is_dir() and self._policy.files.mode is FilesMode.STAGED:
            _demand_kept(captured, digest, digest_capture(captured, workspace))
            layers, nested = (os.fsencode(captured / "upper"),), nested_layers(captured)
            return Subject(state=state, layers=layers, base=workspace, digest=digest, nested=nested)
        applied = line.committed is not None and line.committed.state == "applied"
        if applied or self._policy.files.mode is FilesMode.DIRECT:
            return Subject(state=state, layers=(), base=workspace, digest=digest)
        if (run.stage / "upper").is_dir():
            with Stage(run, workspace) as stage:
                _demand_kept(run.stage, self._kept.stage, stage.digest())
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
        kept, document = self._kept, self._kept.document
        trial_user = document.get("user")
        gid = trial_user.get("gid", user.gid) if isinstance(trial_user, dict) else user.gid
        box = GraderBox(
            name=self._name,
            state=self._home.path,
            workspace=kept.manifest.workspace,
            environ=grader_environ(self._environ, self._policy),
            uid=user.uid,
            gid=user.gid,
            groups=(*user.groups, gid),
            limits=(),
            key=self._key,
            policy={"name": self._policy.name, "digest": self._digest},
            host=document.get("host") or {},
            cache=self._home.path / "cache",
            timeout_s=self._policy.grade.timeout_s,
            redactor=self._redactor,
        )
        return Grader(box=box, policy=self._policy.grade, log=log, directory=self.directory.grades)

    def _seal(self, log: LogWriter, signer: Signer, completion: Completion) -> bytes:
        log.sync()
        evidence = log.checkpoint()
        declared = self._kept.completion
        told = {
            "schema": SCHEMA,
            "run": self._name,
            "judges": {"run": self._kept.run.id, "root": declared.log.root},
            "declared_before": self._declared_before,
            "policy": {"name": self._policy.name, "digest": self._digest},
            **{name: getattr(completion, name) for name in _JUDGED},
            "declared": {name: getattr(declared, name) for name in _JUDGED},
            "log": {"frames": evidence.frames, "root": evidence.root, "key": self._key.public},
        }
        document = msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"
        write_whole(self.directory.completion, document)
        claim = json.loads(self.directory.manifest.read_bytes())["claim"]
        whole = log.seal(
            lambda n: TrialSealed(
                n=n,
                time_ns=clock.boottime_ns(),
                origin=Origin.SUPERVISOR,
                evidence_frames=evidence.frames,
                evidence_root=evidence.root,
                completion=f"sha256:{hashlib.sha256(document).hexdigest()}",
                stage="none",
                policy=self._digest,
                claim=claim_digest(claim),
            )
        )
        signer.sign_seal(whole)
        return document


_JUDGED = ("claim", "finality", "separation", "scope", "result")


def _demand_kept(place: Path, expected: str | None, got: str | None) -> None:
    if got != expected:
        message = f"expected {expected or 'nothing that was captured'} (the log says so), got {got}: it was changed"
        raise LogError(message, place=str(place))


def _make_next(folder: Path) -> RunDir:
    """Make the directory of the next judgement; whoever comes second takes the number after it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    number = max((int(place.name) for place in folder.iterdir() if place.name.isdecimal()), default=-1) + 1
    while True:
        try:
            (folder / str(number)).mkdir(mode=0o700)
        except FileExistsError:
            number += 1
            continue
        return RunDir(folder / str(number))


def _bytes(word: object) -> bytes:
    return str(word).encode(errors="surrogateescape")
