"""A second verifier of supervise logs, which shares no code with the first: Python and `cryptography` are all it needs.

    python verify_log.py RUN_DIRECTORY [--key FILE] [--checkpoints FILE]

It reads a run's directory (``log/*.seg``, ``log/checkpoints``, ``manifest.json``, ``completion.json``,
``completion.dsse.json``) as docs/log.md lays it down, and says how many frames and checkpoints it found, or what the
first bad one is. Exit codes: 0 good, 1 bad (also: never sealed), 125 unreadable.

It and ``verify_log_parts.py`` beside it are all that is carried to where a log is to be checked, and read there.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# `python -I`, which keeps the modules of others out, leaves the one beside this out, too.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from verify_log_parts import (
    AFTERMATH,
    BAD,
    RECORD,
    SEAL,
    SLAB,
    UNREADABLE,
    Finding,
    Frame,
    Note,
    Signer,
    Tree,
    frames,
    kept_notes,
    own_notes,
    read_key,
    sha,
    valid,
    written,
)

# -- the pass over a log -----------------------------------------------------------------------------------------------


class Pass:
    """One pass: links, numbers, checkpoints and witnesses, with the memory of a few frames."""

    def __init__(self, run: Path, key: str | None, witnesses: Path | None) -> None:
        """Begin before the first frame."""
        self.run, self.wanted, self.place = run, key, witnesses
        self.tree = Tree()
        self.events = 0
        self.last: deque[Frame] = deque(maxlen=2)
        self.last_slab = -1
        self.sealed_wrongly = False
        # What the tree was, not its roots: of thousands of moments, one root is asked for.
        self.moments: deque[tuple[int, Tree]] = deque([(0, self.tree.copy())], maxlen=AFTERMATH + 4)
        self.manifest: dict[str, Any] = {}
        self.signer: Signer | None = None
        self.notes: Iterator[Note | bytes] = iter(())
        self.torn = False
        self.note: Note | None = None
        self.read = self.good = self.covered = 0
        self.untold: deque[tuple[int, Note]] = deque()
        self.kept: deque[Note] = deque()
        self.witnessed = 0
        self.grades: dict[int, str | None] = {}
        self.validators: dict[int, str | None] = {}
        self.states: dict[str, Any] = {}

    def all(self) -> None:
        """Read every frame. What a frame contradicts is told only if the next frame vouches for it."""
        doubt: Finding | None = None
        stream = frames(self.run / "log")
        for frame in stream:
            self.place_of(frame, stream)
            if doubt:
                raise doubt
            self.add(frame)
            try:
                self.look(frame)
            except Finding as finding:
                doubt = finding
        if doubt:
            raise doubt

    def place_of(self, frame: Frame, rest: Iterator[Frame]) -> None:
        """Check number, event numbers and link of a frame."""
        number = self.tree.size
        where = f"frame {number}"
        if self.last and self.last[-1].kind == SEAL:
            raise Finding(where, "stands after the seal")
        if frame.number != number or frame.first != self.events:
            raise Finding(where, f"says it is frame {frame.number} with event {frame.first}, not event {self.events}")
        if (frame.kind == RECORD and frame.events != 1) or (frame.kind == SEAL and frame.events):
            raise Finding(where, f"says it holds {frame.events} events")
        if not self.last or frame.link == self.last[-1].leaf:
            return
        # One of two frames was replaced: whoever vouches for the later one (the next link, or the seal's root) decides.
        if frame.kind == SEAL:
            later_is_good = frame.payload != self.seal_over(number)
        else:
            following = next(valid(rest), None)
            later_is_good = following is None or following.link == frame.leaf
        raise Finding(f"frame {number - 1 if later_is_good else number}", "was replaced: the links do not fit")

    def seal_over(self, size: int) -> bytes:
        """Give what a seal over the frames so far must say."""
        return f'{{"events":{self.events},"frames":{size},"root":"{written(self.tree.root())}"}}'.encode()

    def add(self, frame: Frame) -> None:
        """Take a frame in."""
        if frame.kind == SEAL and frame.payload != self.seal_over(self.tree.size):
            self.sealed_wrongly = True
        if frame.kind == SLAB:
            self.last_slab = self.tree.size
        self.events += frame.events
        self.tree.add(frame.leaf)
        self.last.append(frame)
        self.moments.append((self.tree.size, self.tree.copy()))

    def look(self, frame: Frame) -> None:
        """Hold documents, checkpoints and witnesses to the log up to this frame."""
        if self.sealed_wrongly:
            raise Finding(f"frame {self.tree.size - 1}", "the seal is over other frames than these")
        if self.tree.size == 1:
            self.begin(frame)
        if frame.kind == RECORD and frame.payload.startswith(b'{"kind":"grade.finished",'):
            grade = json_of(frame.payload, f"frame {frame.number}")
            self.grades[int(grade["number"])] = grade.get("log_root")
        if frame.kind == RECORD and frame.payload.startswith(b'{"kind":"validation.finished",'):
            self.validators[0] = json_of(frame.payload, f"frame {frame.number}").get("log_root")
        if frame.kind == RECORD and frame.payload.startswith(b'{"kind":"states.recorded",'):
            self.states = json_of(frame.payload, f"frame {frame.number}")
        if frame.kind == RECORD and frame.payload.startswith(b'{"kind":"checkpoint.signed",'):
            self.told(frame)
        if self.note is not None and self.note.size == self.tree.size:
            self.vouch(self.note)
        while self.kept and self.kept[0].size <= self.tree.size:
            note = self.kept.popleft()
            if not self.is_signed(note) or (note.size == self.tree.size and note.root != self.tree.root()):
                raise Finding(f"witnessed checkpoint over {note.size} frames", "this log does not extend it")

    def begin(self, first: Frame) -> None:
        """Read the manifest that frame 0 binds, and find out who must have signed."""
        path = self.run / "manifest.json"
        self.manifest = document(path, written(first.link), "frame 0")[1]
        key = self.manifest.get("key")
        if self.wanted not in {None, key}:
            raise Finding(str(path), f"names the key {key}, not {self.wanted}")
        notes = self.run / "log" / "checkpoints"
        if key is None:
            if notes.exists() or self.place is not None:
                raise Finding(str(path), "names no key, but there are checkpoints")
            return
        origin = "supervise-eval/" + re.sub(r"[\s+]", "_", str(self.manifest.get("run", "")))
        self.signer = Signer(str(key), origin)
        if self.place is not None:
            self.kept = deque(kept_notes(self.place, origin))
            self.witnessed = len(self.kept)
        self.notes = own_notes(notes)
        self.advance()

    def is_signed(self, note: Note) -> bool:
        """Tell whether a note is signed by the run's key."""
        return self.signer is not None and self.signer.signed(note)

    def advance(self) -> None:
        """Go to the next note of ``log/checkpoints``."""
        self.note = None
        for note in self.notes:
            where = f"checkpoint {self.read}"
            if isinstance(note, bytes):
                # A file that ends in half a note is no fault of a log without a seal: the end will tell.
                self.torn = note.count(b"\n") < 5  # noqa: PLR2004 - lines of a note
                if not self.torn:
                    raise Finding(where, "is no signed note of five lines")
                return
            if not self.is_signed(note):
                raise Finding(where, "is not signed by the run's key, or was changed")
            if note.size <= self.covered:
                raise Finding(where, f"is over {note.size} frames, no more than the one before it")
            self.note, self.read = note, self.read + 1
            return

    def vouch(self, note: Note) -> None:
        """Check what a note says about the frames so far."""
        number = self.read - 1
        if note.root != self.tree.root():
            raise Finding(
                f"checkpoint {number}", f"signed another log: frames {self.covered} to {note.size - 1} differ"
            )
        self.untold.append((number, note))
        self.good, self.covered = number + 1, note.size
        self.advance()

    def told(self, frame: Frame) -> None:
        """Check the event that tells of a note against the note."""
        event = json_of(frame.payload, f"frame {frame.number}")
        number, note = self.untold.popleft() if self.untold else (self.good, self.note)
        if note is None or event.get("number") != number or event.get("note") != written(sha(note.raw)):
            raise Finding(f"checkpoint {number}", f"is not the one that event {frame.first} tells of, or is missing")

    def end(self) -> dict[str, Any]:
        """Check the end of the log; gives the record before the seal."""
        if self.kept:
            note = self.kept[-1]
            raise Finding(f"witnessed checkpoint over {note.size} frames", f"this log ends after {self.tree.size}: cut")
        if not self.last or self.last[-1].kind != SEAL:
            meaning = (
                f"{self.tree.size} whole frames were found, the first {self.covered} of them vouched for by "
                f"{self.good} checkpoints{self.beyond()}. Without a seal nobody knows what happened after them: "
                "nothing that was concluded about this run holds."
            )
            raise Finding(f"frame {self.tree.size}", "a seal was expected, the log ends here", meaning=meaning)
        sealed = self.record()
        self.evidence(sealed)
        if self.signer is not None:
            self.last_note()
        return sealed

    def beyond(self) -> str:
        """Say what checkpoints tell of frames that are not there, and whether the last one is half written."""
        size = 0
        while self.note is not None:
            size = self.note.size
            self.advance()
        lost = f"; others tell of {size} frames, so at least {size - self.tree.size} are lost" if size else ""
        return lost + (", and the last one is half written" if self.torn else "")

    def record(self) -> dict[str, Any]:
        """Give the record before the seal."""
        record = self.last[0]
        sealed = json_of(record.payload, f"frame {record.number}") if record.kind == RECORD else {}
        if sealed.get("kind") != "trial.sealed" or sealed.get("n") != record.first:
            raise Finding(f"frame {record.number}", "the record trial.sealed was expected")
        return sealed

    def evidence(self, sealed: dict[str, Any]) -> None:
        """Check what the record says the evidence is."""
        number, size = self.tree.size - 2, sealed.get("evidence_frames")
        root = next((tree.root() for at, tree in self.moments if at == size), None)
        near = isinstance(size, int) and number - AFTERMATH <= size <= number and size > self.last_slab
        if not near or root is None or written(root) != sealed.get("evidence_root"):
            raise Finding(f"frame {number}", f"the evidence of {size} frames is no part of this log")

    def last_note(self) -> None:
        """Check that the last note is over the seal, and that every other one is told of."""
        if self.note is not None:
            raise Finding(f"checkpoint {self.read - 1}", f"is over {self.note.size} frames, there are {self.tree.size}")
        if self.torn:
            raise Finding(f"checkpoint {self.read}", "is only half there")
        if self.covered != self.tree.size:
            meaning = "The seal was never signed, or its checkpoint was taken away: treat the run as unsealed."
            raise Finding(f"checkpoint {self.read}", "one over all frames was expected, there is none", meaning=meaning)
        if len(self.untold) > 1:
            raise Finding(f"checkpoint {self.untold[0][0]}", "was added: no event tells of it")


# -- documents ---------------------------------------------------------------------------------------------------------


def json_of(data: bytes, where: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise Finding(where, f"is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Finding(where, "is no JSON object")
    return found


def bound_bytes(path: Path, digest: object, bound_by: str) -> bytes:
    """Read a file that the log binds."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise Finding(str(path), f"is missing; {bound_by} binds it") from error
    except OSError as error:
        raise Finding(str(path), f"cannot be read: {error.strerror}", code=UNREADABLE) from error
    if written(sha(data)) != digest:
        raise Finding(str(path), f"was changed: {bound_by} binds {digest}")
    return data


def document(path: Path, digest: object, bound_by: str) -> tuple[bytes, dict[str, Any]]:
    """Read a JSON document that the log binds."""
    data = bound_bytes(path, digest, bound_by)
    return data, json_of(data, str(path))


def check_documents(run: Path, passed: Pass, sealed: dict[str, Any]) -> None:
    """Check everything that the record before the seal binds."""
    by, manifest = f"event {sealed['n']}", passed.manifest
    raw, completion = document(run / "completion.json", sealed.get("completion"), by)
    log = completion.get("log") or {}
    evidence = (sealed.get("evidence_frames"), sealed.get("evidence_root"))
    if (log.get("frames"), log.get("root")) != evidence:
        raise Finding("completion.json: log", "is about another evidence than the log's")
    policy = (manifest.get("policy") or {}).get("digest")
    claim = json.dumps(manifest.get("claim"), sort_keys=True, separators=(",", ":")).encode()
    for name, found in (("policy", policy), ("claim", written(sha(claim)))):
        if name in sealed and sealed[name] != found:
            raise Finding(f"manifest.json: {name}", f"is not the one that {by} binds")
    if passed.signer is not None:
        said = (completion.get("run"), log.get("key"), (completion.get("policy") or {}).get("digest"))
        if said != (manifest.get("run"), manifest.get("key"), policy):
            raise Finding("completion.json", "is about another run, key or policy than the manifest")
    if "index" in sealed:
        bound_bytes(run / "index.msgpack", sealed["index"], by)
    statement = run / "completion.dsse.json"
    if "attestation" in sealed:
        check_statement(statement, sealed["attestation"], by, passed.signer, raw)
    elif statement.exists():
        raise Finding(str(statement), "is not bound by the log")


def check_statement(path: Path, digest: object, by: str, signer: Signer | None, completion: bytes) -> None:
    """Check the signed statement: DSSE around an in-toto statement whose predicate is the completion argument."""
    envelope = document(path, digest, by)[1]
    try:
        kind = envelope["payloadType"].encode()
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = [base64.b64decode(one["sig"], validate=True) for one in envelope["signatures"]]
        predicate = json.loads(payload)["predicate"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Finding(str(path), f"is no signed statement: {error}") from error
    message = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    if signer is None or not any(signer.verify(signature, message) for signature in signatures):
        raise Finding(str(path), "is not signed by the run's key")
    if kind != b"application/vnd.in-toto+json" or predicate != json.loads(completion):
        raise Finding(str(path), "is about something else than completion.json")


def verify(run: Path, *, key: str | None = None, witnesses: Path | None = None) -> Pass:
    """Verify one run; raises the first `Finding`."""
    passed = Pass(run, key, witnesses)
    passed.all()
    check_documents(run, passed, passed.end())
    if passed.states:
        bound_bytes(run / "observed.jsonl", passed.states["digest"], f"event {passed.states['n']}")
    check_grades(run / "grades", passed.grades, key)
    check_grades(run / "validator", passed.validators, key)
    return passed


def check_grades(folder: Path, told: dict[int, str | None], key: str | None) -> None:
    """Verify the log of every run of a grader or validator that the run's log tells of, and find one that is not."""
    for number, root in told.items():
        place = folder / str(number)
        if root is not None and (got := written(verify(place, key=key).tree.root())) != root:
            raise Finding(str(place), f"has the root {got}, and the run's log binds {root}")
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.name.isdigit() and int(place.name) not in told:
            raise Finding(str(place), "is a run of a grader or validator that the run's log does not tell of")


def main(words: list[str]) -> int:
    """Verify one run, print, and give the exit code."""
    parser = argparse.ArgumentParser(description="Verify the log of a run, sharing no code with supervise.")
    parser.add_argument("run", type=Path, help="a run's directory")
    parser.add_argument("--key", type=Path, metavar="FILE", help="demand that this key signed: ed25519:…, or PEM")
    parser.add_argument("--checkpoints", type=Path, metavar="FILE", help="checkpoints that a second place kept")
    options = parser.parse_args(words)
    try:
        key = read_key(options.key) if options.key else None
        passed = verify(options.run, key=key, witnesses=options.checkpoints)
    except Finding as finding:
        word = "bad" if finding.code == BAD else "unreadable"
        print(f"{options.run}: {word}: {finding}", *([finding.meaning] if finding.meaning else []), sep="\n  ")
        return finding.code
    signed = passed.manifest.get("key") or "not signed: whoever could write these files could have written others"
    extends = f", extends {passed.witnessed} witnessed checkpoints" if passed.witnessed else ""
    counts = f"{passed.tree.size} frames, {passed.events} events, {passed.good} checkpoints"
    print(f"{options.run}: good: {counts}, root {written(passed.tree.root())}, {signed}{extends}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
