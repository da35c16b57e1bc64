"""The guardian: a process that outlives the supervisor by just as long as it takes to leave nothing behind.

It is forked before the box is made and waits for the supervisor's death on a pidfd that was opened before the fork, so
no instant exists at which a death goes unseen and no other process can be taken for the supervisor. Then it kills the
trial's cgroup until the kernel says that it is empty, removes it, and unmounts, unpins and deletes what is left.

It lives in a session of its own, ignores what a terminal can send, and keeps no descriptor but the two it waits on:
the supervisor's stdout must end when the supervisor does. Were the guardian killed too, the next start's sweep does the
same.

States::

    waiting --release--> gone (nothing done)
    waiting --supervisor died--> cleaning --> gone
"""

from __future__ import annotations

import gc
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from supervisor.errors import SuperviseError
from supervisor.launch.cgroup import Cgroup
from supervisor.launch.leftovers import clean_cgroup, clean_run
from supervisor.launch.runs.state import RunDir
from supervisor.values import dataclass

_RELEASE = b"r"
_NAME = b"supervise-guard"
_IGNORED = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGPIPE,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)


@dataclass(slots=True)
class Guardian:
    """A running guardian, as the supervisor holds it.

    Attributes:
        pid: of the guardian, a child of the supervisor.
    """

    pid: int
    _control: int

    @classmethod
    def start(cls, cgroup: Cgroup, run: RunDir, *, on_death: Callable[[], None] | None = None) -> Guardian:
        """Fork the guardian. Call it before threads are started: only the calling thread exists in a fork.

        Args:
            cgroup: what to kill and remove.
            run: whose mounts, ``outside/`` and ``box/`` to take away; the log stays.
            on_death: called last, e.g. to unpin the witness. It runs in the guardian and finds no descriptor of the
                supervisor open.
        """
        supervisor = os.pidfd_open(os.getpid())
        listening, control = os.pipe2(os.O_CLOEXEC)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # until the guardian ignores them
        try:
            pid = os.fork()
            if pid == 0:
                _stand_guard(supervisor, listening, cgroup, run, on_death)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(supervisor)
        os.close(listening)
        return cls(pid, control)

    def alive(self) -> bool:
        """Tell whether the guardian still stands (somebody may have killed it)."""
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return False

    def release(self) -> None:
        """Tell the guardian to end without any action: the supervisor cleans up itself. Twice is once; `reap` waits."""
        if self._control < 0:
            return
        with suppress(BrokenPipeError):
            os.write(self._control, _RELEASE)
        os.close(self._control)
        self._control = -1

    def reap(self) -> None:
        """Wait for its end, which takes it 2 ms in which there is other work."""
        self.release()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _stand_guard(
    supervisor: int, listening: int, cgroup: Cgroup, run: RunDir, on_death: Callable[[], None] | None
) -> None:
    """Be the guardian. Never returns, whatever happens: the code of the caller must not run twice."""
    try:
        gc.disable()  # a collection would touch, and so copy, every page that is shared with the supervisor
        _leave_the_terminal()
        _close_all_but(supervisor, listening)
        if _supervisor_died(supervisor, listening):
            _clean(cgroup, run, on_death)
    finally:
        os._exit(0)


def _leave_the_terminal() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    os.chdir("/")
    with suppress(OSError):
        Path("/proc/self/comm").write_bytes(_NAME)


def _close_all_but(*kept: int) -> None:
    """Close every other descriptor; 0, 1 and 2 become /dev/null, so that nothing opened later is taken for them."""
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with suppress(OSError):  # the one that listed the directory
                os.close(descriptor)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        if standard not in (*kept, null):
            os.dup2(null, standard)


def _supervisor_died(supervisor: int, listening: int) -> bool:
    """Wait for the first of release and death. A release that was written before the death counts."""
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.register(listening, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, events in poll.poll() if events & select.POLLIN}
        if listening in ready and os.read(listening, 1) == _RELEASE:
            return False
        if supervisor in ready:
            return True
        with suppress(KeyError):
            poll.unregister(listening)  # closed without a word: only the pidfd tells whether that was a death


def _clean(cgroup: Cgroup, run: RunDir, on_death: Callable[[], None] | None) -> None:
    try:
        with suppress(OSError, SuperviseError):
            clean_cgroup(cgroup)
        with suppress(OSError, SuperviseError):
            clean_run(run)
    finally:
        if on_death is not None:
            on_death()
