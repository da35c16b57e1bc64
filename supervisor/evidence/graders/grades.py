"""What graders said, and whether the trial met their reference material. In: events in any order; out: facts.

The laws:

1. A grader's claims are told as it made them; what they are worth is judged later.
2. Reference material counts as met when the trial opened, ran, linked or moved it successfully. Where it is masked
   (``files.read_deny``) the directory that stands for it is no material, and places of the trial's own never are.
3. A file with several names is told by device and inode, whatever name it was met by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from policies.globs import Globs, compile_globs
from policies.types import Policy
from supervisor.events import (
    Event,
    FileEvent,
    FileLinked,
    FileMapped,
    FileOpened,
    FileRenamed,
    GradeFinished,
    GradeStarted,
    Kind,
    OutcomeCaptured,
    ProcessExecuted,
    ProcessKey,
    ReferenceLinked,
)
from supervisor.evidence.file_facts import EVERYTHING
from supervisor.evidence.places import Places
from supervisor.evidence.processes import Cast
from supervisor.evidence.said import GradeRun, ReferenceMet


class GradeFold:
    """Collects the runs of graders."""

    def __init__(self) -> None:
        """Begin with none."""
        self._started: dict[int, GradeStarted] = {}
        self._finished: dict[int, GradeFinished] = {}
        self._captured: list[OutcomeCaptured] = []

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {GradeStarted: self._start, GradeFinished: self._finish, OutcomeCaptured: self._capture}

    def _start(self, event: Event) -> None:
        if isinstance(event, GradeStarted):
            self._started[event.number] = event

    def _finish(self, event: Event) -> None:
        if isinstance(event, GradeFinished):
            self._finished[event.number] = event

    def _capture(self, event: Event) -> None:
        if isinstance(event, OutcomeCaptured):
            self._captured.append(event)

    def runs(self) -> tuple[GradeRun, ...]:
        """Give every run of a grader, in order."""
        return tuple(_run(self._started[number], self._finished.get(number)) for number in sorted(self._started))

    def settled_digest(self) -> str | None:
        """Give the digest of the outcome as it was when the trial was over, None when it was not kept."""
        return max(self._captured, key=lambda event: event.n).digest if self._captured else None

    def footprint(self) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """Give what graders of the trial's outcome opened or looked up, and the directories that they listed.

        Directories above are part of it: who moves one changes what is found below. Everything of the workspace is
        told as `EVERYTHING`.
        """
        paths: set[bytes] = set()
        listed: set[bytes] = set()
        for number, event in self._finished.items():
            started = self._started.get(number)
            if started is not None and not started.state.startswith("selftest:"):
                paths.update(event.footprint)
                listed.update(event.listed)
        for path in tuple(paths):
            while path := path.rpartition(b"/")[0]:
                paths.add(path)
        if EVERYTHING in listed:
            paths.add(EVERYTHING)
        return frozenset(paths), frozenset(listed)


def _run(started: GradeStarted, finished: GradeFinished | None) -> GradeRun:
    events = (started.n,) if finished is None else (started.n, finished.n)
    if finished is None:
        return GradeRun(
            number=started.number,
            state=started.state,
            digest=started.digest,
            turn=started.turn,
            applied=started.applied,
            events=events,
            problem="it was started and never seen finishing",
        )
    return GradeRun(
        number=started.number,
        state=started.state,
        digest=started.digest,
        turn=started.turn,
        applied=started.applied,
        events=events,
        exit_code=finished.exit_code,
        signal=finished.signal,
        problem=finished.problem,
        passed=finished.passed,
        undecided=finished.said is not None and finished.passed is None,
        reason=finished.reason,
        said=finished.said,
        output=finished.output,
        executed=finished.executed,
        footprint=finished.footprint,
        listed=finished.listed,
        elsewhere=finished.elsewhere,
        began_ns=started.time_ns,
        ended_ns=finished.time_ns,
    )


class ReferenceFold:
    """Collects where the trial met the reference material of its grader."""

    def __init__(self, policy: Policy, workspace: bytes) -> None:
        """Compile the globs once; without a grader there is no material."""
        self._masked = _material(policy.files.read_deny, workspace)
        self._open = _material(policy.grade.reads, workspace)
        self._workspace = workspace.rstrip(b"/")
        self._places = Places(policy, workspace)
        self._active = policy.grade.command is not None and (self._masked or self._open) is not None
        self._met: dict[tuple[ProcessKey | None, bytes], list[tuple[int, int]]] = {}
        self._linked: dict[tuple[int, int], bytes] = {}
        self._elsewhere: dict[tuple[ProcessKey | None, int, int], list[tuple[int, int]]] = {}

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        if not self._active:
            return {}
        kinds: tuple[type[Event], ...] = (FileOpened, FileLinked, FileMapped, FileRenamed, ProcessExecuted)
        return {**dict.fromkeys(kinds, self._take), ReferenceLinked: self._link}

    def _link(self, event: Event) -> None:
        if isinstance(event, ReferenceLinked):
            self._linked |= {(device, event.inode): event.path for device in event.devices}

    def _take(self, event: Event) -> None:
        match event:
            case FileLinked(symbolic=True):
                return
            case ProcessExecuted():
                path, error, directory = event.exe, None, False
                node = event.device, event.inode
            case FileEvent():
                path, error = event.path, event.error
                directory = isinstance(event, FileOpened) and event.what is Kind.DIRECTORY
                node = event.device, event.inode
            case _:
                return
        if error is not None:
            return
        if self._is_material(path, directory=directory):
            self._met.setdefault((event.process, path), []).append((event.time_ns, event.n))
        elif self._open is not None and node[1]:
            self._elsewhere.setdefault((event.process, *node), []).append((event.time_ns, event.n))

    def _is_material(self, path: bytes, *, directory: bool) -> bool:
        place = self._places.locate(path)
        if place.private or not place.reachable:
            return False
        return _matches(self._open, place.shown) or (not directory and _matches(self._masked, place.shown))

    def met(self, cast: Cast) -> tuple[ReferenceMet, ...]:
        """Build what the trial met, first one first."""
        met = dict(self._met)
        for (process, device, inode), entries in self._elsewhere.items():
            named = self._linked.get((device, inode))
            if named is not None:
                met[process, named] = [*met.get((process, named), ()), *entries]
        found = []
        for (process, path), entries in met.items():
            kept = sorted(n for at_ns, n in entries if not cast.ignores(process, at_ns))
            if kept:
                shown = self._places.locate(path).shown
                found.append(ReferenceMet(path=shown, process=process, events=tuple(kept)))
        return tuple(sorted(found, key=lambda met: met.events))


def _material(named: Iterable[str], workspace: bytes) -> Globs | None:
    globs = tuple(named)
    return compile_globs(globs, workspace=workspace.rstrip(b"/")) if globs else None


def _matches(globs: Globs | None, shown: bytes) -> bool:
    return globs is not None and globs.match(shown)
