"""What dead supervisors left behind, and taking it away.

A run whose supervisor died is kept as it is, unsealed: its log is evidence. What goes is only what acts or what takes
room for nothing: its cgroup with everybody in it, its mounts, its discarded writes and its mount points.

Laws:
    * A live run is never touched. The owner of a run is a process with its start time and boot (`Owner`); no owner on
      record means that the making of the run was cut short, which the home's lock tells from a making under way.
    * Doing nothing is cheap: two short directories are read, however many runs there are.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from supervisor.errors import MachineError
from supervisor.launch.cgroup import PARENT, Cgroup
from supervisor.launch.controllers import remove_orphans, remove_parent
from supervisor.launch.disk.removing import remove_tree
from supervisor.launch.runs.state import Home, RunDir
from supervisor.launch.view.detach import mounts_below, unmount_below

_EMPTY_S = 10.0
_QUARANTINE = b".supervise-"
_UNOWNED_S = 60.0
"""Age from which an empty cgroup without an owner is taken for one whose making was cut short."""


def sweep(home: Home, cgroup_root: Path) -> tuple[str, ...]:
    """Clean up after supervisors that died.

    Args:
        home: whose runs to look at.
        cgroup_root: where cgroup v2 is mounted; cgroups of other homes are recognised by their own owner.

    Returns:
        What was cleaned, as text for a notice: ``run 20261130-080642-k3f9: killed, cgroup removed``.
    """
    if not any(home.live.iterdir()) and not (cgroup_root / PARENT).is_dir():
        return ()
    with home.locked():
        parent = cgroup_root / PARENT
        return *_sweep_cgroups(home, parent), *_sweep_orphans(parent), *_sweep_runs(home)


def clean_cgroup(cgroup: Cgroup) -> None:
    """Kill every member until the kernel says that there is none, then remove the cgroup.

    Raises:
        MachineError: a member cannot be killed, because it hangs inside the kernel.
    """
    if not cgroup.path.is_dir():
        return
    deadline = time.monotonic() + _EMPTY_S
    cgroup.kill()
    while not cgroup.wait_empty(0.2):
        if time.monotonic() >= deadline:
            message = f"processes {cgroup.pids()} cannot be killed"
            raise MachineError(message, place=str(cgroup.path))
        cgroup.kill()
    cgroup.remove()


def clean_run(run: RunDir) -> None:
    """Remove mounts, discarded writes and mount points of a run; its manifest, log and stage stay."""
    unmount_below(run.path)
    for directory in (run.outside, run.box):
        remove_tree(directory)
    run.close()


def forget_run(run: RunDir) -> None:
    """Remove a run that nothing was ever released in: it is in no registry, and its log says nothing of anybody.

    What is still mounted below it stays, with the directory: removing must never reach through a mount.
    """
    unmount_below(run.path)
    if not mounts_below(run.path):
        remove_tree(run.path)
    run.close()


def unfinished_commits(home: Home, workspace: bytes) -> tuple[str, ...]:
    """Give the runs whose commit to a workspace was begun and not finished, by what lies there meanwhile.

    That is its quarantine, ``.supervise-RUN-0`` (`supervisor.launch.stage.layer.Layer`). Whoever commits at this moment
    has the workspace locked: then nothing is said.
    """
    try:
        names = [name for name in os.listdir(workspace) if name.startswith(_QUARANTINE)]  # noqa: PTH208 - names alone
    except OSError:
        return ()
    runs = dict.fromkeys(os.fsdecode(name[len(_QUARANTINE) :].rpartition(b"-")[0]) for name in names)
    begun = tuple(run for run in runs if (home.runs / run).is_dir() and in_commit(RunDir(home.runs / run)))
    return () if begun and _is_locked(workspace) else begun


def in_commit(run: RunDir) -> bool:
    """Tell whether a commit was begun and not finished: it is under way, or whoever made it has died."""
    from supervisor.launch.stage.journal import Journal, Phase  # noqa: PLC0415 - there is hardly ever anything to sweep

    places = (run.stage, run.stage / "forced", *run.nested.glob("*"), *run.nested.glob("*/forced"))
    begun = [place for place in places if (place / "commit.phase").exists()]
    try:
        return any(Journal(place, durable=False).phase() is not Phase.DONE for place in begun)
    except (FileNotFoundError, ValueError):
        return False


def _is_locked(directory: bytes) -> bool:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False


def _sweep_cgroups(home: Home, parent: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(parent) if entry.is_dir())
    except FileNotFoundError:
        return []
    cleaned = [text for name in names if (text := _sweep_cgroup(home, parent / name))]
    remove_parent(parent)
    return cleaned


def _sweep_orphans(parent: Path) -> tuple[str, ...]:
    return tuple(f"run {name}: empty cgroup of a v1 controller removed" for name in remove_orphans(parent))


def _sweep_cgroup(home: Home, path: Path) -> str | None:
    try:
        cgroup = Cgroup.at(path)
        owner = cgroup.owner() or RunDir(home.runs / path.name).read_owner()
        if owner is None:
            return _remove_unowned(cgroup)
        if owner.alive():
            return None
        clean_cgroup(cgroup)
    except FileNotFoundError:
        return None  # somebody else was faster
    except MachineError as err:
        return f"run {path.name}: {err.message}"
    return f"run {path.name}: cgroup emptied and removed"


def _remove_unowned(cgroup: Cgroup) -> str | None:
    age_s = time.time() - cgroup.path.stat().st_ctime
    if cgroup.populated() or age_s < _UNOWNED_S:
        return None
    cgroup.remove()
    return f"run {cgroup.path.name}: empty cgroup removed"


def _sweep_runs(home: Home) -> list[str]:
    runs = [RunDir(home.runs / entry.name) for entry in sorted(home.live.iterdir())]
    return [text for run in runs if (text := _sweep_run(run))]


def _sweep_run(run: RunDir) -> str | None:
    owner = run.read_owner()
    if owner is not None and owner.alive():
        return None
    clean_run(run)
    interrupted = f"; its commit was interrupted: supervise commit {run.id}" if in_commit(run) else ""
    return f"run {run.id}: mounts and discarded writes removed{interrupted}"
