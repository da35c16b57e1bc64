"""Runs with a log, made for tests: deterministic, and small unless asked. Also writes the golden run of a version.

``python tests/unit/log/log_builders.py DIR`` makes the golden signed run; a kept one is never made again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from supervisor.events import (
    Event,
    FileOpened,
    NoteReceived,
    Origin,
    ProcessExited,
    ProcessKey,
    TrialEndpoint,
    TrialHeld,
    TrialReleased,
    TrialSealed,
)
from supervisor.log.bound import claim_digest
from supervisor.log.envelope import sign_envelope
from supervisor.log.frames import HEADER_BYTES, FrameType, Header, pack_header, parse_header
from supervisor.log.keys import SigningKey
from supervisor.log.merkle import leaf_hash
from supervisor.log.signer import Signer
from supervisor.log.writer import LogWriter, Patience

MAIN = ProcessKey(412, 8_123_456_789)
INIT = ProcessKey(411, 8_123_000_000)
STAGE = "sha256:" + "5" * 64
RECORD_BYTES = 24


def digest_of(data: bytes) -> str:
    """Give the digest of some bytes as documents write it."""
    return "sha256:" + sha256(data).hexdigest()


def slab_of(count: int, fill: int = 7) -> bytes:
    """Make a kernel slab of opaque records."""
    return b"".join(bytes([fill, index % 256]) * (RECORD_BYTES // 2) for index in range(count))


def decode_opaque(payload: bytes, first_n: int) -> Iterator[Event]:
    """Stand in for the witness' decoder: every 24 bytes are one opened file."""
    for index in range(len(payload) // RECORD_BYTES):
        path = payload[index * RECORD_BYTES : (index + 1) * RECORD_BYTES]
        yield FileOpened(n=first_n + index, time_ns=index, path=path, reads=True, writes=False, process=MAIN)


def begin(run: Path, *, segment_bytes: int = 64 << 20) -> LogWriter:
    """Make a run directory with a manifest and an empty log."""
    manifest = b'{"command":["true"],"version":1}\n'
    run.mkdir(parents=True, exist_ok=True)
    (run / "manifest.json").write_bytes(manifest)
    return LogWriter.create(run / "log", manifest_digest=digest_of(manifest), segment_bytes=segment_bytes)


def begin_with(run: Path, patience: Patience) -> LogWriter:
    """Make a run directory whose log waits for room."""
    begin(run).close()
    digest = digest_of((run / "manifest.json").read_bytes())
    return LogWriter.create(run / "log", manifest_digest=digest, patience=patience)


def end(run: Path, log: LogWriter, *, aftermath: int = 0) -> None:
    """Write the completion argument over all that is in the log, and seal, some records later."""
    evidence = log.checkpoint()
    for _ in range(aftermath):
        log.record(lambda n: TrialReleased(n=n, time_ns=0, origin=Origin.SUPERVISOR))
    completion = json.dumps({"run": "golden", "log": {"frames": evidence.frames, "root": evidence.root}}).encode()
    (run / "completion.json").write_bytes(completion)
    log.seal(
        lambda n: TrialSealed(
            n=n,
            time_ns=9_000_000_000,
            origin=Origin.SUPERVISOR,
            evidence_frames=evidence.frames,
            evidence_root=evidence.root,
            completion=digest_of(completion),
            stage=STAGE,
        )
    )


def fill(log: LogWriter) -> None:
    """Append what a short run would: records of the supervisor around two slabs."""
    own = Origin.SUPERVISOR
    log.record(
        lambda n: TrialHeld(
            n=n,
            time_ns=8_200_000_000,
            origin=own,
            process=MAIN,
            init=INIT,
            helpers=(INIT,),
            cgroup=77,
            realtime_offset_ns=1_796_000_000_000_000_000,
        )
    )
    log.append_kernel(slab_of(3), 3)
    log.record(lambda n: TrialReleased(n=n, time_ns=8_300_000_000, origin=own, process=MAIN))
    log.append_kernel(slab_of(5, fill=9), 5)
    log.record(lambda n: NoteReceived(n=n, time_ns=8_400_000_000, origin=Origin.TRIAL, text='done "\x1b[2J\n'))
    log.record(lambda n: ProcessExited(n=n, time_ns=8_450_000_000, process=MAIN, exit_code=0, signal=None))
    log.record(lambda n: TrialEndpoint(n=n, time_ns=8_500_000_000, origin=own, reason="exit", alive=()))


def make_run(run: Path, *, segment_bytes: int = 64 << 20) -> Path:
    """Make a whole, sealed run."""
    with begin(run, segment_bytes=segment_bytes) as log:
        fill(log)
        end(run, log)
    return run


def make_golden(run: Path) -> Path:
    """Make the golden run of this version: two segments, each type of frame."""
    return make_run(run, segment_bytes=768)


def segments(run: Path) -> list[Path]:
    """List the segments of a run."""
    return sorted((run / "log").glob("*.seg"))


def split_frames(run: Path) -> list[bytes]:
    """Cut the segments of a whole log into frames."""
    frames = []
    for segment in segments(run):
        data = segment.read_bytes()
        while data:
            size = HEADER_BYTES + parse_header(data[:HEADER_BYTES], 0).length
            frames.append(data[:size])
            data = data[size:]
    return frames


def header_of(frame: bytes) -> Header:
    """Read the header of a frame."""
    return parse_header(frame[:HEADER_BYTES], 0)


def remake(frame: bytes, payload: bytes | None = None, link: bytes | None = None) -> bytes:
    """Write a frame again with another payload or link and a right checksum, as a forger would."""
    header, payload = header_of(frame), frame[HEADER_BYTES:] if payload is None else payload
    fresh = pack_header(
        FrameType(header.type),
        payload,
        count=header.events,
        number=header.number,
        first=header.first_event,
        link=header.link if link is None else link,
    )
    return fresh + payload


def relink(frames: list[bytes], begin_at: int) -> list[bytes]:
    """Forge the links of all frames from one on, so that each agrees with the one before."""
    forged = frames[:begin_at]
    for frame in frames[begin_at:]:
        forged.append(remake(frame, link=leaf_hash(forged[-1])) if forged else frame)
    return forged


def put_frames(run: Path, frames: list[bytes]) -> None:
    """Replace the log of a run by one segment of these frames."""
    for segment in segments(run):
        segment.unlink()
    (run / "log" / "000000.seg").write_bytes(b"".join(frames))


RUN = "20261130-080642-k3f9"
SEED = bytes(range(32))


def signing_key(seed: bytes = SEED) -> SigningKey:
    """Make a key that is always the same."""
    return SigningKey(Ed25519PrivateKey.from_private_bytes(seed))


def make_signed_run(
    run: Path,
    *,
    segment_bytes: int = 64 << 20,
    places: tuple[str, ...] = (),
    seed: bytes = SEED,
    unsealed: bool = False,
) -> Path:
    """Make a whole, signed run of five checkpoints, the seal's included."""
    key, claim = signing_key(seed), {"period": "endpoint"}
    policy = {"name": "default", "digest": STAGE}
    run.mkdir(parents=True, exist_ok=True)
    manifest = json.dumps({"run": RUN, "key": key.public, "policy": policy, "claim": claim}).encode()
    (run / "manifest.json").write_bytes(manifest)
    log = LogWriter.create(run / "log", manifest_digest=digest_of(manifest), segment_bytes=segment_bytes)
    signer = Signer(log, run / "log", key, run_id=RUN, places=places, now_ns=lambda: 8_600_000_000)
    with log:
        log.record(lambda n: TrialReleased(n=n, time_ns=0, origin=Origin.SUPERVISOR))
        signer.sign()
        fill(log)
        signer.sign()
        log.append_kernel(slab_of(4, fill=3), 4)
        signer.sign()
        if unsealed:
            return run
        signer.stop()
        evidence = log.checkpoint()
        part = {"frames": evidence.frames, "root": evidence.root, "key": key.public}
        completion = json.dumps({"run": RUN, "policy": policy, "log": part}).encode()
        (run / "completion.json").write_bytes(completion)
        statement = sign_envelope(b'{"subject":[],"predicate":' + completion + b"}", key)
        (run / "completion.dsse.json").write_bytes(statement)
        whole = log.seal(
            lambda n: TrialSealed(
                n=n,
                time_ns=9_000_000_000,
                origin=Origin.SUPERVISOR,
                evidence_frames=evidence.frames,
                evidence_root=evidence.root,
                completion=digest_of(completion),
                stage=STAGE,
                attestation=digest_of(statement),
                policy=STAGE,
                claim=claim_digest(claim),
            )
        )
        signer.sign_seal(whole)
    return run


def make_signed_golden(run: Path) -> Path:
    """Make the golden signed run of this version."""
    return make_signed_run(run, segment_bytes=1500)


def split_notes(run: Path) -> list[bytes]:
    """Cut the checkpoints of a whole run into notes."""
    lines = (run / "log" / "checkpoints").read_bytes().splitlines(keepends=True)
    return [b"".join(lines[at : at + 5]) for at in range(0, len(lines), 5)]


if __name__ == "__main__":
    make_signed_golden(Path(sys.argv[1]))
