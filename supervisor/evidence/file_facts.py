"""What happened to files: changes, states and histories. Values only; `supervisor.evidence.facts` has all the rest.

What a trial may have a hundred thousand of is a `msgspec.Struct` that the collector of cycles never looks at.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec

from supervisor.events import Kind, ProcessKey
from supervisor.values import dataclass

EVERYTHING = b"**"
"""Stands in a list of paths for those that are too many to name."""


class ChangeKind(StrEnum):
    """The words of a file's history."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    LINKED = "linked"
    ATTRIBUTES = "attributes"
    MAPPED = "mapped"


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One change of one path: ``at_ns`` is when it (last) happened; ``error`` is set for a refused attempt."""

    kind: ChangeKind
    process: ProcessKey | None
    event: int
    at_ns: int
    verified: bool
    error: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What one path is at one moment; a path that does not exist is None instead of a state.

    ``digest`` is ``sha256:…`` of the content (of the target for a symlink), None for other kinds or when unreadable
    (``problem`` then says why). ``modified_ns`` is the modification time where it is known: no two states differ by it,
    but it tells of a write whose content was put back.
    """

    kind: Kind
    digest: str | None
    mode: int
    uid: int
    gid: int
    size_bytes: int
    xattrs: tuple[tuple[str, bytes], ...] = ()
    problem: str | None = None
    modified_ns: int | None = None

    def __eq__(self, other: object) -> bool:
        """Compare all but the time."""
        return isinstance(other, FileState) and self._compared() == other._compared()

    def __hash__(self) -> int:
        """Give the same for equal ones."""
        return hash(self._compared())

    def described(self) -> dict[str, object]:
        """Give the fields by name, for a digest: two trials that do the same differ in the time."""
        return {name: getattr(self, name) for name in FileState.__annotations__} | {"modified_ns": None}

    def _compared(self) -> tuple[object, ...]:
        return self.kind, self.digest, self.mode, self.uid, self.gid, self.size_bytes, self.xattrs, self.problem


def state_digest(state: FileState | None) -> str | None:
    """Say what a path was in one short word: kind, content, mode, owner and attributes; a path that was not there too.

    None when the content is not known, so that two unknown states are never taken for the same.
    """
    if state is None:
        return ABSENT
    if state.problem is not None or (state.digest is None and state.kind in {"file", "symlink"}):
        return None
    parts = (state.kind.value, state.digest, state.mode, state.uid, state.gid, sorted(state.xattrs))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


ABSENT = "absent"
"""The `state_digest` of a path where nothing was."""


class Sight(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the file system said of one path of the host at one moment, and what lay there.

    Of a path where nothing was, device and times are those of the nearest directory above, and the inode is 0: that
    directory's times move when a name in it comes or goes.

    Attributes:
        names: how many names a regular file had; 0 for a directory, 1 for anything else.
        state: its `state_digest`; None when nobody digested it.
    """

    path: bytes
    device: int
    inode: int
    names: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    state: str | None = None

    @property
    def is_directory(self) -> bool:
        """Whether a directory lay there."""
        return bool(self.inode) and not self.names

    @property
    def stamp(self) -> tuple[int, int, int, int, int]:
        """What moves whenever anything is done to it: whoever can write it cannot set the change time."""
        return self.device, self.inode, self.size_bytes, self.mtime_ns, self.ctime_ns


class Ground(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a directory or file of the host lies in its file system: two paths with one ground are one place."""

    path: bytes
    device: str
    inner: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The states of one path before the trial and after it, as found on disk by the launch stage."""

    before: FileState | None
    after: FileState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNames:
    """Names of regular files that have several, absolute, as found on disk; each group is one file.

    ``before`` are those of files that were there before the trial and that it changed, ``after`` those at the end.
    ``elsewhere`` has one name of each file that had others before the trial, of which nobody knows where they are.
    """

    before: tuple[tuple[bytes, ...], ...] = ()
    after: tuple[tuple[bytes, ...], ...] = ()
    elsewhere: tuple[bytes, ...] = ()


class FileHistory(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that happened to one path.

    Attributes:
        path: relative to the workspace inside it, absolute as the trial sees it elsewhere.
        net: ``created|modified|deleted|renamed|unchanged``, or None when the final state is not known.
        restored: True when events changed it and the end equals the start, None when that cannot be told.
        in_workspace: inside the workspace.
        in_scope: in the footprint of the claim.
        allowed: the policy lets it be written (or it is private: /tmp, /dev/shm, /run, devices, fds 0-2).
        private: a place of the trial's own that never violates.
        attempts: changes that were tried and failed, each with its errno.
        changes_total: how many changes there were: of a very hot file only the first and the last are kept.
        attempts_total: the same for the attempts.
        written_after: spans (from, to) after the endpoint in which it was, or may have been, changed; CLOCK_BOOTTIME.
        reachable: False when it was only written through a descriptor that the trial was given, never opened.
        kept: events that hold the beginning of what was written, where the policy asks for that.
        shared: in a place that other runs can meet; it was written at once.
        renamed_from, renamed_to: the name that the thing here last came from, and the one it last went to.
    """

    path: bytes
    changes: tuple[Change, ...]
    attempts: tuple[Change, ...]
    writers: tuple[ProcessKey, ...]
    before: FileState | None
    after: FileState | None
    net: str | None
    restored: bool | None
    in_workspace: bool
    in_scope: bool
    allowed: bool
    private: bool
    events: tuple[int, ...]
    changes_total: int = 0
    attempts_total: int = 0
    written_after: tuple[tuple[int, int], ...] = ()
    reachable: bool = True
    shared: bool = False
    renamed_from: bytes | None = None
    renamed_to: bytes | None = None
    kept: tuple[int, ...] = ()
