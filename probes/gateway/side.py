"""One end of a connection: its socket, what waits to be sent to it, and what the loop is to tell of it."""

from __future__ import annotations

import contextlib
import socket

from probes.gateway.loop import READ, WRITE, Loop, Ready
from probes.gateway.porter import RESET

HELD = 256 * 1024
"""So many bytes may wait for one side before the other is not read any more."""


class Side:
    """One end of a connection."""

    __slots__ = ("_interest", "_loop", "_parked", "ended", "shut", "sock", "waiting")

    def __init__(self, sock: socket.socket, loop: Loop) -> None:
        """Own the socket."""
        self.sock = sock
        self.waiting = bytearray()
        self.ended = False  # it will send no more
        self.shut = False  # it was told that nothing more comes
        self._loop = loop
        self._interest = 0
        self._parked: Ready | None = None  # it is not watched until there is room for what it holds

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send what can be sent now, keep the rest."""
        sent = 0
        if not self.waiting:
            try:
                sent = self.sock.send(data)
            except BlockingIOError:
                sent = 0
        if sent < len(data):
            self.waiting += data[sent:]

    def flush(self) -> None:
        """Send of what waits as much as can be sent."""
        while self.waiting:
            try:
                sent = self.sock.send(self.waiting)
            except BlockingIOError:
                return
            del self.waiting[:sent]

    def shut_down(self) -> None:
        """Tell it that nothing more comes."""
        self.shut = True
        self.sock.shutdown(socket.SHUT_WR)

    def interest(self, other: Side) -> int:
        """Tell what to wait for: more of it as long as there is room on the other side, and room in it."""
        read = READ if not self.ended and len(other.waiting) < HELD else 0
        return read | (WRITE if self.waiting else 0)

    def watch(self, interest: int, ready: Ready) -> None:
        """Begin to wait."""
        self._interest = interest
        self._loop.watch(self.sock.fileno(), interest, ready)

    def rewatch(self, interest: int) -> None:
        """Wait for something else."""
        if self._parked is not None:
            if interest & READ:
                ready, self._parked = self._parked, None
                self.watch(interest, ready)
        elif interest != self._interest:
            self._interest = interest
            self._loop.change(self.sock.fileno(), interest)

    def unwatch(self) -> None:
        """Wait no more."""
        self._loop.forget(self.sock.fileno())
        self._interest = 0

    def gone(self, ready: Ready) -> bool:
        """Tell whether it was reset; if it only ended both ways it may still hold bytes that we do not read yet."""
        if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return True
        self.unwatch()  # it would be told all the time
        self._parked = ready
        return False

    def close(self, *, reset: bool) -> None:
        """End it. Twice is once."""
        if self.sock.fileno() < 0:
            return
        self._loop.forget(self.sock.fileno())
        if reset:
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.sock.close()
