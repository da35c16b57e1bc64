"""Where a path lies and what the policy says about it. In: a policy and the workspace; out: one `Place` a path.

The rule it keeps: private places (``/tmp``, ``/dev``, ``/run``), kernel file systems and things without a name never
violate, and no final state is expected of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.globs import compile_globs
from policies.types import Claim, Policy

_PRIVATE = (b"/tmp", b"/dev", b"/run", b"/var/run")
UNREACHABLE = b"\0"
"""Put before a path that is not below the trial's root, so that it is never taken for one that is spelled the same."""
_KERNEL = (b"/proc", b"/sys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is known of a path before anything happened to it.

    Attributes:
        shown: relative to the workspace inside it, else absolute.
        parent_allowed: it can be a directory above an allowed path: making it is allowed, changing it is not.
        observable: a final state can be expected of it on disk.
        reachable: False for a file that is not below the trial's root, whatever its spelling.
    """

    shown: bytes
    in_workspace: bool
    in_scope: bool
    allowed: bool
    parent_allowed: bool
    private: bool
    observable: bool
    reachable: bool = True


class Places:
    """Answers where a path lies, for one policy and one workspace."""

    def __init__(self, policy: Policy, workspace: bytes) -> None:
        """Compile the globs once."""
        self._workspace = workspace.rstrip(b"/")
        write = policy.files.write
        self._write = compile_globs(("**",) if write is None else write, workspace=self._workspace)
        self._footprint = compile_globs(footprint(policy.claim), workspace=self._workspace)

    def locate(self, path: bytes) -> Place:
        """Say where an absolute path lies."""
        if path.startswith(UNREACHABLE):
            return _outside(path[len(UNREACHABLE) :])
        inside = path == self._workspace or path.startswith(self._workspace + b"/")
        named = path.startswith(b"/") and not path.startswith(b"/memfd:")
        private = not inside and (not named or _below(path, _PRIVATE))
        shown = (path[len(self._workspace) + 1 :] or b".") if inside else path
        allowed = private or self._write.match(shown)
        return Place(
            shown=shown,
            in_workspace=inside,
            in_scope=self._footprint.match(shown),
            allowed=allowed,
            parent_allowed=not allowed and self._write.may_match_below(shown),
            private=private,
            observable=not private and (inside or not _below(path, _KERNEL)),
        )


def _outside(path: bytes) -> Place:
    """Place a file that the trial was given a descriptor of: it lies nowhere in its file system."""
    return Place(
        shown=path,
        in_workspace=False,
        in_scope=False,
        allowed=True,
        parent_allowed=False,
        private=False,
        observable=False,
        reachable=False,
    )


def footprint(claim: Claim) -> tuple[str, ...]:
    """Give the globs of the claim; an outcome told in words is about the whole workspace, as far as we can know."""
    told_in_words = not claim.scope and claim.outcome is not None and any(char.isspace() for char in claim.outcome)
    return ("**",) if told_in_words else claim.footprint


def _below(path: bytes, roots: tuple[bytes, ...]) -> bool:
    return any(path == root or path.startswith(root + b"/") for root in roots)
