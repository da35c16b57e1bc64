"""Signing keys: Ed25519, made on first use, kept in ``<home>/keys/``.

Laws:
    * A key file is PEM PKCS #8, mode 0600; ``keys/current`` names the one that signs. A key is never removed or
      overwritten: old runs are verified with the public key in their manifest.
    * A public key is written ``ed25519:<base64 of its 32 bytes>`` everywhere.

The library is imported where it is used: 8 ms, and its parsers of key files another 20, which a key in the form that we
write does not need.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.errors import LogUnreadableError, MachineError, UsageError
from supervisor.launch.disk.durable import write_whole
from supervisor.values import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ENVIRONMENT = "SUPERVISE_SIGNING_KEY"
"""Names a key file, or holds its text."""

PREFIX = "ed25519:"
KEY_BYTES = 32
_PLAIN_PEM = re.compile(rb"-----BEGIN PRIVATE KEY-----\n([A-Za-z0-9+/=]+)\n-----END PRIVATE KEY-----\s*")
# RFC 8410: version 0, algorithm 1.3.101.112, an octet string of an octet string of 32 bytes.
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_MAX_FILE_BYTES = 1 << 16


class SigningKey:
    """A private key that was read. It says only its public half."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        """Take a key of the library."""
        self._key = key
        self.public = PREFIX + base64.b64encode(key.public_key().public_bytes_raw()).decode()

    def sign(self, message: bytes) -> bytes:
        """Give the 64 bytes of the signature; the same for the same message (RFC 8032)."""
        return self._key.sign(message)


def parse_public(text: str, *, place: str | None = None) -> bytes:
    """Read the 32 bytes of ``ed25519:…``.

    Raises:
        LogUnreadableError: it is no such key.
    """
    try:
        raw = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith(PREFIX) or len(raw) != KEY_BYTES:
        message = f"expected a key as ed25519: and 32 bytes in base64, got {text[:100]!r}"
        raise LogUnreadableError(message, place=place)
    return raw


def verify_signature(public: bytes, signature: bytes, message: bytes) -> bool:
    """Tell whether a signature is this key's."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - see above

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def parse_signing_key(data: bytes, *, place: str) -> SigningKey:
    """Read a private key in PEM.

    Raises:
        UsageError: it is no Ed25519 key without a passphrase.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - see above

    seed = _plain_seed(data)
    if seed is not None:
        return SigningKey(Ed25519PrivateKey.from_private_bytes(seed))
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - see above

    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as err:
        hint = "openssl genpkey -algorithm ed25519 makes one"
        raise UsageError("expected an Ed25519 key in PEM, without a passphrase", place=place, hint=hint) from err
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"expected an Ed25519 key, got {type(key).__name__}", place=place)
    return SigningKey(key)


def _plain_seed(data: bytes) -> bytes | None:
    """Give the secret of a key in the one form that we write; None for any other."""
    found = _PLAIN_PEM.fullmatch(data)
    try:
        der = base64.b64decode(found[1], validate=True) if found else b""
    except binascii.Error:
        return None
    return der[len(_PKCS8) :] if der.startswith(_PKCS8) and len(der) == len(_PKCS8) + KEY_BYTES else None


def read_signing_key(path: Path, *, place: str) -> SigningKey:
    """Read a key file.

    Raises:
        UsageError: it cannot be read, others may read it, or it is no such key.
    """
    return parse_signing_key(_read_private(path, place=place), place=place)


def _read_private(path: Path, *, place: str) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_MAX_FILE_BYTES)
    except OSError as err:
        raise UsageError(f"expected a key file, got: {err.strerror}", place=place) from err
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"expected a key file for its owner alone, got mode {stat.S_IMODE(mode):04o}"
        raise UsageError(message, place=place, hint=f"chmod 600 {path}")
    return data


def read_public(path: Path) -> str:
    """Read the public key in a file: ``ed25519:…``, or a public or private key in PEM.

    Raises:
        UsageError: there is none in it.
    """
    try:
        data = path.read_bytes()[:_MAX_FILE_BYTES]
    except OSError as err:
        raise UsageError(f"expected a key file, got: {err.strerror}", place=str(path)) from err
    if b"PRIVATE KEY" in data:
        return parse_signing_key(data, place=str(path)).public
    if b"PUBLIC KEY" in data:
        return _public_from_pem(data, place=str(path))
    try:
        text = data.decode("ascii").strip()
        parse_public(text)
    except (UnicodeDecodeError, LogUnreadableError) as err:
        raise UsageError("expected ed25519:… or an Ed25519 key in PEM", place=str(path)) from err
    return text


def _public_from_pem(data: bytes, *, place: str) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415 - see above

    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as err:
        raise UsageError("expected an Ed25519 public key in PEM", place=place) from err
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"expected an Ed25519 key, got {type(key).__name__}", place=place)
    return PREFIX + base64.b64encode(key.public_bytes_raw()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptKey:
    """One key of the store."""

    public: str
    path: Path
    current: bool


class KeyStore:
    """The keys of one home."""

    def __init__(self, home: Path) -> None:
        """Use the keys of a state directory; nothing is read yet."""
        self.path = home / "keys"

    @property
    def _current(self) -> Path:
        return self.path / "current"

    def current(self) -> SigningKey:
        """Give the key that signs, made now when there is none.

        Raises:
            MachineError: it cannot be made or read.
        """
        try:
            name = self._current.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return self._first()
        except (OSError, UnicodeDecodeError) as err:
            raise MachineError(f"expected the name of a key, got: {err}", place=str(self._current)) from err
        path = self.path / Path(name).name
        try:
            return read_signing_key(path, place=str(path))
        except UsageError as err:
            hint = "`supervise key new` makes another one; old runs stay verifiable"
            raise MachineError(err.message, place=err.place, hint=err.hint or hint) from err

    def new(self) -> SigningKey:
        """Make a key and let it sign from now on; the others are kept."""
        name, key = self._make()
        write_whole(self._current, name.encode() + b"\n")
        return key

    def all(self) -> tuple[KeptKey, ...]:
        """Give every key of the store that can be read, the one that signs first."""
        with suppress(OSError, UnicodeDecodeError):
            current = self._current.read_text(encoding="ascii").strip()
            found = [self._kept(path, current=path.name == current) for path in sorted(self.path.glob("*.pem"))]
            return tuple(sorted((key for key in found if key), key=lambda key: not key.current))
        return ()

    def owns(self, public: str) -> bool:
        """Tell whether a public key belongs to one of the store."""
        return any(key.public == public for key in self.all())

    def _kept(self, path: Path, *, current: bool) -> KeptKey | None:
        try:
            return KeptKey(public=read_signing_key(path, place=str(path)).public, path=path, current=current)
        except UsageError:
            return None

    def _first(self) -> SigningKey:
        """Make the first key; of two runs that do it at once, one wins and both use its key."""
        name, key = self._make()
        beside = self.path / f".{name}.first"
        write_whole(beside, name.encode() + b"\n", durable=False)
        try:
            os.link(beside, self._current)
        except FileExistsError:
            (self.path / name).unlink()
            return self.current()
        finally:
            beside.unlink()
        return key

    def _make(self) -> tuple[str, SigningKey]:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - once in a home's life
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - as above

        made = Ed25519PrivateKey.generate()
        name = f"{hashlib.sha256(made.public_key().public_bytes_raw()).hexdigest()[:16]}.pem"
        pem = made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            write_whole(self.path / name, pem)
        except OSError as err:
            raise MachineError(f"expected to keep a new key, got: {err.strerror}", place=str(self.path)) from err
        return name, SigningKey(made)
