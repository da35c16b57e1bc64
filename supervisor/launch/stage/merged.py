"""What a trial saw, put together from the lower tree and the upper one, as the kernel's overlay does.

The overlay is not mounted here: it may be gone (the trial has ended) or belong to a namespace that we stay out of.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from supervisor.launch.disk.tree import Tree, join, split
from supervisor.launch.disk.whiteouts import Entry, HandleKey, merged_lower, read_entry, read_index
from supervisor.values import dataclass, field


@dataclass(frozen=True, slots=True)
class Node:
    """One visible path.

    Attributes:
        path: where the trial saw it.
        entry: its entry of the upper tree, None when only the lower tree has it.
        lower: of a directory, the lower directory that is merged into it; of anything else that only the lower tree
            has, its lower path.
        copy: path below the work directory of the copy that it shows, for a further name of a copied lower inode.
    """

    path: bytes
    entry: Entry | None
    lower: bytes | None
    directory: bool
    copy: bytes | None = None

    @property
    def found(self) -> os.stat_result | None:
        """What lstat said of it where it is kept, if that is the upper tree."""
        return self.entry.found if self.entry is not None and self.copy is None else None

    @property
    def moved(self) -> bool:
        """Whether it was moved here from another place in the lower tree."""
        return self.lower is not None and self.lower != self.path


@dataclass(slots=True)
class Merged:
    """The merged view of one overlay. `close` it, or use it in a ``with``."""

    lower: Tree
    upper: Tree
    work: Tree | None
    _stack: ExitStack
    _index: dict[HandleKey, bytes] = field(default_factory=dict)
    _last: tuple[bytes, Node | None] | None = None
    _above: tuple[bytes, bool] | None = None

    @classmethod
    def open(cls, lower: Path | bytes, upper: Path, work: Path | None = None) -> Merged:
        """Open the trees of an overlay; without a work directory, no lower inode with several names was copied."""
        with ExitStack() as stack:
            trees = stack.enter_context(Tree(lower, may_be_gone=True)), stack.enter_context(Tree(upper))
            helper = stack.enter_context(Tree(work)) if work is not None and work.is_dir() else None
            index = read_index(helper) if helper is not None else {}
            return cls(*trees, helper, stack.pop_all(), index)

    def __enter__(self) -> Self:
        """Give the view itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the trees."""
        self.close()

    def close(self) -> None:
        """Close the trees."""
        self._stack.close()

    @property
    def root(self) -> Node:
        """The root, which both trees have."""
        entry = read_entry(self.upper, b"")
        return Node(b"", entry, b"", directory=True)

    def find(self, path: bytes) -> Node | None:
        """Find what the trial saw at a path; None when there was nothing.

        A symlink on the way leads nowhere: events carry paths that have none. The directory that was found last is
        remembered, since most questions come in order of paths: so nobody may change what is looked at meanwhile.
        """
        if not path:
            return self.root
        above, name = split(path)
        if self._last is None or self._last[0] != above:
            self._last = above, self.find(above)
        node = self._last[1]
        return self.child(node, name) if node is not None and node.directory else None

    def had_place_for(self, path: bytes) -> bool:
        """Tell whether the lower tree has the directory that a path lies in: without it, nothing was there."""
        above, _ = split(path)
        if self._above is None or self._above[0] != above:
            self._above = above, self.lower.is_directory(above)
        return self._above[1]

    def child(self, above: Node, name: bytes) -> Node | None:
        """Find one entry of a visible directory."""
        path = join(above.path, name)
        entry = read_entry(self.upper, path) if above.entry is not None else None
        if entry is None:
            return None if above.lower is None else self._lower_only(path, join(above.lower, name))
        if entry.whiteout:
            return None
        if not entry.is_directory:
            return Node(path, entry, None, directory=False)
        lower = merged_lower(entry, name, above.lower)
        found = lower is not None and self.lower.is_directory(lower)
        return Node(path, entry, lower if found else None, directory=True)

    def names(self, above: Node) -> list[bytes]:
        """List the names of a visible directory, whiteouts included."""
        upper = self.upper.names(above.path) if above.entry is not None else []
        lower = self.lower.names(above.lower) if above.lower is not None else []
        return sorted({*upper, *lower}) if upper else lower

    def children(self, above: Node) -> Iterator[Node]:
        """Give what is visible in a directory, in order of names."""
        for name in self.names(above):
            node = self.child(above, name)
            if node is not None:
                yield node

    def below(self, top: Node) -> Iterator[Node]:
        """Walk everything that is visible below a directory, each directory before what it holds."""
        waiting = [top]
        while waiting:
            for node in self.children(waiting.pop()):
                if node.directory:
                    waiting.append(node)
                yield node

    def upper_directories(self) -> Iterator[tuple[Node, Node]]:
        """Give the directories of the upper tree, outer before inner, each with the directory that it is in."""
        waiting = [self.root]
        while waiting:
            above = waiting.pop()
            for name in self.upper.directory_names(above.path):
                node = self.child(above, name)
                if node is not None and node.directory:
                    waiting.append(node)
                    yield node, above

    @property
    def copied_inodes(self) -> bool:
        """Whether a lower inode with several names was copied, so that names outside the upper tree show the copy."""
        return bool(self._index)

    def place(self, node: Node) -> tuple[Tree, bytes]:
        """Tell where the visible content and attributes of a node are kept."""
        if node.copy is not None and self.work is not None:
            return self.work, node.copy
        if node.entry is not None:
            return self.upper, node.path
        return self.lower, node.lower or b""

    def _lower_only(self, path: bytes, lower: bytes) -> Node | None:
        found = self.lower.lstat(lower)
        if found is None:
            return None
        directory = stat.S_ISDIR(found.st_mode) and found.st_dev == self.lower.device
        copy = self.copy_of(lower, found) if self._index and not directory else None
        return Node(path, None, lower, directory=directory, copy=copy)

    def copy_of(self, lower: bytes, found: os.stat_result) -> bytes | None:
        """Give the copy of a lower inode with several names, as a path below the work directory; None without one."""
        if found.st_nlink < 2:  # noqa: PLR2004 - a single name has no other that could have been written through
            return None
        from supervisor.launch.libc import name_to_handle_at  # noqa: PLC0415 - loads ctypes, hardly ever needed

        above, name = split(lower)
        with self.lower.directory(above) as directory:
            key = name_to_handle_at(directory, name)
        return self._index.get(key) if key is not None else None


def place_over(node: Node, above: Node) -> bytes | None:
    """Tell which lower path a directory of the upper tree is over, whether or not something is there."""
    return None if above.lower is None else join(above.lower, split(node.path)[1])
