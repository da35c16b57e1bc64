"""What mountinfo says about cgroup v2 and about mounts below a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.errors import MachineError
from supervisor.launch.cgroup import find_root
from supervisor.launch.view.detach import mounts_below
from supervisor.launch.view.mounts import has_remote, parse_mountinfo

PURE = b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    b"40 31 0:37 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    b"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


@pytest.mark.parametrize(("mountinfo", "root"), [(PURE, "/sys/fs/cgroup"), (HYBRID, "/sys/fs/cgroup/unified")])
def test_the_v2_root_is_found_on_pure_and_hybrid_hosts(mountinfo: bytes, root: str) -> None:
    """The v2 hierarchy is found wherever it is mounted."""
    assert find_root(mountinfo) == Path(root)


def test_a_machine_without_cgroup_v2_is_told_what_to_do() -> None:
    """No v2 mount is the machine's fault and comes with a hint."""
    with pytest.raises(MachineError, match="not mounted") as missing:
        find_root(HYBRID.splitlines()[0])
    assert missing.value.hint


def test_mounts_below_a_directory_come_last_first_and_unescaped() -> None:
    """Inner mounts are listed before outer ones; a sibling with the same beginning is no mount below."""
    mountinfo = (
        b"1 0 0:1 / /run/x rw - tmpfs t rw\n"
        b"2 1 0:2 / /run/x/a\\040b rw - tmpfs t rw\n"
        b"3 0 0:3 / /run/xy rw - tmpfs t rw\n"
    )
    assert mounts_below(Path("/run/x"), mountinfo) == (b"/run/x/a b", b"/run/x")
    assert mounts_below(Path("/nowhere"), mountinfo) == ()


@pytest.mark.parametrize(
    ("kind", "place", "remote"),
    [
        ("nfs4", "/", True),
        ("fuse.sshfs", "/", True),
        ("ext4", "/", False),
        ("nfs", "/work/inner", True),
        ("nfs", "/workbench", False),
    ],
)
def test_what_other_machines_may_change_is_told(kind: str, place: str, remote: bool) -> None:  # noqa: FBT001 - a case
    """Of the file system that a directory is on, and of those mounted in it."""
    device = os.makedev(0, 40)
    own = kind if place == "/" else "ext4"
    text = f"20 1 0:40 / / rw - {own} none rw\n21 20 0:41 / {place if place != '/' else '/mnt'} rw - {kind} none rw\n"
    assert has_remote(parse_mountinfo(text.encode()), device, b"/work") is remote
