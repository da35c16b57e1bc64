"""Which machine this is, and which run of it, for who goes on with a run later."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_ID = Path("/etc/machine-id")


def boot_id() -> str:
    """Give what the kernel calls this run of the machine: CLOCK_BOOTTIME means the same as long as it is the same."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def machine_id() -> str | None:
    """Give what tells this machine from others, None when it has no id: machine-id(5), which is kept to itself.

    The name is part of it: machines that were copied have one id.
    """
    try:
        own = _ID.read_text().strip()
    except OSError:
        return None
    return hashlib.sha256(f"supervise {own} {os.uname().nodename}".encode()).hexdigest() if own else None
