"""A snapshot: what a trial had changed in a footprint at one moment, taken while it was frozen.

A snapshot is again an upper tree: an overlay with ``<run>/snapshot/upper`` over the workspace shows the footprint as
the trial saw it. So its cost depends on what was touched in the footprint, never on how large the workspace is: what
only the lower tree has is not copied.

The digest covers, in a fixed order, the name, kind, owner, mode, attributes and content digest of every entry that is
kept, and what was removed, hidden and moved. Times are no part of it. It is read from the copy, so that whoever looks
at what was kept can tell whether it is what was captured: `digest_kept`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from supervisor.launch.disk.copying import copy_attributes, copy_entry
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.removing import remove_tree
from supervisor.launch.disk.tree import Tree, by_descriptor, join, split
from supervisor.launch.disk.whiteouts import Entry, read_entry
from supervisor.launch.stage.merged import Merged
from supervisor.values import dataclass, replace

_KEPT = ("trusted.overlay.opaque", "trusted.overlay.redirect")

GONE = "gone"
"""In a capture of what was written in place: the paths that were gone, each ended by a null byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was captured. ``digest`` is ``sha256:…``; ``files`` and ``size_bytes`` count what was copied.

    ``form`` 2 says that the digest is of what is kept, so that it can be computed again.
    """

    digest: str
    files: int
    size_bytes: int
    upper: Path
    form: int = 2


@dataclass(frozen=True, slots=True)
class _Touched:
    """One entry to be captured: where it is seen, and where it is kept."""

    path: bytes
    entry: Entry
    tree: Tree
    kept_at: bytes


def describe(view: Merged, observer: Observer, globs: Footprint | None = None) -> Iterator[bytes]:
    """Give one line for each touched entry, in a fixed order: what digests of staged writes are made of."""
    for touched in _entries(view, globs):
        yield _line(touched, observer)


class Footprint(Protocol):
    """Which paths are captured: what `policies.globs.Globs` answers."""

    def match(self, path: bytes, /) -> bool:
        """Tell whether a path belongs to it."""

    def may_match_below(self, directory: bytes, /) -> bool:
        """Tell whether something below this directory could belong to it."""


@dataclass(frozen=True, slots=True)
class Below:
    """A footprint of the workspace, asked with paths that begin at a mount in it."""

    whole: Footprint
    prefix: bytes

    def match(self, path: bytes) -> bool:
        """Tell whether a path belongs to it."""
        return self.whole.match(join(self.prefix, path))

    def may_match_below(self, directory: bytes) -> bool:
        """Tell whether something below this directory could belong to it."""
        return self.whole.may_match_below(join(self.prefix, directory))


def together(own: Snapshot, nested: Mapping[bytes, Snapshot]) -> Snapshot:
    """Count snapshots of mounts in the workspace, by their place, with the one of the workspace."""
    return replace(
        own,
        digest=_joined(own.digest, {prefix: snapshot.digest for prefix, snapshot in nested.items()}),
        files=own.files + sum(snapshot.files for snapshot in nested.values()),
        size_bytes=own.size_bytes + sum(snapshot.size_bytes for snapshot in nested.values()),
    )


def capture(view: Merged, footprint: Footprint, observer: Observer, target: Path) -> Snapshot:
    """Copy the touched entries of a footprint.

    Args:
        view: the overlay; nobody writes to it.
        footprint: which.
        observer: digests content.
        target: the directory to make; an older snapshot in it is removed.
    """
    remove_tree(target)
    upper = target / "upper"
    upper.mkdir(mode=0o700, parents=True)
    with Tree(upper) as tree:
        writer = _Writer(view, tree)
        for touched in _entries(view, footprint):
            writer.copy(touched)
        writer.finish()
        digest = _digest(tree, observer)
    return Snapshot(digest=digest, files=writer.files, size_bytes=writer.size_bytes, upper=upper)


def digest_kept(target: Path, nested: Mapping[bytes, Path]) -> str:
    """Digest what was captured, as it is now.

    Args:
        target: the directory that was made.
        nested: mounts in the workspace of which something was captured, by their place in it, each with its directory.
    """
    observer = Observer()
    with Tree(target / "upper") as tree:
        own = _digest(tree, observer)
    gone = target / GONE
    if gone.exists():
        own = with_gone(own, gone.read_bytes())
    found = {}
    for prefix, place in sorted(nested.items()):
        with Tree(place / "upper") as tree:
            found[prefix] = _digest(tree, observer)
    return _joined(own, found)


def with_gone(own: str, gone: bytes) -> str:
    """Give the digest of a capture of which some paths were gone, as they stand in its file `GONE`."""
    digest = hashlib.sha256(b"%s\0%s" % (own.encode(), gone))
    return f"sha256:{digest.hexdigest()}"


def _digest(tree: Tree, observer: Observer) -> str:
    digest = hashlib.sha256()
    for touched in _walk(tree, None):
        digest.update(_line(touched, observer))
    return f"sha256:{digest.hexdigest()}"


def _joined(own: str, nested: Mapping[bytes, str]) -> str:
    if not nested:
        return own
    digest = hashlib.sha256(own.encode())
    for prefix, one in sorted(nested.items()):
        digest.update(b"%s\0%s" % (prefix, one.encode()))
    return f"sha256:{digest.hexdigest()}"


def _entries(view: Merged, globs: Footprint | None) -> Iterator[_Touched]:
    """Walk the upper tree; then give further names of copied inodes."""
    yield from _walk(view.upper, globs)
    if view.copied_inodes:
        yield from _other_names(view, globs)


def _walk(tree: Tree, globs: Footprint | None) -> Iterator[_Touched]:
    """Walk a tree, each directory before what it holds."""
    waiting = [b""]
    while waiting:
        above = waiting.pop()
        for name in tree.names(above):
            path = join(above, name)
            entry = read_entry(tree, path)
            leads = globs is None or globs.may_match_below(path)
            if entry is None or not (globs is None or globs.match(path) or (leads and _hides_tree(entry))):
                continue
            yield _Touched(path, entry, tree, path)
            if entry.is_directory and leads:
                waiting.append(path)


def _hides_tree(entry: Entry) -> bool:
    """Whether an entry decides about what is visible below its path."""
    return entry.is_directory or entry.whiteout


def _other_names(view: Merged, globs: Footprint | None) -> Iterator[_Touched]:
    for node in view.below(view.root):
        if node.copy is None or view.work is None or not (globs is None or globs.match(node.path)):
            continue
        entry = read_entry(view.work, node.copy)
        if entry is not None:
            yield _Touched(node.path, entry, view.work, node.copy)


def _line(touched: _Touched, observer: Observer) -> bytes:
    entry = touched.entry
    state = None if entry.whiteout else observer.state(touched.tree, touched.kept_at, entry.found)
    told = {
        "path": os.fsdecode(touched.path),
        "opaque": entry.opaque,
        "moved": None if entry.redirect is None else os.fsdecode(entry.redirect),
        "state": None if state is None else state.described(),
    }
    return json.dumps(told, sort_keys=True, default=bytes.hex).encode() + b"\n"


class _Writer:
    """Makes the snapshot's upper tree."""

    def __init__(self, view: Merged, tree: Tree) -> None:
        self.view = view
        self.tree = tree
        self.files = 0
        self.size_bytes = 0
        self._directories: list[tuple[Tree, bytes, bytes]] = [(view.upper, b"", b"")]
        self._several: dict[tuple[int, int], bytes] = {}

    def copy(self, touched: _Touched) -> None:
        """Copy one entry, in the format of an upper tree."""
        entry, path = touched.entry, touched.path
        self._make_above(split(path)[0])
        if entry.is_directory:
            self._make_directory(touched.tree, touched.kept_at, path)
        elif entry.whiteout:
            with self.tree.parent(path) as (directory, name):
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=directory)
        else:
            self._copy_content(touched)

    def finish(self) -> None:
        """Set attributes and times of directories, inner before outer: making what is in them has changed those."""
        for source_tree, source, path in reversed(self._directories):
            with source_tree.directory(source) as original, self.tree.directory(path) as made:
                copy_attributes(by_descriptor(original, b"."), os.fstat(original), by_descriptor(made, b"."))
                for name in _KEPT:
                    value = source_tree.xattr(source, name) if source_tree is self.view.upper else None
                    if value is not None:
                        os.setxattr(made, name, value)

    def _copy_content(self, touched: _Touched) -> None:
        found = touched.entry.found
        first = self._several.setdefault((found.st_dev, found.st_ino), touched.path)
        with self.tree.parent(touched.path) as (target, new_name):
            if first != touched.path:
                with self.tree.parent(first) as (beside, name):
                    os.link(name, new_name, src_dir_fd=beside, dst_dir_fd=target, follow_symlinks=False)
                return
            with touched.tree.parent(touched.kept_at) as (source, name):
                copy_entry(source, name, target, new_name)
        self.files += 1
        self.size_bytes += found.st_size

    def _make_above(self, path: bytes) -> None:
        """Make the directories above a further name, which the upper tree may not have."""
        missing = []
        while path and self.tree.lstat(path) is None:
            missing.append(path)
            path = split(path)[0]
        for directory in reversed(missing):
            node = self.view.find(directory)
            if node is not None:
                self._make_directory(*self.view.place(node), directory)

    def _make_directory(self, source_tree: Tree, source: bytes, path: bytes) -> None:
        with self.tree.parent(path) as (directory, name):
            os.mkdir(name, 0o700, dir_fd=directory)
        self._directories.append((source_tree, source, path))
