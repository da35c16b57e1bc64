"""Where a path lies and what the policy says about it. In: a policy and the workspace; out: one `Place` a path.

The rule it keeps: private places (``/tmp``, ``/dev``, ``/run``), kernel file systems and things without a name never
violate, and no final state is expected of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.types import Claim, Policy
from supervisor.evidence.globs import match_globs, match_parents

_PRIVATE = (b"/tmp", b"/dev", b"/run", b"/var/run")
_KERNEL = (b"/proc", b"/sys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is known of a path before anything happened to it.

    Attributes:
        shown: relative to the workspace inside it, else absolute.
        parent_allowed: it can be a directory above an allowed path: making it is allowed, changing it is not.
        observable: a final state can be expected of it on disk.
    """

    shown: bytes
    in_workspace: bool
    in_scope: bool
    allowed: bool
    parent_allowed: bool
    private: bool
    observable: bool


class Places:
    """Answers where a path lies, for one policy and one workspace."""

    def __init__(self, policy: Policy, workspace: bytes) -> None:
        """Compile the globs once."""
        self._workspace = workspace.rstrip(b"/")
        write = policy.files.write
        globs = ("**",) if write is None else write
        self.allows = match_globs(globs, self._workspace)
        self._parent = match_parents(globs, self._workspace)
        self._footprint = match_globs(footprint(policy.claim), self._workspace)

    def locate(self, path: bytes) -> Place:
        """Say where an absolute path lies."""
        inside = path == self._workspace or path.startswith(self._workspace + b"/")
        named = path.startswith(b"/") and not path.startswith(b"/memfd:")
        private = not inside and (not named or _below(path, _PRIVATE))
        return Place(
            shown=(path[len(self._workspace) + 1 :] or b".") if inside else path,
            in_workspace=inside,
            in_scope=self._footprint(path),
            allowed=private or self.allows(path),
            parent_allowed=self._parent(path),
            private=private,
            observable=not private and (inside or not _below(path, _KERNEL)),
        )


def footprint(claim: Claim) -> tuple[str, ...]:
    """Give the globs of the claim; an outcome told in words is about the whole workspace, as far as we can know."""
    told_in_words = not claim.scope and claim.outcome is not None and any(char.isspace() for char in claim.outcome)
    return ("**",) if told_in_words else claim.footprint


def _below(path: bytes, roots: tuple[bytes, ...]) -> bool:
    return any(path == root or path.startswith(root + b"/") for root in roots)
