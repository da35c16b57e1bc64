"""Signals that the supervisor gets, as something a poll loop can wait for.

The handlers do nothing: the number arrives through the wakeup descriptor, and the loop decides what it means in the
phase the trial is in. That is the same for a signal before the release, while CMD runs and while we settle.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from supervisor.errors import UsageError

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""What reaches CMD's process group as it came."""

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""What ends the watching once CMD has ended."""

_CAUGHT = (*FORWARDED, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


def _note(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the wakeup descriptor has told."""


class Signals:
    """Catches what `FORWARDED` and job control send, from `__enter__` to `__exit__`; main thread only."""

    def __init__(self) -> None:
        """Catch nothing yet."""
        self._kept: dict[int, object] = {}
        self._read = self._write = -1
        self._old_wakeup = -1

    def __enter__(self) -> Self:
        """Begin. A signal that the caller had us ignore (nohup, a background job) stays ignored.

        Raises:
            UsageError: this is not the main thread, the only one that Python handles signals in.
        """
        if threading.current_thread() is not threading.main_thread():
            message = "expected the main thread, since signals are handled in it, got another one"
            raise UsageError(message, place="run", hint="run each trial in a process of its own")
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._old_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _CAUGHT:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._kept[number] = signal.signal(number, _note)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _err: BaseException | None, _tb: TracebackType | None
    ) -> None:
        """Put everything back."""
        for number, handler in self._kept.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself gave
        signal.set_wakeup_fd(self._old_wakeup)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Give the descriptor that is readable when signals wait."""
        return self._read

    def take(self) -> tuple[int, ...]:
        """Give the signals that came, in order."""
        try:
            return tuple(os.read(self._read, 256))
        except BlockingIOError:
            return ()
