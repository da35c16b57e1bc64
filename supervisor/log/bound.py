"""The documents that a log binds: which they are, and whether they are as they were bound.

The manifest is bound by frame 0; completion argument, attestation, index, policy and claim by the record before the
seal.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from supervisor.errors import LogError, LogUnreadableError
from supervisor.events import TrialSealed
from supervisor.log import envelope
from supervisor.log.frames import sha256_text
from supervisor.log.keys import parse_public
from supervisor.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a manifest says that the rest of a run must agree with.

    Attributes:
        manifest: its digest.
        run: id.
        key: public key that signs, or None for a run from before there were signatures.
        policy: digest of the policy.
        claim: digest of the claim.
    """

    manifest: str = ""
    run: str = ""
    key: str | None = None
    policy: str | None = None
    claim: str | None = None


class _Policy(msgspec.Struct):
    digest: str | None = None


class _Manifest(msgspec.Struct):
    run: str = ""
    key: str | None = None
    policy: _Policy = msgspec.field(default_factory=_Policy)
    claim: Any = None


class _LogPart(msgspec.Struct):
    frames: int | None = None
    root: str | None = None
    key: str | None = None


class _Completion(msgspec.Struct):
    run: str = ""
    log: _LogPart = msgspec.field(default_factory=_LogPart)
    policy: _Policy = msgspec.field(default_factory=_Policy)


def claim_digest(claim: object) -> str:
    """Give the digest of a claim as it stands in the manifest: JSON with sorted keys, no spaces, ASCII only."""
    return sha256_text(sha256(json.dumps(claim, sort_keys=True, separators=(",", ":")).encode()).digest())


def check_manifest(run_dir: Path, digest: bytes) -> Bound:
    """Read the manifest, which must have this digest.

    Raises:
        LogError: it has another one, or is not there.
    """
    path, expected = run_dir / "manifest.json", sha256_text(digest)
    return parse_manifest(read_document(path, expected, "frame 0"), place=str(path))


def parse_manifest(data: bytes, *, place: str) -> Bound:
    """Read what the rest of a run must agree with.

    Raises:
        LogError: it is no manifest.
    """
    try:
        # Not by msgspec alone: words of a command that are no text stand there as lone surrogates, which it refuses.
        found = msgspec.convert(json.loads(data), type=_Manifest)
    except (ValueError, msgspec.ValidationError) as err:
        raise LogError(f"expected a manifest, got: {err}", place=place) from err
    claim = None if found.claim is None else claim_digest(found.claim)
    manifest = sha256_text(sha256(data).digest())
    return Bound(manifest=manifest, run=found.run, key=found.key, policy=found.policy.digest, claim=claim)


def bind_documents(run_dir: Path, bound: Bound, sealed: TrialSealed) -> None:
    """Check every document that the record before the seal binds.

    Raises:
        LogError: one was changed or is missing, or says something else than another one.
    """
    by = f"event {sealed.n}"
    for name, expected, got in (("policy", sealed.policy, bound.policy), ("claim", sealed.claim, bound.claim)):
        if expected is not msgspec.UNSET and expected != got:
            message = f"expected {expected} ({by} says so), got {got}"
            raise LogError(message, place=f"manifest.json: {name}")
    completion = read_document(run_dir / "completion.json", sealed.completion, by)
    _check_completion(completion, bound, sealed)
    _check_attestation(run_dir / envelope.NAME, completion, bound, sealed)
    if not isinstance(sealed.index, msgspec.UnsetType):
        read_document(run_dir / "index.msgpack", sealed.index, by)


def read_document(path: Path, expected: str, bound_by: str) -> bytes:
    """Read a document, which must have this digest.

    Args:
        path: of it.
        expected: its digest, ``sha256:…``.
        bound_by: what says so.

    Raises:
        LogError: it has another digest or is missing. `LogUnreadableError` when it cannot be read.
    """
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


def _check_completion(data: bytes, bound: Bound, sealed: TrialSealed) -> None:
    # Its bytes are as they were bound; this holds the one who bound them to the same evidence.
    try:
        found = msgspec.json.decode(data, type=_Completion)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        message = f"expected a completion argument as JSON, got: {err}"
        raise LogError(message, place="completion.json") from err
    evidence = (sealed.evidence_frames, sealed.evidence_root)
    if (found.log.frames, found.log.root) != evidence:
        message = (
            f"expected the evidence {evidence} (event {sealed.n} says so), got {(found.log.frames, found.log.root)}"
        )
        raise LogError(message, place="completion.json: log")
    if bound.key is None:
        return
    got = {"run": found.run, "log.key": found.log.key, "policy.digest": found.policy.digest}
    for name, expected in (("run", bound.run), ("log.key", bound.key), ("policy.digest", bound.policy)):
        if got[name] != expected:
            message = f"expected {expected} (the manifest says so), got {got[name]}"
            raise LogError(message, place=f"completion.json: {name}")


def _check_attestation(path: Path, completion: bytes, bound: Bound, sealed: TrialSealed) -> None:
    if isinstance(sealed.attestation, msgspec.UnsetType):
        if path.exists():
            raise LogError("expected no signed statement, since the log binds none, got one", place=str(path))
        return
    data = read_document(path, sealed.attestation, f"event {sealed.n}")
    if bound.key is None:
        raise LogError("expected a key in the manifest, since there is a signed statement, got none", place=str(path))
    public = parse_public(bound.key, place="manifest.json: key")
    envelope.check_predicate(envelope.open_envelope(data, public, place=str(path)), completion, place=str(path))
