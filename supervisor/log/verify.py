"""The verifier: a run directory in, what it was proved to hold out, or the first bad frame.

Rule: every byte of the segments, of ``manifest.json`` and of ``completion.json`` is accounted for. Any one that is
changed, missing, moved, repeated or added is found. The log is read once, with the memory of two frames;
``completion.json`` is held whole. Signed checkpoints (``log/checkpoints``) are another check over the same
`supervisor.log.chain.Checkpoint` values, and have their place here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec

from supervisor.errors import LogError, LogUnreadableError, LogUnsealedError
from supervisor.events import TrialSealed
from supervisor.log.chain import Chain
from supervisor.log.frames import Frame, FrameType, bad_frame, sha256_text
from supervisor.log.reader import walk
from supervisor.log.records import decode_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was verified.

    Attributes:
        frames, events, root: of the whole log, the seal included.
        sealed: always True: without a seal there is an error instead.
        evidence: frames and root up to the evidence checkpoint, which ``completion.json`` describes.
        manifest, completion, stage: the digests that the log binds, ``sha256:…``.
        stage_checked: the stage's digest was compared, not only read.
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


def verify_log(run_dir: Path, *, stage_digest: Callable[[], str] | None = None) -> Verified:
    """Verify the log of a run and the documents that it binds.

    Args:
        run_dir: holds ``log/``, ``manifest.json`` and ``completion.json``.
        stage_digest: gives the digest of the stage as it is now; without it the stage is not compared.

    Raises:
        LogUnsealedError: the log is whole, but there is no seal where it ends.
        LogUnreadableError: there is nothing that could be verified.
        LogError: something is not as it was; ``frame`` is the first bad frame, or None for a document.
    """
    chain = Chain()
    manifest, ending = b"", deque[Frame](maxlen=2)
    for frame in walk(run_dir / "log", chain):
        manifest = manifest or frame.header.link
        ending.append(frame)
    sealed = _check_ending(chain, ending)
    _check_document(run_dir / "manifest.json", sha256_text(manifest), "frame 0")
    completion = _check_document(run_dir / "completion.json", sealed.completion, f"event {sealed.n}")
    _check_completion(completion, sealed)
    if stage_digest is not None and (got := stage_digest()) != sealed.stage:
        message = f"expected {sealed.stage} (event {sealed.n} says so), got {got}"
        raise LogError(message, place=str(run_dir / "stage"))
    whole = chain.checkpoint()
    return Verified(
        frames=whole.frames,
        events=whole.events,
        root=whole.root,
        sealed=True,
        evidence_frames=sealed.evidence_frames,
        evidence_root=sealed.evidence_root,
        manifest=sha256_text(manifest),
        completion=sealed.completion,
        stage=sealed.stage,
        stage_checked=stage_digest is not None,
    )


def _check_ending(chain: Chain, ending: deque[Frame]) -> TrialSealed:
    # Laws 6 and 7 of `supervisor.log.frames`.
    if not ending or ending[-1].header.type != FrameType.SEAL:
        message = "expected a seal, got the end of the log: the run was never sealed, or its end was cut off"
        hint = "all frames up to here are whole; supervise events still shows them"
        raise LogUnsealedError(message, frame=chain.frames, place=f"frame {chain.frames}", hint=hint)
    seal = ending[-1]
    expected = chain.seal_payload(seal.header.number)
    if seal.payload != expected:
        raise bad_frame(seal.header.number, f"expected a seal that says {expected!r}, got {seal.payload[:300]!r}")
    record = ending[0]
    event = decode_record(record) if record.header.type == FrameType.JSON else None
    if not isinstance(event, TrialSealed):
        got = event.kind if event else f"a frame of type {record.header.type}"
        raise bad_frame(record.header.number, f"expected the record trial.sealed before the seal, got {got}")
    problem = chain.check_evidence(event.evidence_frames, event.evidence_root, record=record.header.number)
    if problem is not None:
        raise bad_frame(record.header.number, problem)
    return event


class _LogPart(msgspec.Struct):
    frames: int | None = None
    root: str | None = None


class _Completion(msgspec.Struct):
    log: _LogPart | None = None


def _check_document(path: Path, expected: str, bound_by: str) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError as err:
        message = f"expected {expected} ({bound_by} says so), got no file"
        raise LogError(message, place=str(path)) from err
    except OSError as err:
        message = f"expected {expected} ({bound_by} says so), got: {err.strerror}"
        raise LogUnreadableError(message, place=str(path)) from err
    if (got := sha256_text(sha256(data).digest())) != expected:
        message = f"expected {expected} ({bound_by} says so), got {got}: it was changed"
        raise LogError(message, place=str(path))
    return data


def _check_completion(data: bytes, sealed: TrialSealed) -> None:
    # Its bytes are as they were bound; this holds the one who bound them to the same evidence.
    try:
        part = msgspec.json.decode(data, type=_Completion).log or _LogPart()
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        message = f"expected a completion argument as JSON, got: {err}"
        raise LogError(message, place="completion.json") from err
    evidence = (sealed.evidence_frames, sealed.evidence_root)
    if (part.frames, part.root) != evidence:
        message = f"expected the evidence {evidence} (event {sealed.n} says so), got {(part.frames, part.root)}"
        raise LogError(message, place="completion.json: log")
