"""What files were before a trial that writes in place: an inventory of every entry, and the content of those that fit.

Laws:
    * It is taken before the trial runs its first instruction. What it does not hold is not known, path by path, and is
      said so: it is never guessed from what is there afterwards.
    * Content goes into one file, ``content``. Where the file system can share extents, nothing is copied; else the
      smallest files are copied first, up to a limit. A file that changes while it is read is not recorded.
    * Nothing is digested here: a trial touches few of the files that it could touch.
    * Both the number of entries and the time are bounded. In a directory that was ``listed``, what is not recorded was
      not there; in another one it may have been.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from supervisor.evidence.file_facts import FileState
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.disk.observe import KINDS, problem, read_xattrs
from supervisor.launch.disk.tree import Tree, by_descriptor, is_below, list_directory, split

MOST_ENTRIES = 500_000
MOST_S = 20.0
"""Longer than this nobody waits for a trial to begin; what was not reached by then is not known."""

_CHUNK = 1 << 20

UNLISTED = "not recorded before the trial: its directory was not listed"


class Recorded(msgspec.Struct, array_like=True, gc=False):
    """One entry as it was.

    Attributes:
        path: absolute.
        at: where its content begins in ``content``, -1 when it is not there; the length is `size_bytes`.
        link: what a symlink says.
        listed: of a directory: everything in it is recorded.
        why: why the content is not known.
        names: how many names it had, in whatever directories of its file system.
    """

    path: bytes
    device: int
    inode: int
    mode: int
    uid: int
    gid: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    xattrs: tuple[tuple[str, bytes], ...] = ()
    at: int = -1
    link: bytes | None = None
    listed: bool = False
    why: str | None = None
    names: int = 1

    @property
    def is_file(self) -> bool:
        """Whether it has content of its own."""
        return stat.S_ISREG(self.mode)

    def differs(self, other: Recorded) -> bool:
        """Tell whether anything was done to it since; the change time moves with whatever that is."""
        return _stamp(self) != _stamp(other)


def _stamp(entry: Recorded) -> tuple[int, ...]:
    return entry.device, entry.inode, entry.mode, entry.uid, entry.gid, entry.size_bytes, entry.mtime_ns, entry.ctime_ns


class Bounds:
    """How much is recorded at most: entries, bytes of content that are copied (None: all), and until when."""

    def __init__(self, *, copied_bytes: int | None, most_s: float = MOST_S, entries: int = MOST_ENTRIES) -> None:
        """Begin to count the time."""
        self.copied_bytes = copied_bytes
        self.entries = entries
        self._end_s = time.monotonic() + most_s

    def over(self, entries: int = 0) -> bool:
        """Tell whether the time is over, or so many entries are enough."""
        return entries >= self.entries or time.monotonic() > self._end_s


def walk(roots: Sequence[bytes], bounds: Bounds | None, *, hidden: bytes = b"") -> Iterator[Recorded]:
    """Describe every entry, each directory before what it holds; no content is read.

    Args:
        roots: absolute directories; one that lies in another one is a mount of its own.
        bounds: where to stop, or None to describe everything.
        hidden: a directory that is left out, the one of our runs.
    """
    count = 0
    for root in roots:
        with suppress(FileNotFoundError, NotADirectoryError), Tree(root) as tree:
            waiting = [_top(tree, root)]
            while waiting:
                above = waiting.pop()
                found = [] if bounds and bounds.over(count) else _list(tree, root, above)
                count += 1 + len(found)
                yield above
                for entry in found:
                    if entry.path in roots or entry.path == hidden:
                        continue
                    if stat.S_ISDIR(entry.mode) and entry.device == tree.device:
                        waiting.append(entry)  # it is given when it is listed
                    else:
                        yield entry


def _top(tree: Tree, root: bytes) -> Recorded:
    with tree.directory(b"") as directory:
        return _describe(root, os.fstat(directory), directory, b".")


def describe(path: bytes) -> Recorded:
    """Describe one entry of the host that is no directory of a root."""
    directory, name = split(path)
    with Tree(directory or b"/") as tree, tree.directory(b"") as above:
        return _describe(path, os.stat(name, dir_fd=above, follow_symlinks=False), above, name)


def _list(tree: Tree, root: bytes, above: Recorded) -> list[Recorded]:
    """Give what is in a directory, and mark it as listed; of one that cannot be read nothing."""
    found = []
    try:
        with tree.directory(inner_path(above.path, root)) as directory:
            for name in map(os.fsencode, list_directory(directory)):
                with suppress(FileNotFoundError):
                    entry = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    found.append(_describe(above.path.rstrip(b"/") + b"/" + name, entry, directory, name))
    except OSError:
        return []
    above.listed = True
    return found


def inner_path(path: bytes, root: bytes) -> bytes:
    """Give an absolute path relative to the root that it lies in."""
    return path[len(root.rstrip(b"/")) + 1 :]


def _describe(path: bytes, found: os.stat_result, directory: int, name: bytes) -> Recorded:
    entry = Recorded(
        path=path,
        device=found.st_dev,
        inode=found.st_ino,
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        names=found.st_nlink,
    )
    try:
        entry.xattrs = read_xattrs(by_descriptor(directory, name))
        if stat.S_ISLNK(found.st_mode):
            entry.link = os.readlink(name, dir_fd=directory)
    except OSError as err:
        entry.why = f"cannot be read: {(err.strerror or str(err)).lower()}"
    return entry


def root_of(path: bytes, roots: Iterable[bytes]) -> bytes:
    """Give the innermost root that a path lies in.

    Raises:
        ValueError: it lies in none.
    """
    return max((root for root in roots if is_below(path, root.rstrip(b"/"))), key=len)


# -- on disk ---------------------------------------------------------------------------------------------------------


class Index(msgspec.Struct):
    """What lies beside ``content``; ``changed`` are the paths that were found changed, once somebody looked."""

    roots: list[bytes]
    entries: list[Recorded]
    changed: list[bytes] | None = None


def write_index(store: Path, index: Index) -> None:
    """Write the index of an inventory."""
    write_whole(store / "index", msgspec.msgpack.encode(index), durable=False)


class Inventory:
    """An inventory that was taken, opened for reading. `close` it."""

    def __init__(self, store: Path) -> None:
        """Open it.

        Raises:
            OSError: there is none.
        """
        index = msgspec.msgpack.decode((store / "index").read_bytes(), type=Index)
        self.roots = tuple(index.roots)
        self.entries = {entry.path: entry for entry in index.entries}
        self.changed = None if index.changed is None else frozenset(index.changed)
        self._content = os.open(store / "content", os.O_RDONLY | os.O_CLOEXEC)
        self._digests: dict[tuple[int, int], str] = {}

    def close(self) -> None:
        """Close it."""
        os.close(self._content)

    def covers(self, path: bytes) -> bool:
        """Tell whether a path lies below one of the roots."""
        return any(is_below(path, root.rstrip(b"/")) for root in self.roots)

    def state(self, path: bytes) -> FileState | None:
        """Give what was at a path; None when nothing was, a state with a ``problem`` as far as it is not known."""
        entry = self.entries.get(path)
        if entry is None:
            return None if self.was_listed(path) else problem(UNLISTED)
        return FileState(
            kind=KINDS[stat.S_IFMT(entry.mode)],
            digest=self._digest(entry),
            mode=stat.S_IMODE(entry.mode),
            uid=entry.uid,
            gid=entry.gid,
            size_bytes=entry.size_bytes if entry.is_file or entry.link is not None else 0,
            xattrs=entry.xattrs,
            problem=entry.why,
            modified_ns=entry.mtime_ns,
        )

    def was_listed(self, path: bytes) -> bool:
        """Tell whether a path that is not recorded was not there: the innermost directory recorded above was listed."""
        if self.changed is not None:
            return path in self.changed  # of what is not recorded any more nothing else is known
        while path not in {b"", b"/"}:
            path = path.rpartition(b"/")[0] or b"/"
            if (above := self.entries.get(path)) is not None:
                return above.listed or not stat.S_ISDIR(above.mode)
        return False

    def read(self, entry: Recorded) -> Iterator[bytes]:
        """Give the content of a file that is recorded, in pieces."""
        at, end = entry.at, entry.at + entry.size_bytes
        while at < end:
            data = os.pread(self._content, min(end - at, _CHUNK), at)
            if not data:
                message = "content of an inventory is cut"
                raise OSError(errno.EIO, message)
            yield data
            at += len(data)

    def _digest(self, entry: Recorded) -> str | None:
        if entry.link is not None:
            return _sha256((entry.link,))
        if not entry.is_file or entry.at < 0 or entry.why is not None:
            return None
        place = entry.at, entry.size_bytes
        if place not in self._digests:
            self._digests[place] = _sha256(self.read(entry))
        return self._digests[place]


def _sha256(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return f"sha256:{digest.hexdigest()}"


def reduce_inventory(store: Path, changed: Collection[bytes]) -> None:
    """Keep only what was changed: an inventory of everything is large.

    Args:
        store: where it lies.
        changed: every path that was found changed.
    """
    inventory, changed = Inventory(store), frozenset(changed)
    try:
        kept = [entry for path, entry in inventory.entries.items() if path in changed]
        end = 0
        places: dict[tuple[int, int], int] = {}
        with (store / "content.new").open("xb") as content:
            for entry in kept:
                if entry.at < 0:
                    continue
                place = entry.at, entry.size_bytes
                if place not in places:
                    places[place] = end
                    end += sum(content.write(part) for part in inventory.read(entry))
                entry.at = places[place]
    finally:
        inventory.close()
    (store / "content.new").replace(store / "content")
    write_index(store, Index(roots=list(inventory.roots), entries=kept, changed=sorted(changed)))
