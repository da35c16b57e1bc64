"""The host's mounts below a directory, and taking them away."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.launch.view.mounts import is_below, parse_mountinfo


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
    points = (mount.path for mount in reversed(parse_mountinfo(text)))
    return tuple(point for point in points if is_below(point, top))


def unmount_below(path: Path) -> tuple[bytes, ...]:
    """Detach every mount at or below `path`; returns the mount points that are gone."""
    points = mounts_below(path)
    return tuple(point for point in points if _detach(point))


def _detach(point: bytes) -> bool:
    from supervisor.launch.libc import umount2  # noqa: PLC0415 - there is hardly ever anything to unmount

    try:
        umount2(point)
    except OSError:
        return False
    return True
