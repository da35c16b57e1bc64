"""The state of one path, read from disk: kind, owner, mode, attributes and a digest of the content.

Content is streamed, so memory is bounded; only regular files are opened, and never through a symlink. What cannot be
read is a state with a ``problem``, never an exception: the trial may have left anything.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from struct import Struct

from supervisor.events import Kind
from supervisor.evidence.file_facts import FileState
from supervisor.launch.disk.tree import Tree, by_descriptor
from supervisor.launch.disk.whiteouts import visible_xattr

MAX_DIGEST_BYTES = 64 << 30
"""Regular files that say they are larger (sparse ones cost nothing to make) are not read."""

_CHUNK = 1 << 20
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFCHR: Kind.DEVICE,
    stat.S_IFBLK: Kind.DEVICE,
}

Stamp = bytes
"""What changes whenever content does: device, inode, size, modification and change time; packed, there may be many."""

_STAMP = Struct("=QQqqq")


_Xattrs = tuple[tuple[str, bytes], ...]
_Content = tuple[str, _Xattrs]


class Observer:
    """Reads states; content that did not change since it was last read is not read again."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._known: dict[Stamp, _Content] = {}

    def state(self, tree: Tree, path: bytes, found: os.stat_result | None = None) -> FileState | None:
        """Read the state of a path of a tree; None when nothing is there.

        Args:
            tree: the tree.
            path: in it.
            found: what lstat just said of it, if it was asked.
        """
        found = found or tree.lstat(path)
        if found is None:
            return None
        try:
            directory, name = tree.peek(path)
            return (
                self._read_file(directory, name, found)
                if stat.S_ISREG(found.st_mode)
                else _read(directory, name, found)
            )
        except OSError as err:
            return _state(found, None, (), f"cannot be read: {_reason(err)}")

    def _read_file(self, directory: int, name: bytes, found: os.stat_result) -> FileState:
        stamp = stamp_of(found)
        known = self._known.get(stamp)
        if known is None:
            opened = os.open(name, _READING, dir_fd=directory)
            try:
                xattrs = read_xattrs(opened)
                try:
                    known = self._known[stamp] = digest_file(opened), xattrs
                except ValueError as err:
                    return _state(found, None, xattrs, str(err))
                except OSError as err:
                    return _state(found, None, xattrs, f"cannot be read: {_reason(err)}")
            finally:
                os.close(opened)
        return _state(found, *known, None)


def _read(directory: int, name: bytes, found: os.stat_result) -> FileState:
    xattrs = read_xattrs(by_descriptor(directory, name))
    digest = None
    if stat.S_ISLNK(found.st_mode):
        digest = _digest_of(os.fsencode(os.readlink(name, dir_fd=directory)))
    return _state(found, digest, xattrs, None)


def link_or_directory(tree: Tree | None, path: bytes) -> bytes | None:
    """Give the text of a symlink, nothing for a directory, None for all else, or where nothing is.

    Args:
        tree: the tree that the path is of; None for a path of the host.
        path: below the tree, or absolute.

    Raises:
        OSError: it cannot be read.
    """
    found = tree.lstat(path) if tree else os.lstat(path)
    if found is None or not stat.S_ISLNK(found.st_mode):
        return b"" if found is not None and stat.S_ISDIR(found.st_mode) else None
    if tree is None:
        return os.readlink(path)  # noqa: PTH115 - a path of bytes
    with tree.parent(path) as (directory, name):
        return os.fsencode(os.readlink(name, dir_fd=directory))


def stamp_of(found: os.stat_result) -> Stamp:
    """Give what changes whenever the content does."""
    return _STAMP.pack(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def digest_file(opened: int) -> str:
    """Digest a regular file that was just opened, in bounded memory.

    Raises:
        ValueError: it says that it is too large to be read, or is no regular file any more.
        OSError: it cannot be read.
    """
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode):
        message = "is no regular file any more"
        raise ValueError(message)
    if found.st_size > MAX_DIGEST_BYTES:
        message = f"is not read: {found.st_size} bytes, expected at most {MAX_DIGEST_BYTES}"
        raise ValueError(message)
    digest = hashlib.sha256()
    while chunk := os.read(opened, _CHUNK if found.st_size >= _CHUNK else found.st_size + 1):
        digest.update(chunk)
        if len(chunk) <= found.st_size < _CHUNK:  # less than was asked for: a small file is at its end
            break
    return f"sha256:{digest.hexdigest()}"


def read_xattrs(path: bytes | int) -> _Xattrs:
    """Read the attributes that the merged view shows, in order of names; the path's last component is not followed."""
    follow = isinstance(path, int)  # a descriptor is followed, which is no symlink
    try:
        names = os.listxattr(path, follow_symlinks=follow)
    except OSError as err:
        if err.errno == errno.ENOTSUP:
            return ()
        raise
    if not names:
        return ()
    shown = {visible: name for name in names if (visible := visible_xattr(name)) is not None}
    return tuple((name, os.getxattr(path, shown[name], follow_symlinks=follow)) for name in sorted(shown))


def problem(text: str) -> FileState:
    """Give the state of a path about which only this is known."""
    return FileState(kind=Kind.UNKNOWN, digest=None, mode=0, uid=0, gid=0, size_bytes=0, problem=text)


def _digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _reason(err: OSError) -> str:
    return (err.strerror or str(err)).lower()


def _state(
    found: os.stat_result, digest: str | None, xattrs: tuple[tuple[str, bytes], ...], said: str | None
) -> FileState:
    regular = stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)
    return FileState(
        kind=KINDS.get(stat.S_IFMT(found.st_mode), Kind.UNKNOWN),
        digest=digest,
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        size_bytes=found.st_size if regular else 0,
        xattrs=xattrs,
        problem=said,
        modified_ns=found.st_mtime_ns,
    )
