"""What processes did: starts, execs, exits, signals, and calls that the box refuses."""

from __future__ import annotations

from supervisor.events.base import Event, ProcessKey


class ProcessStarted(Event, frozen=True, kw_only=True):
    """A process was made: ``process`` is the child, ``parent`` the process that really made it.

    ``parent`` is None for members that were in the cgroup when the witness was attached.
    """

    parent: ProcessKey | None
    pid_inside: int
    uid: int = 0


class ProcessExecuted(Event, frozen=True, kw_only=True):
    """A process became another program. ``argv`` is what the kernel put on the new stack, before it ran."""

    exe: bytes
    argv: tuple[bytes, ...]
    argv_truncated: bool = False
    cwd: bytes = b""
    device: int = 0
    inode: int = 0
    path_truncated: bool = False


class ProcessExecFailed(Event, frozen=True, kw_only=True):
    """A process tried to become another program and could not."""

    path: bytes
    error: int
    verified: bool = True


class ProcessReached(Event, frozen=True, kw_only=True):
    """A process reached into another one: ``how`` is ptrace, process_vm_writev or process_vm_readv.

    From then on the arguments of calls that were read from the target's memory prove nothing.
    """

    target_inside: int
    how: str
    error: int | None = None


class ProcessExited(Event, frozen=True, kw_only=True):
    """The last thread of a process ended. One of ``exit_code`` and ``signal`` is set."""

    exit_code: int | None
    signal: int | None


class SignalSent(Event, frozen=True, kw_only=True):
    """A process of the trial sent a signal to another one."""

    target: ProcessKey
    signal: int
    inside: bool
    error: int | None = None


class MembershipLeft(Event, frozen=True, kw_only=True):
    """A process of the trial was moved out of its cgroup: from here on it is not witnessed."""

    cgroup: int


class SyscallRefused(Event, frozen=True, kw_only=True):
    """A call that the box refuses to everybody was tried (mount, bpf, keyctl, io_uring, …).

    Attributes:
        arguments: the first two; of ``setsockopt`` the level and the option.
    """

    name: str
    arguments: tuple[int, ...]
    error: int
