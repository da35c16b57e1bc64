"""A workspace that is written in place: what its files were before, what changed, and what it was at one moment.

It answers what `supervisor.launch.stage.stage.Stage` answers for staged writes, from an inventory that was taken
before the trial began (``<run>/before``, laws: `supervisor.launch.disk.inventory`). Writes outside the workspace are
still staged, and looked at through a `Stage`. Whoever else writes the workspace meanwhile is not told apart here: a
change that no event of the trial explains is found by the evidence.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from policies.globs import compile_globs
from supervisor.errors import UsageError
from supervisor.evidence.file_facts import Observed, SharedNames, Sight
from supervisor.launch.disk.copying import copy_attributes, copy_entry
from supervisor.launch.disk.inventory import (
    Bounds,
    Inventory,
    reduce_inventory,
    root_of,
    walk,
)
from supervisor.launch.disk.observe import Observer, problem
from supervisor.launch.disk.recording import take_inventory
from supervisor.launch.disk.removing import remove_tree
from supervisor.launch.disk.sights import recorded
from supervisor.launch.disk.tree import Tree, by_descriptor, is_below, split
from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.linked import find_recorded
from supervisor.launch.stage.stage import Stage, read_regular

if TYPE_CHECKING:
    from supervisor.launch.stage.snapshot import Snapshot


class InPlace:
    """The writes of one run to its workspace, made in place. Use it in a ``with``, or `close` it."""

    def __init__(self, run: RunDir, workspace: Path | bytes) -> None:
        """Name it; nothing is read or made yet.

        Args:
            run: the run.
            workspace: the host directory that the trial works in, absolute and free of symlinks.
        """
        self.run = run
        self.workspace = os.path.realpath(os.fsencode(workspace))
        self._stage = Stage(run, workspace)
        self._observer = Observer()
        self._stack = ExitStack()
        self._trees: dict[bytes, Tree] = {}
        self._inventory: Inventory | None = None
        self._changed: dict[bytes, None] | None = None

    def __enter__(self) -> Self:
        """Give it itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened for reading."""
        self.close()

    def close(self) -> None:
        """Close what was opened for reading, and forget what was read: a later moment may show something else."""
        self._stage.close()
        self._forget()

    def _forget(self) -> None:
        self._trees.clear()
        self._inventory = None
        self._observer = Observer()
        self._stack.close()

    def prepare(self, *, limit_bytes: int | None, nested: Iterable[bytes] = (), hidden: bytes = b"") -> None:
        """Record what is there, before the trial runs.

        Args:
            limit_bytes: how much content is copied; None is everything.
            nested: mount points below the workspace that the trial writes in place too.
            hidden: the directory of our runs, which no trial sees.

        Raises:
            MachineError: there is no room for it.
        """
        roots = (self.workspace, *nested)
        take_inventory(roots, self.run.before, Bounds(copied_bytes=limit_bytes), hidden=hidden)

    @property
    def inventory(self) -> Inventory:
        """What was recorded before the trial.

        Raises:
            OSError: nothing was.
        """
        if self._inventory is None:
            self._inventory = Inventory(self.run.before)
            self._stack.callback(self._inventory.close)
        return self._inventory

    # -- what has changed ------------------------------------------------------------------------------------------

    def observe(self, paths: Iterable[bytes]) -> dict[bytes, Observed]:
        """Read the states of paths before and after the trial, or so far.

        Args:
            paths: absolute, as events have them.

        Returns:
            One entry a path. What is not known is a state with a ``problem``.
        """
        self._forget()
        found = {path: self.state(path) if self.inventory.covers(path) else None for path in paths}
        outside = self._stage.observe([path for path, state in found.items() if state is None])
        return {path: state if state is not None else outside[path] for path, state in found.items()}

    def beginning(self, path: bytes) -> bytes | None:
        """Tell what was at a path before the trial: see `supervisor.launch.stage.stage.Stage.beginning`."""
        if not self.inventory.covers(path):
            return self._stage.beginning(path)
        entry = self.inventory.entries.get(path)
        if entry is None:
            return None
        return b"" if stat.S_ISDIR(entry.mode) else entry.link

    def aliases(self, linked: bool) -> SharedNames:  # noqa: ARG002, FBT001 - as `Stage` answers it
        """Find the names of the workspace that shared a file before the trial."""
        return find_recorded(self.inventory.entries.values())

    def state(self, path: bytes) -> Observed:
        """Give the states of one path of the workspace, as it was and as it is."""
        try:
            before = self.inventory.state(path)
        except OSError as err:
            before = problem(f"what was recorded before the trial cannot be read: {err.strerror}")
        try:
            after = self._observer.state(*self.place(path))
        except OSError as err:
            after = problem(f"cannot be read: {err.strerror}")
        return Observed(before=before, after=after)

    def found(self, paths: Iterable[bytes]) -> Iterator[Sight]:
        """Give what some paths of the workspace were before the trial, as far as it was recorded."""
        sights = (recorded(self.inventory, path) for path in paths if self.inventory.covers(path))
        yield from (sight for sight in sights if sight is not None)

    def read(self, path: bytes, at_most: int) -> bytes | None:
        """Read a regular file as the trial left it; None when it is none, is longer, or cannot be read.

        Args:
            path: absolute, as events have it.
            at_most: bytes.
        """
        try:
            if not self.inventory.covers(path):
                return self._stage.read(path, at_most)
            return read_regular(*self.place(path), at_most)
        except OSError:
            return None

    def changed(self) -> Iterator[bytes]:
        """Give every path of the workspace to which something was done since the inventory, absolute, each once.

        What was not recorded, because a bound was met, is left out: nobody knows what was there.
        """
        self._changed = self._find_changed()
        return iter(self._changed)

    def _find_changed(self) -> dict[bytes, None]:
        inventory = self.inventory
        missing = dict.fromkeys(inventory.entries)
        found: dict[bytes, None] = {}
        for now in walk(inventory.roots, None, hidden=os.fsencode(self.run.path.parent.parent)):
            missing.pop(now.path, None)
            was = inventory.entries.get(now.path)
            if was.differs(now) if was is not None else inventory.was_listed(now.path):
                found[now.path] = None
        return found | missing

    def place(self, path: bytes) -> tuple[Tree, bytes]:
        """Tell where a path of the workspace is: a tree, and the path in it."""
        root = root_of(path, self.inventory.roots)
        if root not in self._trees:
            self._trees[root] = self._stack.enter_context(Tree(root, may_be_gone=True))
        return self._trees[root], path[len(root.rstrip(b"/")) + 1 :]

    def snapshot(self, globs: Iterable[str], target: Path | None = None) -> Snapshot:
        """Capture what was changed in a footprint, while the trial is frozen.

        Args:
            globs: which paths, see `policies.globs`.
            target: the directory to make, the run's ``snapshot`` when not given.
        """
        self._forget()
        wanted = compile_globs(globs, workspace=self.workspace)
        top = self.workspace.rstrip(b"/") + b"/"
        paths = sorted(path for path in self._find_changed() if wanted.match(path.removeprefix(top)))
        return _capture(self, paths, target or self.run.snapshot)

    # -- afterwards ------------------------------------------------------------------------------------------------

    def reduce(self) -> None:
        """Forget what was before of everything that did not change, once everything is concluded."""
        changed = self._find_changed() if self._changed is None else self._changed
        self._forget()
        reduce_inventory(self.run.before, changed)

    def discard(self) -> None:
        """Forget what was before, and what was written outside the workspace."""
        self.close()
        self._stage.discard()
        remove_tree(self.run.before)

    def compared(self) -> tuple[bytes, ...]:
        """Give the paths that were found changed when the run ended, sorted.

        Raises:
            UsageError: what was before is not kept.
        """
        if not (self.run.before / "index").exists():
            raise UsageError("the run wrote in place, and what was before is not kept", place=self.run.id)
        changed = self.inventory.changed
        return tuple(sorted(self._find_changed() if changed is None else changed))


def _capture(writes: InPlace, paths: Iterable[bytes], target: Path) -> Snapshot:
    """Copy what is at some paths now, at the same places below ``target/upper``; the digest also says what is gone."""
    from supervisor.launch.stage.snapshot import GONE, Snapshot, digest_kept  # noqa: PLC0415 - few trials need it

    remove_tree(target)
    upper = target / "upper"
    upper.mkdir(mode=0o700, parents=True)
    files, size_bytes, gone = 0, 0, []
    with Tree(upper) as kept:
        for path in paths:
            inner = path.lstrip(b"/") if not is_below(path, writes.workspace) else _inside(path, writes.workspace)
            tree, place = writes.place(path)
            found = tree.lstat(place)
            if found is None:
                gone.append(inner)
            elif inner and _copy(tree, place, kept, inner, directory=tree.is_directory(place)):
                files, size_bytes = files + 1, size_bytes + found.st_size
    if gone:
        (target / GONE).write_bytes(b"".join(path + b"\0" for path in gone))
    return Snapshot(digest=digest_kept(target, {}), files=files, size_bytes=size_bytes, upper=upper)


def _inside(path: bytes, workspace: bytes) -> bytes:
    return path[len(workspace.rstrip(b"/")) + 1 :]


def _copy(tree: Tree, place: bytes, kept: Tree, inner: bytes, *, directory: bool) -> bool:
    """Copy one entry; tells whether it is a file that was copied."""
    _make_above(kept, split(inner)[0])
    with kept.parent(inner) as (target, name):
        if directory:
            if kept.lstat(inner) is None:
                os.mkdir(name, 0o700, dir_fd=target)
            with tree.directory(place) as source:
                copy_attributes(by_descriptor(source, b"."), os.fstat(source), by_descriptor(target, name))
            return False
        with tree.parent(place) as (source, old_name):
            copy_entry(source, old_name, target, name)
    return True


def _make_above(kept: Tree, path: bytes) -> None:
    missing = []
    while path and kept.lstat(path) is None:
        missing.append(path)
        path = split(path)[0]
    for inner in reversed(missing):
        with kept.parent(inner) as (directory, name):
            os.mkdir(name, 0o700, dir_fd=directory)
