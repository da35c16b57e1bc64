"""Names that runs left on the host, outside of any later trial's places: look-ups of them are told to separate runs.

A line of ``left-names`` in the state directory is the last part of a path that a sealed run created, changed or took
away, in hexadecimal digits. No verdict rests on this file: it only says for what else the next trial is watched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

NAME = "left-names"

MOST_NAMES = 256
"""Of how many names, the latest ones, look-ups are told: each is an entry of a map that all trials share."""

_TAIL_BYTES = 1 << 16


def note_left(home: Path, changed: Iterable[bytes]) -> None:
    """Add what a run changed; of what lies in a directory that it changed too, only the directory.

    A name that cannot be noted costs a look-up that is not told, which is what it is without this file.
    """
    paths = frozenset(changed)
    tops = sorted(path for path in paths if not any(above in paths for above in _above(path)))
    lines = b"".join(name.hex().encode() + b"\n" for name in dict.fromkeys(map(_last, tops)) if name)
    if not lines:
        return
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(home / NAME, flags, 0o600)
        try:
            os.write(descriptor, lines[-_TAIL_BYTES:])
        finally:
            os.close(descriptor)


def names_left(home: Path) -> tuple[bytes, ...]:
    """Give the latest names, each once."""
    try:
        with (home / NAME).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return ()
    latest: dict[bytes, None] = {}
    for line in reversed(lines):
        with suppress(ValueError):  # the first one may be cut
            latest[bytes.fromhex(line.decode())] = None
        if len(latest) == MOST_NAMES:
            break
    return tuple(latest)


def _above(path: bytes) -> Iterable[bytes]:
    while b"/" in path[1:]:
        path = path.rpartition(b"/")[0]
        yield path


def _last(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
