"""Doctor's questions about the box: what can be enforced here. Each is tried, in namespaces that then vanish."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from policies.types import NetworkPolicy
from probes.doctor_findings import (
    EVERY_VERDICT,
    FINALITY,
    SCOPE,
    SEPARATION,
    Answered,
    Question,
    needs_root,
    no,
    untested,
    yes,
)
from probes.doctor_preflight import (
    BOXINIT,
    HINT_BUILD,
    HINT_BWRAP,
    HINT_CGROUP,
    find_cgroup2,
)
from probes.doctor_trials import PATIENCE_S, Tried, find_program, try_program, try_script, waiting_program
from supervisor.launch.cgroup import Cgroup

GROUP = "Box: what can be enforced"
NAMESPACES = ("pid", "mount", "net", "ipc", "uts", "cgroup")
OLDEST_BWRAP = (0, 8)

OVERLAY_SCRIPT = """
mount -t tmpfs none /mnt
mkdir -p "$1/upper" "$1/work" /mnt/lower/directory /mnt/merged
mount -t overlay -o "lowerdir=/mnt/lower,upperdir=$1/upper,workdir=$1/work$2" none /mnt/merged
mv /mnt/merged/directory /mnt/merged/renamed
"""
"""``$1`` is a directory on the file system of the state, ``$2`` more mount options."""


def _judged(tried: Tried | None, program: str) -> Answered:
    if tried is None:
        return untested(f"no {program} program")
    return yes() if tried.worked else no(tried.output or "refused")


def _as_root() -> Answered | None:
    return needs_root() if os.geteuid() else None


def examine_bubblewrap() -> Answered:
    """Bubblewrap: its version, and a box made with it."""
    version = try_program("bwrap", "--version")
    if version is None:
        return no("no bwrap program")
    if tuple(int(part) for part in re.findall(r"\d+", version.output)[:2]) < OLDEST_BWRAP:
        return no(f"expected 0.8 or newer, got {version.output}")
    boxed = try_program("bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true")
    return yes(version.output) if boxed and boxed.worked else no(boxed.output if boxed else "it vanished")


def examine_namespaces() -> Answered:
    """Every namespace that a box has of its own."""
    if (answered := _as_root()) is not None:
        return answered
    if find_program("unshare") is None:
        return untested("no unshare program")
    refused = [name for name in NAMESPACES if not _unshares(name)]
    return no(f"refused: {', '.join(refused)}") if refused else yes(", ".join(NAMESPACES))


def _unshares(name: str) -> bool:
    options = ("--pid", "--fork") if name == "pid" else (f"--{name}",)
    tried = try_program("unshare", *options, "true")
    return tried is not None and tried.worked


def examine_cgroup() -> Answered:
    """A cgroup v2 mount, alone or beside v1."""
    root = find_cgroup2()
    if root is None:
        return no("no cgroup2 file system is mounted")
    return yes(f"{root} ({'pure' if root == Path('/sys/fs/cgroup') else 'hybrid, beside v1'})")


def examine_cgroup_kill() -> Answered:
    """Freeze, thaw and kill a process in a cgroup made for it."""
    root = find_cgroup2()
    if root is None:
        return untested("no cgroup2 file system is mounted")
    if (answered := _as_root()) is not None:
        return answered
    cgroup = Cgroup.create(root, f"doctor-{os.getpid()}")
    try:
        with waiting_program("exec true") as program:
            cgroup.add(program.pid)
            frozen = cgroup.freeze(PATIENCE_S) and cgroup.thaw()
            cgroup.kill()
            emptied = cgroup.wait_empty(PATIENCE_S)
        atomic = (cgroup.path / "cgroup.kill").exists()
    finally:
        cgroup.remove()
    if not (frozen and emptied):
        return no(f"frozen and thawed: {frozen}, emptied: {emptied}")
    return yes() if atomic else no("no cgroup.kill: members are killed one by one instead")


def examine_overlay(state_dir: Path, options: str) -> Answered:
    """Mount an overlay whose upper layer lies where staged writes will, and rename a directory of the lower one."""
    if (answered := _as_root()) is not None:
        return answered
    place = nearest(state_dir)
    scratch = Path(tempfile.mkdtemp(prefix=".doctor-", dir=place))
    try:
        return _judged(try_script(OVERLAY_SCRIPT, str(scratch), options), "unshare")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def nearest(path: Path) -> Path:
    """Give the directory itself, or the nearest one above it that exists."""
    return next(place for place in (path, *path.parents) if place.is_dir())


def examine_seccomp() -> Answered:
    """The library that writes the filter, and the actions that the kernel takes."""
    try:
        import pyseccomp  # noqa: F401, PLC0415 -- it fails at import when libseccomp.so.2 is not there
    except (ImportError, RuntimeError, OSError) as error:
        return no(f"libseccomp cannot be used: {error}")
    try:
        actions = Path("/proc/sys/kernel/seccomp/actions_avail").read_text(encoding="ascii").split()
    except OSError as error:
        return no(f"the kernel has no seccomp filters: {error.strerror}")
    absent = {"kill_process", "errno"} - set(actions)
    return no(f"the kernel lacks {', '.join(sorted(absent))}") if absent else yes("kill_process, errno")


def examine_init() -> Answered:
    """The box's init, which is started inside and must not need a library there."""
    if not os.access(BOXINIT, os.X_OK):
        return no(f"{BOXINIT.name} was not built")
    return yes(f"{BOXINIT.stat().st_size >> 10} KiB")


IDMAP_SCRIPT = """
mount -t tmpfs none /mnt
mkdir /mnt/shown
mount --bind -o X-mount.idmap=b:0:1000:1 /mnt/shown /mnt/shown
stat -c %u /mnt/shown
"""


def examine_idmap() -> Answered:
    """Idmapped mounts: root inside could then be nobody outside."""
    if (answered := _as_root()) is not None:
        return answered
    tried = try_script(IDMAP_SCRIPT)
    if tried is None:
        return untested("no unshare program")
    if tried.worked and tried.output != "1000":
        # Older mount programs pass over what they do not know.
        return untested("this mount program cannot ask for one; root inside is root without capabilities")
    return yes() if tried.worked else no(tried.output)


def examine_gateway() -> Answered:
    """A network namespace in which every address is local and every connection comes to the gateway."""
    if (answered := _as_root()) is not None:
        return answered
    from probes.gateway.process import Gateway  # noqa: PLC0415 - it brings events with it
    from supervisor.errors import SuperviseError  # noqa: PLC0415

    gateway = Gateway.start(NetworkPolicy())
    try:
        gateway.namespace()
        return yes() if os.read(gateway.ready, 1) else no(gateway.failure().message)
    except SuperviseError as err:
        return no(err.message)
    finally:
        gateway.close()


def examine_landlock() -> Answered:
    """Landlock, by the kernel's list of security modules."""
    try:
        modules = Path("/sys/kernel/security/lsm").read_text(encoding="ascii").split(",")
    except OSError:
        return untested("securityfs is not mounted, so which security modules are on cannot be told")
    return yes() if "landlock" in modules else no("not among the security modules that are on")


def questions(state_dir: Path) -> tuple[Question, ...]:
    """Give the questions about the box; staged writes will lie below ``state_dir``."""
    return (
        Question(
            name="bubblewrap",
            group=GROUP,
            asks="bubblewrap makes a box",
            probe=examine_bubblewrap,
            hint=HINT_BWRAP,
            costs=EVERY_VERDICT,
            needed=True,
        ),
        Question(
            name="boxinit",
            group=GROUP,
            asks="the box's init",
            probe=examine_init,
            hint=HINT_BUILD,
            costs=EVERY_VERDICT,
            needed=True,
        ),
        Question(
            name="namespaces",
            group=GROUP,
            asks="namespaces",
            probe=examine_namespaces,
            hint="allow them: in a container it takes --privileged, or CAP_SYS_ADMIN without a seccomp profile",
            costs=EVERY_VERDICT,
            needed=True,
        ),
        Question(
            name="cgroup",
            group=GROUP,
            asks="cgroup v2",
            probe=examine_cgroup,
            hint=HINT_CGROUP,
            costs=EVERY_VERDICT,
            needed=True,
        ),
        Question(
            name="cgroup-kill",
            group=GROUP,
            asks="freeze and kill a whole cgroup",
            probe=examine_cgroup_kill,
            hint="boot a kernel of version 5.14 or newer, and let the cgroup tree be written to",
            costs=(FINALITY,),
        ),
        Question(
            name="overlay",
            group=GROUP,
            asks="staged writes (overlayfs at the state directory)",
            probe=lambda: examine_overlay(state_dir, ",redirect_dir=on,index=on,metacopy=off"),
            hint="set SUPERVISE_HOME to a directory on ext4, xfs, btrfs or tmpfs; or use --direct",
            costs=(SCOPE, SEPARATION),
            needed=True,
        ),
        Question(
            name="seccomp",
            group=GROUP,
            asks="a seccomp filter for calls that lead out of the box",
            probe=examine_seccomp,
            hint="as root: apt-get install libseccomp2; the kernel needs CONFIG_SECCOMP_FILTER",
            costs=EVERY_VERDICT,
            needed=True,
        ),
        Question(
            name="idmap",
            group=GROUP,
            asks="idmapped mounts",
            probe=examine_idmap,
            hint="nothing to do: a box does without",
        ),
        Question(
            name="gateway",
            group=GROUP,
            asks="a network that a gateway serves (BPF sk_lookup)",
            probe=examine_gateway,
            hint="as root, with a kernel of version 6.1 or newer; allow network namespaces and BPF programs",
            costs=EVERY_VERDICT,
            needed=True,
        ),
        Question(
            name="landlock",
            group=GROUP,
            asks="landlock, a second fence",
            probe=examine_landlock,
            hint="nothing to do: a box does without",
        ),
    )
