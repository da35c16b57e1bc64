# Paths of the kernel are bytes, which pathlib does not take.
"""What a grader sees of the host's files: the plan as data, as `supervisor.launch.view.view` makes that of a trial.

Laws:
    * Everything is read-only, the host's /tmp and what the trial must not read among it. What a grader may write is
      /run and /dev/shm, which are its own and empty.
    * At the workspace's path lies the outcome as it was captured, put together from layers over the workspace as it was
      before; never what a process that is still alive could write.
    * Kernel filesystems and the directory of our runs are not shown, as in a trial's view.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from supervisor.launch.libc import MountFlag
from supervisor.launch.view.mounting import (
    Bind,
    MakeDirectory,
    MakeFile,
    Mask,
    MountOutcome,
    MountPrivate,
    MountTmpfs,
    Step,
)
from supervisor.launch.view.mounts import (
    HostMount,
    aliases,
    is_below,
    is_visible,
    join,
    mount_of,
    place_in_filesystem,
    read_mounts,
)
from supervisor.launch.view.view import KERNEL_FILESYSTEMS, View
from supervisor.values import dataclass

_NEVER = (b"/proc", b"/sys", b"/dev", b"/run")
_READ_ONLY = MountFlag.RDONLY | MountFlag.NOSUID | MountFlag.NODEV
_SHM = b"/dev/shm"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderViewSpec:
    """What is asked of a grader's view.

    Attributes:
        workspace: absolute, free of symbolic links.
        layers: directories in the form of an overlay's upper tree, the topmost first, over ``base``.
        base: the directory that they are laid over: the workspace, or an example that stands for it.
        nested: mounts below the workspace that were captured too, each with its layer.
        box: directory of ours that is the mount point.
        state: the directory of all runs, masked.
        write_to: directory of ours for what is written to the workspace, or None when it is read-only.
    """

    workspace: bytes
    layers: tuple[bytes, ...]
    base: bytes
    box: bytes
    state: bytes
    write_to: bytes | None = None
    nested: tuple[tuple[bytes, bytes], ...] = ()


def plan_grader_view(spec: GraderViewSpec) -> View:
    """Look at the host and make the plan. Mounts nothing.

    Raises:
        OSError, LookupError: the host's mounts cannot be looked at.
    """
    mounts = read_mounts()
    root, shm = join(spec.box, b"root"), join(spec.box, b"shm")
    return View(
        root=root,
        shm=shm,
        empty_file=join(spec.box, b"empty"),
        empty_directory=join(spec.box, b"void"),
        workspace=spec.workspace,
        steps=(
            *_scratch(spec.box, root, shm),
            *_host(spec, mounts, root, shm),
            *_masks(spec, mounts, root, shm),
        ),
    )


def _scratch(box: bytes, root: bytes, shm: bytes) -> Iterable[Step]:
    yield MountTmpfs(target=box)
    yield MakeDirectory(target=root)
    yield MakeDirectory(target=shm)
    yield MountTmpfs(target=shm, mode=0o1777)
    yield MakeFile(target=join(box, b"empty"), mode=0)
    yield MakeDirectory(target=join(box, b"void"), mode=0)


def _host(spec: GraderViewSpec, mounts: tuple[HostMount, ...], root: bytes, shm: bytes) -> Iterable[Step]:
    """Give every mount that is shown and the outcome, each before what lies below it."""
    captured = {spec.workspace, *(point for point, _ in spec.nested)}
    shown = [mount.path for mount in mounts if mount.path not in {b"/", *captured} and _is_shown(mount, spec)]
    inside, path = (shm, spec.workspace[len(_SHM) :]) if is_below(spec.workspace, _SHM) else (root, spec.workspace)
    steps: list[Bind | MountPrivate | MountOutcome] = [
        Bind(root=root, path=b"/", source=b"/", flags=_READ_ONLY),
        MountPrivate(root=root, path=b"/run", mode=0o755),
        *(Bind(root=root, path=path, source=path, flags=_READ_ONLY) for path in shown),
        MountOutcome(root=inside, path=path, layers=spec.layers, base=spec.base, write_to=spec.write_to),
        *(MountOutcome(root=root, path=point, layers=(layer,), base=point) for point, layer in spec.nested),
    ]
    return sorted(steps, key=lambda step: step.path.rstrip(b"/").split(b"/"))


def _is_shown(mount: HostMount, spec: GraderViewSpec) -> bool:
    if mount.fstype in KERNEL_FILESYSTEMS or is_below(mount.path, spec.state) or not is_visible(mount):
        return False
    if is_below(mount.path, spec.workspace):
        return spec.base == spec.workspace  # an example stands for all of it
    return not any(is_below(mount.path, never) for never in _NEVER)


def _masks(spec: GraderViewSpec, mounts: tuple[HostMount, ...], root: bytes, shm: bytes) -> Iterable[Step]:
    state = os.path.realpath(spec.state)
    home = mount_of(state, mounts)
    shown = [mount for mount in mounts if mount.path == b"/" or _is_shown(mount, spec)]
    found = aliases(home.device, place_in_filesystem(state, home), shown)
    empty, void = join(spec.box, b"empty"), join(spec.box, b"void")
    for path in dict.fromkeys((state, *found)):
        inside, where = (shm, path[len(_SHM) :]) if is_below(path, _SHM) else (root, path)
        yield Mask(root=inside, path=where, empty_file=empty, empty_directory=void)
