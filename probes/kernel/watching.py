"""What a trial is watched for beside what it changes: shared places, hidden ones, and the names of those.

In: the mounts of a trial as its own mount namespace has them, and the paths that were declared. Out: `Looks`, which the
witness is told before the trial is released. The rule it keeps: what is not known for sure to lie elsewhere is told.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from probes.kernel import abi
from supervisor.launch.view.mounts import HostMount, is_below
from supervisor.values import dataclass

_BASIS, _FACTOR, _MASK = 0xCBF29CE484222325, 0x9E3779B97F4A7C15, (1 << 64) - 1
_WORD = 8
_WILD = frozenset(b"*?[")
_ONE_DEVICE = frozenset((b"ext2", b"ext3", b"ext4", b"xfs", b"tmpfs", b"vfat", b"f2fs", b"ntfs3"))
"""Kinds of file systems on which stat() answers with the device of the mount for every file. On others (btrfs with its
subvolumes, overlays of two disks) it may not: there every look-up is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What to watch for.

    Attributes:
        mounts: ids of the mounts that shared and hidden places are, in the trial's own namespace.
        shared: whether there is a shared place: reads are told each time, and look-ups whatever their names.
        devices: of the shared places' file systems, as in `RECORD`; None when stat() may answer with others.
        names: components of paths by which look-ups of hidden places, and of what others left, are known.
        masks: devices of what hides places of which every attempt is told, by whatever name.
    """

    mounts: tuple[int, ...] = ()
    shared: bool = False
    devices: tuple[int, ...] | None = None
    names: tuple[bytes, ...] = ()
    masks: tuple[int, ...] = ()

    def flags(self) -> abi.Look:
        """Give what the programs are to do."""
        flags = abi.Look(0)
        if self.mounts:
            flags |= abi.Look.MOUNTS
        if self.shared:
            flags |= abi.Look.SHARED | abi.Look.EVERY
        if self.masks:
            flags |= abi.Look.HIDDEN
        if (self.shared or self.masks) and self.devices is not None:
            flags |= abi.Look.DEVICES
        if self.names:
            flags |= abi.Look.NAMES
        return flags

    def pack(self) -> bytes:
        """Give ``struct w_looks``."""
        words = [0] * 16
        for name in self.names:
            number = hash_name(name)
            words[number >> 60] |= 1 << (number >> 54 & 63)
        return abi.LOOKS.pack(self.flags(), 0, *words)

    def entries(self, cgroup: int) -> Iterator[bytes]:
        """Give each ``struct w_watched``."""
        for sort, numbers in (
            (abi.Watch.MOUNT, self.mounts),
            (abi.Watch.DEVICE, sorted({*(self.devices or ()), *self.masks})),
            (abi.Watch.NAME, map(hash_name, self.names)),
        ):
            for number in numbers:
                yield abi.WATCHED.pack(cgroup, number, sort, 0)


def hash_name(name: bytes) -> int:
    """Digest one component of a path, as the programs do: eight letters at a time, the rest with zeros."""
    number = _BASIS
    for at in range(0, len(name), _WORD):
        number = (number ^ int.from_bytes(name[at : at + _WORD], "little")) * _FACTOR & _MASK
        number ^= number >> 32
    return number


def plan_looks(
    mounts: Iterable[HostMount],
    *,
    shared: Iterable[bytes],
    hidden: Iterable[bytes],
    left: Iterable[bytes] = (),
    denied: Iterable[bytes] = (),
) -> Looks:
    """Find out what to watch for.

    Args:
        mounts: of the trial, from the mountinfo of one of its processes.
        shared: absolute paths of shared places, each with a mount of its own.
        hidden: absolute paths, or globs, of what the trial must not see, whether or not it is there.
        left: components of paths that other trials left.
        denied: absolute paths of hidden places of which every attempt is to be told.
    """
    places, globs = tuple(shared), tuple(hidden)
    ours = [mount for mount in mounts if any(is_below(mount.path, place) for place in places)]
    masks = frozenset(path for path in globs if not _WILD.intersection(path))
    wild = [path for path in globs if _WILD.intersection(path)]
    covered = [mount for mount in mounts if mount.path in masks or any(_may_cover(mount.path, glob) for glob in wild)]
    refused = frozenset(denied)
    known = (places or refused) and all(mount.fstype in _ONE_DEVICE for mount in ours)
    return Looks(
        mounts=tuple(sorted({mount.mount_id for mount in (*ours, *covered)})),
        shared=bool(places),
        devices=tuple(sorted({_device(mount) for mount in ours})) if known else None,
        names=tuple(sorted({name for name in (*map(_name_of, globs), *left) if name})),
        masks=tuple(sorted({_device(mount) for mount in covered if mount.path in refused})),
    )


def _may_cover(path: bytes, glob: bytes) -> bool:
    """Tell whether a mount may be the mask of what a glob means: one that is none only costs records.

    Both have as many components, compared where there is no wildcard.
    """
    ours, theirs = path.split(b"/"), glob.split(b"/")
    return (
        path != b"/"
        and len(ours) == len(theirs)
        and all(_WILD.intersection(pattern) or name == pattern for name, pattern in zip(ours, theirs, strict=True))
    )


def overlay_devices(mounts: Iterable[HostMount]) -> tuple[int, ...]:
    """Give the devices of the overlays, under which a file of a lower tree has its own inode number."""
    return tuple(sorted({_device(mount) for mount in mounts if mount.fstype == b"overlay"}))


def _device(mount: HostMount) -> int:
    """Give the number of a device as the kernel has it: 12 bits of major, 20 of minor."""
    major, _, minor = mount.device.partition(b":")
    return int(major) << 20 | int(minor)


def _name_of(glob: bytes) -> bytes:
    """Give the last component without a wildcard: who looks up what a glob means has to name it."""
    while glob not in {b"", b"/"}:
        glob, name = posixpath.split(glob)
        if name and not _WILD.intersection(name):
            return name
    return b""
