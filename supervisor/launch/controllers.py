"""Where this machine keeps its cgroup controllers: in the v2 tree, in a v1 hierarchy of their own, or nowhere.

A trial is always a cgroup of the v2 tree. A controller that is mounted as a v1 hierarchy is not available there, so the
trial gets a companion in that hierarchy, ``<hierarchy>/supervise/<run>``.

Laws:
    * A companion is made after the v2 cgroup and removed before it: one that is alone was left behind.
    * What a run changed in the v2 tree's root (``cgroup.subtree_control``) is put back by whoever removes the last run.
      What was changed is an attribute of ``supervise/``; a lock on the root directory keeps the two from crossing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from supervisor.launch.view.mounts import HostMount, read_mounts
from supervisor.values import dataclass

NAMES = ("pids", "memory", "cpu")
"""The controllers that limits are enforced through."""

ENABLED_XATTR = "trusted.supervise.enabled"
"""Attribute of ``supervise/`` in the v2 tree: the controllers that were off in the root before."""

_MADE_AGAIN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One controller.

    Attributes:
        top: the root directory of the hierarchy that it is in.
        legacy: that is a v1 hierarchy.
    """

    name: str
    top: Path
    legacy: bool


def find_controllers(
    root: Path, mounts: Iterable[HostMount] | None = None, names: tuple[str, ...] = NAMES
) -> dict[str, Controller]:
    """Find out where the controllers are; one that is nowhere is left out.

    Args:
        root: where cgroup v2 is mounted.
        mounts: of the host; read when not given.
        names: which to look for.
    """
    found = {
        name: Controller(name=name, top=top, legacy=True)
        for name, top in _hierarchies(read_mounts() if mounts is None else mounts)
        if name in names
    }
    available = (root / "cgroup.controllers").read_text(encoding="ascii").split()
    return found | {name: Controller(name=name, top=root, legacy=False) for name in names if name in available}


def _hierarchies(mounts: Iterable[HostMount]) -> Iterator[tuple[str, Path]]:
    """Give each controller of a v1 hierarchy that is mounted whole, the first mount of it last, so that it counts."""
    for mount in reversed(tuple(mounts)):
        if mount.fstype == b"cgroup" and mount.root == b"/":
            yield from ((os.fsdecode(option), Path(os.fsdecode(mount.path))) for option in mount.controllers)


# -- the v2 tree -----------------------------------------------------------------------------------------------------


def enable(root: Path, parent: Path, names: Iterable[str]) -> None:
    """Make controllers available to the cgroups in ``parent``, which is a child of ``root`` and has one of ours in it.

    Raises:
        OSError: the kernel refuses it.
    """
    wanted = tuple(names)
    with _locked(root):
        off = [name for name in wanted if name not in _enabled(root)]
        if off:
            os.setxattr(parent, ENABLED_XATTR, " ".join(sorted({*_recorded(parent), *off})).encode())
        for directory in (root, parent):
            _switch(directory, "+", (name for name in wanted if name not in _enabled(directory)))


def remove_parent(parent: Path) -> None:
    """Remove ``supervise/`` of the v2 tree if no run is in it, and put back what was changed for its sake."""
    recorded = _recorded(parent)
    if not recorded:
        with suppress(OSError):
            parent.rmdir()
        return
    with _locked(parent.parent):
        try:
            parent.rmdir()
        except OSError:
            return
        _switch(parent.parent, "-", recorded)


def _enabled(directory: Path) -> list[str]:
    return (directory / "cgroup.subtree_control").read_text(encoding="ascii").split()


def _recorded(parent: Path) -> list[str]:
    try:
        return os.getxattr(parent, ENABLED_XATTR).decode().split()
    except OSError:
        return []


def _switch(directory: Path, sign: str, names: Iterable[str]) -> None:
    for name in names:
        (directory / "cgroup.subtree_control").write_text(sign + name, encoding="ascii")


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# -- directories -----------------------------------------------------------------------------------------------------


def make_below_parent(path: Path) -> None:
    """Make a cgroup in ``supervise/``, which the last run may be taking away at this very moment.

    Raises:
        OSError: it cannot be made.
    """
    for _ in range(_MADE_AGAIN):
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o755)
        try:
            path.mkdir(mode=0o755)
        except OSError as err:
            if err.errno not in {errno.ENOENT, errno.ENODEV}:
                raise
            continue
        return
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))


def make_companion(controller: Controller, cgroup: Path) -> Path:
    """Make a trial's cgroup in a v1 hierarchy; ``cgroup`` is that of the v2 tree."""
    path = controller.top / cgroup.parent.name / cgroup.name
    make_below_parent(path)
    return path


def remove_companions(cgroup: Path, *, timeout_s: float) -> None:
    """Remove what a trial has in v1 hierarchies. No member may be left.

    Raises:
        OSError: one is still in use.
    """
    deadline = time.monotonic() + timeout_s
    for companion in companions_of(cgroup):
        _remove(companion, deadline)
        with suppress(OSError):
            companion.parent.rmdir()


def companions_of(cgroup: Path) -> tuple[Path, ...]:
    """Give the cgroups that a trial has in v1 hierarchies."""
    places = {top / cgroup.parent.name / cgroup.name for name, top in _hierarchies(read_mounts()) if name in NAMES}
    return tuple(sorted(path for path in places if path != cgroup and path.is_dir()))


def remove_orphans(parent: Path) -> tuple[str, ...]:
    """Remove companions whose v2 cgroup is gone; gives their names. One that has members stays.

    Args:
        parent: ``supervise/`` of the v2 tree, there or not.
    """
    removed = set()
    for name, top in _hierarchies(read_mounts()):
        beside = top / parent.name
        if name not in NAMES or not beside.is_dir():
            continue
        for path in [Path(entry.path) for entry in os.scandir(beside) if entry.is_dir()]:
            if not (parent / path.name).is_dir():  # looked at after the companion was seen: see the first law
                with suppress(OSError):
                    path.rmdir()
                    removed.add(path.name)
        with suppress(OSError):
            beside.rmdir()
    return tuple(sorted(removed))


def _remove(path: Path, deadline: float) -> None:
    """Remove one cgroup of v1, which has nothing to wait for: it is free a moment after its last member has gone."""
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as err:
            if err.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.001)
            continue
        return
