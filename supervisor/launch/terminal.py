"""The user's terminal and the box's own: what is typed goes in, what is printed comes out, and job control works.

The box has a terminal of its own (`Box.pty_master`), so the trial never holds the user's. This is the relay between
both, made to be owned by a poll loop: `interest` says what to wait for, `pump` moves what is ready and never blocks.

Laws:
    * The user's modes are restored by `leave`, always, and before we stop ourselves.
    * We are raw only while our process group is the terminal's foreground; a background job reads nothing.
    * When standard input and output are both the terminal, the box owns the keyboard from the start. Otherwise (a
      pipeline) somebody beside us may be reading it: the box gets it when CMD is stopped for wanting it.
    * Nothing that CMD printed is lost: `drain` moves what is left after its end.
    * Once CMD has ended (`heed_signals`) no key reaches the box: those that send signals send them to us, and what else
      is typed is shown nowhere and dropped. It was meant for a command that is gone, and is none for the shell.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time
import tty
from collections.abc import Iterable

from supervisor.launch.box import Box, StopNotice
from supervisor.values import dataclass, field

_LIMIT = 1 << 16
_CHUNK = 1 << 14
_SIZE = struct.Struct("4H")
_DEFAULT_SIZE = (24, 80)
_LOCAL = 3
"""Where the local modes stand among those of a terminal (termios.tcgetattr)."""
_WANTS_TERMINAL = frozenset({signal.SIGTTIN, signal.SIGTTOU})


def find_ttys(stdio: Iterable[int | None] = (0, 1, 2)) -> frozenset[int]:
    """Tell which of CMD's 0, 1, 2 would be terminals of the user."""
    return frozenset(number for number, fd in enumerate(stdio) if fd is not None and _is_tty(fd))


def _is_tty(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def read_size(fd: int) -> tuple[int, int]:
    """Give rows and columns of a terminal; 24 and 80 when it has none."""
    try:
        rows, columns, _, _ = _SIZE.unpack(fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(_SIZE.size)))
    except OSError:
        return _DEFAULT_SIZE
    return (rows, columns) if rows and columns else _DEFAULT_SIZE


@dataclass(slots=True, kw_only=True)
class Terminal:
    """The relay.

    Attributes:
        user: descriptor of the user's terminal.
        eager: the box owns the keyboard from the start (see the laws).
        raw: the user's terminal is in raw mode now, and its keyboard is ours.
        heeding: CMD has ended: keys that send signals send them to us.
    """

    user: int
    eager: bool
    raw: bool = False
    heeding: bool = False
    _ours: int = -1
    _master: int = -1
    _wants_keyboard: bool = False
    _modes: list[int | list[bytes | int]] = field(default_factory=list)
    _typed: bytearray = field(default_factory=bytearray)
    _printed: bytearray = field(default_factory=bytearray)
    _input_open: bool = True
    _output_open: bool = True

    @classmethod
    def find(cls, stdio: tuple[int | None, int | None, int | None] = (0, 1, 2)) -> Terminal | None:
        """Give the relay for the terminal among three descriptors, or None when there is none."""
        ttys = find_ttys(stdio)
        if not ttys:
            return None
        user = stdio[min(ttys)]
        return cls(user=-1 if user is None else user, eager={0, 1} <= ttys)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the user's terminal."""
        return read_size(self.user)

    def attach(self, master: int) -> None:
        """Take the box's terminal, give it the user's modes and size, and begin. Before CMD is released."""
        self._master = master
        self._ours = self._open_again()
        os.set_blocking(master, False)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(master, termios.TCSANOW, termios.tcgetattr(self.user))
        self.resize()
        if self.eager:
            self.enter()

    def _open_again(self) -> int:
        """A descriptor of our own, because O_NONBLOCK on an inherited one would be seen by the shell."""
        try:
            return os.open(os.ttyname(self.user), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # a terminal of another mount namespace
            return os.dup(self.user)

    # -- modes ------------------------------------------------------------------------------------------------------

    def is_foreground(self) -> bool:
        """Tell whether our process group is the terminal's foreground, so that we may change it."""
        try:
            return os.tcgetpgrp(self.user) == os.getpgrp()
        except OSError:
            return False

    def enter(self) -> bool:
        """Take the keyboard: raw mode. False when we are in the background."""
        self._wants_keyboard = True
        if self.raw or not self.is_foreground():
            return self.raw
        try:
            self._modes = termios.tcgetattr(self.user)
            tty.setraw(self.user, termios.TCSADRAIN)
        except termios.error:
            return False
        self.raw = True
        if self.heeding:
            self._send_signals()
        return True

    def heed_signals(self) -> None:
        """From CMD's end on: have ^C and its like send signals as the user has them, and take no other key."""
        self.heeding = True
        self._typed.clear()
        if self.raw:
            self._drop_typed()
            self._send_signals()

    def _send_signals(self) -> None:
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(self.user)
            # NOFLSH: a key that sends a signal would take with it what CMD printed and the terminal has not shown yet.
            modes[_LOCAL] |= termios.NOFLSH | (int(self._modes[_LOCAL]) & termios.ISIG)  # type: ignore[arg-type]
            termios.tcsetattr(self.user, termios.TCSANOW, modes)

    def _drop_typed(self) -> None:
        with contextlib.suppress(termios.error):
            termios.tcflush(self.user, termios.TCIFLUSH)

    def is_heard(self) -> bool:
        """Tell whether ^C at the terminal sends a signal to us now."""
        return self.is_foreground() and (self.heeding or not self.raw)

    def leave(self) -> None:
        """Restore the user's modes. Safe at any time and twice."""
        if self.raw:
            if self.heeding:
                self._drop_typed()
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.user, termios.TCSADRAIN, self._modes)
        self.raw = False

    def resize(self) -> None:
        """Give the box's terminal the size of the user's; the kernel tells its foreground by SIGWINCH."""
        rows, columns = self.size
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, _SIZE.pack(rows, columns, 0, 0))

    # -- stop and continue --------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """After SIGCONT: take the keyboard again if we had it and are in the foreground, and the new size."""
        if self._wants_keyboard:
            self.enter()
        self.resize()

    def obey(self, notice: StopNotice, box: Box) -> None:
        """Do what a stop of CMD asks for: give it the keyboard, or stop ourselves and continue both afterwards."""
        if notice.signal is None:
            return
        if notice.signal in _WANTS_TERMINAL and not self.raw and self.enter():
            box.give_terminal()
            return
        self.drain(0.1)
        self.leave()
        stop_ourselves()
        self.resume()
        if self.raw:
            box.give_terminal()
        else:
            box.signal(signal.SIGCONT)

    # -- copying ------------------------------------------------------------------------------------------------------

    def interest(self) -> dict[int, int]:
        """Give descriptor → poll events to wait for now."""
        wanted: dict[int, int] = {}
        if self._reads():
            wanted[self._ours] = select.POLLIN
        if self._printed:
            wanted[self._ours] = wanted.get(self._ours, 0) | select.POLLOUT
        if self._output_open and len(self._printed) < _LIMIT:
            wanted[self._master] = select.POLLIN
        if self._typed:
            wanted[self._master] = wanted.get(self._master, 0) | select.POLLOUT
        return wanted

    def _reads(self) -> bool:
        return self.raw and not self.heeding and self._input_open and len(self._typed) < _LIMIT

    def pump(self) -> bool:
        """Move what can be moved without waiting; True when something was moved."""
        moved = False
        if self._reads():
            chunk = _read(self._ours)
            self._input_open = chunk != b""
            self._typed += chunk or b""
        if self._typed:
            moved |= _write(self._master, self._typed)
        if self._output_open and len(self._printed) < _LIMIT:
            chunk = _read(self._master)
            self._output_open = chunk != b""
            self._printed += chunk or b""
        if self._printed:
            moved |= _write(self._ours, self._printed)
        return moved

    def drain(self, timeout_s: float = 5.0) -> None:
        """Move what CMD printed until nothing is left, or the user's terminal takes nothing more."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.pump():
                continue
            if not self._printed and not self._has_output():
                return
            _wait(self._ours, select.POLLOUT, 0.05)

    def _has_output(self) -> bool:
        return self._output_open and _wait(self._master, select.POLLIN)

    def close(self) -> None:
        """Restore the modes and close our own descriptor."""
        self.leave()
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1


def stop_ourselves() -> None:
    """Stop our whole process group as ^Z at the terminal would, and return once we are continued."""
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    try:
        os.killpg(0, signal.SIGTSTP)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGTSTP, handler)


def _wait(fd: int, event: int, timeout_s: float = 0.0) -> bool:
    poll = select.poll()  # select(2) ends at descriptor 1023
    poll.register(fd, event)
    return bool(poll.poll(timeout_s * 1000))


def _read(fd: int) -> bytes | None:
    """Give what is there; None when nothing is there yet, empty at the end (EIO: the other side is gone)."""
    try:
        if not _wait(fd, select.POLLIN):
            return None
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _write(fd: int, pending: bytearray) -> bool:
    """Write what is taken and remove it; what a dead terminal refuses is dropped."""
    try:
        if not _wait(fd, select.POLLOUT):
            return False
        taken = os.write(fd, pending[:_CHUNK])
    except BlockingIOError:
        return False
    except OSError as err:
        if err.errno not in {errno.EIO, errno.EPIPE, errno.ENXIO}:
            raise
        taken = len(pending)
    del pending[:taken]
    return taken > 0
