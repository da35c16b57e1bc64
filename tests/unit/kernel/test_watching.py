"""What a trial is watched for beside its changes, planned from the mounts of its box."""

from __future__ import annotations

import pytest

from probes.kernel import abi
from probes.kernel.abi import Look
from probes.kernel.watching import Looks, hash_name, plan_looks
from supervisor.launch.view.mounts import HostMount


def mount(mount_id: int, path: bytes, *, fstype: bytes = b"ext4", device: bytes = b"8:1") -> HostMount:
    """Give one mount of a box."""
    return HostMount(mount_id=mount_id, device=device, root=b"/", path=path, fstype=fstype)


BOX = (
    mount(1, b"/", fstype=b"overlay", device=b"0:40"),
    mount(2, b"/srv/shared"),
    mount(3, b"/srv/shared/inner", device=b"254:3"),
    mount(4, b"/srv/sharedness"),
    mount(5, b"/root/.ssh", fstype=b"tmpfs", device=b"0:50"),
    mount(6, b"/root/.config/x/token", fstype=b"tmpfs", device=b"0:50"),
)


def test_a_shared_place_is_its_mount_and_those_below() -> None:
    """The mount of the place and what the host has mounted in it are watched; a neighbour of like name is not."""
    looks = plan_looks(BOX, shared=[b"/srv/shared"], hidden=[])
    assert looks.mounts == (2, 3)
    assert looks.devices == (8 << 20 | 1, 254 << 20 | 3)
    assert looks.flags() == Look.MOUNTS | Look.SHARED | Look.EVERY | Look.DEVICES


@pytest.mark.parametrize("fstype", [b"btrfs", b"overlay", b"nfs4", b"fuse"])
def test_devices_are_not_believed_where_stat_may_answer_others(fstype: bytes) -> None:
    """On a file system that answers stat with other devices than its own every look-up is told."""
    looks = plan_looks([mount(2, b"/srv/shared", fstype=fstype)], shared=[b"/srv/shared"], hidden=[])
    assert looks.devices is None
    assert Look.EVERY in looks.flags()
    assert Look.DEVICES not in looks.flags()


def test_hidden_places_are_masks_and_names() -> None:
    """What hides a path, or what a glob means, is watched as a mount; the names are those that must be spelled out."""
    hidden = [b"/root/.ssh", b"/root/.config/*/token", b"/root/.aws", b"/etc/ssh/ssh_host_*_key", b"/*"]
    looks = plan_looks(BOX, shared=[], hidden=hidden)
    assert looks.mounts == (5, 6)
    assert looks.names == (b".aws", b".ssh", b"ssh", b"token")
    assert looks.flags() == Look.MOUNTS | Look.NAMES


def test_of_what_is_not_to_be_read_every_attempt_is_told() -> None:
    """Whatever its name: what an answer that met the mask looks like is known, and all others are left out."""
    looks = plan_looks(BOX, shared=[], hidden=[b"/root/.ssh", b"/root/.aws"], denied=[b"/root/.ssh"])
    (mask,) = [mount for mount in BOX if mount.path == b"/root/.ssh"]
    major, minor = mask.device.split(b":")
    assert looks.masks == (int(major) << 20 | int(minor),)
    assert looks.devices == ()
    assert looks.flags() == Look.MOUNTS | Look.NAMES | Look.HIDDEN | Look.DEVICES
    watched = {abi.WATCHED.unpack(entry)[1:3] for entry in looks.entries(7)}
    assert (looks.masks[0], abi.Watch.DEVICE) in watched


def test_nothing_declared_is_nothing_told() -> None:
    """A trial without shared and hidden places has no flags, so that the programs do not even look."""
    looks = plan_looks(BOX, shared=[], hidden=[])
    assert looks == Looks()
    assert not looks.flags()
    assert not list(looks.entries(7))


def test_names_are_digested_as_the_programs_do() -> None:
    """Eight letters at a time, as numbers with the lowest first, the rest with zeros: the values of that rule."""
    assert hash_name(b"") == 0xCBF29CE484222325
    assert hash_name(b".ssh") == 0x5C43726801DD968F
    assert hash_name(b"12345678") == 0x759DBC57E4E9AAF3
    assert hash_name(b"id_ed25519") == 0xC53E90AD9D6BB5F8


def test_the_filter_has_a_bit_for_each_name() -> None:
    """No name that is watched is passed over by the filter."""
    names = tuple(b"name-%d" % number for number in range(200))
    _flags, _pad, *words = abi.LOOKS.unpack(Looks(names=names).pack())
    assert all(words[hash_name(name) >> 60] >> (hash_name(name) >> 54 & 63) & 1 for name in names)
    assert sum(map(int.bit_count, words)) <= len(names)
