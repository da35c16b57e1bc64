"""The manifest: what was fixed before a run began. Made before CMD is released; the log binds its digest.

It holds names of the environment, never values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from policies.canonical import policy_digest, policy_to_mapping
from policies.parse import policy_from_mapping
from policies.redaction import NOTHING_HIDDEN, Redactor
from policies.types import Policy
from supervisor.errors import LogUnreadableError, PolicyError
from supervisor.request import RunRequest
from supervisor.values import dataclass, field

SCHEMA = "manifest/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What the supervisor itself found out before the start.

    Attributes:
        run: id.
        at: RFC 3339.
        workspace: absolute, as bytes: a directory may be called anything.
        user: uid and gid that CMD runs with.
        dropped: names of the environment that CMD does not get.
        kept: names that it gets.
        limits: of the trial's resources, as they are enforced here, by resource.
        host, versions: for the record.
        key: public key that signs the log, ``ed25519:…``.
        requirements: digests of the files that tell the trial what is asked of it, by path.
    """

    run: str
    at: str
    workspace: bytes
    user: tuple[int, int]
    dropped: Sequence[str] = ()
    kept: Sequence[str] = ()
    limits: Mapping[str, object] = field(default_factory=dict)
    host: Mapping[str, object]
    versions: Mapping[str, object]
    key: str | None = None
    requirements: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The parts of a manifest that are needed after the run.

    Attributes:
        policy: without values of credentials.
        digest: of the policy as it was declared.
    """

    name: str | None
    command: tuple[bytes, ...]
    workspace: bytes
    policy: Policy
    digest: str | None = None

    @property
    def whole(self) -> bool:
        """Whether the policy is as it was declared: no value of a credential had to be taken out of it."""
        return self.digest in {None, policy_digest(self.policy)}


def describe_run(
    request: RunRequest, started: Started, *, told: Policy | None = None, hide: Redactor = NOTHING_HIDDEN
) -> dict[str, object]:
    """Give the manifest of a run that is about to start.

    Args:
        request: what was asked for.
        started: what was found out.
        told: the policy of the request without values of credentials, None when it has none anyway; digests are of
            the one that was declared.
        hide: takes values of credentials out of the command: a shell may have put them there.
    """
    document = policy_to_mapping(told or request.policy)
    return {
        "schema": SCHEMA,
        "run": started.run,
        "started": started.at,
        "name": None if request.name is None else hide.redact_text(request.name, where="manifest"),
        "command": [_kept(hide.redact(word, where="manifest")) for word in request.argv],
        "cwd": _kept(bytes(request.cwd)),
        "workspace": _kept(started.workspace),
        "user": {"uid": started.user[0], "gid": started.user[1]},
        "policy": {"name": request.policy.name, "digest": policy_digest(request.policy), "document": document},
        "claim": document["claim"],
        "requirements": dict(started.requirements),
        "stop_rule": document["stop"],
        "key": started.key,
        "limits": dict(started.limits),
        "require": sorted(request.require),
        "environment": {"kept": sorted(started.kept), "dropped": sorted(started.dropped)},
        "host": dict(started.host),
        "versions": dict(started.versions),
    }


def read_manifest(manifest: Mapping[str, Any], *, place: str) -> Manifest:
    """Read what `describe_run` made.

    Args:
        manifest: as read from JSON.
        place: the file, for the error.

    Raises:
        LogUnreadableError: something is missing, or is not what it should be.
    """
    try:
        return Manifest(
            name=manifest.get("name"),
            command=tuple(_bytes(word) for word in manifest["command"]),
            workspace=_bytes(manifest["workspace"]),
            policy=policy_from_mapping(manifest["policy"]["document"]),
            digest=manifest["policy"].get("digest"),
        )
    except (KeyError, TypeError, ValueError, PolicyError) as err:
        message = f"expected a manifest of the form {SCHEMA}, got: {err}"
        raise LogUnreadableError(message, place=place) from err


def _kept(word: bytes) -> str:
    """Give bytes as text, undecodable ones as lone surrogates, which JSON writes as ASCII escapes and gives back."""
    return word.decode(errors="surrogateescape")


def _bytes(word: str) -> bytes:
    return word.encode(errors="surrogateescape")
