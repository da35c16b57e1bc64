"""One end of a connection: a socket that is never waited for, and what waits to be sent to it."""

from __future__ import annotations

import contextlib
import socket

from probes.gateway.loop import READ, Loop, Ready, boottime_ns
from probes.gateway.porter import RESET

UNREAD = 64 * 1024
"""More than any handshake: what may wait for a client that is answered by the gateway itself, and reads nothing."""


class Side:
    """One end of a connection: its socket, what waits to be sent to it, and which ways are shut."""

    __slots__ = ("_interest", "_parked", "_ready", "ended", "loop", "sent_ns", "shut", "sock", "waiting")

    def __init__(self, loop: Loop, sock: socket.socket, ready: Ready) -> None:
        """Own the socket; ``ready`` is called with what happened to it, once it is waited for."""
        self.loop, self.sock, self._ready = loop, sock, ready
        self.waiting = bytearray()
        self.sent_ns: int | None = None  # when the last of what was sent was sent
        self.ended = False  # it will send no more
        self.shut = False  # it was told that nothing more comes
        self._interest: int | None = None  # it is not watched
        self._parked = False  # it is watched again when there is room for what it holds, not before

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send what can be sent now, keep the rest."""
        sent = 0
        if not self.waiting:
            try:
                sent = self.sock.send(data)
                self.sent_ns = boottime_ns()
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
            self.sent_ns = boottime_ns()
            del self.waiting[:sent]

    # -- readiness -------------------------------------------------------------------------------------------------

    def wait(self, interest: int) -> None:
        """From now on wait for this: to read, to write, or for its end only."""
        if interest == self._interest or (self._parked and not interest & READ):
            return
        if self._interest is None:
            self.loop.watch(self.sock.fileno(), interest, self._ready)
        else:
            self.loop.change(self.sock.fileno(), interest)
        self._interest, self._parked = interest, False

    def gone(self) -> bool:
        """Tell whether it was reset; one that has ended both ways may still hold bytes that we do not read yet."""
        if self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return True
        self.loop.forget(self.sock.fileno())  # it would be told all the time
        self._interest, self._parked = None, True
        return False

    def drop(self, *, reset: bool) -> None:
        """Close it, with a reset or in good order."""
        self.loop.drop(self.sock.fileno())
        if reset:
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.sock.close()
