"""Which names share a file, read from the trees of an overlay. Nothing is opened: lstat says it all."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator

from supervisor.evidence.file_facts import SharedNames
from supervisor.launch.disk.inventory import Recorded
from supervisor.launch.disk.tree import join
from supervisor.launch.stage.layer import Layer
from supervisor.launch.stage.merged import Merged

Groups = tuple[tuple[bytes, ...], ...]
"""Paths relative to the workspace; each group is one file."""


def find_linked(layers: Iterable[Layer], *, linked: bool) -> SharedNames:
    """Find the names, absolute, that share a file in a stage.

    Args:
        layers: of the stage.
        linked: whether the trial gave any file another name; only then what is staged is walked.
    """
    before: list[tuple[bytes, ...]] = []
    after: list[tuple[bytes, ...]] = []
    for layer in layers:
        if layer.upper.is_dir():
            with layer.view() as view:
                before += _absolute(layer.point, names_before(view))
                after += _absolute(layer.point, names_after(view) if linked else ())
    return SharedNames(before=tuple(before), after=tuple(after))


def find_recorded(entries: Iterable[Recorded]) -> SharedNames:
    """Find the names that shared a file when an inventory was taken, and the files that had names besides."""
    names: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)
    most: defaultdict[tuple[int, int], int] = defaultdict(int)
    for entry in entries:
        if entry.names > 1 and not stat.S_ISDIR(entry.mode):
            key = entry.device, entry.inode
            names[key].append(entry.path)
            most[key] = max(most[key], entry.names)
    return SharedNames(
        before=tuple(tuple(paths) for paths in names.values() if len(paths) > 1),
        elsewhere=tuple(paths[0] for key, paths in names.items() if most[key] > len(paths)),
    )


def _absolute(point: bytes, groups: Groups) -> Iterator[tuple[bytes, ...]]:
    return (tuple(join(point.rstrip(b"/"), name) for name in names) for names in groups)


def names_before(view: Merged) -> Groups:
    """Give the names that each lower file with several names had, of those that were copied: all of them show the copy.

    Only where some such file was copied is the lower tree walked.
    """
    if not view.copied_inodes:
        return ()
    found = view.lower.below(b"")
    return tuple(names for names, first in _groups(found) if view.copy_of(names[0], first) is not None)


def names_after(view: Merged) -> Groups:
    """Give the names that each file of the upper tree has there."""
    return tuple(names for names, _ in _groups(view.upper.below(b"")))


def _groups(found: Iterable[tuple[bytes, os.stat_result]]) -> list[tuple[tuple[bytes, ...], os.stat_result]]:
    names: defaultdict[int, list[bytes]] = defaultdict(list)
    first: dict[int, os.stat_result] = {}
    for path, state in found:
        if state.st_nlink > 1 and not stat.S_ISDIR(state.st_mode):
            names[state.st_ino].append(path)
            first.setdefault(state.st_ino, state)
    return [(tuple(paths), first[inode]) for inode, paths in names.items() if len(paths) > 1]
