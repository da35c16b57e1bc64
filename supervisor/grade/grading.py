"""The label: a grader run on examples before the trial, and on the captured outcome after it.

In: a trial that is held (`selftest`) or of which nothing is alive (`grade_outcome`). Out: events; what follows from
them is judged from the log.

Laws:
    * What is graded is a capture: the snapshot that the claim is about where there is one, else the outcome as it was
      when the trial was over. No grader ever sees what a process could still write.
    * Contents of the outcome are data: the command of a grader is the policy's, word for word.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from policies.credentials import filter_environ
from policies.types import GradePolicy, PeriodKind, Policy, PossibleState, Selftest
from supervisor.errors import UsageError
from supervisor.events import GradeFinished, GradeStarted, OutcomeCaptured
from supervisor.evidence.graders.grader import GraderDid
from supervisor.evidence.graders.grader_words import read_words
from supervisor.grade.grade_box import SCRATCH, GraderBox, Job, Ran, run_grader
from supervisor.launch.disk.outward import find_outward
from supervisor.launch.disk.stored import find_changed
from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.inplace import InPlace
from supervisor.launch.stage.stage import Stage, read_map
from supervisor.launch.view.mounting import copy_attributes
from supervisor.log.writer import LogWriter
from supervisor.prepare.preparing import find_user
from supervisor.request import RunRequest
from supervisor.signals import ENDING, Signals
from supervisor.trial.tape import record
from supervisor.trial.trial import Trial
from supervisor.values import dataclass, field, replace

EVERYTHING = ("**",)
"""What is captured for a grader: nobody knows before what it will look at."""

_OUTPUT_CHARS = 2000
_NAMED = 5

Check = Callable[[GraderDid], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is graded: a state by name, its layers over a base, and the digest of what was captured.

    ``nested`` are mounts below the workspace, each with its layer.
    """

    state: str
    layers: tuple[bytes, ...]
    base: bytes
    digest: str | None = None
    nested: tuple[tuple[bytes, bytes], ...] = ()

    def captures(self, workspace: bytes) -> dict[bytes, bytes]:
        """Give what was captured, by the directory of the workspace that it is over."""
        top = workspace.rstrip(b"/") + b"/"
        own = {b"": self.layers[0]} if self.layers else {}
        return own | {point.removeprefix(top): layer for point, layer in self.nested}


@dataclass(slots=True, kw_only=True)
class Grader:
    """Runs the grader of one policy and tells a log of it.

    Attributes:
        box: what all runs of it have in common.
        policy: whose grader it is.
        log: gets an event before and after each run.
        directory: where the runs are kept, one directory each.
    """

    box: GraderBox
    policy: GradePolicy
    log: LogWriter
    directory: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def run(self, subject: Subject, *, turn: int = 0, applied: tuple[int, ...] = (), check: Check | None = None) -> Ran:
        """Run it once on a state; ``check`` says of what it did why that is worth nothing, or None."""
        about = {"state": subject.state, "digest": subject.digest}
        return self._run(subject, about, self.policy.command or "", turn=turn, applied=applied, check=check)

    def apply(self, subject: Subject, state: PossibleState, place: int) -> Subject | None:
        """Make of a copy of the outcome what it is in a possible state; None when that failed."""
        if state.overlay is not None:
            layer = os.fsencode(Path(state.overlay).absolute())
            return replace(subject, layers=(layer, *subject.layers), digest=None)
        if state.script is None:
            return subject
        copy = self.directory / f"state-{next(self._numbers)}"
        for name in ("upper", "work"):
            (copy / name).mkdir(mode=0o700, parents=True)
        copy_attributes((*subject.layers, subject.base)[0], os.fsencode(copy / "upper"))
        made = replace(subject, state=f"script:{place}", digest=None)
        ran = self._run(made, {"state": made.state}, state.script, write_to=os.fsencode(copy))
        if ran.problem is not None or ran.did is None or ran.did.exit_code != 0:
            return None
        return replace(subject, layers=(os.fsencode(copy / "upper"), *subject.layers), digest=None)

    def _run(
        self,
        subject: Subject,
        about: Mapping[str, Any],
        command: str,
        *,
        turn: int = 0,
        applied: tuple[int, ...] = (),
        write_to: bytes | None = None,
        check: Check | None = None,
    ) -> Ran:
        number = next(self._numbers)
        record(
            self.log,
            GradeStarted,
            number=number,
            state=subject.state,
            digest=subject.digest,
            turn=turn,
            applied=applied,
        )
        job = Job(
            directory=RunDir(self.directory / str(number)),
            command=command,
            about=about,
            layers=subject.layers,
            base=subject.base,
            write_to=write_to,
            nested=subject.nested,
        )
        ran = run_grader(self.box, job)
        if check is not None and ran.did is not None and ran.problem is None:
            ran = replace(ran, problem=check(ran.did))
        record(self.log, GradeFinished, number=number, **_told(ran))
        return ran

    def repeat(self, subject: Subject, check: Check | None = None) -> bool:
        """Run it as often as the policy says, or until a run of it is worth nothing; tells whether none was."""
        return all(self.run(subject, turn=turn, check=check).problem is None for turn in range(self.policy.repeats))

    def show_examples(self, cwd: Path, outcome: str | None) -> None:
        """Run it once on every example.

        Args:
            cwd: where relative paths of examples begin.
            outcome: the path that the claim names.

        Raises:
            UsageError: an example does not exist.
        """
        subjects = [self._example(example, place, cwd, outcome) for place, example in enumerate(self.policy.selftest)]
        for subject in subjects:
            self.run(subject)

    def _example(self, example: Selftest, place: int, cwd: Path, outcome: str | None) -> Subject:
        where = (cwd / example.outcome).resolve()
        name, state = f"grade.selftest[{place}].outcome", f"selftest:{place}"
        if where.is_dir():
            return Subject(state=state, layers=(), base=os.fsencode(where))
        if not where.is_file():
            message = f"expected a directory or a file, got {example.outcome!r}, which is not in {cwd}"
            raise UsageError(message, place=name)
        if outcome is None or outcome.startswith("/"):
            message = "expected a directory, since claim.outcome names no file of the workspace, got a file"
            raise UsageError(message, place=name)
        layer = self.directory / f"example-{place}"
        shown = layer / outcome
        shown.parent.mkdir(parents=True)
        shutil.copyfile(where, shown)
        copy_attributes(self.box.workspace, os.fsencode(layer))
        return Subject(state=state, layers=(os.fsencode(layer),), base=self.box.workspace)

    def bound(self, subject: Subject) -> None:
        """Run it on every combination of the possible states that the policy declares."""
        effects: dict[str, list[int]] = {}
        for place, state in enumerate(self.policy.states):
            effects.setdefault(state.effect, []).append(place)
        for number, places in enumerate(itertools.product(*effects.values()) if effects else ()):
            made: Subject | None = subject
            for place in places:
                made = made and self.apply(made, self.policy.states[place], place)
            if made is not None:
                self.run(replace(made, state=f"bound:{number}", digest=None), applied=places)


def grader_of(trial: Trial, signals: Signals) -> Grader:
    """Give the grader of a trial's policy."""
    prepared = trial.prepared
    manifest = prepared.run.read_manifest()
    return make_grader(
        prepared.request,
        log=trial.log,
        directory=prepared.run.grades,
        box_of=lambda environ, user: GraderBox(
            name=prepared.run.id,
            state=prepared.home.path,
            workspace=os.fsencode(prepared.workspace),
            environ=environ,
            uid=user[0],
            gid=user[1],
            groups=(*user[2], prepared.user.gid),
            limits=prepared.limits,
            key=prepared.key,
            policy={name: manifest["policy"][name] for name in ("name", "digest")},  # type: ignore[index]
            host=manifest["host"],  # type: ignore[arg-type]
            cache=prepared.spec.cache,
            timeout_s=prepared.request.policy.grade.timeout_s,
            redactor=prepared.credentials.redactor,
            stopped=lambda: bool(ENDING.intersection(signals.take())),
            stop_fd=signals.fileno(),
        ),
    )


BoxOf = Callable[[Mapping[str, str], tuple[int, int, tuple[int, ...]]], GraderBox]


def make_grader(request: RunRequest, *, log: LogWriter, directory: Path, box_of: BoxOf) -> Grader:
    """Make a grader that runs as whoever called us, with the caller's environment without secrets."""
    user = find_user(None, request.environ)
    box = box_of(grader_environ(request.environ, request.policy), (user.uid, user.gid, user.groups))
    return Grader(box=box, policy=request.policy.grade, log=log, directory=directory)


def grader_environ(caller: Mapping[str, str], policy: Policy) -> dict[str, str]:
    """Give the environment of a grader.

    Compiled modules of Python are looked for beside their sources: that is how it is seen which ones are loaded.
    """
    environ, _ = filter_environ(caller, policy)
    kept = {name: value for name, value in environ.items() if name != "PYTHONPYCACHEPREFIX"}
    return {**kept, "TMPDIR": SCRATCH.decode(), "PYTHONDONTWRITEBYTECODE": "1"}


def selftest(trial: Trial, signals: Signals) -> Grader:
    """Show the grader its examples, before CMD is released; gives the grader.

    Raises:
        UsageError: an example does not exist.
    """
    prepared = trial.prepared
    grader = grader_of(trial, signals)
    grader.show_examples(prepared.request.cwd, prepared.request.policy.claim.outcome)
    return grader


def grade_outcome(trial: Trial, stage: Stage | InPlace, grader: Grader) -> None:
    """Grade the outcome that the claim is about, once nothing of the trial is alive."""
    subject = _in_place(trial) if isinstance(stage, InPlace) else _subject(trial, _capture_settled(trial, stage))
    began_ns = stage.began_ns if isinstance(stage, Stage) else None
    outward = leads_outward(subject, trial.prepared.request.policy, os.fsencode(trial.prepared.workspace))
    if grader.repeat(subject, lambda did: outward or _changed_by_others(subject, did, began_ns)):
        grader.bound(subject)


def leads_outward(subject: Subject, policy: Policy, workspace: bytes) -> str | None:
    """Say which symlinks of an outcome would show a grader what is no part of it, where there are any."""
    reference = (*policy.files.read_deny, *policy.grade.reads)
    captures, named = subject.captures(workspace), policy.claim.outcome
    found = list(islice(find_outward(workspace, captures, subject.base, reference, named), _NAMED))
    return f"a symlink of the outcome makes it see what is no part of it: {', '.join(found)}" if found else None


def _changed_by_others(subject: Subject, did: GraderDid, began_ns: int | None) -> str | None:
    """Say which of what the grader looked at somebody else changed in the workspace while the trial ran.

    What the trial changed is in the capture; in a workspace that is written in place the evidence tells them apart.
    """
    if began_ns is None:
        return None
    captures = subject.captures(subject.base)
    changed = find_changed(did.footprint, did.listed, captures, subject.base, (), began_ns, early=False)
    names = ", ".join(path.decode("utf-8", "backslashreplace") for path in changed[:5])
    return f"somebody else changed what it looked at while the trial ran: {names}" if changed else None


def _in_place(trial: Trial) -> Subject:
    """Give a workspace that was written in place: as it is now, and nothing of the trial can change it any more."""
    return Subject(state="settled", layers=(), base=os.fsencode(trial.prepared.workspace))


def _capture_settled(trial: Trial, stage: Stage) -> str:
    run = trial.prepared.run
    kept = trial.room.persist(lambda: stage.snapshot(EVERYTHING, run.settled))
    trial.record(OutcomeCaptured, digest=kept.digest, files=kept.files, size_bytes=kept.size_bytes, form=kept.form)
    return kept.digest


def _subject(trial: Trial, digest: str) -> Subject:
    """Choose the state that the claim is about: see the table of `supervisor.verdict.finality`."""
    prepared = trial.prepared
    state, captured = claimed_state(prepared.run, prepared.request.policy)
    known = trial.captured.get(state, digest)
    layers = (os.fsencode(captured / "upper"),)
    base = os.fsencode(prepared.workspace)
    return Subject(state=state, layers=layers, base=base, digest=known, nested=nested_layers(captured))


def nested_layers(captured: Path) -> tuple[tuple[bytes, bytes], ...]:
    """Give the mounts below the workspace of which something was captured, each with its layer."""
    return tuple((point, os.fsencode(place / "upper")) for point, place in sorted(read_map(captured).items()))


def claimed_state(run: RunDir, policy: Policy) -> tuple[str, Path]:
    """Give the name and the place of the state that a claim is about, as far as it was captured."""
    kind = policy.claim.period.kind
    if kind is PeriodKind.ENDPOINT and run.snapshot.is_dir():
        return "endpoint", run.snapshot
    if kind is PeriodKind.WITHIN and run.snapshot_within.is_dir():
        return "within", run.snapshot_within
    return "settled", run.settled


def _told(ran: Ran) -> dict[str, Any]:
    did = ran.did
    words = read_words(ran.stdout, cut=ran.cut)
    output = ran.stdout if words.said is None and not ran.stderr.strip() else ran.stderr
    problem = ran.problem
    if words.unread and problem is None:
        problem = "it printed so much that what it said at the end could not be read"
    return {
        "exit_code": did.exit_code if did else None,
        "signal": did.signal if did else None,
        "problem": problem,
        "passed": words.passed,
        "reason": words.reason,
        "said": words.said,
        "output": output.decode("utf-8", "replace")[-_OUTPUT_CHARS:],
        "footprint": did.footprint if did else (),
        "listed": did.listed if did else (),
        "elsewhere": did.elsewhere if did else (),
        "executed": did.executed if did else (),
        "log_root": ran.log_root,
    }
