"""The proof of one event: a file that shows, without the log, that the event is in it. Made here and checked here.

Laws of ``supervise-proof/1`` (a JSON object; frames and manifest in base64, hashes in hexadecimal):
    * ``checkpoint`` is a signed note of the run. ``holds`` and ``begins`` are whole frames with their index and audit
      path (RFC 6962); both lead to the note's root.
    * ``holds`` has the event ``event`` as its item number ``position``, counted from 0: a kernel slab has its records
      back to back, a JSON record is one item.
    * ``begins`` is frame 0, whose link is the SHA-256 of ``manifest``: so the proof also shows for which command, under
      which policy and claim, and on what kind of machine the event happened.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import sha256
from pathlib import Path

import msgspec

from supervisor.errors import LogError, LogUnreadableError, UsageError
from supervisor.log.bound import Bound, check_manifest, parse_manifest
from supervisor.log.chain import Chain
from supervisor.log.frames import HEADER_BYTES, Frame, FrameType, check_crc, pack_header, parse_header, sha256_text
from supervisor.log.keys import parse_public
from supervisor.log.merkle import MerkleTree, Pathfinder, leaf_hash, root_from_inclusion
from supervisor.log.notes import Note, check_note, origin_of, parse_note, read_notes
from supervisor.log.reader import walk
from supervisor.log.signer import NAME
from supervisor.values import dataclass

SCHEMA = "supervise-proof/1"
_PLACE = "proof"


class _Included(msgspec.Struct):
    index: int
    frame: str
    path: list[str]


class _Proof(msgspec.Struct):
    schema: str
    run: str
    event: int
    position: int
    key: str
    checkpoint: str
    manifest: str
    begins: _Included
    holds: _Included


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What a proof showed.

    Attributes:
        event: its number.
        frame: the frame that holds it.
        size, root: of the signed checkpoint.
        key: that signed it.
        bound: what the manifest says.
        manifest: its bytes.
    """

    event: int
    frame: Frame
    size: int
    root: str
    key: str
    bound: Bound
    manifest: bytes


def make_proof(run_dir: Path, event: int) -> bytes:
    """Write the proof of one event, against the last checkpoint of the run.

    Args:
        run_dir: of the run.
        event: its number.

    Raises:
        UsageError: there is no such event, or it is not signed yet.
        LogError: the log is damaged, or not as it was signed.
    """
    note = _last_note(run_dir)
    chain, tree = Chain(), MerkleTree()
    found: list[tuple[Frame, Pathfinder]] = []
    for frame in walk(run_dir / "log", chain):
        header = frame.header
        if chain.frames == 1 or header.first_event <= event < header.first_event + header.events:
            found.append((frame, Pathfinder.of_next(tree.state())))
        tree.append(frame.leaf)
        for _, finder in found:
            finder.append(frame.leaf)
        if chain.frames == note.size:
            break
    _check_found(found, event, note, chain)
    bound = check_manifest(run_dir, found[0][0].header.link)
    if bound.key is None:
        raise LogError("expected a key in the manifest, got none", place="manifest.json")
    if problem := check_note(note, origin=origin_of(bound.run), public=parse_public(bound.key)):
        raise LogError(problem, place="checkpoint")
    holds = found[-1][0]
    proof = _Proof(
        schema=SCHEMA,
        run=bound.run,
        event=event,
        position=event - holds.header.first_event,
        key=bound.key,
        checkpoint=note.raw.decode(),
        manifest=base64.b64encode((run_dir / "manifest.json").read_bytes()).decode(),
        begins=_included(*found[0]),
        holds=_included(*found[-1]),
    )
    return msgspec.json.format(msgspec.json.encode(proof), indent=1) + b"\n"


def _last_note(run_dir: Path) -> Note:
    last = None
    for last in read_notes(run_dir / "log" / NAME):  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        raise LogError("expected a signed checkpoint, got none", place=str(run_dir / "log" / NAME))
    return last


def _check_found(found: list[tuple[Frame, Pathfinder]], event: int, note: Note, chain: Chain) -> None:
    if chain.frames != note.size or chain.root() != note.root:
        message = f"expected the root {note.root.hex()} over {note.size} frames, got {chain.root().hex()}"
        raise LogError(f"{message} over {chain.frames}: supervise verify says more", place="checkpoint")
    header = found[-1][0].header
    if not header.first_event <= event < header.first_event + header.events:
        raise UsageError(f"expected an event from 0 to {chain.events - 1}, which is signed, got {event}", place="N")


def _included(frame: Frame, finder: Pathfinder) -> _Included:
    header = frame.header
    data = (
        pack_header(
            FrameType(header.type),
            frame.payload,
            count=header.events,
            number=header.number,
            first=header.first_event,
            link=header.link,
        )
        + frame.payload
    )
    path = [node.hex() for node in finder.inclusion()]
    return _Included(index=header.number, frame=base64.b64encode(data).decode(), path=path)


def key_of(data: bytes) -> str:
    """Give the key that a proof says signed it. Nothing is checked.

    Raises:
        LogUnreadableError: it is no proof.
    """
    try:
        return msgspec.json.decode(data, type=_Proof).key
    except msgspec.DecodeError as err:
        raise LogUnreadableError(f"expected {SCHEMA}, got: {err}", place=_PLACE) from err


def verify_proof(data: bytes, *, key: str) -> Proved:
    """Check a proof.

    Args:
        data: the file.
        key: that must have signed, ``ed25519:…``.

    Raises:
        LogUnreadableError: it is no proof.
        LogError: it does not prove what it says.
    """
    try:
        proof = msgspec.json.decode(data, type=_Proof)
        manifest = base64.b64decode(proof.manifest, validate=True)
        note = parse_note(proof.checkpoint.encode())
        begins, holds = _frame(proof.begins), _frame(proof.holds)
        paths = [[bytes.fromhex(node) for node in one.path] for one in (proof.begins, proof.holds)]
    except (msgspec.DecodeError, binascii.Error, ValueError) as err:
        raise LogUnreadableError(f"expected {SCHEMA}, got: {err}", place=_PLACE) from err
    if proof.schema != SCHEMA:
        raise LogUnreadableError(f"expected {SCHEMA}, got {proof.schema[:100]}", place=_PLACE)
    _check_signed(proof, note, key)
    for one, frame, path in ((proof.begins, begins, paths[0]), (proof.holds, holds, paths[1])):
        _check_included(one.index, frame, path, note)
    bound = _check_first(begins, manifest, proof)
    header = holds.header
    if proof.position != proof.event - header.first_event or not 0 <= proof.position < header.events:
        found = f"events {header.first_event} to {header.first_event + header.events - 1}"
        raise LogError(f"expected event {proof.event} in frame {header.number}, got {found}", place=_PLACE)
    return Proved(
        event=proof.event,
        frame=holds,
        size=note.size,
        root=sha256_text(note.root),
        key=key,
        bound=bound,
        manifest=manifest,
    )


def _frame(included: _Included) -> Frame:
    raw = base64.b64decode(included.frame, validate=True)
    head, payload = raw[:HEADER_BYTES], raw[HEADER_BYTES:]
    header = parse_header(head, included.index)
    check_crc(head, payload, header, included.index)
    return Frame(header, payload, leaf_hash(head, payload))


def _check_signed(proof: _Proof, note: Note, key: str) -> None:
    if proof.key != key:
        raise LogError(f"expected the key {key}, got {proof.key[:100]}", place=_PLACE)
    problem = check_note(note, origin=origin_of(proof.run), public=parse_public(key, place="--key"))
    if problem is not None:
        raise LogError(problem, place=f"{_PLACE}: checkpoint")


def _check_included(index: int, frame: Frame, path: list[bytes], note: Note) -> None:
    root = root_from_inclusion(frame.leaf, index, note.size, path)
    if frame.header.number != index or root != note.root:
        got = "no path in such a tree" if root is None else root.hex()
        message = f"expected a path to the root {note.root.hex()} over {note.size} frames, got {got}"
        raise LogError(message, frame=index, place=f"{_PLACE}: frame {index}")


def _check_first(begins: Frame, manifest: bytes, proof: _Proof) -> Bound:
    digest = sha256(manifest).digest()
    if proof.begins.index != 0 or begins.header.link != digest:
        message = f"expected the manifest {begins.header.link.hex()} (frame 0 says so), got {digest.hex()}"
        raise LogError(message, place=f"{_PLACE}: manifest")
    bound = parse_manifest(manifest, place=f"{_PLACE}: manifest")
    if (bound.run, bound.key) != (proof.run, proof.key):
        message = f"expected run {proof.run} and key {proof.key}, got {bound.run} and {bound.key}"
        raise LogError(message, place=f"{_PLACE}: manifest")
    return bound
