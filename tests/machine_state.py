"""What a machine holds that a trial could leave behind: read before the tests and after them, then compared.

Goes in: nothing. Comes out: one frozen set of words for each sort of thing. A sort that cannot be read here (no root,
no program) is empty on both sides, so that it never counts as a difference.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

State = dict[str, frozenset[str]]

MARKER = "SUPERVISE_TEST_SESSION"
"""In the environment of every process that this session starts, and so of what those leave behind."""

PINS = Path("/run/supervise/bpf")
PROGRAM_TYPES = frozenset(
    {"tracing", "raw_tracepoint", "cgroup_sock_addr", "cgroup_sock", "cgroup_skb", "cgroup_device"}
)


def cgroups() -> Iterator[str]:
    """Every cgroup of ours, on a pure or hybrid host, those in v1 hierarchies too."""
    top = Path("/sys/fs/cgroup")
    for root in (top, *(path for path in top.iterdir() if path.is_dir() and not path.is_symlink())):
        for top in root.glob("supervise*"):
            yield str(top)
            # os.walk passes over what vanishes while it walks.
            yield from (f"{path}/{name}" for path, names, _ in os.walk(top) for name in names)


def mounts() -> Iterator[str]:
    """Every mount of this mount namespace, by place and type."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        yield f"{left.split()[4]} ({right.split()[0]})"


def namespaces() -> Iterator[str]:
    """Every named network namespace."""
    yield from (str(path) for path in Path("/run/netns").glob("*"))


def network_links() -> Iterator[str]:
    """Every network device of the host."""
    yield from (path.name for path in Path("/sys/class/net").iterdir())


def programs() -> Iterator[str]:
    """Every loaded BPF program of the types that a witness uses, and what is pinned."""
    yield from (str(path) for place in (Path("/sys/fs/bpf"), PINS) for path in place.glob("supervise*"))
    for entry in json.loads(_output("bpftool", "-j", "prog", "show") or "[]"):
        if entry.get("type") in PROGRAM_TYPES:
            yield f"{entry['type']} {entry.get('name', '?')} (id {entry['id']})"


def tables() -> Iterator[str]:
    """Every nftables table of the host."""
    yield from _output("nft", "list", "tables").splitlines()


def processes() -> Iterator[str]:
    """Every living process that this session started, directly or not, other than its own."""
    wanted = f"{MARKER}={os.environ.get(MARKER, '')}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ours = wanted in (entry / "environ").read_bytes().split(b"\0")
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if ours and words and int(entry.name) != os.getpid():
            yield f"{entry.name} {words}"


SORTS: dict[str, Callable[[], Iterator[str]]] = {
    "cgroups": cgroups,
    "mounts": mounts,
    "network namespaces": namespaces,
    "network links": network_links,
    "BPF programs": programs,
    "nftables tables": tables,
    "processes": processes,
}

HOST_SORTS = ("mounts", "network namespaces", "network links", "nftables tables")
"""What is the host's own, so that it may not vanish either. Cleaning up what a dead run left is no fault."""


def read_machine() -> State:
    """Read all of it once."""
    return {sort: frozenset(read()) for sort, read in SORTS.items()}


def differences(before: State, *, patience_s: float = 10.0) -> list[str]:
    """Say what is different now, after giving what is just ending time to end.

    The kernel frees programs and mounts a moment after their last user has gone.
    """
    deadline = time.monotonic() + patience_s
    while (found := _compare(before, read_machine())) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _compare(before: State, after: State) -> list[str]:
    left = [f"{sort}: left behind: {name}" for sort in before for name in sorted(after[sort] - before[sort])]
    gone = [f"{sort}: gone: {name}" for sort in HOST_SORTS for name in sorted(before[sort] - after[sort])]
    return left + gone


def _output(*argv: str) -> str:
    program = shutil.which(argv[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or os.geteuid():
        return ""
    done = subprocess.run([program, *argv[1:]], capture_output=True, text=True, check=False)
    return done.stdout if not done.returncode else ""
