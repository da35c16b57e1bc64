"""One loaded program set for the whole machine: loaded by the first trial, shared by all, removed by the last.

Laws:
    * Whatever changes what is pinned happens under one lock: flock on the cgroup root, which leaves no file behind.
    * The directory of pins is named for the object's digest, so that two versions of us do not meet.
    * A pinned link costs every call of the machine, so that the last trial takes the pins away, and whoever comes next
      clears up after one that could not.
    * Our own bpffs goes with the last trial of the machine, not with the last one of a mount namespace.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from probes.kernel import abi, early, libbpf
from supervisor.errors import MachineError
from supervisor.launch import libc
from supervisor.values import dataclass

OBJECT = Path(early.OBJECT)
MAPS = ("rings", "trials", "orders", "settings", "members", "writers", "looks", "watched", "dials", "ports", "ends")
SYSTEM_BPFFS, OWN_BPFFS = map(Path, early.BPFFS)
_DIGITS = 12


@contextmanager
def locked(cgroup_root: Path) -> Iterator[None]:
    """Hold the machine's lock on pins; it is released by the end of the process at the latest."""
    fd = os.open(cgroup_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _mounted(path: Path, kind: str) -> bool:
    """Tell whether a path shows a file system of a kind: one that another mount hides is listed, and not shown."""
    try:
        device = path.stat().st_dev
    except OSError:
        return False
    shown = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if (fields[4], fields[2]) == (str(path), shown) and fields[fields.index("-") + 1] == kind:
            return True
    return False


def _mount_bpffs(target: Path) -> None:
    try:
        libc.mount(b"bpf", os.fsencode(target), b"bpf", libc.MountFlag(0), b"mode=0700")
    except OSError as err:
        raise MachineError(
            f"a bpf file system cannot be mounted: {err.strerror}",
            place=str(target),
            hint="mount one: mount -t bpf bpf /sys/fs/bpf",
        ) from err


def _bpffs() -> Path:
    """Give a directory on a bpf file system, mounting one of our own when the machine has none."""
    if _mounted(SYSTEM_BPFFS, "bpf"):
        return SYSTEM_BPFFS
    if not _mounted(OWN_BPFFS, "bpf"):
        OWN_BPFFS.mkdir(mode=0o700, parents=True, exist_ok=True)
        _mount_bpffs(OWN_BPFFS)
    return OWN_BPFFS


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The cgroup that all trials are in: path, id and level in the hierarchy (children of the root are at 1)."""

    path: Path
    id: int
    level: int

    @classmethod
    def of(cls, path: Path) -> Parent:
        """Look at ``<root>/supervise``, which must exist."""
        return cls(path=path, id=path.stat().st_ino, level=_level(path.parent) + 1)

    def live(self) -> set[int]:
        """Give the ids of the trials' cgroups that exist."""
        try:
            return {entry.inode() for entry in os.scandir(self.path) if entry.is_dir()}
        except FileNotFoundError:
            return set()


def _level(root: Path) -> int:
    """How deep the cgroup that is mounted at ``root`` is in the machine's hierarchy."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if fields[4] == str(root):
            return len([part for part in fields[3].split("/") if part])
    return 0


def digest() -> str:
    """Give the first digits of the object's SHA-256; raises `MachineError` when it was not built."""
    try:
        return hashlib.sha256(OBJECT.read_bytes()).hexdigest()[:_DIGITS]
    except FileNotFoundError as err:
        raise MachineError(
            "the BPF object is missing",
            place=str(OBJECT),
            hint="build it with `make setup` (needs clang), or reinstall",
        ) from err


def _directory(base: Path) -> Path:
    return base / f"supervise-{digest()}"


def ensure(parent: Parent) -> Path:
    """Load and pin the programs unless they are; returns the directory of pins. Call under the lock."""
    directory = _directory(_bpffs())
    if (directory / early.READY).exists() and _settings(directory) == (parent.id, parent.level, abi.ABI):
        return directory
    remove(directory)
    directory.mkdir(mode=0o700)
    try:
        _load(directory, parent)
    except BaseException:
        remove(directory)
        raise
    return directory


def _settings(directory: Path) -> tuple[int, ...]:
    settings = libbpf.BpfMap(libbpf.open_pin(directory / "settings"), abi.SETTINGS.size)
    try:
        value = settings.lookup(bytes(4))
    finally:
        settings.close()
    return abi.SETTINGS.unpack(value) if value else ()


def _load(directory: Path, parent: Parent) -> None:
    loaded = early.take_loaded() or libbpf.BpfObject(OBJECT)
    cgroup_fd = os.open(parent.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in MAPS:
            loaded.pin_map(name, directory / name)
        settings = libbpf.BpfMap(libbpf.open_pin(directory / "settings"), abi.SETTINGS.size)
        settings.update(bytes(4), abi.SETTINGS.pack(parent.id, parent.level, abi.ABI))
        settings.close()
        for name, section, handle in loaded.programs():
            to_cgroup = cgroup_fd if section.startswith("cgroup") else None
            loaded.attach_pinned(handle, directory / f"link_{name}", directory / f"prog_{name}", cgroup_fd=to_cgroup)
        (directory / early.READY).mkdir()
    finally:
        os.close(cgroup_fd)
        loaded.close()


def remove(directory: Path) -> None:
    """Take away one set of pins; what it held is freed by the kernel."""
    if not directory.is_dir():
        return
    for entry in sorted(directory.iterdir(), key=lambda e: not e.name.startswith("link_")):
        if entry.is_dir():
            entry.rmdir()
        else:
            entry.unlink()
    directory.rmdir()


def collect_garbage(cgroup_root: Path) -> None:
    """Forget trials whose cgroup is gone; with the last of them, take the pins (and our own bpffs) away.

    Safe at any time and from any process: what runs has a cgroup.
    """
    with locked(cgroup_root):
        _collect(cgroup_root / "supervise")


def _collect(parent: Path) -> None:
    bases = [base for base in (SYSTEM_BPFFS, OWN_BPFFS) if _mounted(base, "bpf")]
    live = Parent.of(parent).live() if parent.is_dir() else set()
    for base in bases:
        for directory in base.glob("supervise-*"):
            if _forget_dead(directory, live) == 0:
                remove(directory)
    if live:
        # A trial in another mount namespace has its pins in a mount that is not seen from here, and that the kernel
        # would take away with the directory below it.
        return
    # A bpffs of its own accord holds two iterators (maps.debug, progs.debug).
    if OWN_BPFFS in bases and not any(OWN_BPFFS.glob("supervise-*")):
        libc.umount2(os.fsencode(OWN_BPFFS))
        OWN_BPFFS.rmdir()
    elif not bases and OWN_BPFFS.is_dir():
        OWN_BPFFS.rmdir()
    if OWN_BPFFS.parent.is_dir() and not any(OWN_BPFFS.parent.iterdir()):
        OWN_BPFFS.parent.rmdir()


def _forget_dead(directory: Path, live: set[int]) -> int:
    """Drop entries of trials that are gone; returns how many are left (0 for a set that never became ready).

    With none left nothing is dropped: the whole set is taken away, and to drop a ring is to wait for all processors.
    """
    if not (directory / early.READY).exists():
        return 0
    # The set may be another version's, which has other maps; the cgroup's id is the key of each, whatever the values.
    names = ("trials", "orders", "rings", "looks")
    maps = [libbpf.BpfMap(libbpf.open_pin(directory / name), 0) for name in names if (directory / name).exists()]
    try:
        keys = maps[0].keys(8)
        dead = [key for key in keys if int.from_bytes(key, "little") not in live]
        if len(dead) == len(keys):
            return 0
        for key in dead:
            for each in reversed(maps):
                each.delete(key)
    finally:
        for each in maps:
            each.close()
    _forget_watched(directory, live)
    return len(keys) - len(dead)


def _forget_watched(directory: Path, live: set[int]) -> None:
    """Drop what supervisors that died had watched: a key begins with the cgroup's id."""
    if not (directory / "watched").exists():
        return
    watched = libbpf.BpfMap(libbpf.open_pin(directory / "watched"), 4)
    try:
        for key in watched.keys(abi.WATCHED.size):
            if abi.WATCHED.unpack(key)[0] not in live:
                watched.delete(key)
    finally:
        watched.close()
