"""The network and mount namespaces of a trial, made by the forked child that will become bubblewrap.

The pid, ipc, uts and cgroup namespaces are bubblewrap's. What is made here has to exist before it: the mounts it binds
from, and a network that has nothing but ``lo``.
"""

from __future__ import annotations

import fcntl
import socket
import struct

from supervisor.launch import libc

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_IFREQ = struct.Struct("16sh22x")


def enter_network() -> None:
    """Move the calling process into a new network namespace in which only ``lo`` exists, and is up."""
    libc.unshare(libc.CloneFlag.NEWNET)
    bring_up(b"lo")


def join_network(namespace: int) -> None:
    """Move the calling process into the network namespace of a descriptor."""
    libc.setns(namespace, libc.CloneFlag.NEWNET)


def bring_up(interface: bytes) -> None:
    """Set IFF_UP on an interface of the current network namespace (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _, flags = _IFREQ.unpack(fcntl.ioctl(control, _SIOCGIFFLAGS, _IFREQ.pack(interface, 0)))
        fcntl.ioctl(control, _SIOCSIFFLAGS, _IFREQ.pack(interface, flags | _IFF_UP))


def enter_mounts() -> None:
    """Move the calling process into a new mount namespace whose mounts reach nobody else."""
    libc.unshare(libc.CloneFlag.NEWNS)
    libc.mount(b"none", b"/", b"", libc.MountFlag.REC | libc.MountFlag.PRIVATE)
