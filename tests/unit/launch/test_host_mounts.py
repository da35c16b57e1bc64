"""Mount tables: parsing, and the paths by which one place appears."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from supervisor.launch.view.mounts import (
    HostMount,
    aliases,
    is_below,
    is_visible,
    join,
    mount_of,
    parse_mountinfo,
    place_in_filesystem,
    read_mounts,
)


def mount(path: bytes, root: bytes = b"/", device: bytes = b"8:1") -> HostMount:
    """Build a mount."""
    return HostMount(mount_id=1, device=device, root=root, path=path)


def test_a_line_with_optional_fields_and_escapes() -> None:
    """Tags are skipped, octal escapes undone, options kept as a set."""
    line = b"36 35 98:0 /a\\040b /m\\134x\\012 rw,noexec shared:1 master:2 - ext4 /dev/root rw,errors=continue\n"
    (parsed,) = parse_mountinfo(line)
    assert parsed == HostMount(
        mount_id=36,
        device=b"98:0",
        root=b"/a b",
        path=b"/m\\x\n",
        options=frozenset({b"rw", b"noexec"}),
        fstype=b"ext4",
    )


def test_this_machines_own_table() -> None:
    """The root is visible, and /proc is on a proc filesystem."""
    mounts = read_mounts()
    assert mount_of(b"/proc", mounts).fstype == b"proc"
    assert is_visible(mount_of(b"/", mounts))


def test_a_place_appears_under_every_mount_that_contains_it() -> None:
    """A bind of a parent shows it below, a bind of a part of it is a part; other filesystems do not count."""
    mounts = [
        mount(b"/"),
        mount(b"/bind", root=b"/var"),
        mount(b"/part", root=b"/var/lib/state/runs/x"),
        mount(b"/beside", root=b"/var/lib/state2"),
        mount(b"/other", device=b"8:2"),
    ]
    assert aliases(b"8:1", b"/var/lib/state", mounts) == (b"/var/lib/state", b"/bind/lib/state", b"/part")


def test_the_place_of_a_path_on_a_bind_mount() -> None:
    """The path inside the filesystem is that of the mount's root plus the rest."""
    assert place_in_filesystem(b"/bind/lib", mount(b"/bind", root=b"/var")) == b"/var/lib"
    assert place_in_filesystem(b"/bind", mount(b"/bind")) == b"/"
    assert place_in_filesystem(b"/x", mount(b"/")) == b"/x"


names = st.binary(min_size=1, max_size=4).filter(lambda name: b"/" not in name and b"\0" not in name)
paths = st.lists(names, max_size=4).map(lambda parts: b"/" + b"/".join(parts))


@given(paths, paths)
def test_what_is_joined_lies_below(parent: bytes, child: bytes) -> None:
    """``join`` and ``is_below`` agree, for every byte a name may have."""
    assert is_below(join(parent, child), parent)


@given(paths)
def test_escapes_are_undone(path: bytes) -> None:
    """Every path survives the kernel's escaping."""
    escaped = b"".join(b"\\%03o" % byte if byte in b" \t\n\\" else bytes([byte]) for byte in path)
    (parsed,) = parse_mountinfo(b"1 0 8:1 / " + escaped + b" rw - ext4 none rw")
    assert parsed.path == path


def test_below_is_not_a_matter_of_prefixes() -> None:
    """/ab does not lie in /a; everything lies in /."""
    assert not is_below(b"/ab", b"/a")
    assert is_below(b"/ab", b"/")
    assert os.path.normpath(join(b"/", b"/")) == b"/"
