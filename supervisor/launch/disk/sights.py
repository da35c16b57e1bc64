"""What the file system says of paths that a trial met: when somebody last touched them, and which file they name.

In: paths of the host; out: sights. Of before the trial they come from an inventory, or from the host itself where
nothing is written in place; of its end from the host. The rule it keeps: what cannot be told is left out, not guessed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from supervisor.evidence.file_facts import ABSENT, Ground, Sight, state_digest
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.tree import Tree, split
from supervisor.launch.view.mounts import mount_of, place_in_filesystem, read_mounts

if TYPE_CHECKING:
    from supervisor.launch.disk.inventory import Inventory, Recorded

MOST_DIGESTED_BYTES = 16 << 20
"""A file that was only read is digested up to this size: of a larger one it is not known that it was put back."""

MOST_DIGESTED_IN_ALL_BYTES = 256 << 20
"""How much is read of what a trial read, so that a run does not end much later for it."""


def look(paths: Iterable[bytes], *, digests: bool) -> Iterator[Sight]:
    """Look at paths of the host as they are; no symlink is followed at their ends.

    Args:
        paths: absolute.
        digests: whether to read what is there.
    """
    observer, left_bytes = Observer(), MOST_DIGESTED_IN_ALL_BYTES if digests else 0
    for path in paths:
        with suppress(OSError):
            sight = _look(path, observer if left_bytes > 0 else None)
            left_bytes -= sight.size_bytes if sight.state is not None else 0
            yield sight


def _look(path: bytes, observer: Observer | None) -> Sight:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _sight(path, _nearest(path), state=ABSENT, absent=True)
    state = None
    if observer is not None and _is_digested(found.st_mode, found.st_size):
        above, name = split(path)
        with Tree(above or b"/") as tree:
            state = state_digest(observer.state(tree, name))
    return _sight(path, found, state=state)


def _names(mode: int, count: int) -> int:
    return count if stat.S_ISREG(mode) else int(not stat.S_ISDIR(mode))


def _is_digested(mode: int, size_bytes: int) -> bool:
    """Tell whether a digest says all that there is to find: of a directory it does not say what is in it."""
    return not stat.S_ISDIR(mode) and not (stat.S_ISREG(mode) and size_bytes > MOST_DIGESTED_BYTES)


def _nearest(path: bytes) -> os.stat_result:
    """Describe the nearest directory above a path where nothing is."""
    while True:
        path = split(path)[0] or b"/"
        try:
            return os.stat(path)  # noqa: PTH116 - a path of bytes
        except (FileNotFoundError, NotADirectoryError):
            if path == b"/":
                raise


def _sight(path: bytes, found: os.stat_result, *, state: str | None, absent: bool = False) -> Sight:
    if absent:
        return Sight(path, found.st_dev, 0, 0, 0, found.st_mtime_ns, found.st_ctime_ns, state)
    names = _names(found.st_mode, found.st_nlink)
    return Sight(path, found.st_dev, found.st_ino, names, found.st_size, found.st_mtime_ns, found.st_ctime_ns, state)


def recorded(inventory: Inventory, path: bytes) -> Sight | None:
    """Give what an inventory has of a path; None where it has nothing and the path may have been there."""
    entry = inventory.entries.get(path)
    if entry is not None:
        whole = _is_digested(entry.mode, entry.size_bytes)
        return from_recorded(entry, state_digest(inventory.state(path)) if whole else None)
    if not inventory.was_listed(path):
        return None
    above = path
    while above not in {b"", b"/"}:
        above = split(above)[0]
        if (nearest := inventory.entries.get(above)) is not None:
            return Sight(path, nearest.device, 0, 0, 0, nearest.mtime_ns, nearest.ctime_ns, ABSENT)
    return None


def from_recorded(entry: Recorded, state: str | None) -> Sight:
    """Give what was recorded of an entry as a sight."""
    names = _names(entry.mode, entry.names)
    return Sight(entry.path, entry.device, entry.inode, names, entry.size_bytes, entry.mtime_ns, entry.ctime_ns, state)


def find_grounds(places: Iterable[bytes]) -> Iterator[Ground]:
    """Tell where places lie in their file systems, each mount below them too; one that cannot be asked is left out."""
    mounts = read_mounts()
    for place in dict.fromkeys(places):
        with suppress(OSError, LookupError):
            mount = mount_of(place, mounts)
            yield Ground(place, mount.device.decode(), place_in_filesystem(place, mount))
        below = place.rstrip(b"/") + b"/"
        for mount in mounts:
            if mount.path.startswith(below):
                yield Ground(mount.path, mount.device.decode(), mount.root)


def find_socket(address: str) -> tuple[int, int] | None:
    """Give device and inode of a unix socket, however it is called; None for any other address, and what is not there.

    Args:
        address: ``unix:/PATH`` or ``HOST:PORT``.
    """
    if not address.startswith("unix:/"):
        return None
    try:
        found = os.stat(address.removeprefix("unix:"))  # noqa: PTH116 - as above
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None
