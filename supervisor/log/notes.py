"""Checkpoints as signed notes: the form of ``log/checkpoints``, and of what second places are sent.

Laws (https://c2sp.org/signed-note, https://c2sp.org/tlog-checkpoint):
    1. A checkpoint is five lines, each ended by one line feed::

           supervise-eval/20261130-080642-k3f9          origin: whose log
           118                                          tree size: frames
           CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=  RFC 6962 root over them, base64

           — supervise-eval/20261130-080642-k3f9 Az3g…  key name, and base64 of key id (4 bytes) and signature (64)

    2. The Ed25519 signature covers the first three lines with their line feeds. The key's name is the origin; its id is
       the first 4 bytes of SHA-256(name || LF || 0x01 || public key).
    3. ``log/checkpoints`` is such notes back to back, numbered from 0, each over more frames than the one before. Ours
       have one signature and no extension lines. In second places notes may have more signature lines (other
       witnesses'), and notes of other runs may stand between.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

from supervisor.errors import LogError, LogUnreadableError
from supervisor.log.keys import verify_signature

ORIGIN_PREFIX = "supervise-eval/"
_ED25519 = b"\x01"
_ID_BYTES = 4
_SIGNATURE_BYTES = 64
_MAX_LINE = 4096
_SIGNED = "\u2014 ".encode()
_SIZE = re.compile(rb"0|[1-9][0-9]{0,11}")


class CutNoteError(LogError):
    """The file of checkpoints ends in the middle of one, as it does when the machine dies while one is written."""


class Note(NamedTuple):
    """One signed checkpoint, as it stands in a file.

    Attributes:
        origin: whose log.
        size: how many frames.
        root: RFC 6962 root over them.
        signature: id and signature of the key whose name is the origin.
        raw: its bytes.
    """

    origin: str
    size: int
    root: bytes
    signature: bytes
    raw: bytes

    def text(self) -> bytes:
        """Give what is signed."""
        return note_text(self.origin, self.size, self.root)

    def digest(self) -> str:
        """Give the digest of the note, ``sha256:…``."""
        return f"sha256:{hashlib.sha256(self.raw).hexdigest()}"


def origin_of(run_id: str) -> str:
    """Give the origin of a run's checkpoints. Neither space nor plus may stand in a key's name."""
    return ORIGIN_PREFIX + re.sub(r"[\s+]", "_", run_id)


def note_text(origin: str, size: int, root: bytes) -> bytes:
    """Give the three lines of a checkpoint that are signed."""
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n".encode()


def key_id(name: str, public: bytes) -> bytes:
    """Give the id under which an Ed25519 key of that name signs."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:_ID_BYTES]


def sign_note(origin: str, size: int, root: bytes, *, public: bytes, sign: Callable[[bytes], bytes]) -> Note:
    """Make a signed checkpoint."""
    text = note_text(origin, size, root)
    signature = key_id(origin, public) + sign(text)
    line = _SIGNED + f"{origin} {base64.b64encode(signature).decode()}\n".encode()
    return Note(origin, size, root, signature, text + b"\n" + line)


def check_note(note: Note, *, origin: str, public: bytes) -> str | None:
    """Check who signed a note; gives what is wrong as ``expected X, got Y``, or None."""
    if note.origin != origin:
        return f"expected a checkpoint of {origin}, got one of {note.origin}"
    if note.signature[:_ID_BYTES] != key_id(origin, public):
        return f"expected key id {key_id(origin, public).hex()}, got {note.signature[:_ID_BYTES].hex()}"
    if not verify_signature(public, note.signature[_ID_BYTES:], note.text()):
        return "expected a signature over these three lines, got one that does not fit: it was changed"
    return None


def parse_note(raw: bytes) -> Note:
    """Read one note.

    Raises:
        ValueError: it is none; the message says ``expected X, got Y``.
    """
    text, _, signatures = raw.partition(b"\n\n")
    origin, *figures = text.split(b"\n")
    if len(figures) != 2 or not _SIZE.fullmatch(figures[0]):  # noqa: PLR2004 - size and root
        message = f"expected an origin, a size and a root, got {text[:100]!r}"
        raise ValueError(message)
    root = _base64(figures[1], hashlib.sha256().digest_size)
    name = origin.decode()
    for line in signatures.splitlines(keepends=True):
        signer, _, signature = line.removeprefix(_SIGNED).rstrip(b"\n").partition(b" ")
        if line.startswith(_SIGNED) and line.endswith(b"\n") and signer == origin:
            return Note(name, int(figures[0]), root, _base64(signature, _ID_BYTES + _SIGNATURE_BYTES), raw)
    message = f"expected a signature of {name}, got {signatures[:100]!r}"
    raise ValueError(message)


def _base64(text: bytes, size_bytes: int) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        raw = b""
    # Each value has one spelling: spare bits of the last character must not be a place to hide a change.
    if len(raw) != size_bytes or base64.b64encode(raw) != text:
        message = f"expected {size_bytes} bytes in base64, got {text[:100]!r}"
        raise ValueError(message)
    return raw


def read_notes(path: Path) -> Iterator[Note]:
    """Read the notes of ``log/checkpoints`` in order, one at a time. Signatures are not checked here.

    Raises:
        LogError: what stands there is no note; all notes before it were given.
    """
    number = 0
    if not path.exists():
        raise bad_note(0, f"expected signed checkpoints in {path}, got no file")
    with _open(path) as file:
        while lines := [line for line in (file.readline(_MAX_LINE) for _ in range(5)) if line]:
            raw = b"".join(lines)
            message = f"expected the five lines of a signed checkpoint, got {raw[:200]!r}"
            if len(lines) < 5 or (not raw.endswith(b"\n") and not file.peek(1)):  # noqa: PLR2004 - law 1
                raise CutNoteError(f"{message}: it is cut here", place=f"checkpoint {number}")
            if not raw.endswith(b"\n") or lines[3] != b"\n":
                raise bad_note(number, message)
            yield _parsed(raw, number)
            number += 1


def _parsed(raw: bytes, number: int) -> Note:
    try:
        return parse_note(raw)
    except ValueError as err:
        raise bad_note(number, str(err)) from err


def bad_note(number: int, message: str, *, hint: str | None = None) -> LogError:
    """Make the error that names a bad checkpoint: ``checkpoint 3: expected X, got Y``."""
    return LogError(message, place=f"checkpoint {number}", hint=hint)


def read_witnessed(place: Path, *, origin: str) -> list[Note]:
    """Read the notes of one run from a second place, which may hold others too and end in half a note.

    Args:
        place: a file, or a directory as ``--checkpoint-to`` fills it.
        origin: of the run.

    Raises:
        LogUnreadableError: there is no note of the run.
    """
    path = place / f"{origin.removeprefix(ORIGIN_PREFIX)}.checkpoints" if place.is_dir() else place
    with _open(path) as file:
        found = list(_find_notes(file, origin.encode() + b"\n"))
    if not found:
        message = f"expected checkpoints of {origin}, got none"
        raise LogUnreadableError(message, place=str(path))
    return sorted(found, key=lambda note: note.size)


def _find_notes(file: BinaryIO, origin_line: bytes) -> Iterator[Note]:
    waiting: deque[bytes] = deque()

    def line() -> bytes:
        return waiting.popleft() if waiting else file.readline(_MAX_LINE)

    while first := line():
        if first != origin_line:
            continue
        lines = [first, line(), line(), line(), line()]
        while lines[-1].startswith(_SIGNED):
            lines.append(line())
        try:
            yield parse_note(b"".join(lines[:-1]))
        except ValueError:
            waiting.extendleft(reversed(lines[1:]))  # half a note: the next one may begin inside it
        else:
            waiting.appendleft(lines[-1])


def _open(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as err:
        message = f"expected signed checkpoints, got: {err.strerror}"
        raise LogUnreadableError(message, place=str(path)) from err
