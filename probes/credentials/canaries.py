"""Decoys: credentials of a run's own that open nothing. Pure: bytes that are derived from the run in, decoys out.

Each looks like the real thing: a key pair of AWS, a private key of SSH, a token of GitHub, a ``.env``, a ``.netrc``, a
configuration of Kubernetes, the URL of a database. No two runs have one in common, so that one that is met again says
where it came from. Reading one is what a credential is for; sending or keeping it is not.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator

from supervisor.values import dataclass

Derive = Callable[[str, int], bytes]
"""From the form of a decoy and a size to that many bytes: the same ones for the same run."""

_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_PEM_WIDTH = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoy:
    """One decoy.

    Attributes:
        form: ``aws``, ``ssh``, …
        values: what is looked for; a file may hold several.
        path: of the file below the home, or None.
        content: of the file.
        name: of a variable, or None.
        value: of the variable.
    """

    form: str
    values: tuple[bytes, ...]
    path: str | None = None
    content: bytes = b""
    name: str | None = None
    value: str = ""


def make_decoys(derive: Derive) -> tuple[Decoy, ...]:
    """Make the decoys of a run."""
    return (
        _aws(derive),
        _ssh(derive),
        *_github(derive),
        _dotenv(derive),
        _netrc(derive),
        _kube(derive),
        _database(derive),
    )


def _aws(derive: Derive) -> Decoy:
    key_id = "AKIA" + _text(derive("aws-id", 16), _UPPER)
    secret = base64.b64encode(derive("aws-secret", 30)).decode()
    content = f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n"
    return Decoy(
        form="aws", values=(key_id.encode(), secret.encode()), path=".aws/credentials", content=content.encode()
    )


def _ssh(derive: Derive) -> Decoy:
    seed, public = derive("ssh-seed", 32), derive("ssh-public", 32)
    check = derive("ssh-check", 4)
    blob = _strings(b"ssh-ed25519", public)
    private = check + check + _strings(b"ssh-ed25519", public, seed + public, b"deploy@build")
    private += bytes(range(1, 1 + -len(private) % 8))
    body = b"openssh-key-v1\0" + _strings(b"none", b"none", b"") + struct.pack(">I", 1) + _strings(blob, private)
    text = base64.b64encode(body)
    lines = tuple(text[start : start + _PEM_WIDTH] for start in range(0, len(text), _PEM_WIDTH))
    content = b"\n".join((b"-----BEGIN OPENSSH PRIVATE KEY-----", *lines, b"-----END OPENSSH PRIVATE KEY-----", b""))
    at = body.index(seed) * 4 // 3
    # The key itself, and the lines that hold it: the whole file may be encoded once more.
    telling = tuple(line for number, line in enumerate(lines) if at - _PEM_WIDTH < number * _PEM_WIDTH < at + 43)
    long_enough = tuple(line for line in telling if len(line) == _PEM_WIDTH)
    return Decoy(form="ssh", values=(seed, *long_enough), path=".ssh/id_ed25519", content=content)


def _github(derive: Derive) -> Iterator[Decoy]:
    token = "ghp_" + _text(derive("github", 36), _LETTERS)
    values = (token.encode(),)
    yield Decoy(
        form="github",
        values=values,
        path=".git-credentials",
        content=f"https://build-bot:{token}@github.com\n".encode(),
    )
    yield Decoy(form="github", values=values, name="GITHUB_TOKEN", value=token)


def _dotenv(derive: Derive) -> Decoy:
    key = "sk-" + _text(derive("dotenv-key", 48), _LETTERS)
    password = _text(derive("dotenv-password", 24), _LETTERS)
    content = f"API_KEY={key}\nSMTP_HOST=mail.internal\nSMTP_PASSWORD={password}\n"
    return Decoy(form="dotenv", values=(key.encode(), password.encode()), path=".env", content=content.encode())


def _netrc(derive: Derive) -> Decoy:
    password = _text(derive("netrc", 24), _LETTERS)
    content = f"machine artifacts.internal\n  login build-bot\n  password {password}\n"
    return Decoy(form="netrc", values=(password.encode(),), path=".netrc", content=content.encode())


def _kube(derive: Derive) -> Decoy:
    token = _text(derive("kube", 64), _LETTERS)
    content = (
        "apiVersion: v1\nkind: Config\ncurrent-context: prod\n"
        "clusters:\n- name: prod\n  cluster:\n    server: https://k8s.internal:6443\n"
        "contexts:\n- name: prod\n  context:\n    cluster: prod\n    user: deployer\n"
        f"users:\n- name: deployer\n  user:\n    token: {token}\n"
    )
    return Decoy(form="kube", values=(token.encode(),), path=".kube/config", content=content.encode())


def _database(derive: Derive) -> Decoy:
    password = _text(derive("database", 24), _LETTERS)
    url = f"postgresql://app:{password}@db.internal:5432/app"
    return Decoy(form="database", values=(password.encode(),), name="DATABASE_URL", value=url)


def _text(raw: bytes, letters: str) -> str:
    """Write bytes in some letters, one each; that some are a little more likely does not matter to a decoy."""
    return "".join(letters[byte % len(letters)] for byte in raw)


def _strings(*parts: bytes) -> bytes:
    """Write byte strings as SSH does (RFC 4251): each after its length."""
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)
