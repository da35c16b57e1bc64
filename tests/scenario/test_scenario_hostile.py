"""A hostile trial reaches for what is not its own: each attempt is refused, and is in the log where it is an action.

All rows run in one box, as root, each in a process of its own; the host's side of it lies where the box shows the
host's files. Bombs are in test_scenario_limits.py.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from scenario_hostile import Assault, Attempt, assault, check
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

NAMESPACES = (0x80, 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
MANIFEST = "given['run'] + '/manifest.json'"
ACCESS, READ_ONLY, NONE, REFUSED = errno.EACCES, errno.EROFS, errno.ENOENT, errno.EPERM


def opened(path: str, error: int = ACCESS, *, writes: bool = False) -> Mapping[str, Any]:
    """Give the event of an open that was refused."""
    return {"kind": "file.opened", "path": path, "error": error, "writes": writes}


def refused(*names: str) -> tuple[Mapping[str, Any], ...]:
    """Give the events of calls that nobody in a box may make."""
    return tuple({"kind": "syscall.refused", "name": name, "error": REFUSED} for name in names)


def changed(kind: str, path: str, error: int) -> Mapping[str, Any]:
    """Give the event of a change that was refused."""
    return {"kind": kind, "path": path, "error": error}


def reached(how: str, target: int, error: int) -> Mapping[str, Any]:
    """Give the event of reaching into another process."""
    return {"kind": "process.reached", "how": how, "target_inside": target, "error": error}


def sock(family: int, error: int = REFUSED) -> Mapping[str, Any]:
    """Give the event of a socket that was refused."""
    return {"kind": "socket.created", "family": family, "error": error}


RUN_DIRECTORY = {
    "list the home": Attempt("print(tried(os.listdir, given['home']))", "EACCES", (opened("/home"),)),
    "list the runs": Attempt("print(tried(os.listdir, given['home'] + '/runs'))", "EACCES", (opened("/home/runs"),)),
    "read a manifest": Attempt(f"print(tried(open, {MANIFEST}))", "EACCES", (opened("/manifest.json"),)),
    "write a completion": Attempt(
        "print(tried(write, given['run'] + '/completion.json'))",
        "EACCES",
        (opened("/completion.json", writes=True),),
    ),
    "cut the log": Attempt(
        "print(tried(os.truncate, given['run'] + '/log/000000.seg', 0))",
        "EACCES",
        (changed("file.truncated", "/log/000000.seg", ACCESS),),
    ),
    "open the mask": Attempt(
        "print(tried(os.chmod, given['home'], 0o777))", "EROFS", (changed("file.changed", "/home", READ_ONLY),)
    ),
    "move the mask": Attempt(
        "print(tried(os.rename, given['home'], given['home'] + '2'))",
        "EBUSY",
        (changed("file.renamed", "/home", errno.EBUSY),),
    ),
    "unmount the mask": Attempt("print(call(166, given['home'].encode(), 2))", "EPERM", refused("umount2")),
    "mount over the mask": Attempt(
        "print(call(165, b'none', given['home'].encode(), b'tmpfs', 0, 0))", "EPERM", refused("mount")
    ),
    "hard link": Attempt(
        f"print(tried(os.link, {MANIFEST}, 'hard'), tried(os.link, given['home'], 'hard'))",
        "EACCES EXDEV",
        (changed("file.linked", "/manifest.json", ACCESS), changed("file.linked", "/home", errno.EXDEV)),
    ),
    "symbolic link": Attempt(
        "os.symlink(given['run'], 'way'); print(tried(open, 'way/manifest.json'), tried(os.listdir, 'way'))",
        "EACCES EACCES",
        (opened("/tmp/way/manifest.json"), opened("/tmp/way")),
    ),
    "the host's bind alias": Attempt("print(tried(os.listdir, given['alias']))", "EACCES", (opened("/alias"),)),
    "the host's symbolic alias": Attempt("print(tried(os.listdir, given['link']))", "EACCES", (opened("/link"),)),
    "init's root": Attempt(
        f"print(tried(open, '/proc/1/root' + {MANIFEST}), tried(os.listdir, '/proc/1/cwd'))",
        "EACCES EACCES",
        (opened("/manifest.json"), opened("/proc/1/cwd")),
    ),
    "its own root, and up": Attempt(
        f"print(tried(open, '/proc/self/root' + {MANIFEST}), tried(open, '/proc/self/root/../..' + {MANIFEST}))",
        "EACCES EACCES",
        (opened("/manifest.json"),),
    ),
    "every descriptor in sight": Attempt(
        """
found = []
for number in filter(str.isdigit, os.listdir("/proc")):
    for place in ("fd", "map_files"):
        with __import__("contextlib").suppress(OSError):
            for name in os.listdir(f"/proc/{number}/{place}"):
                with __import__("contextlib").suppress(OSError):
                    found.append(os.readlink(f"/proc/{number}/{place}/{name}"))
print([path for path in found if path.startswith(given["home"])])
""",
        "[]",
        ({"kind": "file.opened", "path": "/proc/1/fd", "writes": False},),
    ),
    "a file handle": Attempt(
        """
handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)), ctypes.c_int()
libc.name_to_handle_at(-100, b"/", handle, ctypes.byref(mount), 0)
print(call(304, os.open("/", 0), ctypes.addressof(handle), 0))
""",
        "EPERM",
        refused("open_by_handle_at"),
    ),
    "the disk itself": Attempt(
        "print(tried(os.mknod, 'disk', 0o60600, os.makedev(254, 0)))",
        "EPERM",
        (changed("file.created", "/tmp/disk", REFUSED),),
    ),
}

PROCESSES = {
    "signal the supervisor": Attempt(
        "print(tried(os.kill, given['supervisor'], 9), tried(os.pidfd_open, given['supervisor']))", "ESRCH ESRCH"
    ),
    "trace the supervisor": Attempt(
        "print(call(101, 16, given['supervisor'], 0, 0))",
        "ESRCH",
        ({"kind": "process.reached", "how": "ptrace", "error": errno.ESRCH},),
    ),
    "write the supervisor's memory": Attempt(
        "print(tried(write, f\"/proc/{given['supervisor']}/mem\"))", "ENOENT", (opened("/mem", NONE, writes=True),)
    ),
    "signal init": Attempt(
        "os.kill(1, 9); os.kill(1, 19); time.sleep(0.05); print(open('/proc/1/stat').read().split()[2] in 'SR')",
        "True",
        ({"kind": "signal.sent", "signal": 9, "inside": True}, {"kind": "signal.sent", "signal": 19}),
    ),
    "trace init": Attempt(
        "print(call(101, 16, 1, 0, 0), call(101, 0x4206, 1, 0, 0))", "EPERM EPERM", (reached("ptrace", 1, REFUSED),)
    ),
    "read and write init's memory": Attempt(
        """
place = ctypes.create_string_buffer(8)
part = (ctypes.c_void_p * 2)(ctypes.addressof(place), 8)
at = ctypes.addressof(part)
print(call(310, 1, at, 1, at, 1, 0), call(311, 1, at, 1, at, 1, 0), tried(write, "/proc/1/mem"))
""",
        "EPERM EPERM EACCES",
        (
            reached("process_vm_readv", 1, REFUSED),
            reached("process_vm_writev", 1, REFUSED),
            opened("/proc/1/mem", writes=True),
        ),
    ),
    "take init's descriptors": Attempt("print(call(438, os.pidfd_open(1), 3, 0))", "EPERM", refused("pidfd_getfd")),
    "write cgroup files": Attempt(
        """
places = ("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.freeze")
print(*(tried(write, place, b"0") for place in places), tried(os.mkdir, "/sys/fs"))
""",
        "ENOENT ENOENT ENOENT EROFS",
        (
            opened("/sys/fs/cgroup/cgroup.procs", NONE, writes=True),
            opened("/unified/cgroup.procs", NONE, writes=True),
            changed("file.created", "/sys/fs", READ_ONLY),
        ),
    ),
    "mount the cgroups": Attempt(
        "os.mkdir('groups'); print(call(165, b'none', b'groups', b'cgroup2', 0, 0))", "EPERM", refused("mount")
    ),
    "become somebody else": Attempt("print(tried(os.setuid, 1000), tried(os.setgroups, [4]))", "EPERM EPERM"),
}

CALLS = {
    "unshare every namespace": Attempt(
        f"print({{call(272, flag) for flag in {NAMESPACES}}})", "{'EPERM'}", refused("unshare")
    ),
    "clone into a namespace": Attempt(
        "print(call(56, 0x10000000 | 17, 0, 0, 0, 0), call(435, 0, 0))", "EPERM ENOSYS", refused("clone")
    ),
    "enter a namespace": Attempt(
        "print(tried(os.open, '/proc/1/ns/net', 0), call(308, os.open('/proc/self/ns/net', 0), 0))",
        "EACCES EPERM",
        (opened("/proc/1/ns/net"), *refused("setns")),
    ),
    "mount, by every interface": Attempt(
        "print({call(165, b'/', b'/tmp', 0, 0x1000, 0), call(428, -100, b'/', 1), call(430, b'tmpfs', 0),"
        " call(429, -100, b'/', -100, b'/tmp', 0), call(442, -100, b'/', 0, 0, 0), call(155, b'/', b'/'),"
        " call(161, b'/tmp')})",
        "{'EPERM'}",
        refused("mount", "open_tree", "fsopen", "move_mount", "mount_setattr", "pivot_root", "chroot"),
    ),
    "bpf": Attempt("print(call(321, 0, 0, 0))", "EPERM", refused("bpf")),
    "io_uring": Attempt(
        "print(call(425, 1, 0), call(426, 0, 1, 0, 0, 0, 0), call(427, 0, 0, 0, 0))",
        "EPERM EPERM EPERM",
        refused("io_uring_setup", "io_uring_enter", "io_uring_register"),
    ),
    "kernel keys": Attempt(
        "print(call(250, 0, -3, 0, 0, 0), call(248, b'user', b'x', b'y', 1, -3), call(249, b'user', b'x', 0, 0))",
        "EPERM EPERM EPERM",
        refused("keyctl", "add_key", "request_key"),
    ),
    "userfaultfd": Attempt("print(call(323, 0))", "EPERM", refused("userfaultfd")),
    "perf": Attempt("print(call(298, 0, 0, -1, -1, 0))", "EPERM", refused("perf_event_open")),
    "modules, kexec, reboot": Attempt(
        "print({call(175, 0, 0, 0), call(246, 0, 0, 0, 0), call(169, 0xfee1dead, 672274793, 0x4321fedc, 0)})",
        "{'EPERM'}",
        refused("init_module", "kexec_load", "reboot"),
    ),
    "answer other processes' calls": Attempt("print(call(317, 1, 8, 0))", "EPERM", refused("seccomp")),
    "memory that nobody sees, quotas, terminals": Attempt(
        "print(call(447, 0), call(443, 0, 0, 0, 0), call(153))",
        "EPERM EPERM EPERM",
        refused("memfd_secret", "quotactl_fd", "vhangup"),
    ),
    "the kernel's log": Attempt(
        "print(call(103, 3, 0, 0), tried(open, '/dev/kmsg'))",
        "EPERM ENOENT",
        refused("syslog"),
    ),
    "type for the terminal's reader": Attempt(
        "ours, theirs = os.openpty(); print(*(tried(fcntl.ioctl, at, 0x5412, b'x') for at in (ours, theirs)),"
        " tried(fcntl.ioctl, 0, 0x541C, b'\\x03'), call(16, theirs, 0x5412 | 1 << 32, b'x'))",
        "EPERM EPERM EPERM EPERM",
        refused("ioctl"),
    ),
    "raw and packet sockets": Attempt(
        "print({tried(socket.socket, *way) for way in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 768))})",
        "{'EPERM'}",
        (sock(2), sock(10), sock(17)),
    ),
    "sockets without a namespace": Attempt(
        "print({tried(socket.socket, *way) for way in ((40, 1), (38, 5), (31, 3), (44, 2))})",
        "{'EPERM'}",
        (sock(40), sock(38), sock(31), sock(44)),
    ),
    "kernel settings": Attempt(
        """
places = ("kernel/core_pattern", "kernel/hostname", "vm/drop_caches", "kernel/panic")
print({tried(write, "/proc/sys/" + place) for place in places}, tried(os.chmod, "/proc/sys/" + places[0], 0o777))
""",
        "{'EROFS'} EROFS",
        (
            opened("/proc/sys/kernel/core_pattern", READ_ONLY, writes=True),
            opened("/proc/sys/kernel/panic", READ_ONLY, writes=True),
            changed("file.changed", "/proc/sys/kernel/core_pattern", READ_ONLY),
        ),
    ),
    "devices of the kernel": Attempt(
        """
places = ("/sys/kernel/uevent_helper", "/sys/power/state", "/proc/sysrq-trigger", "/dev/mem", "/proc/kcore")
print(*(tried(write, place) in ("ENOENT", "EACCES", "EPERM", "EROFS") for place in places))
""",
        "True True True True True",
        (opened("/sys/kernel/uevent_helper", NONE, writes=True), opened("/dev/mem", NONE, writes=True)),
    ),
    "a socket of the host, by path": Attempt(
        "print(tried(socket.socket(1).connect, given['socket']), "
        "tried(socket.socket(1, 2).sendto, b'x', given['datagram']))",
        "ECONNREFUSED ECONNREFUSED",
        ({"kind": "connection.attempted", "transport": "unix", "path": "/stream", "error": errno.ECONNREFUSED},),
    ),
    "an abstract socket of the host": Attempt(
        "print(tried(socket.socket(1).connect, '\\0' + given['abstract']))",
        "ECONNREFUSED",
        ({"kind": "connection.attempted", "transport": "unix", "outside": False, "error": errno.ECONNREFUSED},),
    ),
    "sockets of services": Attempt(
        "print({tried(socket.socket(1).connect, path) for path in"
        " ('/run/docker.sock', '/var/run/docker.sock', '/run/dbus/system_bus_socket', '/run/systemd/private')})",
        "{'ENOENT'}",
        ({"kind": "connection.attempted", "path": "/run/docker.sock", "error": NONE},),
    ),
}
EVERYTHING = RUN_DIRECTORY | PROCESSES | CALLS


@contextlib.contextmanager
def alias(of: Path, at: Path) -> Iterator[str]:
    """Show a directory of the host a second time."""
    at.mkdir()
    subprocess.run(["mount", "--bind", of, at], check=True)
    try:
        yield str(at)
    finally:
        subprocess.run(["umount", at], check=True)


@pytest.fixture(scope="module")
def done() -> Iterator[Assault]:
    """The one trial; the home and an earlier run lie below /var/tmp, which the box shows."""
    import socket  # noqa: PLC0415 - the host's side only

    top = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hostile-"))
    home, work = top / "home", top / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    lab = Lab(home, work)
    (top / "link").symlink_to(home)
    name = f"host-{top.name}"
    try:
        assert lab.run("--", "true").code == 0
        with contextlib.ExitStack() as stack:
            for where, kind in (("stream", socket.SOCK_STREAM), ("datagram", socket.SOCK_DGRAM)):
                stack.enter_context(socket.socket(socket.AF_UNIX, kind)).bind(str(work / where))
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(f"\0{name}")
            known = {
                "home": str(home),
                "run": str(next((home / "runs").iterdir())),
                "alias": stack.enter_context(alias(home, top / "alias")),
                "link": str(top / "link"),
                "socket": str(work / "stream"),
                "datagram": str(work / "datagram"),
                "abstract": name,
            }
            yield assault(lab, EVERYTHING, **known)
        assert lab.call("verify", *(path.name for path in (home / "runs").iterdir())).returncode == 0
    finally:
        shutil.rmtree(top)


@pytest.mark.parametrize("name", EVERYTHING)
def test_an_attempt_is_refused_and_logged(done: Assault, name: str) -> None:
    """The row's answer is what the hostile program was told; its events come from its own process."""
    check(EVERYTHING[name], done.tried[name])


def test_attempts_that_were_refused_leave_nothing_open(done: Assault) -> None:
    """All that was tried is listed, nothing lost, and nothing of it happened; verdicts: final, separate, clean."""
    report = done.ran.report
    assert {"mount", "bpf", "setns", "socket family 40"} <= {entry["what"] for entry in report["effects"]["refusals"]}
    assert (report["log"]["lost"], report["log"]["sealed"]) == (0, True)
    assert (done.ran.finality, done.ran.separation, done.ran.scope) == ("final", "separate", "clean")


def test_no_event_of_the_trial_comes_from_who_was_attacked(done: Assault) -> None:
    """The box's own closing test still passes after it all, and every trusted event is the kernel's or ours."""
    tested = [event for event in done.events if event["kind"] == "trial.tested"]
    assert [(test["canary"], test["findings"]) for test in tested] == [("opening", []), ("closing", [])]
    assert {event["origin"] for event in done.events} == {"kernel", "gateway", "supervisor"}
