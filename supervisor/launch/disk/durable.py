"""Files that are whole or absent: written beside their place, synced, then renamed over it.

The rule this module keeps: whoever reads one of these files, at any instant and after any crash, reads the old content
or the new content and never a part of either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, data: bytes | Iterable[bytes], *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace the file at `path` by one that holds `data`.

    Args:
        path: the file; its directory exists.
        data: the whole content, or its parts in order.
        mode: permission bits of the new file.
        durable: also survive a power cut (two syncs); without it only the death of the process is survived.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            for part in [data] if isinstance(data, bytes) else data:
                write_all(descriptor, part)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.rename(path)
    except OSError as err:
        with suppress(OSError):  # a full disk: half a file would only take room
            beside.unlink()
        err.filename = str(path)  # writing knows nothing of names
        raise
    if durable:
        sync_directory(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, however many calls that takes."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
