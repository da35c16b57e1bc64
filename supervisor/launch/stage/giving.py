"""Whether the files of a stage may be given to the workspace as they are, by rename, and which directories whole.

Laws:
    * A file is given only when nobody can write it any more through what the trial had: no process, and no descriptor,
      mapping or mount that left the box. The kernel is asked: an overlay marks its upper directory as in use for as
      long as anything at all refers to it, and refuses a second one over the same directory (EBUSY with ``index=on``,
      fs/overlayfs/super.c, ovl_get_upper). When it makes the second one, the first is gone for good.
    * Whatever else the kernel answers means that it is not known: then files are copied.
    * A directory is given whole only when everything in it may be written, was made by the trial or is an unchanged
      lower file's copy, and means the same outside of the overlay.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from supervisor.launch.disk.tree import Tree, split
from supervisor.launch.disk.whiteouts import OVERLAY

_PATIENCE_S = 0.2
"""The kernel takes a mount namespace apart a little after the last process of it has ended."""

_PAUSE_S = 0.005
_COPIED = f"{OVERLAY}origin"
_HIDING = frozenset({f"{OVERLAY}opaque", f"{OVERLAY}impure"})
_OPTIONS = ((b"index", b"on"), (b"redirect_dir", b"on"), (b"metacopy", b"off"))


def is_let_go(lower: Path | bytes, base: Path) -> bool:
    """Tell whether nothing refers to the overlay of a stage any more.

    Args:
        lower: the directory that it was over.
        base: holds its ``upper`` directory; a directory for the question is made there, and removed.
    """
    end_s = time.monotonic() + _PATIENCE_S
    while True:
        answer = _ask(lower, base)
        if answer != errno.EBUSY or time.monotonic() > end_s:
            return answer is None
        time.sleep(_PAUSE_S)


def _ask(lower: Path | bytes, base: Path) -> int | None:
    """Make a second overlay and let it go; gives the errno with which the kernel refused it."""
    import shutil  # noqa: PLC0415 - 3 ms

    from supervisor.launch import libc  # noqa: PLC0415 - loads ctypes

    place = base / "asked"
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        with _layers(lower, base / "upper", place) as layers:
            made = libc.fsopen(b"overlay")
            try:
                for key, value in (*layers, *_OPTIONS):
                    libc.fsconfig_set(made, key, value)
                with suppress(OSError):  # Linux 5.10; without it letting go syncs the whole file system
                    libc.fsconfig_set(made, b"volatile")
                libc.fsconfig_create(made)
            finally:
                os.close(made)
    except OSError as err:
        return err.errno
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return None


@contextmanager
def _layers(lower: Path | bytes, upper: Path, work: Path) -> Iterator[tuple[tuple[bytes, bytes], ...]]:
    """Name the directories by descriptors: no path is too long, and none needs escaping."""
    with ExitStack() as stack:
        layers = []
        for name, path in ((b"lowerdir", lower), (b"upperdir", upper), (b"workdir", work)):
            opened = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, opened)
            layers.append((name, b"/proc/self/fd/%d" % opened))
        yield tuple(layers)


def is_near(upper: Tree, host: Tree) -> bool:
    """Tell whether an entry can be renamed from one tree to the other: they are of one mount of one file system.

    A directory of the host may still refuse it, where a quota counts what is in it: that is then left, and said so.
    """
    return upper.device == host.device and _mount_of(upper) == _mount_of(host) is not None


def _mount_of(tree: Tree) -> bytes | None:
    with tree.directory(b"") as root:
        lines = Path(f"/proc/self/fdinfo/{root}").read_bytes().splitlines()
    return next((line for line in lines if line.startswith(b"mnt_id:")), None)


class Whole(NamedTuple):
    """A directory that can be given whole: how many paths it is, and which of them carry attributes of the overlay."""

    entries: int
    marked: tuple[tuple[bytes, int], ...]


class Wholes:
    """Which directories of an upper tree can be given whole."""

    def __init__(self, upper: Tree, allowed: Callable[[bytes], bool], as_it_was: Callable[[bytes], bool]) -> None:
        """Begin with nothing looked at.

        Args:
            upper: the tree.
            allowed: whether a path may be written.
            as_it_was: whether what the entry at a path is a copy of is on the host as it was.
        """
        self._upper, self._allowed, self._as_it_was = upper, allowed, as_it_was
        self._mixed: set[bytes] = set()

    def find(self, top: bytes) -> Whole | None:
        """Look at a directory that is new in the overlay, with all that it holds; None when it cannot be given whole.

        What is found out about the directories in it is kept, so that nothing is looked at more than twice.
        """
        if top in self._mixed:
            return None
        entries, marked = 0, []
        for path, found in chain([(top, self._upper.lstat(top))], self._upper.below(top)):
            entries += 1
            marks = None if found is None or not self._allowed(path) else self._marks(path, found)
            if marks is None:
                self._mix(path, top)
            elif marks and found is not None:
                marked.append((path, found.st_ino))
        return None if top in self._mixed else Whole(entries, tuple(marked))

    def _mix(self, path: bytes, top: bytes) -> None:
        """Note that a path cannot be given with the directories that it lies in."""
        while len(path) >= len(top) and path not in self._mixed:
            self._mixed.add(path)
            path = split(path)[0]

    def _marks(self, path: bytes, found: os.stat_result) -> bool | None:
        """Tell whether an entry has attributes of the overlay; None when it cannot be given as it is."""
        marks = overlay_marks(self._upper, path)
        if stat.S_ISDIR(found.st_mode):
            plain = marks <= _HIDING
        else:
            plain = can_be_given(found, marks) and (_COPIED not in marks or self._as_it_was(path))
        return bool(marks) if plain else None


def overlay_marks(upper: Tree, path: bytes) -> frozenset[str]:
    """Give the names of the attributes by which the overlay marks an entry of its upper tree."""
    return frozenset(name for name in upper.xattr_names(path) if name.startswith(OVERLAY))


def can_be_given(found: os.stat_result, marks: frozenset[str]) -> bool:
    """Tell whether an entry that is no directory is all there is of it, and means the same outside of the overlay."""
    whiteout = stat.S_ISCHR(found.st_mode) and found.st_rdev == 0
    return not whiteout and found.st_nlink == 1 and marks <= {_COPIED}
