"""Doctor's questions to the kernel: what can be witnessed here.

What the kernel declares is read from its own type information; the witness itself is loaded and attached, since that is
the only answer that counts (a hardened kernel declares program types that it then refuses).
"""

from __future__ import annotations

import functools
import os
import platform
import re
import time
from pathlib import Path

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
    BTF,
    HINT_BTF,
    HINT_BUILD,
    HINT_ROOT,
    WITNESS,
    find_cgroup2,
    missing_capabilities,
)
from probes.doctor_trials import try_script, waiting_program

GROUP = "Witness: what the kernel shows"
OLDEST = (6, 1)
"""A cgroup has its ancestors, by which members are known, since 6.1; bpf_loop is older."""


@functools.cache
def type_information() -> bytes:
    """Read the kernel's BTF once; its string section names every type, enumerator and function that BPF may use."""
    return BTF.read_bytes()


def declares(name: str) -> bool:
    """Tell whether the kernel's BTF has exactly that name."""
    return b"\0" + name.encode() + b"\0" in type_information()


def _declared(*names: str) -> Answered:
    if not BTF.exists():
        return untested("there is no BTF to look in")
    absent = [name for name in names if not declares(name)]
    return no(f"the kernel does not declare {', '.join(absent)}") if absent else yes()


def examine_root() -> Answered:
    """Root, and the capabilities that a run needs."""
    if os.geteuid():
        return no(f"running as uid {os.geteuid()}")
    missing = missing_capabilities()
    return no(f"root lacks CAP_{', CAP_'.join(missing)}") if missing else yes("with every capability that a run needs")


def examine_version() -> Answered:
    """The version, as numbers."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
    return yes(platform.release()) if numbers >= OLDEST else no(f"expected 6.1 or newer, got {platform.release()}")


def examine_architecture() -> Answered:
    """The architectures that the witness knows the registers of."""
    machine = platform.machine()
    if machine == "x86_64":
        return yes(machine)
    return untested(f"{machine}: built for, never tried") if machine == "aarch64" else no(machine)


def examine_btf() -> Answered:
    """BTF of the running kernel."""
    return yes(f"{len(type_information()) >> 20} MiB") if BTF.exists() else no(f"no {BTF}")


def examine_witness() -> Answered:
    """Load and attach the very object that trials are witnessed with, and hear one command with it."""
    if not WITNESS.exists():
        return no(f"{WITNESS.name} was not built")
    if os.geteuid():
        return needs_root()
    root = find_cgroup2()
    if root is None:
        return untested("there is no cgroup v2 to watch")
    started = time.monotonic()
    records = hear_a_trial(root)
    took = f"{(time.monotonic() - started) * 1e3:.0f} ms"
    return yes(f"{records} records of one `true`, {took}") if records else no("it attached, and heard nothing")


def hear_a_trial(cgroup_root: Path) -> int:
    """Watch a cgroup in which ``true`` is run, as a run would be watched.

    Returns:
        How many records the kernel gave.
    """
    # Imported here because they bind libbpf.so, which may not be there.
    from probes.kernel.witness import KernelWitness  # noqa: PLC0415
    from supervisor.launch.cgroup import Cgroup  # noqa: PLC0415

    heard: list[int] = []
    cgroup = Cgroup.create(cgroup_root, f"doctor-{os.getpid()}")
    try:
        witness = KernelWitness.watch(cgroup_root, cgroup.path)
    except BaseException:
        cgroup.remove()
        raise
    try:
        with waiting_program("exec true") as program:
            cgroup.add(program.pid)
        witness.ring.drain(lambda _slab, count: heard.append(count))
    finally:
        # In this order: the witness takes its programs away when no cgroup is left to watch.
        cgroup.remove()
        witness.close()
    return sum(heard)


def examine_bpffs() -> Answered:
    """A bpffs to pin in: the usual one, or one of our own."""
    if any(" - bpf " in line for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()):
        return yes("mounted")
    if os.geteuid():
        return needs_root()
    tried = try_script("mount -t bpf none /mnt")
    if tried is None:
        return untested("no unshare program")
    return yes("none is mounted; one can be") if tried.worked else no(tried.output)


def examine_lockdown() -> Answered:
    """Lockdown: 'confidentiality' forbids reading kernel memory, which the witness does."""
    try:
        words = Path("/sys/kernel/security/lockdown").read_text(encoding="ascii")
    except OSError:
        return untested("securityfs is not mounted; the witness above is the answer that counts")
    mode = words.partition("[")[2].partition("]")[0]
    return no("confidentiality: programs cannot read kernel memory") if mode == "confidentiality" else yes(mode)


def examine_pidfd() -> Answered:
    """A descriptor of this very process."""
    os.close(os.pidfd_open(os.getpid()))
    return yes()


QUESTIONS = (
    Question(
        name="root",
        group=GROUP,
        asks="root with its capabilities",
        probe=examine_root,
        hint=HINT_ROOT,
        costs=EVERY_VERDICT,
        needed=True,
    ),
    Question(
        name="kernel",
        group=GROUP,
        asks="kernel version",
        probe=examine_version,
        hint=HINT_BTF,
        costs=EVERY_VERDICT,
        needed=True,
    ),
    Question(
        name="architecture",
        group=GROUP,
        asks="processor architecture",
        probe=examine_architecture,
        hint="x86_64 is the one that is tested",
        costs=EVERY_VERDICT,
    ),
    Question(
        name="btf",
        group=GROUP,
        asks="kernel type information (BTF)",
        probe=examine_btf,
        hint=HINT_BTF,
        costs=EVERY_VERDICT,
        needed=True,
    ),
    Question(
        name="witness",
        group=GROUP,
        asks="the kernel witness loads, attaches and hears",
        probe=examine_witness,
        hint=HINT_BUILD,
        costs=EVERY_VERDICT,
        needed=True,
    ),
    Question(
        name="tracepoints",
        group=GROUP,
        asks="typed tracepoints of calls, forks, execs and exits",
        probe=lambda: _declared(
            "btf_trace_sys_exit",
            "btf_trace_sched_process_fork",
            "btf_trace_sched_process_exec",
            "btf_trace_sched_process_exit",
        ),
        hint=HINT_BTF,
        costs=EVERY_VERDICT,
        needed=True,
    ),
    Question(
        name="ring-buffer",
        group=GROUP,
        asks="ring buffers, one a trial",
        probe=lambda: _declared("BPF_MAP_TYPE_RINGBUF", "BPF_MAP_TYPE_HASH_OF_MAPS"),
        hint=HINT_BTF,
        costs=EVERY_VERDICT,
        needed=True,
    ),
    Question(
        name="bpf-loop",
        group=GROUP,
        asks="bpf_loop: a trial is slowed down before an event is lost",
        probe=lambda: _declared("BPF_FUNC_loop"),
        hint=HINT_BTF,
        costs=(SEPARATION, SCOPE),
    ),
    Question(
        name="cgroup-hooks",
        group=GROUP,
        asks="cgroup hooks on connect, sendmsg, bind and socket",
        probe=lambda: _declared("BPF_CGROUP_INET4_CONNECT", "BPF_CGROUP_UDP4_SENDMSG", "BPF_CGROUP_INET_SOCK_CREATE"),
        hint=HINT_BTF,
        costs=EVERY_VERDICT,
        needed=True,
    ),
    Question(
        name="bpffs",
        group=GROUP,
        asks="a bpffs to share one witness between trials",
        probe=examine_bpffs,
        hint="as root: mount -t bpf none /sys/fs/bpf",
    ),
    Question(
        name="lockdown",
        group=GROUP,
        asks="lockdown lets programs read kernel memory",
        probe=examine_lockdown,
        hint="boot with lockdown=integrity or without",
    ),
    Question(
        name="fanotify",
        group=GROUP,
        asks="fanotify, a second look at shared places",
        probe=lambda: _declared("fanotify_handle_event"),
        hint="nothing to do: the witness does not need it",
    ),
    Question(
        name="pidfd",
        group=GROUP,
        asks="descriptors of processes",
        probe=examine_pidfd,
        hint="boot a kernel of version 5.3 or newer",
        costs=(FINALITY,),
        needed=True,
    ),
)
