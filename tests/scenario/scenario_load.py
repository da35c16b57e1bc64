"""Programs that make events as fast as the machine can, and the places where a log can be put into trouble."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scenario_lab import Lab

_LOAD = """
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int argc, char **argv) {
    char byte;
    if (argc > 3) while (read(0, &byte, 1) > 0) ;
    for (int p = 1; p < atoi(argv[2]); p++) if (fork() == 0) { argc = 0; break; }
    for (long i = atol(argv[1]); i; i--) rmdir("/nowhere");
    if (argc) while (wait(0) > 0) ;
    return 0;
}"""

_SLOW_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/uio.h>
#include <sys/stat.h>
static void rest(const char *name) { if (getenv(name)) usleep(atoi(getenv(name)) * 1000); }
ssize_t pwritev64v2(int fd, const struct iovec *v, int n, off_t at, int flags) {
    ssize_t (*next)(int, const struct iovec *, int, off_t, int) = dlsym(RTLD_NEXT, "pwritev64v2");
    rest("SLOW_WRITE_MS");
    return next(fd, v, n, at, flags);
}
int fsync(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "fsync");
    rest("SLOW_SYNC_MS");
    return next(fd);
}"""


def _compile(source: str, target: Path, *flags: str) -> Path:
    subprocess.run(["cc", "-O1", *flags, "-xc", "-", "-o", str(target)], input=source, text=True, check=True)
    return target


def load(lab: Lab) -> str:
    """Build, in the workspace, a program that removes what is not there: ``load COUNT PROCESSES [WAIT]``.

    Each removal is one event. With a third word it begins when its stdin ends.
    """
    _compile(_LOAD, lab.work / "load", "-static")
    return "./load"


def slow_disk(lab: Lab, *, write_ms: int = 0, sync_ms: int = 0) -> dict[str, str]:
    """Give the environment in which every write to the log, and every sync, takes its time."""
    library = _compile(_SLOW_DISK, lab.home.parent / "slow_disk.so", "-shared", "-fPIC", "-ldl")
    return {"LD_PRELOAD": str(library), "SLOW_WRITE_MS": str(write_ms), "SLOW_SYNC_MS": str(sync_ms)}


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[Path]:
    """Give a file system of its own, of that size and with nothing on it."""
    place.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextmanager
def ext4_disk(place: Path, size_bytes: int) -> Iterator[Path]:
    """Give an ext4 file system on a loop device, with nothing on it that a user would see."""
    image = place.with_suffix(".img")
    with ExitStack() as stack:
        stack.callback(image.unlink, missing_ok=True)
        device = _loop_device(image, size_bytes, stack)
        place.mkdir()
        subprocess.run(["mount", device, str(place)], check=True)
        stack.callback(subprocess.run, ["umount", str(place)], check=True)
        (place / "lost+found").rmdir()
        place.chmod(0o700)
        yield place


def _loop_device(image: Path, size_bytes: int, stack: ExitStack) -> str:
    """Make an ext4 file system in a file, and give the device that shows it until the stack is left."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=True)
    found = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=True)
    device = found.stdout.strip()
    stack.callback(subprocess.run, ["losetup", "-d", device], check=True)
    return device


def fill(place: Path, *, leave_bytes: int = 0) -> Path:
    """Take all room of a small disk but so much, by one file that is removed to make room again."""
    filler = place / "filler"
    with filler.open("wb") as file:
        while True:
            found = os.statvfs(place)
            try:
                os.posix_fallocate(file.fileno(), 0, max(found.f_bavail * found.f_frsize - leave_bytes, 1))
            except OSError as err:  # the log took some of it in between
                if err.errno != errno.ENOSPC or not found.f_bavail:
                    raise
                continue
            return filler


def trial_cgroups() -> set[str]:
    """Name the cgroups of all trials on this machine."""
    # os.walk passes over what vanishes while it walks: a trial that ends takes its cgroups away one by one.
    return {name for path, names, _ in os.walk("/sys/fs/cgroup") if path.endswith("/supervise") for name in names}


@contextmanager
def throttled_disk(place: Path, *, size_bytes: int, bytes_per_s: int) -> Iterator[Path]:
    """Give an ext4 file system on a loop device, and the file that a process id is written to to be slowed down on it.

    Raises:
        OSError, CalledProcessError: this machine has no loop device, or no throttle (the blkio hierarchy of cgroup v1).
    """
    image, throttle = place.with_suffix(".img"), Path("/sys/fs/cgroup/blkio") / f"test-{os.getpid()}"
    with ExitStack() as stack:
        stack.callback(image.unlink, missing_ok=True)
        device = _loop_device(image, size_bytes, stack)
        throttle.mkdir()
        stack.callback(throttle.rmdir)
        number = Path("/sys/class/block", Path(device).name, "dev").read_text(encoding="ascii").strip()
        (throttle / "blkio.throttle.write_bps_device").write_text(f"{number} {bytes_per_s}", encoding="ascii")
        place.mkdir()
        subprocess.run(["mount", device, str(place)], check=True)
        stack.callback(subprocess.run, ["umount", str(place)], check=True)
        place.chmod(0o700)
        yield throttle / "cgroup.procs"
