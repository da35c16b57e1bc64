"""The wait until CMD is held: what the child, bubblewrap and init say on the way, and what is known when they are done.

Only the pids matter for evidence, and those are the kernel's: a message arrives with the sender's credentials, written
by the kernel and translated into our pid namespace (unix(7), SO_PASSCRED).
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import time
from contextlib import ExitStack
from typing import BinaryIO

from supervisor.errors import LaunchError
from supervisor.launch.building import read_report
from supervisor.values import dataclass

_UCRED = struct.Struct("3i")
_BYTES = 1024

ENTER_CWD = "enter the working directory"
"""The step of ``boxinit.c`` that fails when CMD cannot be where it is to start."""
_CWD_HINT = "CMD starts where you are, if that lies in the workspace, else in the workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What is known of a held box."""

    init_pid: int
    main_pid: int
    pty_master: int | None
    trial_notes: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    words: tuple[bytes, ...]
    pid: int
    passed: int | None


@dataclass(slots=True, kw_only=True)
class Awaiting:
    """The four channels on which a box under construction may speak, and where its command is to start."""

    control: socket.socket
    main: socket.socket
    report: BinaryIO
    errors: BinaryIO
    cwd: bytes

    def ready(self, timeout_s: float) -> Ready:
        """Wait until CMD's process is held.

        Raises:
            LaunchError: a step failed, or it took too long.
        """
        deadline = time.monotonic() + timeout_s
        with ExitStack() as on_failure:
            left = self._receive(self.control, deadline)
            if left.passed is None:
                raise LaunchError("expected a place for notes, got none", step="wait for the box")
            on_failure.callback(os.close, left.passed)
            init = self._receive(self.control, deadline)
            if init.passed is not None:
                on_failure.callback(os.close, init.passed)
            main = self._receive(self.main, deadline)
            on_failure.pop_all()
        notes, _ = read_report(_drain(self.report))
        return Ready(init_pid=init.pid, main_pid=main.pid, pty_master=init.passed, trial_notes=left.passed, notes=notes)

    def _receive(self, channel: socket.socket, deadline: float) -> _Message:
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            explanation = "the box did not come up in time"
            raise LaunchError(explanation, step="wait for the box", hint="the machine may be overloaded")
        message = _read_message(channel)
        match message.words:
            case (b"init",) | (b"ready",) | (b"notes",):
                return message
            case (b"error", number, *step):
                name = b" ".join(step).decode()
                explanation = f"{name}: {os.strerror(int(number))}"
                place = os.fsdecode(self.cwd) if name == ENTER_CWD else None
                raise LaunchError(explanation, step=name, place=place, hint=place and _CWD_HINT)
        raise self._failure()

    def _failure(self) -> LaunchError:
        """The channel closed without a word: the reason is in the child's report, or is what bubblewrap printed."""
        _, failure = read_report(_drain(self.report))
        if failure is not None:
            return failure
        said = _drain(self.errors).decode(errors="replace").strip()
        return LaunchError(said or "bubblewrap ended without a word", step="enter bubblewrap")


def _read_message(channel: socket.socket) -> _Message:
    flags = socket.MSG_CMSG_CLOEXEC
    room = socket.CMSG_SPACE(_UCRED.size) + socket.CMSG_SPACE(4)
    text, ancillary, _, _ = channel.recvmsg(_BYTES, room, flags)
    pid, passed = -1, None
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            pid = _UCRED.unpack(data[: _UCRED.size])[0]
        elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            passed = array.array("i", data[:4])[0]
    return _Message(words=tuple(text.split()), pid=pid, passed=passed)


def _drain(file: BinaryIO) -> bytes:
    """Read what is there without waiting for the end of file: a writer may live on."""
    os.set_blocking(file.fileno(), False)
    found = b""
    while chunk := file.read(_BYTES * 16):
        found += chunk
    return found
