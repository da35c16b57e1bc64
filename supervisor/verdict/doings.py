"""What processes did and what became of files, as ``completion.json`` has it."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class ExecutionSeen(Struct, frozen=True, kw_only=True):
    """An earlier exec of a process."""

    argv: tuple[str, ...] | UnsetType = UNSET
    argv_b64: tuple[str, ...] | UnsetType = UNSET
    event: int


class ProcessSeen(Struct, frozen=True, kw_only=True):
    """One process of the trial."""

    id: str
    pid: int
    argv: tuple[str, ...] | UnsetType = UNSET
    argv_b64: tuple[str, ...] | UnsetType = UNSET
    argv_truncated: bool = False
    exe: str | UnsetType = UNSET
    exe_b64: str | UnsetType = UNSET
    parent: str | None
    alive_at_endpoint: bool
    outlived: bool
    exit_code: int | None = None
    signal: int | None = None
    execs: tuple[ExecutionSeen, ...] = ()
    events: tuple[int, ...] = ()


class AttemptSeen(Struct, frozen=True, kw_only=True, gc=False):
    """A change that was tried and failed."""

    kind: str
    errno: int
    process: str | None
    event: int


class FileSeen(Struct, frozen=True, kw_only=True, gc=False):
    """Everything that happened to one path; the names that it came from or went to are as ``path`` is told.

    ``mtime_kept`` tells whether the time of its last modification is what it was: ``restored`` does not ask for that.
    It is None where nothing is there before or after, or one of the times is not known.

    ``discarded`` is true where a change was allowed and is gone with the trial, since it lies outside the workspace.

    ``captured`` is the digest of the content that the verdict is about, where that changed after it was captured; None
    where there was none or it is not known.
    """

    path: str | UnsetType = UNSET
    path_b64: str | UnsetType = UNSET
    net: str | None
    restored: bool | None
    history: tuple[str, ...]
    history_total: int
    in_scope: bool
    allowed: bool
    private: bool
    reachable: bool
    writers: tuple[str, ...]
    before: str | None
    after: str | None
    attempts: tuple[AttemptSeen, ...]
    events: tuple[int, ...]
    renamed_from: str | None = None
    renamed_to: str | None = None
    mtime_kept: bool | None = None
    kept: tuple[int, ...] | UnsetType = UNSET
    captured: str | UnsetType | None = UNSET
    discarded: bool | UnsetType = UNSET
