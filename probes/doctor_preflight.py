"""What a run asks of the machine before anything is started: a few file look-ups, no trial, no process.

Light on purpose: it runs before every trial and may cost 5 ms with its imports. `probes.doctor` tries what is only
looked up here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from probes.kernel.early import OBJECT
from supervisor.errors import MachineError
from supervisor.launch.cgroup import find_root

PACKAGES = Path(__file__).resolve().parent.parent
BTF = Path("/sys/kernel/btf/vmlinux")
WITNESS = Path(OBJECT)
DIVERT = PACKAGES / "probes" / "gateway" / "divert.bpf.o"
BOXINIT = PACKAGES / "supervisor" / "launch" / "boxinit"

NEEDED_CAPABILITIES = {
    "DAC_OVERRIDE": 1,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_ADMIN": 12,
    "SYS_CHROOT": 18,
    "SYS_ADMIN": 21,
    "MKNOD": 27,
    "PERFMON": 38,
    "BPF": 39,
}
"""By their bit in the capability set (linux/capability.h)."""

INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""The inode number of the machine's own pid namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""

HINT_ROOT = "run it as root: sudo supervise ... (the command itself runs as you)"
HINT_BTF = "boot a kernel of version 6.1 or newer built with CONFIG_DEBUG_INFO_BTF=y; Debian's and Ubuntu's are"
HINT_BWRAP = "as root: apt-get install bubblewrap"
HINT_CGROUP = "mount one: mount -t cgroup2 none /sys/fs/cgroup/unified, or boot with systemd.unified_cgroup_hierarchy=1"
HINT_BUILD = "in a clone: make setup (it needs clang); else install a wheel, which carries it"


def require_machine() -> None:
    """Check that a trial can be witnessed and boxed here at all.

    Raises:
        MachineError: something is missing; the message names all of it, the hint says what to do about each.
    """
    lacking = tuple(_lacking())
    if lacking:
        message = "this machine lacks what a trial needs: " + "; ".join(name for name, _ in lacking)
        raise MachineError(message, hint="; ".join(dict.fromkeys(hint for _, hint in lacking)))


def missing_capabilities() -> tuple[str, ...]:
    """Name the capabilities that root lacks here, of those that a run needs."""
    effective = 0
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
    return tuple(name for name, bit in NEEDED_CAPABILITIES.items() if not effective >> bit & 1)


def find_cgroup2() -> Path | None:
    """Find the cgroup v2 mount, or None. On a hybrid host it is a hierarchy of its own beside those of v1."""
    try:
        return find_root()
    except MachineError:
        return None


def has_program(name: str) -> bool:
    """Tell whether a program is there, without the search that `shutil.which` would be imported for."""
    places = (*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/bin", "/bin", "/usr/sbin", "/sbin")
    return any(os.access(f"{place}/{name}", os.X_OK) for place in places if place)


def _lacking() -> Iterator[tuple[str, str]]:
    if os.geteuid():
        # Nothing else is worth saying: without root most of it cannot even be looked at.
        yield "root", HINT_ROOT
        return
    if missing := missing_capabilities():
        yield f"capabilities of root ({', '.join(missing)})", "start the container or service with them"
    if Path("/proc/self/ns/pid").stat().st_ino != INITIAL_PID_NAMESPACE:
        # The kernel witness names processes as the machine does, and we would look for them under other numbers.
        yield "the machine's own pid namespace", "run it outside the container, or in one started with --pid=host"
    if not BTF.exists():
        yield "kernel type information (BTF)", HINT_BTF
    if not has_program("bwrap"):
        yield "bubblewrap", HINT_BWRAP
    if find_cgroup2() is None:
        yield "cgroup v2", HINT_CGROUP
    if not WITNESS.exists():
        yield f"the kernel witness ({WITNESS.name})", HINT_BUILD
    if not DIVERT.exists():
        yield f"the gateway's diversion ({DIVERT.name})", HINT_BUILD
    if not os.access(BOXINIT, os.X_OK):
        yield f"the box's init ({BOXINIT.name})", HINT_BUILD
