"""Doctor's questions about the rest of the host: room, limits, neighbours."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

from probes.doctor_box import nearest
from probes.doctor_findings import FINALITY, SCOPE, Answered, Question, no, untested, yes
from probes.doctor_trials import try_program
from supervisor.launch.cgroup import find_root
from supervisor.launch.controllers import NAMES, find_controllers

GROUP = "Host: room, limits, neighbours"
FICLONE = 0x40049409
"""linux/fs.h: make one file share the extents of another."""

ROOM_BYTES = 1 << 30
FILES = 1024


def examine_room(state_dir: Path) -> Answered:
    """Room for logs and staged writes."""
    free = shutil.disk_usage(nearest(state_dir)).free
    detail = f"{free / (1 << 30):.1f} GiB free at {state_dir}"
    return yes(detail) if free >= ROOM_BYTES else no(f"{detail}, expected 1 or more")


def examine_state(state_dir: Path) -> Answered:
    """A state directory that nobody else can look into."""
    if not state_dir.exists():
        return yes(f"{state_dir} will be made")
    found = state_dir.stat()
    if found.st_uid != os.geteuid():
        return no(f"{state_dir} belongs to uid {found.st_uid}")
    return no(f"{state_dir} has mode {found.st_mode & 0o777:o}") if found.st_mode & 0o077 else yes(str(state_dir))


def examine_reflink(state_dir: Path) -> Answered:
    """Copies that share their blocks: a snapshot at the endpoint is then instant."""
    place = nearest(state_dir)
    if not os.access(place, os.W_OK):
        return untested(f"{place} cannot be written to")
    with tempfile.TemporaryFile(dir=place) as source, tempfile.TemporaryFile(dir=place) as target:
        source.write(b"x" * 4096)
        source.flush()
        try:
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
        except OSError as error:
            return no(f"{place}: {error.strerror}; snapshots are copies")
    return yes(str(place))


def examine_neighbour() -> Answered:
    """Supervisord, whose import name is also ``supervisor``: beside us, one of the two would load the other's code."""
    try:
        version = metadata.version("supervisor")
    except metadata.PackageNotFoundError:
        ours = util.find_spec("supervisor.supervisord") is None
        return yes("not beside us") if ours else no("its modules lie where ours are looked for")
    return no(f"supervisor {version} is installed in {sys.prefix}: one of the two loads the other's modules")


def examine_docker() -> Answered:
    """A Docker daemon, for measurements beside it; no backend of this version uses one."""
    tried = try_program("docker", "version", "--format", "{{.Server.Version}}")
    if tried is None:
        return no("no docker program")
    return yes(tried.output) if tried.worked else no("no daemon answers")


def examine_files() -> Answered:
    """Open files: a campaign holds about ten for each trial."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    detail = f"{soft} open files, {hard} at most"
    return yes(detail) if hard == resource.RLIM_INFINITY or hard >= FILES else no(detail)


def examine_processes() -> Answered:
    """Processes that this user may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return yes("no limit" if soft == resource.RLIM_INFINITY else str(soft))


def examine_limits() -> Answered:
    """The controllers that the limits of a trial are enforced through."""
    found = find_controllers(find_root())
    places = [f"{name} (cgroup {'v1' if found[name].legacy else 'v2'})" for name in NAMES if name in found]
    missing = [name for name in NAMES if name not in found]
    detail = ", ".join(places) or "no controller"
    return no(f"{detail}; nothing limits {', '.join(missing)}") if missing else yes(detail)


def questions(state_dir: Path) -> tuple[Question, ...]:
    """Give the questions about the host, for that state directory."""
    return (
        Question(
            name="supervisord",
            group=GROUP,
            asks="supervisord is elsewhere",
            probe=examine_neighbour,
            hint="install supervise-eval in an environment of its own (venv, pipx): both are imported as 'supervisor'",
            needed=True,
        ),
        Question(
            name="state",
            group=GROUP,
            asks="state directory",
            probe=lambda: examine_state(state_dir),
            hint=f"chown it to root and chmod 0700 {state_dir}, or set SUPERVISE_HOME",
            needed=True,
        ),
        Question(
            name="room",
            group=GROUP,
            asks="room for logs and staged writes",
            probe=lambda: examine_room(state_dir),
            hint="make room, or set SUPERVISE_HOME to where there is",
            costs=(FINALITY, SCOPE),
        ),
        Question(
            name="reflink",
            group=GROUP,
            asks="instant snapshots",
            probe=lambda: examine_reflink(state_dir),
            hint="nothing to do; btrfs and xfs have them",
        ),
        Question(
            name="open-files",
            group=GROUP,
            asks="limit of open files",
            probe=examine_files,
            hint="raise it: ulimit -n 4096",
        ),
        Question(
            name="limits",
            group=GROUP,
            asks="limits of a trial",
            probe=examine_limits,
            hint="boot a kernel with the controllers pids, memory and cpu (cgroup_enable=memory on some boards); "
            "until then one trial can use up the machine",
        ),
        Question(name="processes", group=GROUP, asks="limit of processes", probe=examine_processes),
        Question(
            name="docker",
            group=GROUP,
            asks="a Docker daemon (asked only for services of kind docker)",
            probe=examine_docker,
            hint="nothing to do unless you want that backend",
        ),
    )
