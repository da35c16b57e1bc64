"""The gateway before there is anything to decide: it accepts and holds, and answers the box's test of itself.

What judges names and protocols takes longer to import than a whole trial takes to start, and many trials never use the
network. So it is imported when the first connection or question comes that is not the box's own, or when the policy
expects some, once the trial runs. Nothing that the trial sent is read in here.
"""

from __future__ import annotations

import select
import socket
import struct

from probes.gateway.ground import Ground
from probes.gateway.loop import boottime_ns
from probes.gateway.wire import TCP, pack_told
from supervisor.events import ConnectionBlocked, Event, GatewayStopped, Origin

CANARY = ("192.0.2.1", 9)
"""Where the box tries to go when it tests itself: refused under every policy."""
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing sends a reset."""
_EXPECTED_AFTER_MS = 20

Accepted = tuple[socket.socket, tuple[str, int]]


class Porter:
    """Accepts, until something has to be decided."""

    def __init__(self, ground: Ground, control: socket.socket, *, expecting: bool) -> None:
        """Take over what was made.

        Args:
            ground: sockets in the trial's namespace.
            control: to the supervisor.
            expecting: the policy lets something through, so that it will be asked for.
        """
        self._ground, self._control, self._expecting = ground, control, expecting
        self._tested = False
        self.accepted = 0
        self.held: list[Accepted] = []

    def run(self) -> bool:
        """Wait; True when there is, or soon will be, something to decide, False when all is over."""
        poll = select.poll()
        for sock in (*self._ground.listeners, *self._ground.resolvers, self._control):
            poll.register(sock, select.POLLIN)
        asked = {sock.fileno() for sock in self._ground.resolvers}
        while True:
            ready = {fd for fd, _ in poll.poll(_EXPECTED_AFTER_MS if self._tested and self._expecting else None)}
            self._accept_all()
            if self._control.fileno() in ready and not self._obey():
                return False
            if self.held or ready & asked or not ready:
                return True

    def _obey(self) -> bool:
        word = self._control.recv(64)
        if word == b"flush":
            self._control.send(b"flushed")
            self._tested = True
            return True
        if word == b"stop":
            self._tell(
                GatewayStopped(n=-1, time_ns=boottime_ns(), connections=self.accepted, questions=0, received_bytes=0)
            )
        return False

    def _accept_all(self) -> None:
        for listener in self._ground.listeners:
            while not self.held:
                try:
                    sock, peer = listener.accept()
                except OSError:
                    break
                meant = sock.getsockname()
                if (meant[0], meant[1]) == CANARY:
                    self._refuse(sock, (peer[0], peer[1]))
                else:
                    self.held.append((sock, (peer[0], peer[1])))

    def _refuse(self, sock: socket.socket, source: tuple[str, int]) -> None:
        self.accepted += 1
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()
        self._tell(refused_canary(self.accepted, source), source)

    def _tell(self, event: Event, source: tuple[str, int] | None = None) -> None:
        self._control.send(pack_told(event, source, TCP))


def refused_canary(number: int, source: tuple[str, int]) -> ConnectionBlocked:
    """Say that the box's test of itself was refused."""
    return ConnectionBlocked(
        n=-1, time_ns=boottime_ns(), origin=Origin.GATEWAY, transport="tcp", ip=CANARY[0], port=CANARY[1],
        connection=number, rule="canary", reason="this is where the box tests itself",
        source=f"{source[0]}:{source[1]}",
    )  # fmt: skip
