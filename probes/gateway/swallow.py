"""A connection that is accepted and passed on to nobody: what the client says is counted, and its first bytes kept."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from policies.hosts import written
from probes.gateway.loop import GONE, READ, boottime_ns
from probes.gateway.side import Side
from probes.gateway.speech import Place, what_it_names
from supervisor.events import ConnectionClosed, ConnectionSinkholed

if TYPE_CHECKING:
    from probes.gateway.service import Service

KEPT = 4096
_TURNS = 4
_scratch = bytearray(65536)
_view = memoryview(_scratch)


class Swallowed:
    """From accept to the account of its end."""

    __slots__ = ("_client", "_decoys", "_done", "_kept", "_kept_bytes", "_opened_ns", "_place", "_service", "number",
                 "source")  # fmt: skip

    def __init__(
        self, service: Service, number: int, sock: socket.socket, source: tuple[str, int], place: Place
    ) -> None:
        """Say that it was swallowed, and read."""
        self._service, self.number, self.source, self._place = service, number, source, place
        self._client = Side(sock, service.loop)
        self._opened_ns = boottime_ns()
        self._kept, self._kept_bytes, self._done = bytearray(), 0, False
        self._decoys = service.lookout.begin() if service.lookout else None
        decided = place.decided
        service.tell(
            ConnectionSinkholed(
                n=-1, time_ns=self._opened_ns, connection=number, ip=str(place.address), port=place.port,
                host=place.host, rule=decided.rule, reason=decided.reason, would_allow=decided.would_allow,
                source=written(*source),
            ),
            source,
        )  # fmt: skip
        self._client.watch(READ, self._ready)

    def _ready(self, events: int) -> None:
        try:
            for _ in range(_TURNS):
                count = self._client.sock.recv_into(_scratch)
                if not count:
                    self.close()
                    return
                self._service.received_bytes += count
                self._kept_bytes += count
                self._take(_view[:count])
        except BlockingIOError:
            if events & GONE:
                self.close()
        except OSError:
            self.close()

    def _take(self, data: memoryview) -> None:
        if len(self._kept) < KEPT:
            self._kept += data[: KEPT - len(self._kept)]
        if self._decoys is not None:
            place = self._place
            where = written(place.host or str(place.address), place.port)
            common = {"n": -1, "time_ns": boottime_ns(), "connection": self.number}
            for event in self._decoys.look(bytes(data), where, **common):
                self._service.tell(event, self.source)

    def close(self, error: str | None = None) -> None:
        """End it, and give the account. Twice is once."""
        if self._done:
            return
        self._done = True
        place = self._place
        host = place.host if place.host is not None else next(what_it_names(bytes(self._kept)), None)
        self._service.tell(
            ConnectionClosed(
                n=-1, time_ns=boottime_ns(), connection=self.number, ip=str(place.address), port=place.port,
                host=host, decision="sinkholed", kept_bytes=self._kept_bytes, opened_ns=self._opened_ns,
                data_out=bytes(self._kept), error=error, source=written(*self.source),
            ),
            self.source,
        )  # fmt: skip
        self._client.close(reset=False)
        self._service.ended(self)
