"""Where a path lies and what the policy says about it. In: a policy and the workspace; out: one `Place` a path.

The rule it keeps: private places (``/tmp``, ``/dev``, ``/run``), kernel file systems and things without a name never
violate, and no final state is expected of them.
"""

from __future__ import annotations

import posixpath

import msgspec

from policies.globs import compile_globs
from policies.types import Claim, Policy
from supervisor.evidence.file_facts import EVERYTHING, FileHistory

_PRIVATE = (b"/tmp", b"/dev", b"/run", b"/var/run")
UNREACHABLE = b"\0"
"""Put before a path that is not below the trial's root, so that it is never taken for one that is spelled the same."""
_KERNEL = (b"/proc", b"/sys")


class Place(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a path before anything happened to it.

    Attributes:
        shown: relative to the workspace inside it, else absolute.
        shared: in a place that other runs can meet, written at once: a declared one, which it may be.
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
    shared: bool = False


class Places:
    """Answers where a path lies, for one policy and one workspace."""

    def __init__(
        self,
        policy: Policy,
        workspace: bytes,
        *,
        shared: tuple[bytes, ...] = (),
        looked_at: tuple[frozenset[bytes], frozenset[bytes]] = (frozenset(), frozenset()),
    ) -> None:
        """Compile the globs once.

        Args:
            policy: whose globs.
            workspace: absolute, as the trial sees it.
            shared: the shared places by every name.
            looked_at: what a grader opened or looked up in the workspace, and the directories that it listed: the
                footprint of the claim is that beside its globs.
        """
        self._shared = shared
        self._looked_at, self._listed = looked_at
        self._whole = EVERYTHING in self._looked_at
        self._workspace = workspace.rstrip(b"/")
        self._tails = _tails(self._workspace)
        self._restricted = policy.files.confines
        write = policy.files.write
        self._write = compile_globs(("**",) if write is None else write, workspace=self._workspace)
        self._footprint = compile_globs(footprint(policy.claim), workspace=self._workspace)

    def _may_be_outcome(self, given: bytes) -> bool:
        """Tell whether a descriptor that was given may be one of the footprint: its path begins at its own mount."""
        names = (given[len(tail) + 1 :] for tail in self._tails if given.startswith(tail + b"/"))
        return self._footprint.match(given) or any(self._footprint.match(name) for name in names)

    def _in_footprint(self, shown: bytes, *, inside: bool) -> bool:
        if self._footprint.match(shown):
            return True
        if not inside or not (self._looked_at or self._listed):
            return False
        return self._whole or shown in self._looked_at or (shown.rpartition(b"/")[0] or b".") in self._listed

    def outcome(self, claim: Claim) -> bytes | None:
        """Give the absolute path of the outcome that a claim names; None when it names none, or tells it in words."""
        if (
            claim.outcome is None
            or claim.service is not None
            or any(char.isspace() or char in "*?" for char in claim.outcome)
        ):
            return None
        named = claim.outcome.encode(errors="surrogateescape")
        return posixpath.normpath(posixpath.join(self._workspace or b"/", named))

    def restricts(self, history: FileHistory) -> bool:
        """Tell whether the policy says what may be written where a history lies: only there names matter to scope."""
        return self._restricted and not history.private and history.reachable

    def forbids(self, path: bytes) -> bool:
        """Tell whether the policy says that a path may not be written."""
        return self._restricted and not self.locate(path).allowed

    def locate(self, path: bytes) -> Place:
        """Say where an absolute path lies."""
        if path.startswith(UNREACHABLE):
            given = path[len(UNREACHABLE) :]
            return _outside(given, in_scope=self._may_be_outcome(given))
        inside = path == self._workspace or path.startswith(self._workspace + b"/")
        named = path.startswith(b"/") and not path.startswith(b"/memfd:")
        shared = _below(path, self._shared)
        private = not inside and not shared and (not named or _below(path, _PRIVATE))
        shown = (path[len(self._workspace) + 1 :] or b".") if inside else path
        allowed = private or shared or self._write.match(shown)
        return Place(
            shown=shown,
            in_workspace=inside,
            in_scope=self._in_footprint(shown, inside=inside),
            allowed=allowed,
            parent_allowed=not allowed and self._write.may_match_below(shown),
            private=private,
            observable=not private and (inside or not _below(path, _KERNEL)),
            shared=shared,
        )


def _tails(path: bytes) -> tuple[bytes, ...]:
    """Give a directory as it is told from each mount that may lie above it: whole, without its first component, …."""
    parts = path.strip(b"/").split(b"/")
    return tuple(b"/" + b"/".join(parts[first:]) for first in range(len(parts)) if parts[0])


def _outside(path: bytes, *, in_scope: bool) -> Place:
    """Place a file that the trial was given a descriptor of: it lies nowhere in its file system."""
    return Place(
        shown=path,
        in_workspace=False,
        in_scope=in_scope,
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
