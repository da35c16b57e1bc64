"""The last steps of a commit: renames that end nothing which somebody else put there at that very instant.

Laws:
    * A new name is given only where nothing has it (RENAME_NOREPLACE).
    * What is replaced is exchanged for what comes (RENAME_EXCHANGE), looked at when it has come out, and put back when
      it is not what was expected. What is removed is renamed away first, and looked at there.
    * A step that was interrupted between any two calls is finished by doing it again.
    * A file system that knows no such renames refuses them (EINVAL), and a directory with a quota or a key of its own
      lets nothing out (EXDEV). Then the look comes before the step, and what the host does between the two is lost.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from supervisor.launch.stage.journal import Identity

_UNKNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})


class At(NamedTuple):
    """An entry of an open directory."""

    directory: int
    name: bytes | str

    def lstat(self) -> os.stat_result | None:
        """Describe it; None when nothing is there."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def holds(self, identity: Identity) -> bool:
        """Tell whether it is what was expected."""
        found = self.lstat()
        return found is not None and Identity.of(found) == identity


def rename_new(source: At, place: At) -> None:
    """Rename to where nothing is.

    Raises:
        FileExistsError: something is.
        OSError: it cannot be renamed.
    """
    from supervisor.launch import libc  # noqa: PLC0415 - loads ctypes

    try:
        libc.renameat2(source.directory, source.name, place.directory, place.name, libc.RENAME_NOREPLACE)
    except OSError as err:
        if err.errno not in _UNKNOWN:
            raise
        if place.lstat() is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place.name) from err
        os.rename(source.name, place.name, src_dir_fd=source.directory, dst_dir_fd=place.directory)


def replace_file(source: At, place: At, over: Identity, coming: int | None, fault: Callable[[], None]) -> bool:
    """Put a file where another one is expected; when something else is there, it stays, and what was to come too.

    Args:
        source: what comes; between two calls, and after an interruption, what has come out.
        place: where it goes.
        over: what is expected there.
        coming: inode of what comes, by which the two are told apart; None: not recorded, so nothing is exchanged.
        fault: called between any two calls that change something.

    Returns:
        Whether it is there now.
    """
    held = source.lstat()
    if held is not None and coming in {held.st_ino, None}:
        if not place.holds(over):
            return False
        fault()
        try:
            if coming is None or not _exchange(source, place):
                os.rename(source.name, place.name, src_dir_fd=source.directory, dst_dir_fd=place.directory)
                return True
        except FileNotFoundError:
            return False
        fault()
    if source.holds(over):
        os.unlink(source.name, dir_fd=source.directory)
        return True
    _put_back(source, place, coming)
    return False


def remove_file(place: At, aside: At, expected: Identity, fault: Callable[[], None]) -> bool:
    """Remove what is expected at a place; anything else stays.

    Args:
        place: where it is.
        aside: where it is looked at, in a directory that only we use. What the host put there, and finds its name taken
            again when it comes back, stays there.
        expected: what is removed.
        fault: called between any two calls that change something.

    Returns:
        Whether it was removed, or nothing was there.
    """
    if place.holds(expected):
        fault()
        try:
            rename_new(place, aside)
        except FileNotFoundError:
            return True
        except OSError as err:
            if err.errno != errno.EXDEV:
                raise
            os.unlink(place.name, dir_fd=place.directory)
            return True
        fault()
    held = aside.lstat()
    if held is None:
        return place.lstat() is None
    if Identity.of(held) == expected:
        os.unlink(aside.name, dir_fd=aside.directory)
        return place.lstat() is None
    with suppress(FileExistsError):
        rename_new(aside, place)
    return False


def _exchange(first: At, second: At) -> bool:
    """Let two entries change places; tells whether the file system can."""
    from supervisor.launch import libc  # noqa: PLC0415 - loads ctypes

    try:
        libc.renameat2(first.directory, first.name, second.directory, second.name, libc.RENAME_EXCHANGE)
    except OSError as err:
        if err.errno in _UNKNOWN:
            return False
        raise
    return True


def _put_back(held: At, place: At, coming: int | None) -> None:
    """Put back what came out. If what comes out then is not what was put there, it is newer and goes back in turn."""
    put = coming
    while (out := held.lstat()) is not None and out.st_ino != put:
        try:
            if not _exchange(held, place):
                return
        except FileNotFoundError:  # the host has removed what it found there
            with suppress(FileExistsError):
                rename_new(held, place)
            continue
        back = held.lstat()
        if back is not None and back.st_ino != put:
            put = out.st_ino
