"""The format of an overlay's upper directory: what one entry of it says about the lower one.

Source: Documentation/filesystems/overlayfs.rst, fs/overlayfs/{overlayfs.h,namei.c,copy_up.c,xattrs.c}.

Laws:
    * A whiteout says that the lower entry of that name is gone: a character device 0/0, or an empty regular file with
      the attribute ``trusted.overlay.whiteout``.
    * A directory with ``trusted.overlay.opaque`` = ``y`` hides the lower directory of that name (``x`` does not: it
      says that whiteouts of the second form are inside).
    * ``trusted.overlay.redirect`` names the lower directory that is merged instead: from the root of the layer when it
      begins with ``/``, else beside the lower entry of this name.
    * Every other entry hides the lower entry of that name, but a directory is merged with a directory.
    * Attributes of the overlay itself are ``trusted.overlay.*``; one that a user's file really carries is kept as
      ``trusted.overlay.overlay.*``.
    * ``trusted.overlay.origin`` is the file handle of the lower entry that an entry was copied from; it is empty where
      the lower file system has no handles.
    * ``<work>/index/<file handle of a lower inode>`` is the copy of a lower inode that had several names. Every lower
      name of that inode shows the copy, also those that are not in the upper directory.
"""

from __future__ import annotations

import os
import stat

from supervisor.launch.disk.tree import Tree, join
from supervisor.values import dataclass

OVERLAY = "trusted.overlay."
OVERLAY_ESCAPED = "trusted.overlay.overlay."
_FID_AT = 21
"""Offset of the file id in a handle of the index: five bytes of header and the file system's uuid (struct ovl_fb)."""

HandleKey = tuple[int, bytes]
"""A file handle without the file system it belongs to: its type and its bytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an upper directory.

    Attributes:
        found: what lstat says about it.
        whiteout: the lower entry is gone.
        opaque: a directory that hides the lower one.
        redirect: which lower directory is merged, as the attribute says.
    """

    found: os.stat_result
    whiteout: bool = False
    opaque: bool = False
    redirect: bytes | None = None

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.found.st_mode)


def read_entry(upper: Tree, path: bytes) -> Entry | None:
    """Read one entry of an upper tree; None when the upper tree has nothing there."""
    found = upper.lstat(path)
    if found is None:
        return None
    if stat.S_ISDIR(found.st_mode):
        opaque = upper.xattr(path, OVERLAY + "opaque") == b"y"
        return Entry(found, opaque=opaque, redirect=upper.xattr(path, OVERLAY + "redirect"))
    if stat.S_ISCHR(found.st_mode):
        return Entry(found, whiteout=found.st_rdev == 0)
    empty = stat.S_ISREG(found.st_mode) and not found.st_size
    return Entry(found, whiteout=empty and upper.xattr(path, OVERLAY + "whiteout") is not None)


def merged_lower(entry: Entry, name: bytes, lower_above: bytes | None) -> bytes | None:
    """Tell which lower directory an upper directory is merged with, if that exists; None when it hides what is lower.

    Args:
        entry: the upper directory.
        name: its name.
        lower_above: the lower directory that the directory above it is merged with.
    """
    if entry.opaque:
        return None
    if entry.redirect is not None and entry.redirect.startswith(b"/"):
        return entry.redirect.strip(b"/")
    if lower_above is None:
        return None
    return join(lower_above, entry.redirect or name)


def visible_xattr(name: str) -> str | None:
    """Give the name under which the merged view shows an attribute of the upper tree; None for the overlay's own."""
    if name.startswith(OVERLAY_ESCAPED):
        return OVERLAY + name.removeprefix(OVERLAY_ESCAPED)
    return None if name.startswith(OVERLAY) else name


def read_index(work: Tree) -> dict[HandleKey, bytes]:
    """Read which lower inodes with several names were copied.

    Returns:
        The path below the work directory of each copy, by the handle of the lower inode.
    """
    if not work.is_directory(b"index"):
        return {}
    copies = {}
    for name in work.names(b"index"):
        entry = read_entry(work, b"index/" + name)
        if entry is not None and not entry.whiteout and not entry.is_directory and (key := _handle_key(name)):
            copies[key] = b"index/" + name
    return copies


def read_origin(upper: Tree, path: bytes) -> HandleKey | None:
    """Tell which lower inode an entry of an upper tree is a copy of; None when it is none, or the kernel could not say.

    A copy keeps that through every rename in the overlay.
    """
    handle = upper.xattr(path, OVERLAY + "origin")
    return None if handle is None else _key_of(handle)


def _handle_key(name: bytes) -> HandleKey | None:
    try:
        return _key_of(bytes.fromhex(name.decode("ascii")))
    except (UnicodeDecodeError, ValueError):
        return None  # a temporary name, such as #4


def _key_of(handle: bytes) -> HandleKey | None:
    return (handle[4], handle[_FID_AT:]) if len(handle) > _FID_AT else None
