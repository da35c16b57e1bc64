"""What was staged and held is released when a validator accepts all of it, and discarded when it does not.

In: a trial of which nothing is alive, its stage, and its facts. In order: the validator is told of everything and
decides; every server is reached; the stage is applied (by the caller); what was held is sent, one connection after the
other.

Laws:
    * The acceptance is on disk before anything is applied or sent, and what was sent before the next one is begun.
    * Nothing is applied when a server cannot be reached, and nothing is sent when the stage could not be applied.
    * Whatever the validator does but accept, too late or in a box that could not be built, refuses.
"""

from __future__ import annotations

import hashlib
import os

import msgspec

from policies.globs import compile_globs
from supervisor.conclude.differing import FileDiff, diff_stage
from supervisor.events import (
    ConnectionDiscarded,
    ConnectionReleased,
    Event,
    Origin,
    ValidationFinished,
    ValidationStarted,
)
from supervisor.evidence.collect import with_release
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import FileHistory
from supervisor.evidence.held import HELD, Held, Release
from supervisor.grade.grade_box import Job, Ran, run_grader
from supervisor.grade.grading import grader_of
from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.stage import Stage
from supervisor.request import Phase
from supervisor.signals import Signals
from supervisor.trial.trial import Trial
from supervisor.values import dataclass, field, replace
from supervisor.verdict.judge import judge

SCHEMA = "release/1"
_SAID_CHARS = 2000
_NUMBER = "0"
_NOTHING = "nothing was said on it"


@dataclass(slots=True, kw_only=True)
class Waiting:
    """Everything of one trial that waits for a decision. `decide`, then apply the stage, then `finish`."""

    trial: Trial
    stage: Stage
    facts: Facts
    signals: Signals
    accepted: bool = False
    _events: list[Event] = field(default_factory=list)

    @property
    def held(self) -> tuple[Held, ...]:
        """What the gateway held and can still send."""
        return tuple(one for one in self.facts.release.held if one.state == HELD and one.size_bytes)

    def decide(self) -> str | None:
        """Ask the validator, then reach every server; gives why nothing may be released, or None."""
        self.trial.tell(Phase.JUDGING)
        if self.held:
            self.trial.gateway.seal_held()  # what is sent is what the validator was told of
        description = self._describe()
        started = self.trial.record(
            ValidationStarted,
            files=description.count,
            connections=len(self.held),
            digest=f"sha256:{hashlib.sha256(description.data).hexdigest()}",
        )
        ran = self._ask(description.data)
        code = ran.did.exit_code if ran.did is not None else None
        finished = self.trial.record(
            ValidationFinished,
            accepted=ran.problem is None and code == 0,
            exit_code=code,
            problem=ran.problem or _ended(ran),
            said=(ran.stdout + ran.stderr).decode("utf-8", "replace").strip()[-_SAID_CHARS:],
            log_root=ran.log_root,
        )
        self._events += (started, finished)
        if not finished.accepted:
            said = finished.problem or f"exit code {finished.exit_code}"
            return f"the validator did not accept it ({said})"
        self.accepted = True
        self.trial.log.sync()
        return next(filter(None, (self.trial.gateway.reach(one.connection) for one in self.held)), None)

    def finish(self, refusal: str | None, *, applied: bool) -> Facts:
        """Send what was held, or discard it; gives the facts with what became of it.

        Args:
            refusal: why nothing is released, None when all of it is.
            applied: the stage was applied.
        """
        for one in self.facts.release.held:
            if one.state == HELD and not one.size_bytes:
                self._discard(one, _NOTHING)
        if refusal is None and not applied:
            refusal = "what was written could not be applied"
        failed = None
        for one in self.held:
            if refusal is not None or failed is not None:
                self._discard(one, refusal or f"an earlier one could not be sent: {failed}")
                continue
            failed = self._send(one)
            self.trial.log.sync()
        return with_release(self.facts, self._events)

    # -- asking ----------------------------------------------------------------------------------------------------

    def _describe(self) -> _Description:
        """Write what waits, for the validator."""
        prepared = self.trial.prepared
        policy = prepared.request.policy
        judgement = judge(replace(self.facts, release=Release()), prepared.told_policy)
        write = policy.files.write
        globs = None if write is None else compile_globs(write, workspace=self.stage.workspace)
        differing = diff_stage(self.stage, lambda path: globs is None or globs.match(path))
        states = {history.path: history for history in self.facts.files if history.in_workspace}
        files = [_file(diff, states.get(os.fsencode(diff.path))) for diff in differing]
        described = {
            "schema": SCHEMA,
            "run": prepared.run.id,
            "command": [os.fsdecode(word) for word in prepared.request.argv],
            "workspace": os.fsdecode(self.stage.workspace),
            "exit_code": next((one.exit_code for one in self.facts.processes if one.key == self.facts.main), None),
            "label": judgement.finality.label,
            "finality": judgement.finality.verdict,
            "scope": judgement.scope.verdict,
            "violations": [one.text for one in judgement.scope.violations],
            "files": files,
            "held": [self._held(one) for one in self.held],
        }
        return _Description(data=msgspec.json.encode(described), count=len(files))

    def _held(self, one: Held) -> dict[str, object]:
        return {
            "connection": one.connection,
            "host": one.host,
            "ip": one.ip,
            "port": one.port,
            "speaks": one.speaks,
            "tls": one.tls,
            "requests": one.requests,
            "count": one.count,
            "bytes": one.size_bytes,
            "digest": one.digest,
            "content_b64": self.trial.gateway.read_held(one.offset, one.size_bytes),
        }

    def _ask(self, description: bytes) -> Ran:
        """Run the validator in a box of its own, as a grader is: no network, everything read-only."""
        prepared = self.trial.prepared
        validate = prepared.request.policy.validate
        box = replace(grader_of(self.trial, self.signals).box, timeout_s=validate.timeout_s)
        own, *nested = self.stage.layers()
        staged = ((layer.point, os.fsencode(layer.base / "upper")) for layer in nested if not layer.untouched())
        memory = os.memfd_create("release", os.MFD_CLOEXEC)
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(description)
            os.lseek(memory, 0, os.SEEK_SET)
            job = Job(
                directory=RunDir(prepared.run.validator / _NUMBER),
                command=validate.command or "",
                about={"validates": True},
                layers=(os.fsencode(own.base / "upper"),),
                base=self.stage.workspace,
                nested=tuple(staged),
                stdin=memory,
            )
            return run_grader(box, job)
        finally:
            os.close(memory)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _send(self, one: Held) -> str | None:
        told: list[Event] = []
        problem = self.trial.gateway.send_held(
            one.connection, lambda it: told.append(self.trial.record_told(it.event, one.process))
        )
        self._events += told
        if not any(isinstance(event, ConnectionReleased) for event in told):
            problem = problem or "the gateway did not say what became of it"
            unknown = self.trial.record(
                ConnectionReleased,
                origin=Origin.SUPERVISOR,
                process=one.process,
                connection=one.connection,
                dialled=None,
                bytes_out=0,
                bytes_in=0,
                digest_in=None,
                error=problem,
                known=False,
            )
            self._events.append(unknown)
        return problem

    def _discard(self, one: Held, reason: str) -> None:
        self._events.append(self.trial.record(ConnectionDiscarded, connection=one.connection, reason=reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    data: bytes
    count: int


def _file(diff: FileDiff, history: FileHistory | None) -> dict[str, object]:
    return {
        "path": diff.path,
        "change": diff.change,
        "about": diff.about,
        "allowed": diff.allowed,
        "added": diff.added,
        "removed": diff.removed,
        "before": history.before.digest if history and history.before else None,
        "after": history.after.digest if history and history.after else None,
    }


def _ended(ran: Ran) -> str | None:
    """Say how it ended, when it gave no exit code."""
    if ran.did is None or ran.did.exit_code is not None:
        return None
    return f"it was ended by signal {ran.did.signal}"
