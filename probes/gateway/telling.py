"""What the gateway tells, in order: made and written when nobody waits for anything else, sent many at once.

Laws:

1. What is told first is sent first, and everything that was told is sent (`Teller.flush`).
2. What is untold is bounded: beyond `MOST` each new one has two old ones written at once.
3. Sending waits for whoever reads: a supervisor that is late holds the trial up, and loses nothing.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable

from probes.gateway.loop import Later, Loop
from probes.gateway.wire import TCP, pack_batch, pack_told
from supervisor.events import Event

MOST = 256
_AT_ONCE = 64
_AT_ONCE_BYTES = 1 << 15
_WITHIN_S = 0.01
"""Waking the supervisor costs more than passing on a connection."""

Make = Callable[[], Event]


class Teller:
    """Tells the supervisor."""

    def __init__(self, loop: Loop, control: socket.socket) -> None:
        """Begin with nothing to tell.

        Args:
            loop: says when there is time.
            control: to the supervisor; blocking.
        """
        self._loop, self._control = loop, control
        self._untold: deque[tuple[Make | Event, tuple[str, int] | None, int]] = deque()
        self._written: list[bytes] = []
        self._written_bytes = 0
        self._due: Later | None = None

    def tell(self, told: Make | Event, source: tuple[str, int] | None = None, protocol: int = TCP) -> None:
        """Have an event sent, with the trial's end of the flow for the supervisor to find the process by.

        Args:
            told: the event, or what makes it when there is time.
            source: the trial's end, None for what belongs to no flow.
            protocol: of the flow.
        """
        untold = self._untold
        if not untold:
            self._loop.when_idle(self._write_one)
        untold.append((told, source, protocol))
        if self._due is None:
            self._due = self._loop.later(_WITHIN_S, self.flush)
        if len(untold) > MOST:
            self._write()
            self._write()

    def flush(self) -> None:
        """Send all that was told so far."""
        while self._untold:
            self._write()
        self._send()

    def _write_one(self) -> None:
        if self._untold:
            self._write()
        if self._untold:
            self._loop.when_idle(self._write_one)

    def _write(self) -> None:
        told, source, protocol = self._untold.popleft()
        message = pack_told(told if isinstance(told, Event) else told(), source, protocol)
        self._written.append(message)
        self._written_bytes += len(message)
        if len(self._written) >= _AT_ONCE or self._written_bytes >= _AT_ONCE_BYTES:
            self._send()

    def _send(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._written:
            batch, self._written, self._written_bytes = pack_batch(self._written), [], 0
            self._control.send(batch)
        if self._untold:
            self._due = self._loop.later(_WITHIN_S, self.flush)
