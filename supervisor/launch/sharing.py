"""Which names share a file, read from the trees of an overlay. Nothing is opened: lstat says it all."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable

from supervisor.launch.merged import Merged

Groups = tuple[tuple[bytes, ...], ...]
"""Paths relative to the workspace; each group is one file."""


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
