"""The box's own terminal: input, output, size, signals and job control through the relay, on a real pty."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_builder import BoxLab, box_lab

pytestmark = pytest.mark.kernel("box")

RUNNER = """
import os, select, signal, sys
from pathlib import Path
from box_builder import BoxLab
from supervisor.launch.terminal import Terminal, find_ttys
base, *argv = sys.argv[1:]
lab = BoxLab.__new__(BoxLab)
lab.base = Path(base)
lab.state, lab.workspace, lab.run_dir = lab.base / "state", lab.base / "work", lab.base / "state/runs/r1"
terminal = Terminal.find()
rows, columns = terminal.size
wake, woken = os.pipe()
os.set_blocking(woken, False)
signal.set_wakeup_fd(woken)
for number in (signal.SIGWINCH, signal.SIGCONT):
    signal.signal(number, lambda *_: None)
spec = lab.spec(*argv, ttys=find_ttys(), foreground=terminal.eager, rows=rows, columns=columns)
with lab.hold(spec) as box:
    terminal.attach(box.pty_master)
    try:
        box.release()
        while True:
            poll = select.poll()
            for fd, events in {**terminal.interest(), box.pidfd: 1, box.control.fileno(): 1, wake: 1}.items():
                poll.register(fd, events)
            ready = dict(poll.poll(10_000))
            terminal.pump()
            if wake in ready:
                for number in os.read(wake, 64):
                    terminal.resize() if number == signal.SIGWINCH else terminal.resume()
            if box.control.fileno() in ready and (notice := box.read_notice()):
                terminal.obey(notice, box)
            if box.pidfd in ready or not ready:
                break
        terminal.drain()
    finally:
        terminal.close()
    box.kill_members()
    box.wait()
    print("status", box.read_exit_status())
"""


class Session:
    """A user's terminal with the runner in it; what a shell would do to the runner is done here."""

    def __init__(self, lab: BoxLab, *argv: str, pipe_output: bool = False) -> None:
        """Start the runner as the foreground job of a new terminal."""
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 33, 101, 0, 0))
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.seen = b""
        self.output, output_side = os.pipe()
        path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            # A session leader has no parent in its session: a job that can stop needs one more process.
            job = os.fork()
            if job == 0:
                os.setpgid(0, 0)
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(slave, os.getpgrp())
                signal.signal(signal.SIGTTOU, signal.SIG_DFL)
                for fd in (0, 1, 2):
                    os.dup2(output_side if fd == 1 and pipe_output else slave, fd)
                os.environ["PYTHONPATH"] = path
                os.execv(sys.executable, [sys.executable, "-c", RUNNER, str(lab.base), *argv])  # noqa: S606 - a job
            while True:
                _, status = os.waitpid(job, os.WUNTRACED)
                if not os.WIFSTOPPED(status):
                    os._exit(0)
                modes = termios.tcgetattr(slave)
                os.write(slave, b"[stopped, echo %d]" % bool(modes[3] & termios.ECHO))
                time.sleep(0.1)
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(slave, job)
                os.killpg(job, signal.SIGCONT)
        os.close(output_side)

    def type(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    def until(self, wanted: bytes, timeout_s: float = 10) -> bytes:
        """Read until something was printed; give what came up to it."""
        deadline = time.monotonic() + timeout_s
        while wanted not in self.seen:
            if not select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0]:
                pytest.fail(f"no {wanted!r} in {self.seen!r}")
            self.seen += os.read(self.master, 1 << 16)
        before, self.seen = self.seen.split(wanted, 1)
        return before

    def close(self) -> None:
        """Let it clean up, or end it."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            if select.select([self.master], [], [], 0.02)[0]:
                with contextlib.suppress(OSError):
                    os.read(self.master, 1 << 16)
        with contextlib.suppress(OSError):
            if (job := os.tcgetpgrp(self.master)) > 0:
                os.killpg(job, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for fd in (self.master, self.slave, self.output):
            os.close(fd)


@pytest.fixture
def lab() -> Iterator[BoxLab]:
    """Give a lab."""
    with box_lab() as made:
        yield made


@contextlib.contextmanager
def session(lab: BoxLab, *argv: str, pipe_output: bool = False) -> Iterator[Session]:
    """Give a session that is ended afterwards."""
    made = Session(lab, *argv, pipe_output=pipe_output)
    try:
        yield made
    finally:
        made.close()


def test_a_terminal_of_its_own_with_the_users_size(lab: BoxLab) -> None:
    """All three streams are one terminal inside, named in the box, of the right size, and CMD is its foreground."""
    with session(lab, "sh", "-c", "tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo three; ps -o stat= -p $$") as user:
        said = user.until(b"status 0")
    assert said.split() == [b"/dev/pts/0", b"33", b"101", b"three", b"S+"]


def test_what_is_typed_arrives_and_the_modes_are_restored(lab: BoxLab) -> None:
    """Echo and lines are those of the box's terminal; afterwards the user's modes are as before."""
    with session(lab, "sh", "-c", "echo ready; read line; echo got-$line") as user:
        user.until(b"ready")
        assert not termios.tcgetattr(user.slave)[3] & termios.ECHO
        user.type(b"wrong\x15right\r")
        user.until(b"got-right")
        user.until(b"status 0")
        assert termios.tcgetattr(user.slave) == user.modes


def test_end_of_file_at_the_keyboard(lab: BoxLab) -> None:
    """^D ends a reader."""
    with session(lab, "sh", "-c", "echo ready; cat; echo ended") as user:
        user.until(b"ready")
        user.type(b"x\r\x04")
        user.until(b"ended")
        user.until(b"status 0")


def test_control_c_reaches_the_foreground_inside(lab: BoxLab) -> None:
    """^C interrupts CMD, and it is CMD that dies of it."""
    with session(lab, "sh", "-c", "echo ready; exec sleep 604") as user:
        user.until(b"ready")
        user.type(b"\x03")
        user.until(b"status 2")


def test_a_changed_size_is_told(lab: BoxLab) -> None:
    """SIGWINCH at the user's terminal becomes one inside, with the new size."""
    with session(lab, "bash", "-c", "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done") as user:
        user.until(b"ready")
        fcntl.ioctl(user.slave, termios.TIOCSWINSZ, struct.pack("4H", 44, 55, 0, 0))
        user.until(b"44 55")
        user.until(b"status 0")


def test_control_z_stops_supervise_and_continuing_continues_cmd(lab: BoxLab) -> None:
    """^Z stops CMD and then us, with the user's modes restored; continued, both go on and the keyboard works."""
    with session(lab, "sh", "-c", "echo ready; read line; echo got-$line") as user:
        user.until(b"ready")
        user.type(b"\x1a")
        user.until(b"[stopped, echo 1]")
        time.sleep(0.3)
        user.type(b"after\r")
        user.until(b"got-after")
        user.until(b"status 0")


def test_job_control_of_a_shell_inside(lab: BoxLab) -> None:
    """An interactive shell stops, lists and continues its own jobs; supervise does not stop with them."""
    with session(lab, "bash", "--norc", "-i") as user:
        user.type(b"PS1=; set +H; echo b''egin\r")
        user.until(b"begin\r\n")
        user.type(b"sleep 605\r")
        time.sleep(0.3)
        user.type(b"\x1a")
        user.until(b"Stopped")
        user.type(b"fg\r")
        time.sleep(0.3)
        user.type(b"\x03")
        user.type(b"echo rc=$?\r")
        user.until(b"rc=130")
        user.type(b"exit 7\r")
        user.until(b"status 1792")


def test_no_output_is_lost_at_the_end(lab: BoxLab) -> None:
    """A megabyte printed just before the exit arrives whole."""
    count = 20000
    with session(lab, "sh", "-c", f"seq {count}; echo the-end") as user:
        said = user.until(b"the-end", timeout_s=30)
    assert said.split() == [b"%d" % number for number in range(1, count + 1)]


def test_in_a_pipeline_the_keyboard_is_taken_when_it_is_wanted(lab: BoxLab) -> None:
    """With output into a pipe the user's modes are left alone until CMD reads the terminal."""
    with session(lab, "sh", "-c", "sleep 0.5; read line; echo got-$line >&2", pipe_output=True) as user:
        time.sleep(0.4)
        assert termios.tcgetattr(user.slave)[3] & termios.ECHO
        for _ in range(200):
            if not termios.tcgetattr(user.slave)[3] & termios.ECHO:
                break
            time.sleep(0.02)
        user.type(b"word\r")
        user.until(b"got-word")
        assert open(user.output, closefd=False).read() == "status 0\n"  # noqa: SIM115 - a descriptor
        assert termios.tcgetattr(user.slave) == user.modes


HEEDING = """
import os, termios, time
from supervisor.launch.terminal import Terminal
MODES = (("e", termios.ECHO), ("c", termios.ICANON), ("s", termios.ISIG))
def flags():
    local = termios.tcgetattr(0)[3]
    return "".join(word for word, bit in MODES if local & bit) or "none"
master, slave = os.openpty()
terminal = Terminal(user=0, eager=True)
print("at first", flags())
terminal.attach(master)
print("for CMD", flags())
terminal.heed_signals()
print("once it has ended", flags())
print("waits for", *("CMD" if fd == master else "keys" for fd in terminal.interest()))
terminal.leave()
print("stopped", flags())
terminal.resume()
print("continued", flags())
terminal.close()
print("in the end", flags(), flush=True)
"""


def test_the_keys_that_send_signals_send_them_to_us_once_cmd_has_ended() -> None:
    """Also after we were stopped and continued; nothing is read from the keyboard, and the user's modes come back."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.execv(sys.executable, [sys.executable, "-c", HEEDING])  # noqa: S606 - no shell
    told = b""
    with contextlib.suppress(OSError):  # EIO: it has ended
        while data := os.read(master, 1000):
            told += data
    os.close(master)
    os.waitpid(pid, 0)
    assert told.decode().splitlines() == [
        "at first ecs", "for CMD none", "once it has ended s", "waits for CMD", "stopped ecs", "continued s",
        "in the end ecs",
    ]  # fmt: skip
