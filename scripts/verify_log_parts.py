"""What a log is made of, for the second verifier: frames, their Merkle tree, checkpoints, and who signed them.

`verify_log.py` needs this file beside it, and both need nothing else but Python and `cryptography`: no code is shared
with supervise. docs/log.md lays the forms down.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

HEAD = struct.Struct("<4sHHIIIQ32sI")
CHECKED = HEAD.size - 4
SLAB, RECORD, SEAL = 1, 2, 3
LIMITS = {SLAB: 1 << 20, RECORD: 16 << 20, SEAL: 1 << 10}
VERSIONS = (1,)
AFTERMATH = 1024
DASH = "\u2014 ".encode()
KEY = re.compile(r"ed25519:[A-Za-z0-9+/]{43}=")
BAD, UNREADABLE = 1, 125


class Finding(Exception):  # noqa: N818 - what is found is a finding
    """The first thing that is not as it must be."""

    def __init__(self, where: str, what: str, *, code: int = BAD, meaning: str = "") -> None:
        """Keep where it is, what it is, the exit code, and what it means when that is not plain."""
        super().__init__(f"{where}: {what}")
        self.where = where
        self.code = code
        self.meaning = meaning


class Frame(NamedTuple):
    """A frame that is whole: its fields, its payload, and its leaf hash."""

    kind: int
    events: int
    number: int
    first: int
    link: bytes
    payload: bytes
    leaf: bytes


class Note(NamedTuple):
    """A signed checkpoint."""

    origin: str
    size: int
    root: bytes
    signature: bytes
    raw: bytes


def sha(data: bytes) -> bytes:
    """Hash."""
    return hashlib.sha256(data).digest()


def written(digest: bytes) -> str:
    """Write a digest as documents do."""
    return "sha256:" + digest.hex()


# -- the tree (RFC 6962 section 2.1) -----------------------------------------------------------------------------------


class Tree:
    """Whole subtrees by height; a root for every size that was passed is worked out when it is asked for."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.size = 0
        self.whole: list[bytes | None] = []

    def copy(self) -> Tree:
        """Keep this moment."""
        kept = Tree()
        kept.size, kept.whole = self.size, self.whole.copy()
        return kept

    def add(self, leaf: bytes) -> None:
        """Add a leaf."""
        height = 0
        while height < len(self.whole) and (left := self.whole[height]) is not None:
            leaf = sha(b"\x01" + left + leaf)
            self.whole[height] = None
            height += 1
        if height == len(self.whole):
            self.whole.append(None)
        self.whole[height] = leaf
        self.size += 1

    def root(self) -> bytes:
        """Give the root."""
        root = b""
        for subtree in self.whole:
            if subtree is not None:
                root = sha(b"\x01" + subtree + root) if root else subtree
        return root or sha(b"")


# -- frames ------------------------------------------------------------------------------------------------------------


def frames(folder: Path) -> Iterator[Frame]:
    """Give every whole frame of the segments, in the order of the files.

    The last segment of a log without a seal may be empty: its writer died before the first frame.
    """
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".seg"))
    except OSError as error:
        raise Finding(str(folder), f"cannot be read: {error.strerror}", code=UNREADABLE) from error
    number, kind = 0, 0
    for index, name in enumerate(names):
        if name != f"{index:06d}.seg":
            raise Finding(f"frame {number}", f"segment {index:06d}.seg is missing, there is {name}")
        before = number
        with segment(folder / name) as file:
            while head := file.read(HEAD.size):
                frame = whole_frame(head, file, number)
                yield frame
                number, kind = number + 1, frame.kind
        if number == before and (kind == SEAL or index + 1 < len(names)):
            raise Finding(f"frame {number}", f"segment {name} is empty")


def segment(path: Path) -> BinaryIO:
    """Open a segment, which must be a file of its own."""
    if path.is_symlink() or not path.is_file():
        raise Finding(str(path), "is no regular file")
    try:
        return path.open("rb", buffering=1 << 20)
    except OSError as error:
        raise Finding(str(path), f"cannot be read: {error.strerror}", code=UNREADABLE) from error


def whole_frame(head: bytes, file: BinaryIO, number: int) -> Frame:
    """Read the frame that begins with this header."""
    where = f"frame {number}"
    if len(head) < HEAD.size:
        raise Finding(where, f"is cut after {len(head)} bytes of its header")
    magic, version, kind, length, events, said, first, link, checksum = HEAD.unpack(head)
    if magic != b"SVFR" or version not in VERSIONS or length > LIMITS.get(kind, -1):
        raise Finding(where, f"has a header that cannot be: {magic!r}, version {version}, type {kind}, {length} bytes")
    payload = file.read(length)
    if len(payload) < length:
        raise Finding(where, f"is cut after {len(payload)} of {length} bytes of its payload")
    if zlib.crc32(payload, zlib.crc32(head[:CHECKED])) != checksum:
        raise Finding(where, "was changed: its checksum is another one")
    leaf = hashlib.sha256(b"\x00" + head)
    leaf.update(payload)
    return Frame(kind, events, said, first, link, payload, leaf.digest())


def valid(stream: Iterator[Frame]) -> Iterator[Frame]:
    """Give frames as long as they are whole."""
    try:
        yield from stream
    except Finding:
        return


# -- notes (c2sp.org/signed-note, c2sp.org/tlog-checkpoint) ------------------------------------------------------------


def parse_note(lines: list[bytes]) -> Note | None:
    """Read a note from its lines, or None when they are none. Other signatures than the log's own are passed over."""
    if len(lines) < 5 or lines[3] != b"\n" or not all(line.endswith(b"\n") for line in lines):  # noqa: PLR2004
        return None
    origin, size, root = lines[:3]
    before = DASH + origin[:-1] + b" "
    mine = next((line[len(before) : -1] for line in lines[4:] if line.startswith(before)), b"")
    signature, digest = exact(mine, 68), exact(root[:-1], 32)
    if signature is None or digest is None or not re.fullmatch(rb"0|[1-9]\d{0,11}", size[:-1]):
        return None
    return Note(origin[:-1].decode(errors="replace"), int(size), digest, signature, b"".join(lines))


def exact(text: bytes, size: int) -> bytes | None:
    """Decode base64 of that many bytes in its one spelling."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if len(raw) == size and base64.b64encode(raw) == text else None


def own_notes(path: Path) -> Iterator[Note | bytes]:
    """Give the notes of ``log/checkpoints``; where they cannot be read on, what stands there."""
    try:
        file = path.open("rb")
    except OSError as error:
        code = BAD if isinstance(error, FileNotFoundError) else UNREADABLE
        raise Finding("checkpoint 0", f"cannot be read: {error.strerror}", code=code) from error
    with file:
        while first := file.readline(4096):
            lines = [first, *(file.readline(4096) for _ in range(4))]
            note = parse_note(lines)
            yield note or b"".join(lines)
            if note is None:
                return


def kept_notes(place: Path, origin: str) -> list[Note]:
    """Give the notes of one log from a second place."""
    path = place / f"{origin.partition('/')[2]}.checkpoints" if place.is_dir() else place
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise Finding(str(path), f"cannot be read: {error.strerror}", code=UNREADABLE) from error
    found = []
    for at, line in enumerate(lines):
        if line == origin.encode() + b"\n":
            end = at + 4
            while end < len(lines) and lines[end].startswith(DASH):
                end += 1
            found.append(parse_note(lines[at:end]))
    notes = sorted((note for note in found if note is not None), key=lambda note: note.size)
    if not notes:
        raise Finding(str(path), f"holds no checkpoint of {origin}", code=UNREADABLE)
    return notes


# -- keys --------------------------------------------------------------------------------------------------------------


def read_key(path: Path) -> str:
    """Read ``ed25519:…`` or an Ed25519 key in PEM."""
    try:
        data = path.read_bytes()
        if b"PRIVATE KEY" in data:
            private = serialization.load_pem_private_key(data, password=None)
            key: object = private.public_key() if isinstance(private, Ed25519PrivateKey) else None
        elif b"PUBLIC KEY" in data:
            key = serialization.load_pem_public_key(data)
        else:
            text = data.decode("ascii").strip()
            return text if KEY.fullmatch(text) else refuse_key(path)
    except (OSError, ValueError, TypeError) as error:
        raise Finding(str(path), f"holds no key: {error}", code=UNREADABLE) from error
    if not isinstance(key, Ed25519PublicKey):
        refuse_key(path)
    return "ed25519:" + base64.b64encode(key.public_bytes_raw()).decode()


def refuse_key(path: Path) -> NoReturn:
    """Say that there is no key."""
    raise Finding(str(path), "holds no Ed25519 key", code=UNREADABLE)


class Signer:
    """Who must have signed: a key under a name."""

    def __init__(self, key: str, origin: str) -> None:
        """Take a key as the manifest has it."""
        if not KEY.fullmatch(key):
            raise Finding("manifest.json", f"names a key that is none: {key[:100]!r}")
        raw = base64.b64decode(key.partition(":")[2])
        self.origin = origin
        self._key = Ed25519PublicKey.from_public_bytes(raw)
        self._id = sha(origin.encode() + b"\n\x01" + raw)[:4]

    def signed(self, note: Note) -> bool:
        """Tell whether a note is this signer's."""
        text = f"{note.origin}\n{note.size}\n{base64.b64encode(note.root).decode()}\n".encode()
        return note.origin == self.origin and note.signature[:4] == self._id and self.verify(note.signature[4:], text)

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Tell whether a signature over a message is this signer's."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True
