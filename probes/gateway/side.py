"""One end of a connection: a socket that is never waited for, and what waits to be sent to it."""

from __future__ import annotations

import contextlib
import socket

from probes.gateway.loop import READ, WRITE, Loop, Ready
from probes.gateway.porter import RESET


class Side:
    """One end of a connection: its socket, what waits to be sent to it, and which ways are shut."""

    __slots__ = ("ended", "interest", "loop", "parked", "shut", "sock", "waiting")

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        """Own the socket."""
        self.loop, self.sock = loop, sock
        self.waiting = bytearray()
        self.ended = False  # it will send no more
        self.shut = False  # it was told that nothing more comes
        self.interest = 0
        self.parked: Ready | None = None  # it is not watched until there is room for what it holds

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

    # -- readiness -------------------------------------------------------------------------------------------------

    def watch(self, interest: int, ready: Ready) -> None:
        """Begin to wait for it."""
        self.interest = interest
        self.loop.watch(self.sock.fileno(), interest, ready)

    def watch_anew(self, interest: int, ready: Ready) -> None:
        """Have something else called from now on."""
        self.loop.forget(self.sock.fileno())
        self.watch(interest, ready)

    def rewatch(self, interest: int) -> None:
        """Wait for something else from now on."""
        if self.parked is not None:
            if interest & READ:
                ready, self.parked = self.parked, None
                self.watch(interest, ready)
        elif interest != self.interest:
            self.interest = interest
            self.loop.change(self.sock.fileno(), interest)

    def interest_beside(self, other: Side, most: int) -> int:
        """Say what to wait for: it is read while less than ``most`` waits for the other one."""
        read = READ if not self.ended and len(other.waiting) < most else 0
        return read | (WRITE if self.waiting else 0)

    def gone(self, ready: Ready) -> bool:
        """Tell whether it was reset; one that has ended both ways may still hold bytes that we do not read yet."""
        if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return True
        self.loop.forget(self.sock.fileno())  # it would be told all the time
        self.parked = ready
        return False

    def drop(self, *, reset: bool) -> None:
        """Close it, with a reset or in good order."""
        self.loop.forget(self.sock.fileno())
        if reset:
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.sock.close()
