"""The forked child that builds a box and becomes bubblewrap, and the report by which it says what went wrong.

The child may have been forked from a process with threads, so it imports nothing and takes no lock of ours. Without
threads it is born in the trial's cgroup; otherwise it joins it before anything else, which takes 10 ms longer. What it
cannot do is a line ``{step, errno, message, place, hint}`` on the report pipe, and then ``_exit``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from supervisor.errors import LaunchError
from supervisor.launch import libc, namespaces
from supervisor.launch.boxspec import STDIO_CLOSED, STDIO_PTY, BoxSpec, encode_config
from supervisor.launch.bubblewrap import bubblewrap_options, encode_options
from supervisor.launch.view.view import View
from supervisor.values import dataclass

_FIRST = 10  # boxinit takes descriptors below 100
_ABOVE = 200
_FAILED = 125

GATEWAY = "start the gateway"
"""The step that fails when nobody serves the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A network namespace that somebody serves.

    Attributes:
        namespace: descriptor of it.
        ready: descriptor that gives one byte once it is served, and ends without one when it never will be.
    """

    namespace: int
    ready: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the child needs that its parent made.

    Attributes:
        cgroup: directory of the trial's cgroup.
        joins: files of further cgroups, which a member writes ``0`` into to join them.
        served: the network of the box when somebody serves it, else it gets one with nothing but ``lo``.
        bubblewrap, boxinit: the two programs.
        program: the compiled system call filter.
        init_socket, main_socket: the box's ends.
        report: where failures and notes go; closed by exec.
        errors: what becomes bubblewrap's stderr.
    """

    cgroup: Path
    bubblewrap: bytes
    boxinit: Path
    program: bytes
    init_socket: int
    main_socket: int
    report: int
    errors: int
    joins: tuple[Path, ...] = ()
    served: Served | None = None


def fork_builder(spec: BoxSpec, view: View, parts: Parts) -> int:
    """Fork the child and give its pid; in the child this does not return."""
    pid, joined = _fork(parts.cgroup)
    if pid:
        return pid
    report = parts.report
    try:
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, _ABOVE)  # out of the way of what is passed on
        if not joined:
            with _step("join the cgroup", parts.cgroup):
                (parts.cgroup / "cgroup.procs").write_bytes(b"0")
        for join in parts.joins:
            with _step("join the limited cgroup", join):
                join.write_bytes(b"0")
        _become_bubblewrap(spec, view, parts, report)
    except LaunchError as err:
        _report(report, step=err.step, errno=None, message=err.message, place=err.place, hint=err.hint)
    except BaseException as err:  # noqa: BLE001 - nothing may return into the parent's code
        _report(report, step="build", errno=None, message=repr(err))
    finally:
        os._exit(_FAILED)


def _fork(cgroup: Path) -> tuple[int, bool]:
    """Give the child's pid, 0 in the child, and whether it is in the cgroup already."""
    if len(sys._current_frames()) == 1:  # noqa: SLF001 - counts the threads that `threading` did not start, too
        with contextlib.suppress(OSError):  # not before Linux 5.7, not under every container's filter
            fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return libc.fork_into_cgroup(fd), True
            finally:
                os.close(fd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: see this module's docstring
        return os.fork(), False


def _become_bubblewrap(spec: BoxSpec, view: View, parts: Parts, report: int) -> NoReturn:
    signal.set_wakeup_fd(-1)
    with _step("leave the terminal"):
        os.setsid()
    with _step("enter the network namespace"):
        if parts.served is None:
            namespaces.enter_network()
        else:
            namespaces.join_network(parts.served.namespace)
    with _step("make a mount namespace"):
        namespaces.enter_mounts()
    view.execute(lambda note: _report(report, note=note))
    if parts.served is not None and not os.read(parts.served.ready, 1):
        raise LaunchError("the gateway did not get the network ready", step=GATEWAY)
    with _step("pass descriptors"):
        command = _arrange_descriptors(spec, view, parts)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _forbid_cores()
    with _step("start bubblewrap", parts.bubblewrap):
        os.execve(parts.bubblewrap, command, {})  # noqa: S606 - that is its point
    raise AssertionError


def _forbid_cores() -> None:
    """Take core dumps from whatever runs in the box: see boxinit.c, which finds out whether that is in force."""
    with contextlib.suppress(ValueError, OSError):  # the hard limit is 0, and may not be raised: enough for files
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


@contextlib.contextmanager
def _step(name: str, place: Path | bytes | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        shown = os.fsdecode(place) if place is not None else None
        message = f"{name}: {err.strerror}"
        raise LaunchError(message, step=name, place=shown, hint=_hint(err)) from err


def _hint(err: OSError) -> str | None:
    return "run as root" if err.errno in {errno.EPERM, errno.EACCES} else None


def _arrange_descriptors(spec: BoxSpec, view: View, parts: Parts) -> list[bytes]:
    """Put what bubblewrap passes on at fixed numbers, nothing of ours at 0 to 2, and give bubblewrap's argv."""
    standard = [
        None if number in spec.ttys or source is None else fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
        for number, source in enumerate(spec.stdio)
    ]
    passed = _Passed()
    init_socket, main_socket = passed.add(parts.init_socket), passed.add(parts.main_socket)
    boxinit = passed.add(os.open(parts.boxinit, os.O_PATH | os.O_CLOEXEC))
    numbers = [
        STDIO_PTY if number in spec.ttys else STDIO_CLOSED if source is None else passed.add(source)
        for number, source in enumerate(standard)
    ]
    config = encode_config(
        spec,
        init_socket=init_socket,
        main_socket=main_socket,
        stdio=(numbers[0], numbers[1], numbers[2]),
        cwd=spec.cwd,
    )
    config_fd = passed.add(_memory(b"config", config))
    program_fd = passed.add(_memory(b"filter", parts.program))
    options = bubblewrap_options(view, hostname=spec.view.hostname, seccomp_fd=program_fd)
    options_fd = passed.add(_memory(b"options", encode_options(options)))
    _replace_standard(parts.errors)
    passed.place()
    return [b"bwrap", b"--args", b"%d" % options_fd, b"--", b"/proc/self/fd/%d" % boxinit, b"%d" % config_fd]


class _Passed:
    """Descriptors on their way to the numbers from `_FIRST` on: first all out of the way, then all into place."""

    def __init__(self) -> None:
        self._parked: list[int] = []

    def add(self, fd: int) -> int:
        self._parked.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE))
        return _FIRST + len(self._parked) - 1

    def place(self) -> None:
        for number, fd in enumerate(self._parked, _FIRST):
            os.dup2(fd, number, inheritable=True)


def _replace_standard(errors: int) -> None:
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number, source in enumerate((null, null, errors)):
        os.dup2(source, number)


def _memory(name: bytes, content: bytes) -> int:
    fd = os.memfd_create(os.fsdecode(name), os.MFD_CLOEXEC)
    with open(os.dup(fd), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _report(fd: int, **fields: str | int | None) -> None:
    os.write(fd, json.dumps(fields).encode() + b"\n")


def read_report(text: bytes) -> tuple[tuple[str, ...], LaunchError | None]:
    """Give the notes and the failure of a child's report."""
    notes: list[str] = []
    failure: LaunchError | None = None
    for line in text.splitlines():
        fields = json.loads(line)
        if "note" in fields:
            notes.append(fields["note"])
        else:
            failure = LaunchError(
                fields["message"], step=fields["step"], place=fields.get("place"), hint=fields.get("hint")
            )
    return tuple(notes), failure
