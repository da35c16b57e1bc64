"""The verifier: a run directory in, what it was proved to hold out, or the first bad frame.

Rule: every byte of the segments, of ``log/checkpoints``, of ``manifest.json``, ``completion.json`` and
``completion.dsse.json`` is accounted for. Any one that is changed, missing, moved, repeated or added is found. The log
is read once, with the memory of two frames and a note; documents are held whole.

What a frame contradicts is told one frame later: when the frame itself was replaced, the next one says so, and that is
the better finding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from supervisor.errors import LogError, LogUnsealedError
from supervisor.events import (
    Event,
    GradeFinished,
    OutcomeCaptured,
    StageCommitted,
    StatesRecorded,
    TrialSealed,
    TrialSnapshotted,
    ValidationFinished,
)
from supervisor.log.bound import Bound, bind_documents, check_manifest, read_document
from supervisor.log.chain import Chain
from supervisor.log.frames import Frame, FrameType, bad_frame
from supervisor.log.keys import parse_public
from supervisor.log.notes import origin_of, read_witnessed
from supervisor.log.reader import walk
from supervisor.log.records import decode_record
from supervisor.log.signer import NAME
from supervisor.log.vouching import Vouching, Witnessed
from supervisor.values import dataclass, field

_TELLS_OF_A_NOTE = b'{"kind":"checkpoint.signed",'
_TELLS_OF_A_GRADE = b'{"kind":"grade.finished",'
_TELLS_OF_A_VALIDATOR = b'{"kind":"validation.finished",'
_TELLS_OF_STATES = b'{"kind":"states.recorded",'
_TELLS_OF_CAPTURES = (b'{"kind":"trial.snapshotted",', b'{"kind":"outcome.captured",')
_TELLS_OF_A_STAGE = b'{"kind":"stage.committed",'
_TELLS = (
    _TELLS_OF_A_NOTE,
    _TELLS_OF_A_GRADE,
    _TELLS_OF_A_VALIDATOR,
    _TELLS_OF_STATES,
    *_TELLS_OF_CAPTURES,
    _TELLS_OF_A_STAGE,
)
"""How a record of that kind begins: the kind comes first. Whether other records are events is their readers' matter."""

_COMPUTED_AGAIN = 2
"""Since this form of captures their digests can be computed again."""
_SETTLED = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was verified.

    Attributes:
        frames, events, root: of the whole log, the seal included.
        sealed: always True: without a seal there is an error instead.
        evidence: frames and root up to the evidence checkpoint, which ``completion.json`` describes.
        manifest, completion, stage: the digests that the log binds, ``sha256:…``.
        stage_checked: the stage's digest was compared, not only read.
        stage_kept: nothing of the stage was applied or thrown away when the run ended: what is there can be compared.
        key: that signed, ``ed25519:…``; None for a log from before there were signatures.
        checkpoints: how many of ``log/checkpoints`` were verified, the seal's included.
        witnessed: how many from a second place were.
        grades: how many runs of graders were verified with it, each with a log of its own.
        captures: what was captured of the outcome, by its place below the run's directory, with the digest of it; a
            later one takes the place of an earlier. Left out are those of older runs, which cannot be computed again.
    """

    frames: int
    events: int
    root: str
    sealed: bool
    evidence_frames: int
    evidence_root: str
    manifest: str
    completion: str
    stage: str
    stage_checked: bool
    stage_kept: bool = False
    key: str | None = None
    checkpoints: int = 0
    witnessed: int = 0
    grades: int = 0
    captures: Mapping[str, str] = field(default_factory=dict)


def verify_log(
    run_dir: Path,
    *,
    stage_digest: Callable[[], str] | None = None,
    key: str | None = None,
    witnessed: Path | None = None,
) -> Verified:
    """Verify the log of a run, its signatures, and the documents that it binds.

    Args:
        run_dir: holds ``log/``, ``manifest.json`` and ``completion.json``.
        stage_digest: gives the digest of the stage as it is now; without it the stage is not compared.
        key: demand that this key signed, ``ed25519:…``; without it the one in the manifest is believed.
        witnessed: checkpoints that a second place kept, all of which the log must extend.

    Raises:
        LogUnsealedError: the log is whole, but there is no seal where it ends.
        LogUnreadableError: there is nothing that could be verified.
        LogError: something is not as it was; ``frame`` is the first bad frame, or None for a document.
    """
    reading = _Reading(run_dir, key, witnessed)
    for frame in walk(run_dir / "log", reading.chain):
        reading.take(frame)
    sealed = reading.finish()
    if stage_digest is not None and (got := stage_digest()) != sealed.stage:
        message = f"expected {sealed.stage} (event {sealed.n} says so), got {got}"
        raise LogError(message, place=str(run_dir / "stage"))
    _verify_grades(run_dir / "grades", reading.grades, key)
    _verify_grades(run_dir / "validator", reading.validations, key)
    whole = reading.chain.checkpoint()
    return Verified(
        frames=whole.frames,
        events=whole.events,
        root=whole.root,
        sealed=True,
        evidence_frames=sealed.evidence_frames,
        evidence_root=sealed.evidence_root,
        manifest=reading.bound.manifest,
        completion=sealed.completion,
        stage=sealed.stage,
        stage_checked=stage_digest is not None,
        stage_kept=reading.stage_kept,
        key=reading.bound.key,
        checkpoints=reading.vouching.count if reading.vouching else 0,
        witnessed=reading.witnessed.count if reading.witnessed else 0,
        grades=len(reading.grades),
        captures=reading.captures,
    )


def _verify_grades(folder: Path, told: Mapping[int, GradeFinished | ValidationFinished], key: str | None) -> None:
    """Verify the log of every run of a grader or validator that is told of, and find one that is not."""
    for number, event in told.items():
        place = folder / str(number)
        if event.log_root is not None and (got := verify_log(place, key=key).root) != event.log_root:
            message = f"expected {event.log_root} (event {event.n} says so), got {got}"
            raise LogError(message, place=str(place))
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.name.isdigit() and int(place.name) not in told:
            raise LogError("expected no run of a grader that the log does not tell of, got one", place=str(place))


class _Reading:
    """One pass over a log."""

    def __init__(self, run_dir: Path, key: str | None, witnessed: Path | None) -> None:
        self._dir, self._key, self._place = run_dir, key, witnessed
        self._suspicion: LogError | None = None
        self._ending = deque[Frame](maxlen=2)
        self.chain = Chain()
        self.bound = Bound()
        self.grades: dict[int, GradeFinished] = {}
        self.validations: dict[int, ValidationFinished] = {}
        self.states: StatesRecorded | None = None
        self.captures: dict[str, str] = {}
        self.stage_kept = False
        self.vouching: Vouching | None = None
        self.witnessed: Witnessed | None = None

    def take(self, frame: Frame) -> None:
        """Take in the next frame, which the chain was advanced by."""
        if self._suspicion is not None:
            raise self._suspicion
        try:
            if self.chain.frames == 1:
                self._begin(frame)
            told = frame.payload.startswith(_TELLS)
            event = decode_record(frame) if told else None
        except LogError as err:
            self._suspicion = err
            return
        self._note(event)
        self._ending.append(frame)
        self._suspicion = self._contradiction(frame, event)

    def _note(self, event: Event | None) -> None:
        match event:
            case GradeFinished():
                self.grades[event.number] = event
            case ValidationFinished():
                self.validations[0] = event
            case StatesRecorded():
                self.states = event
            case StageCommitted(state=state):
                self.stage_kept = state == "kept"
            case TrialSnapshotted(form=form) | OutcomeCaptured(form=form) if form >= _COMPUTED_AGAIN:
                place = event.kept_in.partition("/")[0] if isinstance(event, TrialSnapshotted) else _SETTLED
                self.captures[place] = event.digest
            case _:
                pass

    def _contradiction(self, frame: Frame, event: Event | None) -> LogError | None:
        problem = _check_seal(self.chain, frame) if frame.header.type == FrameType.SEAL else None
        if problem is None and self.vouching is not None:
            problem = self.vouching.take(self.chain, event)
        if problem is None and self.witnessed is not None:
            problem = self.witnessed.take(self.chain)
        return problem

    def finish(self) -> TrialSealed:
        """Check the end of the log and all that it binds; gives the record before the seal."""
        if self._suspicion is not None:
            raise self._suspicion
        if self.witnessed is not None and (problem := self.witnessed.finish(self.chain)):
            raise problem
        sealed = _check_ending(self.chain, self._ending, self._vouched, self._is_cut)
        if self.vouching is not None and (problem := self.vouching.finish(self.chain)):
            raise problem
        bind_documents(self._dir, self.bound, sealed)
        if self.states is not None:
            read_document(self._dir / "observed.jsonl", self.states.digest, f"event {self.states.n}")
        return sealed

    def _begin(self, frame: Frame) -> None:
        self.bound = check_manifest(self._dir, frame.header.link)
        if self._key not in {None, self.bound.key}:
            message = f"expected the key {self._key}, got {self.bound.key or 'a run without signatures'}"
            raise LogError(message, place=str(self._dir / "manifest.json"))
        notes = self._dir / "log" / NAME
        if self.bound.key is None:
            if self._place is not None or notes.exists():
                message = "expected a key in the manifest, since there are checkpoints, got none"
                raise LogError(message, place=str(self._dir / "manifest.json"))
            return
        origin, public = origin_of(self.bound.run), parse_public(self.bound.key, place="manifest.json: key")
        if self._place is not None:
            self.witnessed = Witnessed(read_witnessed(self._place, origin=origin), origin=origin, public=public)
        self.vouching = Vouching(notes, origin=origin, public=public)
        if problem := self.vouching.begin():
            raise problem

    def _is_cut(self) -> bool:
        return self.vouching is not None and self.vouching.beyond > self.chain.frames

    def _vouched(self) -> str:
        if self.vouching is None:
            return ""
        return f"; {self.vouching.tell_unsealed(self.chain)}"


def _check_seal(chain: Chain, seal: Frame) -> LogError | None:
    expected = chain.seal_payload(seal.header.number)
    if seal.payload == expected:
        return None
    return bad_frame(seal.header.number, f"expected a seal that says {expected!r}, got {seal.payload[:300]!r}")


def _check_ending(
    chain: Chain, ending: deque[Frame], vouched: Callable[[], str], is_cut: Callable[[], bool]
) -> TrialSealed:
    # Laws 6 and 7 of `supervisor.log.frames`.
    if not ending or ending[-1].header.type != FrameType.SEAL:
        message = "expected a seal, got the end of the log: the run was never sealed, or its end was cut off"
        hint = (
            f"{chain.frames} whole frames were found{vouched()}; what happened after them is not known, and nothing "
            "that was concluded holds; supervise events still shows what there is"
        )
        unsealed = LogUnsealedError(message, frame=chain.frames, place=f"frame {chain.frames}", hint=hint)
        unsealed.cut = is_cut()
        raise unsealed
    record = ending[0]
    event = decode_record(record) if record.header.type == FrameType.JSON else None
    if not isinstance(event, TrialSealed):
        got = event.kind if event else f"a frame of type {record.header.type}"
        raise bad_frame(record.header.number, f"expected the record trial.sealed before the seal, got {got}")
    problem = chain.check_evidence(event.evidence_frames, event.evidence_root, record=record.header.number)
    if problem is not None:
        raise bad_frame(record.header.number, problem)
    return event
