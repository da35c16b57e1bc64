"""The host's mounts below a directory, and taking them away."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.launch.cgroup import unescape_mount

_DETACH = 2
"""MNT_DETACH of umount2(2): out of the tree at once, gone when its last user is."""


def mounts_below(path: Path, mountinfo: bytes | None = None) -> tuple[bytes, ...]:
    """List the mount points at or below `path` in our mount namespace, the last mounted first.

    Args:
        path: a directory, absolute.
        mountinfo: what /proc/self/mountinfo says; read when not given.
    """
    text = Path("/proc/self/mountinfo").read_bytes() if mountinfo is None else mountinfo
    top = os.fsencode(path)
    if top not in text:  # the usual case, without taking the lines apart
        return ()
    points = [unescape_mount(line.split()[4]) for line in text.splitlines()]
    return tuple(point for point in reversed(points) if point == top or point.startswith(top + b"/"))


def unmount_below(path: Path) -> tuple[bytes, ...]:
    """Detach every mount at or below `path`; returns the mount points that are gone."""
    points = mounts_below(path)
    return tuple(point for point in points if _detach(point))


def _detach(point: bytes) -> bool:
    import ctypes  # noqa: PLC0415 - costs start-up time, and there is hardly ever anything to unmount

    return int(ctypes.CDLL(None).umount2(ctypes.c_char_p(point), _DETACH)) == 0
