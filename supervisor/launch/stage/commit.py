"""Doing what a commit's plan says, in phases that can each be done again (laws: `supervisor.launch.stage.journal`).

Everything on the host is reached through `Tree`: no symlink and no mount leads out of the workspace. New content
becomes visible by rename, so that a reader of the host sees the old entry or the new one; what the host does at that
very instant is told apart (`supervisor.launch.stage.renames`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar, assert_never

from supervisor.errors import MachineError
from supervisor.launch.disk.copying import copy_attributes, copy_entry
from supervisor.launch.disk.tree import Tree, by_descriptor, join, list_directory
from supervisor.launch.stage.giving import overlay_marks
from supervisor.launch.stage.journal import (
    Copy,
    Delete,
    Give,
    Identity,
    Journal,
    Left,
    Link,
    MakeDirectory,
    Phase,
    Place,
    Plan,
    SetAttributes,
    Source,
    Strip,
    Take,
)
from supervisor.launch.stage.plan import CHANGED, REFUSED
from supervisor.launch.stage.renames import At, remove_file, rename_new, replace_file
from supervisor.values import dataclass, field, replace

_IN_THE_WAY = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ELOOP})
_REFUSED = frozenset({errno.EPERM, errno.EACCES, errno.EBUSY, errno.EROFS, errno.EXDEV})
"""The host keeps an entry as it is: immutable, a mount point, read-only. Trying again would not help."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_WORKING = b"w"
_THE_HOSTS = ("k", "d")
"""How names of the quarantine begin under which something of the workspace lies: directories that were taken, and what
is looked at before it is removed."""

_T = TypeVar("_T")


def no_fault() -> None:
    """Stand in for the hook with which a test interrupts a commit between any two steps."""


def take_turn(host: Tree) -> None:
    """Wait until no other commit to this workspace is under way, and keep others waiting until the tree is closed.

    A commit plans within its turn: what the one before it did to the host has to be seen.
    """
    with host.directory(b"") as root:  # a descriptor of the same open file as the tree's own, which holds the lock
        fcntl.flock(root, fcntl.LOCK_EX)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What a commit did.

    Attributes:
        entries: how many entries were made, replaced, moved, removed or given other attributes, parents among them.
        changes: how many paths show something else, as people count.
        left: what was not applied, and why.
        resumed: an interrupted commit was finished (or was finished before: nothing was done).
    """

    entries: int
    changes: int
    left: tuple[Left, ...]
    resumed: bool

    def joined_by(self, other: CommitResult, prefix: bytes) -> CommitResult:
        """Add what the commit to another mount did, which lies below the workspace at ``prefix``."""
        moved = (replace(left, path=prefix if left.path == b"." else join(prefix, left.path)) for left in other.left)
        return CommitResult(
            entries=self.entries + other.entries,
            changes=self.changes + other.changes,
            left=(*self.left, *moved),
            resumed=self.resumed or other.resumed,
        )

    @property
    def against(self) -> tuple[Left, ...]:
        """What was not applied although it is allowed: the host stood against it."""
        return tuple(entry for entry in self.left if entry.why != REFUSED)

    @property
    def conflicts(self) -> tuple[Left, ...]:
        """What was not applied because the host had changed it."""
        return tuple(entry for entry in self.left if entry.why == CHANGED)


@dataclass(slots=True)
class Executor:
    """Carries out one plan.

    Attributes:
        trees: where content comes from.
        host: the workspace.
        journal: where progress is recorded.
        fault: called before every step, and within those that take several calls; a test dies in it.
        where: the path of the workspace, for people.
    """

    plan: Plan
    trees: dict[Source, Tree]
    host: Tree
    journal: Journal
    fault: Callable[[], None] = no_fault
    where: bytes = b"workspace"
    _slots: int | None = None
    _coming: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Do every phase that is not done yet.

        Raises:
            MachineError: new content could not be copied (then the workspace is as it was), the workspace is another
                directory than the one that was planned for, or the host refused a step for a reason of its own (then
                the commit can be resumed).
        """
        with self.host.directory(b"") as root:
            found = os.fstat(root)
            if (found.st_dev, found.st_ino) != self.plan.workspace:
                message = "workspace is not the directory that the trial began with"
                raise MachineError(message)
            phases = list(Phase)
            try:
                for phase in phases[phases.index(self.journal.phase()) : -1]:
                    self._do(phase)
                    self.fault()
                    self._advance(phases[phases.index(phase) + 1])
            finally:
                self._close_quarantine()

    def _advance(self, phase: Phase) -> None:
        if self.journal.durable:
            from supervisor.launch.libc import syncfs  # noqa: PLC0415 - loads ctypes

            with self.host.directory(b"") as root:
                syncfs(root)
        self.journal.advance(phase)

    def _do(self, phase: Phase) -> None:
        match phase:
            case Phase.PREPARE:
                self._prepare()
            case Phase.TAKE:
                self._each(phase, self.plan.take, self._take)
            case Phase.DELETE:
                self._each(phase, tuple(enumerate(self.plan.delete)), self._delete)
            case Phase.PLACE:
                self._coming = self.journal.coming()
                self._each(phase, self.plan.place, self._place)
            case Phase.ATTRIBUTES:
                self._set_attributes()
            case Phase.DONE:
                pass
            case _:
                assert_never(phase)

    def _each(self, phase: Phase, steps: Sequence[_T], do: Callable[[_T], Left | None]) -> None:
        left = []
        for step in steps:
            self.fault()
            if (entry := do(step)) is not None:
                left.append(entry)
        self.journal.leave(tuple(left), phase)

    # -- prepare ---------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Copy all new content into the quarantine; whatever goes wrong, the workspace has not been touched."""
        try:
            with self.host.directory(b"") as root, suppress(FileExistsError):
                os.mkdir(self.plan.quarantine, 0o700, dir_fd=root)
            with self._quarantine() as slots:
                for step in self.plan.prepare:
                    self.fault()
                    if isinstance(step, Copy):
                        self._copy(step, slots)
                    else:
                        _link(step, slots)
                self.journal.note_coming(dict(self._find_coming(slots)))
        except OSError as err:
            with suppress(OSError):
                self._remove_quarantine()
            message = (
                f"staged writes cannot be copied, the workspace is as it was: {(err.strerror or str(err)).lower()}"
            )
            hint = "make room and commit again" if err.errno in _NO_ROOM else None
            raise MachineError(message, place=os.fsdecode(self.where), hint=hint) from err

    def _copy(self, step: Copy, slots: int) -> None:
        if At(slots, step.slot).lstat() is not None:
            return
        _discard(slots, _WORKING)
        path = os.fsencode(step.path)
        with self.trees[step.source].parent(path) as (directory, name):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                os.mkdir(_WORKING, 0o700, dir_fd=slots)
                copy_attributes(by_descriptor(directory, name), found, by_descriptor(slots, _WORKING))
            else:
                copy_entry(directory, name, slots, _WORKING)
        self.fault()
        os.rename(_WORKING, step.slot, src_dir_fd=slots, dst_dir_fd=slots)

    def _find_coming(self, slots: int) -> Iterator[tuple[str, int]]:
        """Give the inode of everything that is going to be exchanged for something."""
        for step in self.plan.place:
            if isinstance(step, MakeDirectory) or step.over is None:
                continue
            if isinstance(step, Place):
                found = At(slots, step.slot).lstat()
            else:
                found = self.trees[Source.UPPER].lstat(os.fsencode(step.path))
            if found is not None:
                yield step.path, found.st_ino

    # -- take and delete -------------------------------------------------------------------------------------------

    def _take(self, step: Take) -> Left | None:
        path = os.fsencode(step.path)
        with self._quarantine() as directory:
            slot = At(directory, step.slot)
            try:
                if slot.lstat() is None:
                    found = self.host.lstat(path)
                    if found is None or found.st_ino != step.inode:
                        return Left(path=path, why=CHANGED)
                    self.fault()
                    with self.host.parent(path) as above:
                        rename_new(At(*above), slot)
                    self.fault()
                taken = slot.lstat()
                if taken is not None and taken.st_ino != step.inode:
                    with self.host.parent(path) as above:
                        rename_new(slot, At(*above))
                    return Left(path=path, why=CHANGED)
            except OSError as err:
                return _left(path, err)
        self.host.forget()
        return None

    def _delete(self, numbered: tuple[int, Delete]) -> Left | None:
        number, step = numbered
        path, shown = os.fsencode(step.path), os.fsencode(step.shown or step.path)
        if step.slot is not None:
            path = join(os.fsencode(f"{self.plan.quarantine}/{step.slot}"), path)
        try:
            if step.directory:
                return self._remove_directory(path, shown, step.identity)
            with self.host.parent(path) as place, self._quarantine() as slots:
                gone = remove_file(At(*place), At(slots, f"d{number}"), step.identity, self.fault)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as err:
            return _left(shown, err)
        return None if gone else Left(path=shown, why=CHANGED)

    def _remove_directory(self, path: bytes, shown: bytes, identity: Identity) -> Left | None:
        """Remove an empty directory: rmdir(2) refuses everything else."""
        found = self.host.lstat(path)
        if found is None:
            return None
        if found.st_ino != identity.inode:
            return Left(path=shown, why=CHANGED)
        with self.host.parent(path) as (directory, name):
            os.rmdir(name, dir_fd=directory)
        self.host.forget()
        return None

    # -- place -----------------------------------------------------------------------------------------------------

    def _place(self, step: MakeDirectory | Place | Give) -> Left | None:
        path = os.fsencode(step.path)
        try:
            with self.host.parent(path) as (directory, name):
                match step:
                    case Place():
                        return self._put(step, At(directory, name))
                    case Give():
                        return self._give(step, At(directory, name))
                    case MakeDirectory():
                        return _make_directory(path, directory, name)
                    case _:
                        assert_never(step)
        except OSError as err:
            why = _left(path, err).why
            return self._left_in_quarantine(step, why) if isinstance(step, Place) else Left(path=path, why=why)

    def _give(self, step: Give, place: At) -> Left | None:
        """Rename from the upper tree; what finds no place stays there."""
        path, upper = os.fsencode(step.path), self.trees[Source.UPPER]
        coming = upper.lstat(path)
        if coming is None:
            return None  # done before
        if not self._move(At(*upper.peek(path)), place, step):
            return Left(path=path, why=CHANGED)
        if stat.S_ISDIR(coming.st_mode):
            upper.forget()
        return None

    def _put(self, step: Place, place: At) -> Left | None:
        with self._quarantine() as slots:
            source = At(slots, step.slot)
            if source.lstat() is None:
                return None  # done before
            return None if self._move(source, place, step) else self._left_in_quarantine(step, CHANGED)

    def _move(self, source: At, place: At, step: Place | Give) -> bool:
        """Move an entry to its place, unless something is there that was not expected; tells whether it is there."""
        coming = source.lstat()
        if coming is not None and stat.S_ISDIR(coming.st_mode):
            return self._move_directory(source, place)
        if step.over is not None:
            return replace_file(source, place, step.over, self._coming.get(step.path), self.fault)
        self.fault()
        try:
            rename_new(source, place)
        except FileExistsError:
            return False
        return True

    def _move_directory(self, source: At, place: At) -> bool:
        """Move a directory to where nothing is, or an empty directory: rename(2) refuses everything else."""
        there = place.lstat()
        if there is not None and not stat.S_ISDIR(there.st_mode):
            return False
        self.fault()
        os.rename(source.name, place.name, src_dir_fd=source.directory, dst_dir_fd=place.directory)
        self.host.forget()
        return True

    def _left_in_quarantine(self, step: Place, why: str) -> Left:
        """Report what has no place; a directory that was taken goes back to where it was, if that is free."""
        taken = {take.slot: take for take in self.plan.take}
        if step.slot in taken:
            source = os.fsencode(taken[step.slot].path)
            with suppress(OSError), self._quarantine() as slots, self.host.parent(source) as above:
                rename_new(At(slots, step.slot), At(*above))
        return Left(path=os.fsencode(step.path), why=why)

    # -- attributes and the end ------------------------------------------------------------------------------------

    def _set_attributes(self) -> None:
        for mark in self.plan.strip:
            self.fault()
            self._strip(mark)
        inner = [step for step in self.plan.attributes if step.path]
        self._each(Phase.ATTRIBUTES, inner, self._set)
        self.fault()
        self._remove_quarantine()
        for step in self.plan.attributes[len(inner) :]:  # the workspace itself, whose times the quarantine changed
            self.fault()
            self._set(step)

    def _strip(self, step: Strip) -> None:
        path = os.fsencode(step.path)
        tree = self.trees[Source.UPPER] if step.staged else self.host
        found = tree.lstat(path)
        if found is None or found.st_ino != step.inode or (step.staged and not self._has_come(step, path)):
            return  # was left out, and said so; or given with what it is in
        directory, name = tree.peek(path)
        for mark in overlay_marks(tree, path):
            os.removexattr(by_descriptor(directory, name), mark, follow_symlinks=False)

    def _has_come(self, step: Strip, path: bytes) -> bool:
        found = self.host.lstat(path) if self.host.is_directory(path) else None
        return found is not None and step.over in {None, found.st_ino}

    def _set(self, step: SetAttributes) -> Left | None:
        path, source_path = os.fsencode(step.path), os.fsencode(step.source_path)
        tree = self.trees.get(step.source, self.host)
        if step.source is Source.QUARANTINE:
            source_path = join(os.fsencode(self.plan.quarantine), source_path)
        if not self.host.is_directory(path) or not tree.is_directory(source_path):
            return None  # was left out, and said so; or done before, and the quarantine is gone
        with tree.directory(source_path) as source, self.host.directory(path) as target:
            found, own = os.fstat(source), step.times_ns is None
            copy_attributes(by_descriptor(source, b"."), found, by_descriptor(target, b"."), times=own)
            if step.times_ns is not None:
                os.utime(target, ns=step.times_ns)
        return None

    def _remove_quarantine(self) -> None:
        """Remove the quarantine. What is of the workspace, and found no place there, is not removed with it."""
        self.host.forget()
        with suppress(FileNotFoundError), self._quarantine() as slots:
            for name in list_directory(slots):
                if not name.startswith(_THE_HOSTS):
                    _discard(slots, os.fsencode(name))
        self.host.forget()
        self._close_quarantine()
        with suppress(FileNotFoundError), self.host.directory(b"") as root:
            try:
                os.rmdir(self.plan.quarantine, dir_fd=root)
            except OSError as err:
                if err.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise

    @contextmanager
    def _quarantine(self) -> Iterator[int]:
        """Open the quarantine, once: between its places the host's directories stay open in `Tree`."""
        if self._slots is None:
            with self.host.directory(os.fsencode(self.plan.quarantine)) as descriptor:
                self._slots = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
        yield self._slots

    def _close_quarantine(self) -> None:
        if self._slots is not None:
            os.close(self._slots)
            self._slots = None


def _left(path: bytes, err: OSError) -> Left:
    """Report a step that the host stands against; any other error ends the commit, which can be resumed."""
    if err.errno in {errno.ENOTEMPTY, errno.EEXIST}:
        return Left(path=path, why=CHANGED)  # something was put there meanwhile
    if err.errno in _IN_THE_WAY | _REFUSED:
        return Left(path=path, why=(err.strerror or str(err)).lower())
    raise err


def _link(step: Link, slots: int) -> None:
    if At(slots, step.slot).lstat() is None:
        os.link(step.first, step.slot, src_dir_fd=slots, dst_dir_fd=slots, follow_symlinks=False)


def _make_directory(path: bytes, directory: int, name: bytes) -> Left | None:
    try:
        os.mkdir(name, 0o700, dir_fd=directory)
    except FileExistsError:
        found = At(directory, name).lstat()
        if found is None or not stat.S_ISDIR(found.st_mode):
            return Left(path=path, why=CHANGED)
    return None


def _discard(directory: int, name: bytes) -> None:
    """Remove a leftover of our own, if it is there."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        os.rmdir(name, dir_fd=directory)
