"""Taking an inventory: every entry described, and the content of what fits, before a trial that writes in place.

In: the workspace and bounds. Out: ``index`` and ``content`` in a directory of the run (laws and form:
`supervisor.launch.disk.inventory`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from supervisor.errors import MachineError
from supervisor.launch.disk.inventory import Bounds, Index, Recorded, inner_path, root_of, walk, write_index
from supervisor.launch.disk.tree import Tree

_CLONE_RANGE = 0x4020940D
_RANGE = struct.Struct("=qQQQ")
_NO_CLONE = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS})
_NO_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF})
_BLOCK = 1 << 16
"""A multiple of every block size: shared extents begin at such a place."""
_CHUNK = 1 << 20
_SMALL = 1 << 16
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

TOO_LARGE = "not recorded before the trial: files.before_limit leaves no room for it"
TOO_LATE = "not recorded before the trial: the time for it was over"
IN_MOTION = "not recorded before the trial: somebody was writing it"


def take_inventory(roots: Sequence[bytes], store: Path, bounds: Bounds, *, hidden: bytes) -> None:
    """Record everything below some roots into a new directory.

    Raises:
        MachineError: there is no room for it.
    """
    store.mkdir(mode=0o700)
    try:
        entries = list(walk(roots, bounds, hidden=hidden))
        with _Pack(store / "content") as pack:
            _record_content(roots, entries, pack, bounds)
        write_index(store, Index(roots=list(roots), entries=entries))
    except OSError as err:
        message = f"what files were before the trial cannot be kept: {err.strerror}"
        hint = "make room, set SUPERVISE_HOME to another disk, or lower files.before_limit"
        raise MachineError(message, place=str(store), hint=hint) from err


def _record_content(roots: Sequence[bytes], entries: Sequence[Recorded], pack: _Pack, bounds: Bounds) -> None:
    largest = largest_copied(entries, bounds.copied_bytes)
    known: dict[tuple[int, int], Recorded] = {}
    for root, group in _by_root(roots, entries):
        with Tree(root) as tree:
            for entry in group:
                if not entry.is_file or entry.why is not None:
                    continue
                first = known.setdefault((entry.device, entry.inode), entry)
                if first is not entry:
                    entry.at, entry.why = first.at, first.why
                elif bounds.over():
                    entry.why = TOO_LATE
                else:
                    pack.put(tree, inner_path(entry.path, root), entry, copies=entry.size_bytes <= largest)


def largest_copied(entries: Iterable[Recorded], limit_bytes: int | None) -> float:
    """Tell up to which size files are copied, so that all of them together keep to the limit."""
    if limit_bytes is None:
        return float("inf")
    sizes = {(entry.device, entry.inode): entry.size_bytes for entry in entries if entry.is_file}
    whole, largest = 0, 0
    counted: dict[int, int] = {}
    for size in sizes.values():
        counted[size] = counted.get(size, 0) + 1
    for size in sorted(counted):
        whole += size * counted[size]
        if whole > limit_bytes:
            break
        largest = size
    return largest


def _by_root(roots: Sequence[bytes], entries: Iterable[Recorded]) -> Iterator[tuple[bytes, list[Recorded]]]:
    groups: dict[bytes, list[Recorded]] = {root: [] for root in roots}
    for entry in entries:
        groups[root_of(entry.path, roots)].append(entry)
    yield from groups.items()


class _Pack:
    """One file with the content of many. Use it in a ``with``."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._end = 0
        self._clones: dict[int, bool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def put(self, tree: Tree, path: bytes, entry: Recorded, *, copies: bool) -> None:
        """Add the content of a file, by sharing or, if it ``copies``, by copying; the entry says what came of it."""
        if not copies and not self._clones.get(entry.device, True):
            entry.why = TOO_LARGE
            return
        try:
            with tree.parent(path) as (directory, name):
                source = _open(name, directory)
        except OSError as err:
            entry.why = f"cannot be read: {(err.strerror or str(err)).lower()}"
            return
        try:
            self._put(source, entry, copies=copies)
        finally:
            os.close(source)

    def _put(self, source: int, entry: Recorded, *, copies: bool) -> None:
        if not _is_still(source, entry):
            entry.why = IN_MOTION
            return
        at = self._clone(source, entry)
        if at is None and copies:
            at = self._copy(source, entry.size_bytes)
        if at is None:
            entry.why = TOO_LARGE
        elif not _is_still(source, entry):
            entry.why = IN_MOTION
        else:
            entry.at = at

    def _clone(self, source: int, entry: Recorded) -> int | None:
        """Share the extents of a file; None where the file system cannot."""
        if not self._clones.get(entry.device, True) or not entry.size_bytes:
            return None
        at = -(-self._end // _BLOCK) * _BLOCK
        try:
            fcntl.ioctl(self._file, _CLONE_RANGE, _RANGE.pack(source, 0, 0, at))
        except OSError as err:
            if err.errno not in _NO_CLONE:
                raise
            self._clones[entry.device] = False
            return None
        self._clones[entry.device] = True
        self._end = at + entry.size_bytes
        return at

    def _copy(self, source: int, size: int) -> int:
        at, left = self._end, size
        os.lseek(self._file, at, os.SEEK_SET)
        while left > 0:
            done = self._copy_some(source, left)
            if not done:
                break  # it became shorter: whoever asks next finds it in motion
            left -= done
        self._end = at + size
        return at

    def _copy_some(self, source: int, left: int) -> int:
        if left > _SMALL:
            try:
                return os.copy_file_range(source, self._file, min(left, _CHUNK))
            except OSError as err:
                if err.errno not in _NO_COPY:
                    raise
        data = os.read(source, min(left, _CHUNK))
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        return len(data)


def _open(name: bytes, directory: int) -> int:
    try:
        return os.open(name, _OPEN | os.O_NOATIME, dir_fd=directory)
    except PermissionError:
        return os.open(name, _OPEN, dir_fd=directory)


def _is_still(source: int, entry: Recorded) -> bool:
    found = os.fstat(source)
    now = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return now == (entry.device, entry.inode, entry.size_bytes, entry.mtime_ns, entry.ctime_ns)
