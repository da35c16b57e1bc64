"""The mounts of the host as this process sees them, and under which paths one place of a filesystem appears.

In: ``/proc/self/mountinfo`` (proc(5), fs/proc_namespace.c). Out: values. A mount counts as visible only when the kernel
says that its path leads to it: a later mount on top of it, or of one of its parents, hides it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from supervisor.values import dataclass

_REMOTE = frozenset(
    {b"nfs", b"nfs4", b"cifs", b"smb3", b"9p", b"ceph", b"afs", b"virtiofs", b"lustre", b"gfs2", b"ocfs2"}
)
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMount:
    """One line of mountinfo.

    Attributes:
        device: major:minor of the filesystem; the same for every mount of it.
        root: the directory of that filesystem which is mounted.
        path: where.
        options: per-mount options (``ro``, ``noexec``).
        fstype: kind of filesystem.
        controllers: of a cgroup v1 hierarchy.
    """

    mount_id: int
    device: bytes
    root: bytes
    path: bytes
    options: frozenset[bytes] = frozenset()
    fstype: bytes = b"ext4"
    controllers: frozenset[bytes] = frozenset()


def parse_mountinfo(text: bytes) -> tuple[HostMount, ...]:
    """Parse mountinfo, in the order of the kernel."""
    return tuple(_parse_line(line) for line in text.split(b"\n") if line)


def _parse_line(line: bytes) -> HostMount:
    before, after = line.split(b" - ", 1)
    mount_id, _parent, device, root, path, options, *_tags = before.split(b" ")
    fstype = after.split(b" ", 1)[0]
    return HostMount(
        mount_id=int(mount_id),
        device=device,
        root=_unescape(root),
        path=_unescape(path),
        options=frozenset(options.split(b",")),
        fstype=fstype,
        controllers=frozenset(after.rsplit(b" ", 1)[-1].split(b",")) if fstype == b"cgroup" else frozenset(),
    )


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field)


def has_remote(mounts: Iterable[HostMount], device: int, top: bytes) -> bool:
    """Tell whether another machine, or a program, may change what lies in a directory without this kernel seeing it.

    Args:
        mounts: of the host.
        device: that the directory is on, as stat has it.
        top: the directory, absolute.
    """
    own = b"%d:%d" % (os.major(device), os.minor(device))
    inside = top.rstrip(b"/") + b"/"
    kinds = {mount.fstype for mount in mounts if mount.device == own or mount.path.startswith(inside)}
    return any(kind in _REMOTE or kind.startswith(b"fuse") for kind in kinds)


def read_mounts() -> tuple[HostMount, ...]:
    """Read the mounts of the calling process."""
    return parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())


def is_visible(mount: HostMount) -> bool:
    """Tell whether the path of a mount leads to it (fdinfo of an O_PATH descriptor names the mount it is on)."""
    try:
        fd = os.open(mount.path, os.O_PATH | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _mount_id(fd) == mount.mount_id
    finally:
        os.close(fd)


def _mount_id(fd: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{fd}").read_bytes().splitlines():
        if line.startswith(b"mnt_id:"):
            return int(line.split()[1])
    return -1


def mount_of(path: bytes, mounts: Iterable[HostMount]) -> HostMount:
    """Give the mount that an existing path is on.

    Raises:
        OSError: the path cannot be opened.
        LookupError: no such mount is listed.
    """
    fd = os.open(path, os.O_PATH)
    try:
        wanted = _mount_id(fd)
    finally:
        os.close(fd)
    for mount in mounts:
        if mount.mount_id == wanted:
            return mount
    raise LookupError(path)


def is_below(path: bytes, parent: bytes) -> bool:
    """Tell whether a normal absolute path is ``parent`` or lies in it."""
    return path == parent or path.startswith(parent.rstrip(b"/") + b"/")


def join(parent: bytes, child: bytes) -> bytes:
    """Put an absolute or relative path below another."""
    return (parent.rstrip(b"/") + b"/" + child.lstrip(b"/")).rstrip(b"/") or b"/"


def place_in_filesystem(path: bytes, mount: HostMount) -> bytes:
    """Give the path inside the filesystem of what the host finds at ``path`` on ``mount``."""
    return join(mount.root, path[len(mount.path.rstrip(b"/")) :])


def aliases(device: bytes, place: bytes, mounts: Iterable[HostMount]) -> tuple[bytes, ...]:
    """Give every path under which a place of a filesystem, or a part of it, appears.

    A mount whose root contains the place shows it below its path; one whose root lies inside the place is a part of it
    and is given as a whole.
    """
    found = []
    for mount in mounts:
        if mount.device != device:
            continue
        if is_below(place, mount.root):
            found.append(join(mount.path, place[len(mount.root.rstrip(b"/")) :]))
        elif is_below(mount.root, place):
            found.append(mount.path)
    return tuple(dict.fromkeys(found))
