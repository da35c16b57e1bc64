"""The trial's cgroup: who is in it, freezing it, killing it, and the kernel's word that it is empty.

Trials live in ``<v2 root>/supervise/<run>``. Only files of cgroup v2 are used (cgroup-v2.rst, "Core Interface Files"),
so a pure v2 host and a hybrid one (v2 mounted beside v1 hierarchies) look the same from here.

Laws:
    * Membership is the kernel's: a process enters by being written to ``cgroup.procs`` or by being forked by a member.
    * ``frozen`` and ``populated`` are believed only as ``cgroup.events`` says them, never because we asked for them.
    * Nobody sleeps: ``cgroup.events`` wakes its readers (POLLPRI) whenever one of its values changes.
    * ``supervise/`` itself comes with the first run and goes with the last one. No lock is needed: rmdir fails while a
      run is in it, and a start that loses the race to a removal sees ENOENT and makes ``supervise/`` again.
    * What the run has in v1 hierarchies goes with it, see `supervisor.launch.controllers`.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from supervisor.errors import MachineError
from supervisor.launch.controllers import make_below_parent, remove_companions, remove_parent
from supervisor.launch.runs.owner import Owner
from supervisor.values import dataclass

PARENT = "supervise"
"""Name of the directory that holds the cgroups of all trials."""

OWNER_XATTR = "trusted.supervise.owner"
"""Attribute of a trial's cgroup that says which process supervises it, whatever state directory that one uses."""

_THAW_S = 5.0
_REMOVE_S = 5.0
_FIELDS_BEFORE_OPTIONAL = 6


def find_root(mountinfo: bytes | None = None) -> Path:
    """Find where cgroup v2 is mounted.

    Args:
        mountinfo: what /proc/self/mountinfo says; read when not given.

    Raises:
        MachineError: it is mounted nowhere.
    """
    text = Path("/proc/self/mountinfo").read_bytes() if mountinfo is None else mountinfo
    for line in text.splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if after.startswith(b"cgroup2 ") and len(fields) >= _FIELDS_BEFORE_OPTIONAL and fields[3] == b"/":
            return Path(os.fsdecode(unescape_mount(fields[4])))
    message = "cgroup v2 is not mounted"
    raise MachineError(
        message, hint="mount -t cgroup2 none /sys/fs/cgroup (or boot with a hybrid or unified hierarchy)"
    )


def unescape_mount(field: bytes) -> bytes:
    r"""Undo the escapes of a path in mountinfo: space, tab, newline and backslash stand as ``\040`` and so on."""
    first, *rest = field.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """One trial's cgroup.

    Attributes:
        path: its directory.
        id: the kernel's cgroup id (the inode number of the directory), which witnessed events carry.
        parent_id: the same of ``supervise/``.
    """

    path: Path
    id: int
    parent_id: int

    @classmethod
    def create(cls, root: Path, run_id: str, *, owner: Owner | None = None) -> Cgroup:
        """Make the cgroup of a run.

        Args:
            root: where cgroup v2 is mounted, see `find_root`.
            run_id: the run.
            owner: who supervises it; the calling process when not given.

        Raises:
            MachineError: it cannot be made.
        """
        path = root / PARENT / run_id
        try:
            make_below_parent(path)
            cgroup = cls.at(path)
            with suppress(OSError):  # the run's own supervisor.json says the same where the attribute is refused
                os.setxattr(path, OWNER_XATTR, (owner or Owner.current()).to_json())
        except OSError as err:
            message = f"cgroup cannot be made: {err.strerror}"
            raise MachineError(message, place=str(path), hint="run as root") from err
        return cgroup

    @classmethod
    def at(cls, path: Path) -> Cgroup:
        """Describe a cgroup that exists."""
        return cls(path=path, id=path.stat().st_ino, parent_id=path.parent.stat().st_ino)

    def owner(self) -> Owner | None:
        """Read who supervises it; None when that was not recorded."""
        try:
            return Owner.from_json(os.getxattr(self.path, OWNER_XATTR))
        except OSError:
            return None

    def pids(self) -> tuple[int, ...]:
        """List the members, those of cgroups below included."""
        return tuple(sorted({pid for directory in _subtree(self.path) for pid in _members(directory)}))

    def add(self, pid: int) -> None:
        """Move a process into the cgroup."""
        _write(self.path / "cgroup.procs", str(pid))

    def populated(self) -> bool:
        """Tell whether the kernel says that there are members, here or below."""
        return _events(self.path)["populated"] == 1

    def frozen(self) -> bool:
        """Tell whether the kernel says that every member has stopped."""
        return _events(self.path)["frozen"] == 1

    def freeze(self, timeout_s: float) -> bool:
        """Stop every member, and wait until the kernel says that they have stopped.

        Returns:
            False when it did not say so in time (a member is in an uninterruptible wait); the freeze stays asked for.
        """
        _write(self.path / "cgroup.freeze", "1")
        return _wait_for(self.path, "frozen", 1, timeout_s)

    def thaw(self) -> bool:
        """Let every member go on; returns whether the kernel confirmed it."""
        _write(self.path / "cgroup.freeze", "0")
        return _wait_for(self.path, "frozen", 0, _THAW_S)

    def kill(self) -> None:
        """Send SIGKILL to every member, frozen ones and ones that are being forked included.

        Kernels before 5.14 have no ``cgroup.kill``; there the members are frozen first, so that none can fork.
        """
        try:
            _write(self.path / "cgroup.kill", "1")
        except FileNotFoundError:
            self._kill_one_by_one()

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until the kernel says ``populated 0``; returns whether it did."""
        return _wait_for(self.path, "populated", 0, timeout_s)

    def remove(self, *, timeout_s: float = _REMOVE_S) -> None:
        """Remove the cgroup, and ``supervise/`` when this was the last one in it. No member may be left.

        Raises:
            MachineError: it is still in use.
        """
        deadline = time.monotonic() + timeout_s
        try:
            remove_companions(self.path, timeout_s=timeout_s)
        except OSError as err:
            message = f"cgroup cannot be removed: {err.strerror}"
            raise MachineError(message, place=err.filename) from err
        for directory in reversed(_subtree(self.path)):
            _remove_when_free(directory, deadline)
        remove_parent(self.path.parent)

    def _kill_one_by_one(self) -> None:
        self.freeze(1.0)
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.thaw()


def _subtree(top: Path) -> list[Path]:
    """List a cgroup and those below it, parents first; ones that vanish meanwhile are left out."""
    return [Path(directory) for directory, _, _ in os.walk(top)]


def _members(directory: Path) -> tuple[int, ...]:
    try:
        return tuple(map(int, (directory / "cgroup.procs").read_bytes().split()))
    except OSError as err:
        if err.errno in {errno.ENOENT, errno.ENODEV}:
            return ()
        raise


def _events(path: Path) -> dict[str, int]:
    words = (path / "cgroup.events").read_text(encoding="ascii").split()
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def _wait_for(path: Path, key: str, value: int, timeout_s: float) -> bool:
    """Wait until ``cgroup.events`` gives `key` this value, woken by the kernel.

    A cgroup that somebody removed meanwhile was empty: the kernel removes no other.
    """
    try:
        return _watch_events(path / "cgroup.events", f"{key} {value}".encode(), timeout_s)
    except OSError as err:
        if err.errno in {errno.ENOENT, errno.ENODEV}:
            return (key, value) == ("populated", 0)
        raise


def _watch_events(file: Path, wanted: bytes, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLPRI)
        while wanted not in os.pread(descriptor, 4096, 0):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            poll.poll(left_s * 1000)
        return True
    finally:
        os.close(descriptor)


def _remove_when_free(directory: Path, deadline: float) -> None:
    """Remove one cgroup; for a moment after ``populated 0`` the kernel may still say EBUSY."""
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as err:
            if err.errno != errno.EBUSY or time.monotonic() >= deadline:
                message = f"cgroup cannot be removed: {err.strerror}"
                raise MachineError(message, place=str(directory)) from err
            _wait_for(directory, "populated", 0, max(0.0, deadline - time.monotonic()))
            time.sleep(0.001)
            continue
        return


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
