"""The box of one trial: built by a forked child, entered by bubblewrap, held by our init in front of CMD.

In: a `BoxSpec`, and a cgroup that is already being watched. Out: a `Box` whose CMD waits for `Box.release`.

Order in the child, each step reported by name when it fails: join the cgroup, new network, new mounts, the view, exec
of bubblewrap. Then, inside: init becomes the run user, CMD's process makes the canary acts and says that it is ready.
Process ids come from the kernel (SCM_CREDENTIALS), not from what a message says.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from supervisor.errors import LaunchError, SuperviseError
from supervisor.launch.awaiting import Awaiting
from supervisor.launch.boxspec import BoxSpec
from supervisor.launch.bubblewrap import find_bubblewrap
from supervisor.launch.building import Parts, Served, fork_builder
from supervisor.launch.seccomp import load_filter
from supervisor.launch.streams import Streams
from supervisor.launch.trial_notes import open_notes
from supervisor.launch.view.view import View, plan_view
from supervisor.values import dataclass, replace

__all__ = ["Box", "BoxSpec", "Served", "StopNotice", "TrialCgroup", "hold"]

BOXINIT = Path(__file__).with_name("boxinit")
_MESSAGE_BYTES = 256
_PIDFD_INFO = struct.Struct("Q52xi")  # struct pidfd_info, first version: mask first, exit_code last
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO.size << 16 | 0xFF << 8 | 11


class TrialCgroup(Protocol):
    """What the box needs of a cgroup."""

    @property
    def path(self) -> Path:
        """Its directory."""

    def pids(self) -> tuple[int, ...]:
        """Give the host's pids of all members."""

    def freeze(self, timeout_s: float) -> bool:
        """Stop all members; True when the kernel confirmed it in time."""

    def thaw(self) -> bool:
        """Let them go on; True when the kernel confirmed it in time."""

    def kill(self) -> None:
        """Kill all members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNotice:
    """CMD was stopped by a signal, or continued (None). Told by the box's init: for the terminal, never as evidence."""

    signal: int | None


@dataclass(slots=True, kw_only=True)
class Box:
    """A held or running box.

    Attributes:
        main_pid: CMD, as the host sees it.
        init_pid: process 1 of the box.
        launcher_pid: bubblewrap, our child, outside the box's pid namespace.
        pidfd: of CMD; readable when it has ended.
        control: readable when init has a stop notice.
        pty_master: of the box's terminal, or None.
        trial_notes: readable when the trial left a note (`supervisor.launch.trial_notes`).
        view: the plan that was carried out.
        notes: what had to be done differently than planned.
        streams: CMD's standard streams, as it got them.
    """

    main_pid: int
    init_pid: int
    launcher_pid: int
    pidfd: int
    control: socket.socket
    pty_master: int | None
    trial_notes: socket.socket
    view: View
    notes: tuple[str, ...]
    cgroup: TrialCgroup
    main_socket: socket.socket | None
    streams: Streams
    _closed: bool = False

    @property
    def helper_pids(self) -> tuple[int, ...]:
        """The members of the cgroup that are ours: bubblewrap and init."""
        return (self.launcher_pid, self.init_pid)

    def workspace_device(self) -> int:
        """Give the ``st_dev`` of the workspace's root as the trial sees it.

        Raises:
            LaunchError: it cannot be looked at.
        """
        path = b"/proc/%d/root/%s" % (self.init_pid, self.view.workspace.lstrip(b"/"))
        try:
            return os.stat(path).st_dev  # noqa: PTH116 - bytes
        except OSError as err:
            message = f"the workspace cannot be looked at in the box: {err.strerror}"
            raise LaunchError(message, step="look at the workspace", place=os.fsdecode(self.view.workspace)) from err

    def release(self) -> None:
        """Let CMD run."""
        if self.main_socket is None:
            message = "the box was released before"
            raise LaunchError(message, step="release")
        try:
            self.main_socket.send(b"go")
        except OSError as err:
            message = f"the held process is gone: {err.strerror}"
            raise LaunchError(message, step="release") from err
        self.main_socket.close()
        self.main_socket = None

    def signal(self, number: int) -> bool:
        """Send a signal to CMD's process group, or to CMD when it has left that; False when it has ended.

        Not after its end: the number of its group could then be somebody else's.
        """
        try:
            signal.pidfd_send_signal(self.pidfd, 0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.main_pid, number)
                return True
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def give_terminal(self) -> None:
        """Make CMD's process group the foreground of its terminal, and continue it."""
        with contextlib.suppress(OSError):
            self.control.send(b"foreground")

    def read_notice(self) -> StopNotice | None:
        """Take one stop notice, or None when there is none."""
        try:
            words = self.control.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT).split()
        except OSError:
            return None
        match words:
            case [b"stopped", number]:
                return StopNotice(signal=int(number))
            case [b"continued"]:
                return StopNotice(signal=None)
        return None

    def read_exit_status(self) -> int | None:
        """Ask the kernel for CMD's wait status (pidfd_info, since 6.15); None when it cannot say or CMD is not reaped.

        A second, independent source beside the witness: nobody in the box can touch it.
        """
        try:
            answer = fcntl.ioctl(self.pidfd, _PIDFD_GET_INFO, _PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
        except OSError:
            return None
        mask, status = _PIDFD_INFO.unpack(answer)
        return int(status) if mask & _PIDFD_INFO_EXIT else None

    def members(self) -> tuple[int, ...]:
        """Give the host's pids of the cgroup without our helpers."""
        helpers = self.helper_pids
        return tuple(pid for pid in self.cgroup.pids() if pid not in helpers)

    def freeze(self, timeout_s: float = 5.0) -> None:
        """Stop every process of the trial."""
        self.cgroup.freeze(timeout_s)

    def thaw(self) -> None:
        """Let them go on."""
        self.cgroup.thaw()

    def kill_members(self, timeout_s: float = 5.0) -> tuple[int, ...]:
        """Kill everything but our helpers, so that init ends by itself; give the pids that were killed.

        Frozen first, so that nobody forks away; killed processes leave a frozen cgroup by themselves.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + timeout_s
        while self.members() and time.monotonic() < deadline:
            with contextlib.suppress(SuperviseError, OSError):
                self.cgroup.freeze(1.0)
            for pid in (members := self.members()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(members)
            self.cgroup.thaw()
            self._wait_without_members(min(deadline, time.monotonic() + 0.2))
        return tuple(sorted(killed))

    def _wait_without_members(self, deadline: float) -> None:
        while self.members() and time.monotonic() < deadline:
            time.sleep(0.001)

    def wait(self, timeout_s: float = 5.0) -> bool:
        """Wait for the end of init and bubblewrap, and reap it; False when they are still there."""
        try:
            ended = os.pidfd_open(self.launcher_pid)
        except ProcessLookupError:  # reaped before
            return True
        try:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return False
        finally:
            os.close(ended)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.launcher_pid, 0)
        return True

    def close(self) -> None:
        """End whatever is left, reap, and close our descriptors. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.control.close()  # init sees the end of file, and the kernel ends its namespace
        if self.main_socket is not None:
            self.main_socket.close()
        if not self.wait(0.5):
            self.cgroup.kill()
            self.wait()
        self.streams.close()
        self.trial_notes.close()
        os.close(self.pidfd)
        if self.pty_master is not None:
            os.close(self.pty_master)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close it."""
        self.close()


def hold(
    spec: BoxSpec,
    cgroup: TrialCgroup,
    *,
    joins: Iterable[Path] = (),
    served: Served | None = None,
    meanwhile: Callable[[], object] | None = None,
    view: View | None = None,
) -> Box:
    """Build the box and stop in front of CMD's first instruction.

    Call it before threads are started if that can be: the child is forked.

    Args:
        spec: what is wanted.
        cgroup: of the trial.
        joins: files of further cgroups, which the child writes ``0`` into to join them.
        served: a network namespace that is served, or None for one of the box's own with nothing in it.
        meanwhile: called once the child is forked: the box builds itself on another processor.
        view: what is seen of the files, when it is no trial's; else it is planned as ``spec.view`` asks.

    Raises:
        LaunchError: a step failed; nothing of CMD ran, and everything that was built is gone again.
        MachineError: bubblewrap is missing.
    """
    bubblewrap = find_bubblewrap()
    if not BOXINIT.exists():
        message = "the box's init is not built"
        raise LaunchError(message, step="find boxinit", place=str(BOXINIT), hint="run make")
    view = view or plan_view(spec.view)
    program = load_filter(spec.cache, plain_copies=spec.plain_copies)
    with contextlib.ExitStack() as always, contextlib.ExitStack() as on_failure:
        control, init_side = _socketpair(on_failure, always)
        main, main_side = _socketpair(on_failure, always)
        report, report_side = _pipe(always)
        errors, errors_side = _pipe(always)
        parts = Parts(
            cgroup=cgroup.path, bubblewrap=bubblewrap, boxinit=BOXINIT, program=program,
            init_socket=init_side.fileno(), main_socket=main_side.fileno(),
            report=report_side.fileno(), errors=errors_side.fileno(), joins=tuple(joins),
            served=served,
        )  # fmt: skip
        streams = Streams.take(spec.stdio, spec.ttys)
        on_failure.callback(streams.close)
        launcher_pid = fork_builder(replace(spec, stdio=streams.stdio), view, parts)
        on_failure.callback(_end, launcher_pid, cgroup)
        for ours in (init_side, main_side, report_side, errors_side):
            ours.close()
        if meanwhile is not None:
            meanwhile()
        awaiting = Awaiting(control=control, main=main, report=report, errors=errors, cwd=spec.cwd)
        ready = awaiting.ready(spec.timeout_s)
        on_failure.pop_all()
        return Box(
            main_pid=ready.main_pid, init_pid=ready.init_pid, launcher_pid=launcher_pid,
            pidfd=os.pidfd_open(ready.main_pid), control=control, pty_master=ready.pty_master, view=view,
            trial_notes=open_notes(ready.trial_notes),
            notes=ready.notes, cgroup=cgroup, main_socket=main, streams=streams,
        )  # fmt: skip


def _socketpair(on_failure: contextlib.ExitStack, always: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    on_failure.callback(ours.close)
    always.callback(theirs.close)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


def _pipe(always: contextlib.ExitStack) -> tuple[BinaryIO, BinaryIO]:
    read, write = os.pipe()
    return (
        always.enter_context(open(read, "rb", buffering=0)),  # noqa: PTH123 - descriptors
        always.enter_context(open(write, "wb", buffering=0)),  # noqa: PTH123 - as above
    )


def _end(launcher_pid: int, cgroup: TrialCgroup) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(launcher_pid, signal.SIGKILL)
    with contextlib.suppress(OSError, SuperviseError):
        cgroup.kill()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(launcher_pid, 0)
