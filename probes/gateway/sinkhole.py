"""One TCP connection of the trial that is swallowed: accepted, listened to, and passed on to nobody.

Laws:

1. The first `KEPT` bytes of what the client says are kept as evidence, and all of it is looked at for decoys.
2. Memory is bounded: a client that makes the gateway answer and reads nothing of it is let go at `UNREAD` bytes.
3. It ends with exactly one account, at the latest when its client has said nothing for `SILENT_S`.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

from policies.addresses import plain_address
from policies.hosts import written
from probes.gateway.accounts import Account, Counted
from probes.gateway.loop import GONE, READ, WRITE, Later, boottime_ns
from probes.gateway.side import UNREAD, Side
from probes.gateway.speech import Place

if TYPE_CHECKING:
    from probes.gateway.service import Service
    from probes.gateway.swallow import Swallowed

KEPT = 4096
SILENT_S = 3.0
_TURNS = 4
_READ_BYTES = 65536


class SinkholedConnection:
    """From accept to the account of its end."""

    __slots__ = ("_client", "_counted", "_decoys", "_kept", "_opened_ns", "_over", "_place", "_service", "_silence",
                 "_swallowed", "number", "source")  # fmt: skip

    def __init__(
        self, service: Service, number: int, sock: socket.socket, *, source: tuple[str, int], place: Place
    ) -> None:
        """Take over an accepted socket whose address is to be swallowed; `begin` listens."""
        self._service, self._place = service, place
        self.number, self.source = number, source
        self._client = Side(service.loop, sock, self._ready)
        self._opened_ns = boottime_ns()
        self._counted = Counted()
        self._kept = bytearray()
        self._silence: Later | None = None
        self._swallowed: Swallowed | None = None  # reads inside TLS
        self._decoys = service.look_at(number, source)
        self._over = False

    def begin(self) -> None:
        """Tell that it is swallowed, and listen."""
        place, inspecting = self._place, self._service.inspecting
        self._service.tell(partial(self._account.sinkholed), self.source)
        if inspecting is not None:
            self._swallowed = inspecting.swallow(place.host or str(plain_address(place.address)))
        self._client.wait(READ)
        self._wait_for_more(-1)

    @property
    def _account(self) -> Account:
        return Account(number=self.number, place=self._place, source=self.source, opened_ns=self._opened_ns)

    def _wait_for_more(self, before: int) -> None:
        """End it once it says nothing more: it waits for an answer that will not come."""
        now = self._counted.kept_bytes
        if now == before:
            self.close("nobody answers")
        else:
            self._silence = self._service.loop.later(SILENT_S, lambda: self._wait_for_more(now))

    def _ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._client.flush()
            for _ in range(_TURNS):
                data = self._client.sock.recv(_READ_BYTES)
                if not data:
                    self.close()
                    return
                self._hear(data)
                if self._over:
                    return
        except BlockingIOError:
            if events & GONE:
                self.close()
                return
        except OSError:
            self.close()
            return
        self._client.wait(READ | (WRITE if self._client.waiting else 0))

    def _hear(self, data: bytes) -> None:
        self._service.received_bytes += len(data)
        self._counted.kept_bytes += len(data)
        text = data
        if self._swallowed is not None:
            back, text = self._swallowed.feed(data)
            if back:
                self._client.send(back)
        if self._decoys is not None and text:
            place = self._place
            self._decoys.look(text, written(place.host or str(place.address), place.port))
        self._kept += text[: max(0, KEPT - len(self._kept))]
        if len(self._client.waiting) > UNREAD:
            self.close("it reads nothing of what it is answered")

    def close(self, error: str | None = None) -> None:
        """End it, and tell."""
        if self._over:
            return
        self._over = True
        kept = bytes(self._kept) or (self._swallowed.pending if self._swallowed else b"")
        account = self._account
        self._service.tell(
            partial(account.closed, "sinkholed", None, self._counted, time_ns=boottime_ns(), kept=kept, error=error),
            self.source,
        )
        if self._silence is not None:
            self._silence.cancel()
        self._client.drop(reset=False)
        self._service.ended(self)
