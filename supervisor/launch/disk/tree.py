"""A directory tree, entered only through descriptors, that cannot be left through a symlink or a mount.

A hostile trial chooses the names below a workspace, and may have put a symlink wherever a directory is expected. So no
path is ever given to the kernel: every component is opened by itself with O_NOFOLLOW, relative to the one before, which
also has no limit on the length of a path. ``..`` is no component, and another file system is not entered.

Paths are bytes relative to the root of the tree, components joined by ``/``; the root itself is ``b""``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

_KEPT_OPEN = 48
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV})
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _open_nowhere() -> int:
    """Open a directory that is empty and has been removed."""
    import tempfile  # noqa: PLC0415 - hardly ever needed

    path = tempfile.mkdtemp()
    try:
        return os.open(path, _ROOT)
    finally:
        os.rmdir(path)  # noqa: PTH106 - as everything here


class Tree:
    """One tree. Keeps the directories on the way to the last used path open; `close` it, or use it in a ``with``."""

    __slots__ = ("_chain", "_last", "_root", "device")

    def __init__(self, root: Path | bytes, *, may_be_gone: bool = False) -> None:
        """Open the root, a directory that we trust: a symlink on the way to it is followed.

        Args:
            root: its path.
            may_be_gone: somebody may have moved or removed it: then the tree is empty, and nothing can be put into it.
        """
        try:
            self._root = os.open(root, _ROOT)
        except (FileNotFoundError, NotADirectoryError):
            if not may_be_gone:
                raise
            self._root = _open_nowhere()
        self._chain: list[tuple[bytes, int]] = []
        self._last: tuple[bytes, int] = (b"", self._root)
        self.device = os.fstat(self._root).st_dev

    def __enter__(self) -> Self:
        """Give the tree itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the tree."""
        self.close()

    def close(self) -> None:
        """Close every descriptor."""
        self.forget()
        os.close(self._root)

    def forget(self) -> None:
        """Close what was kept open; needed after a directory was moved or removed."""
        self._cut(0)

    @contextmanager
    def directory(self, path: bytes) -> Iterator[int]:
        """Open a directory for as long as the ``with`` lasts.

        Raises:
            OSError: it is not there, a component is no directory (a symlink is none), or lies on another file system.
        """
        descriptor = os.dup(self._walk(path))
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Open the directory that holds `path`; gives it with the last component."""
        above, name = split(path)
        with self.directory(above) as descriptor:
            yield descriptor, name

    def peek(self, path: bytes) -> tuple[int, bytes]:
        """Give what `parent` gives; the descriptor stays the tree's, and is good until the tree is next asked."""
        above, name = split(path)
        return self._walk(above), name

    def lstat(self, path: bytes) -> os.stat_result | None:
        """Describe what is at `path`, without following a symlink; None when nothing is, or no tree leads there."""
        if not path:
            return os.fstat(self._root)
        above, name = split(path)
        try:
            return os.stat(name, dir_fd=self._walk(above), follow_symlinks=False)
        except OSError as err:
            if err.errno in _ABSENT:
                return None
            raise

    def is_directory(self, path: bytes) -> bool:
        """Tell whether there is a directory at `path`, on the tree's own file system."""
        found = self.lstat(path)
        return found is not None and stat.S_ISDIR(found.st_mode) and found.st_dev == self.device

    def names(self, path: bytes) -> list[bytes]:
        """List a directory, sorted."""
        return sorted(os.fsencode(name) for name in list_directory(self._walk(path)))

    def directory_names(self, path: bytes) -> list[bytes]:
        """List the directories in a directory, sorted."""
        with os.scandir(_rewound(self._walk(path))) as entries:
            return sorted(os.fsencode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False))

    def xattr(self, path: bytes, name: str) -> bytes | None:
        """Read one attribute of what is at `path`; None when it has none of that name."""
        above, last = split(path)
        try:
            return os.getxattr(by_descriptor(self._walk(above), last), name, follow_symlinks=False)
        except OSError as err:
            if err.errno in {errno.ENODATA, errno.ENOTSUP}:
                return None
            raise

    def xattr_names(self, path: bytes) -> list[str]:
        """List the names of the attributes of what is at `path`."""
        above, last = split(path)
        try:
            return os.listxattr(by_descriptor(self._walk(above), last), follow_symlinks=False)
        except OSError as err:
            if err.errno == errno.ENOTSUP:
                return []
            raise

    def stat_of(self, handle: tuple[int, bytes]) -> os.stat_result:
        """Describe what a file handle of the tree's file system names (`supervisor.launch.libc.name_to_handle_at`).

        Raises:
            OSError: ESTALE when it is gone.
        """
        from supervisor.launch import libc  # noqa: PLC0415 - loads ctypes, and most trees are never asked

        descriptor = libc.open_by_handle_at(self._root, handle)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def below(self, path: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        """Walk everything below a directory, each directory before what it holds."""
        waiting = [path]
        while waiting:
            above = waiting.pop()
            for name in reversed(self.names(above)):
                found = self.lstat(join(above, name))
                if found is None:
                    continue
                if stat.S_ISDIR(found.st_mode) and found.st_dev == self.device:
                    waiting.append(join(above, name))
                yield join(above, name), found

    def paths_below(self, path: bytes) -> Iterator[bytes]:
        """Give the path of everything below a directory, each directory before what it holds."""
        waiting = [path]
        while waiting:
            above = waiting.pop()
            with os.scandir(_rewound(self._walk(above))) as entries:
                found = sorted((os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries)
            waiting += [join(above, name) for name, directory in found if directory]
            yield from (join(above, name) for name, _ in found)

    def _walk(self, path: bytes) -> int:
        """Open a directory; the descriptor stays ours, and is good until the next call."""
        if path == self._last[0]:
            return self._last[1]
        components = path.split(b"/") if path else []
        kept = 0
        while kept < min(len(components), len(self._chain)) and self._chain[kept][0] == components[kept]:
            kept += 1
        self._cut(kept)
        at = self._chain[-1][1] if self._chain else self._root
        for name in components[kept:]:
            at = self._step(at, name)
        self._last = path, at
        return at

    def _step(self, at: int, name: bytes) -> int:
        if name in {b"", b".", b".."}:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
        inner = os.open(name, _DIRECTORY, dir_fd=at)
        if os.fstat(inner).st_dev != self.device:
            os.close(inner)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        if len(self._chain) > _KEPT_OPEN:  # a very deep path: keep the beginning, and the end that is being used
            os.close(self._chain.pop()[1])
            name = b"/"  # no component is called so: this link of the chain is never taken for the one it replaced
        self._chain.append((name, inner))
        return inner

    def _cut(self, length: int) -> None:
        self._last = (b"", self._root)
        for _, descriptor in self._chain[length:]:
            os.close(descriptor)
        del self._chain[length:]


def list_directory(directory: int) -> list[str]:
    """List an open directory as it is now."""
    return os.listdir(_rewound(directory))


def _rewound(directory: int) -> int:
    """Go to the beginning: since Linux 6.5 btrfs lists what was there when a directory was opened or rewound."""
    os.lseek(directory, 0, os.SEEK_SET)
    return directory


def join(above: bytes, name: bytes) -> bytes:
    """Join two paths of a tree."""
    return above + b"/" + name if above and name else above or name


def split(path: bytes) -> tuple[bytes, bytes]:
    """Split off the last component; that of the root is ``.``."""
    above, _, name = path.rpartition(b"/")
    return above, name or b"."


def is_below(path: bytes, top: bytes) -> bool:
    """Tell whether `path` is `top` or below it."""
    return not top or path == top or path.startswith(top + b"/")


def by_descriptor(directory: int, name: bytes) -> bytes:
    """Name an entry of an open directory for calls that only take paths; only the last component could be a symlink."""
    return b"/proc/self/fd/%d/%s" % (directory, name)
