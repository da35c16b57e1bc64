"""Whether what a policy wants masked can be masked: looked up on this host, before anything runs.

In: ``credentials.mask``, a workspace, a home. Out: nothing, or an error that names the key and the path. The rule it
keeps: a mask that would hide nothing, or leave nothing that can run, is never passed over.
"""

from __future__ import annotations

import glob
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from policies.credentials import absolute_glob
from supervisor.errors import UsageError
from supervisor.launch.view.mounts import is_below
from supervisor.prepare.globbing import KERNEL, existing

LOOKED_AT = 500
"""A trial is to begin soon, and masked are a few small directories mostly."""
_OWN = (b"/tmp", b"/run", b"/dev/shm")
_NEEDED = (b"/etc", b"/bin", b"/sbin", b"/lib", b"/lib64", b"/usr/bin", b"/usr/sbin", b"/usr/lib", b"/usr/lib64")
"""Without one of these, or what they lead to, hardly any program starts."""


def require_maskable(mask: Sequence[str], *, workspace: str, home: str | None) -> None:
    """Refuse what cannot be masked.

    Args:
        mask: globs of the policy.
        workspace: absolute, free of symlinks; where relative globs begin.
        home: what ``~/`` means; None when there is none.

    Raises:
        UsageError: its place is the key, and it names the path.
    """
    for index, text in enumerate(mask):
        place = f"credentials.mask[{index}]"
        if home is None and text.startswith("~"):
            raise UsageError(f"expected a path, got {text}: the user has no home", place=place)
        pattern = absolute_glob(text, home, workspace)
        for path in _meant(pattern, place):
            if wrong := _unfit(path, os.fsencode(workspace)):
                message = f"expected a path that can be masked, got {os.fsdecode(path)}: {wrong}"
                hint = None if os.fsdecode(path) == text else f"{text} leads there"
                raise UsageError(message, place=place, hint=hint)


def linked_files(masked: Iterable[bytes]) -> Iterator[tuple[bytes, os.stat_result]]:
    """Give the files at masked paths, and below masked directories, that have another name: by that they lie open.

    At most `LOOKED_AT` entries are looked at, those of each directory before what is below it.
    """
    waiting, left = list(masked), LOOKED_AT
    while waiting and left:
        path, left = waiting.pop(0), left - 1
        try:
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode):
                with os.scandir(path) as entries:
                    waiting += [entry.path for entry in itertools.islice(entries, left)]
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            yield path, found


def _meant(pattern: str, place: str) -> Iterator[bytes]:
    """Give what a glob means here and now, free of symlinks, and a plain path itself: the kernel's come and go."""
    if not glob.has_magic(pattern):
        yield os.fsencode(os.path.normpath(pattern))
    yield from (os.path.realpath(os.fsencode(path)) for path in existing(pattern, place=place))


def _unfit(path: bytes, workspace: bytes) -> str | None:
    if path in _OWN:
        return "each trial has its own, with nothing of the host's in it"
    if any(is_below(path, kernel) for kernel in KERNEL) and not is_below(path, b"/dev/shm"):
        return "it is the kernel's, and each trial has its own"
    if is_below(workspace, path):
        return "the workspace is in it"
    if any(is_below(needed, path) for needed in _needed()):
        return "nothing could run without it"
    return None


def _needed() -> Iterable[bytes]:
    return (name for path in _NEEDED for name in (path, os.path.realpath(path)))
