# ruff: noqa: PTH116, PTH118, PTH207, PTH208
# Absolute globs as text; Path.glob takes no absolute one.
"""What is there of a glob on this host, looked up in a time that does not depend on where symlinks lead.

In: an absolute glob of Python's kind, where ``**`` as a whole component is any number of directories. Out: absolute
paths. The rule it keeps: every directory is looked into once, by its own name if it has one there, so that a symlink
that leads back, or to all of the host, costs no more than what it leads to; and the kernel's are not looked into, which
have no end.
"""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Iterator

from supervisor.errors import UsageError
from supervisor.launch.view.mounts import is_below

KERNEL = (b"/proc", b"/sys", b"/dev")
"""Each trial has its own of these, and none holds a credential by a name that a glob could mean."""
LED_TO = 20_000
"""Directories that a ``**`` may reach by symlinks: some seconds' work."""


def existing(pattern: str, *, place: str | None = None) -> Iterator[str]:
    """Give what is there of a glob.

    Args:
        pattern: absolute, of Python's kind; hidden names match too.
        place: the key of the policy that has it, for an error.

    Raises:
        UsageError: symlinks below a ``**`` lead to more than `LED_TO` directories.
    """
    if not glob.has_magic(pattern):
        yield from [pattern] if os.path.lexists(pattern) else []
        return
    first, any_below, rest = f"{pattern}/".partition("/**/")
    if not any_below:
        yield from glob.iglob(pattern, include_hidden=True)
        return
    while rest.startswith("**/"):
        rest = rest.removeprefix("**/")
    for above in glob.iglob(first or "/", include_hidden=True):
        if not rest:
            yield above
        for directory in _directories(above, pattern, place):
            if rest:
                yield from existing(f"{glob.escape(directory.rstrip('/'))}/{rest.rstrip('/')}", place=place)
            else:
                yield from (os.path.join(directory, name) for name in _names(directory))


def _directories(top: str, pattern: str, place: str | None) -> Iterator[str]:
    """Give a directory and all below it, and then those that symlinks among them lead to, each once."""
    linked, seen = deque([top]), set[tuple[int, int]]()
    own = None
    while linked:
        for directory, links in _tree(linked.popleft(), seen):
            linked += links
            yield directory
            if own is not None and len(seen) - own > LED_TO:
                message = f"expected a glob that means few places, got {pattern}"
                hint = f"symlinks below {top} lead to more than {LED_TO} directories: name what is meant more narrowly"
                raise UsageError(message, place=place, hint=hint)
        own = len(seen) if own is None else own


def _tree(top: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, list[str]]]:
    """Give a directory and those below it that were not seen yet, each with the symlinks to directories in it."""
    waiting, beginning = [top], os.path.realpath(os.fsencode(top)).rstrip(b"/")
    while waiting:
        directory = waiting.pop()
        real = beginning + os.fsencode(directory[len(top.rstrip("/")) :]) or b"/"
        if any(is_below(real, kernel) for kernel in KERNEL):
            continue
        try:
            found = os.stat(directory)
            with os.scandir(directory) as entries:
                below = [entry for entry in entries if entry.is_dir()]
        except OSError:
            continue
        if (found.st_dev, found.st_ino) in seen:
            continue
        seen.add((found.st_dev, found.st_ino))
        waiting += [entry.path for entry in below if not entry.is_symlink()]
        yield directory, [entry.path for entry in below if entry.is_symlink()]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
