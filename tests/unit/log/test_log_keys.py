"""Keys are made once, kept for good, private to their owner, and read in the forms that others write."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from log_builders import SEED, signing_key

from supervisor.errors import LogUnreadableError, MachineError, UsageError
from supervisor.log.keys import (
    KeyStore,
    parse_public,
    parse_signing_key,
    read_public,
    read_signing_key,
    verify_signature,
)


def pem(key: Ed25519PrivateKey, *, form: forms.PrivateFormat = forms.PrivateFormat.PKCS8) -> bytes:
    """Write a private key as `openssl genpkey` does."""
    return key.private_bytes(forms.Encoding.PEM, form, forms.NoEncryption())


def test_the_first_use_makes_a_private_key(tmp_path: Path) -> None:
    """The key is for its owner alone, stays the same, and signs what its public half verifies."""
    store = KeyStore(tmp_path)
    key = store.current()
    (path,) = store.path.glob("*.pem")
    assert path.stat().st_mode & 0o777 == (store.path / "current").stat().st_mode & 0o777 == 0o600
    assert store.path.stat().st_mode & 0o777 == 0o700
    assert store.current().public == key.public
    assert verify_signature(parse_public(key.public), key.sign(b"text"), b"text")
    assert not verify_signature(parse_public(key.public), key.sign(b"text"), b"test")


def test_runs_that_begin_at_once_share_the_first_key(tmp_path: Path) -> None:
    """However many look for the first key at the same moment, there is one."""
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: KeyStore(tmp_path).current().public, range(16)))
    assert len(keys) == len(list((tmp_path / "keys").glob("*.pem"))) == 1


def test_a_new_key_signs_and_the_old_one_stays(tmp_path: Path) -> None:
    """After a rotation both are ours, and the list begins with the one that signs."""
    store = KeyStore(tmp_path)
    old = store.current().public
    new = store.new().public
    assert store.current().public == new != old
    assert store.owns(old)
    assert store.owns(new)
    assert not store.owns(signing_key().public)
    assert [(key.public, key.current) for key in store.all()] == [(new, True), (old, False)]


def test_a_lost_key_is_told(tmp_path: Path) -> None:
    """A store whose current key is gone or open to others does not quietly make another one."""
    store = KeyStore(tmp_path)
    store.current()
    (path,) = store.path.glob("*.pem")
    path.chmod(0o644)
    with pytest.raises(MachineError, match="for its owner alone"):
        store.current()
    path.unlink()
    with pytest.raises(MachineError, match=r"expected a key file, got: No such file"):
        store.current()


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_keys_of_others_are_read(tmp_path: Path, ending: bytes) -> None:
    """PEM as OpenSSL writes it, with other line ends too, gives the same key by the short way and by the library."""
    path = tmp_path / "key.pem"
    path.write_bytes(pem(Ed25519PrivateKey.from_private_bytes(SEED)).replace(b"\n", ending or b"\n") + ending)
    path.chmod(0o600)
    assert read_signing_key(path, place="--key").public == signing_key().public


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        generate_private_key(SECP256R1()).private_bytes(
            forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
        ),
        Ed25519PrivateKey.from_private_bytes(SEED).private_bytes(
            forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.BestAvailableEncryption(b"secret")
        ),
    ],
)
def test_what_is_no_key_is_refused(text: bytes) -> None:
    """Empty, broken, of another kind, or locked: the error names the place."""
    with pytest.raises(UsageError, match="expected an Ed25519 key") as caught:
        parse_signing_key(text, place="--key f")
    assert caught.value.place == "--key f"


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """A key file must be its owner's alone, and the hint says how."""
    path = tmp_path / "key.pem"
    path.write_bytes(pem(Ed25519PrivateKey.from_private_bytes(SEED)))
    path.chmod(0o640)
    with pytest.raises(UsageError, match="0640") as caught:
        read_signing_key(path, place="--key")
    assert caught.value.hint == f"chmod 600 {path}"


def test_a_public_key_is_read_from_every_form(tmp_path: Path) -> None:
    """``ed25519:…``, PEM of the public and of the private key."""
    key = Ed25519PrivateKey.from_private_bytes(SEED)
    public = key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    path = tmp_path / "key"
    for text in (signing_key().public.encode() + b"\n", public, pem(key)):
        path.write_bytes(text)
        assert read_public(path) == signing_key().public
    other = generate_private_key(SECP256R1()).public_key()
    for text in (
        b"ed25519:AAAA",
        b"\xff",
        b"-----BEGIN PUBLIC KEY-----\n",
        other.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo),
    ):
        path.write_bytes(text)
        with pytest.raises(UsageError):
            read_public(path)
    with pytest.raises(UsageError, match="No such file"):
        read_public(tmp_path / "missing")


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:%%%", "rsa:AAAA", "ed25519:" + "A" * 40])
def test_a_public_key_has_one_form(text: str) -> None:
    """What is no key in a manifest is said to be none."""
    with pytest.raises(LogUnreadableError, match="32 bytes"):
        parse_public(text)
