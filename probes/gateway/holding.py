"""What is held back: one connection of the trial to an allowed host, kept whole and passed on to nobody.

Laws:

1. Everything is judged as if it were passed on (`probes.gateway.speech`); what is refused then is refused now.
2. A client gets no answer. It is let go when it has ended its side, or said nothing more for a while: `ANSWER_S` after
   a whole request of HTTP, `PATIENCE_S` in the middle of one, `QUIET_S` where nobody can tell.
3. Only what is whole is held: a request that was never ended, or TLS that cannot be read, is refused.
4. Memory is bounded: `MOST_BYTES` and `MOST` connections in one run; what does not fit is refused.
"""

from __future__ import annotations

import hashlib
import os
import socket
from typing import TYPE_CHECKING

from policies.addresses import plain_address
from policies.hosts import written
from probes.gateway.accounts import Account
from probes.gateway.http_head import RequestHead
from probes.gateway.loop import GONE, READ, Later, boottime_ns
from probes.gateway.side import UNREAD, Side
from probes.gateway.speech import Place, Refused, Speech
from probes.gateway.tls_end import TlsEnd, TlsError
from supervisor.events import ConnectionHeld, InspectionFailed
from supervisor.values import dataclass, field

if TYPE_CHECKING:
    from probes.gateway.service import Service

MOST_BYTES = 64 << 20
MOST = 256
ANSWER_S = 1.0
QUIET_S = 3.0
PATIENCE_S = 10.0
_LISTED = 100
_URL_CHARS = 500
_READ_BYTES = 65536
_TURNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldItem:
    """One connection that waits: where it would go, and where what it said lies in the store.

    Attributes:
        place: that was decided.
        host: the name that it goes by, None for an address.
        speaks, tls: as in `ConnectionHeld`.
    """

    number: int
    place: Place
    host: str | None
    speaks: str | None
    tls: bool
    offset: int
    size_bytes: int


@dataclass(slots=True)
class Hold:
    """Where the gateway keeps what is held: memory that the supervisor can read too, and a list of what lies there."""

    memory: int
    items: dict[int, HeldItem] = field(default_factory=dict)
    open_count: int = 0
    open_bytes: int = 0
    _end: int = 0

    def reserve(self, size_bytes: int) -> None:
        """Take room for what a connection says next.

        Raises:
            Refused: there is none.
        """
        if self.open_bytes + self._end + size_bytes > MOST_BYTES:
            raise Refused(f"more than {MOST_BYTES >> 20} MiB would be held", rule="hold")
        self.open_bytes += size_bytes

    def store(self, data: bytes) -> int:
        """Write what was reserved; gives where it lies.

        Raises:
            OSError: the memory is not to be had.
        """
        offset, view = self._end, memoryview(data)
        while view:
            view = view[os.pwrite(self.memory, view, self._end) :]
            self._end = offset + len(data) - len(view)
        return offset

    def read(self, item: HeldItem) -> bytes:
        """Read what a connection said."""
        return os.pread(self.memory, item.size_bytes, item.offset)


class HeldConnection:
    """From accept to the account of what is held."""

    def __init__(
        self, service: Service, hold: Hold, number: int, sock: socket.socket, *, source: tuple[str, int], place: Place
    ) -> None:
        """Take over an accepted socket whose address is allowed; `begin` reads."""
        self._service, self._hold = service, hold
        self.number, self.source = number, source
        self._client = Side(service.loop, sock, self._ready)
        self._place = place
        self._outer = Speech(service.rules, place, self._hear_head)
        self._inner: Speech | None = None  # what is said inside TLS
        self._tls: TlsEnd | None = None
        self._opened_ns = self._heard_ns = boottime_ns()
        self._kept = bytearray()
        self._heads: list[RequestHead] = []  # the first of them
        self._requests = 0
        self._heard = self._counted = 0
        self._quiet: Later | None = None
        self._due_ns = 0
        self._done = False
        self._decoys = service.look_at(number, source)
        hold.open_count += 1

    def begin(self) -> None:
        """Begin to read, if there is room for one more."""
        if len(self._hold.items) + self._hold.open_count > MOST:
            self._refuse(Refused(f"more than {MOST} connections would be held", host=self._host, rule="hold"))
            return
        self._client.wait(READ)
        self._wait()

    @property
    def _speech(self) -> Speech:
        return self._inner or self._outer

    @property
    def _host(self) -> str | None:
        return self._speech.said.host or self._outer.said.host

    def _wait(self) -> None:
        """Let go of a client that says nothing more: it waits for an answer that will not come."""
        due_ns = self._heard_ns + int(self._patience_s() * 1e9)
        if due_ns <= boottime_ns():
            self._end("nobody answers before it is accepted")
        else:
            self._due_ns = due_ns
            self._quiet = self._service.loop.later((due_ns - boottime_ns()) / 1e9, self._wait)

    def _wait_less(self) -> None:
        """Wait no longer than what was said last gives reason to; waiting longer is seen to when the time is over."""
        if self._quiet is not None and self._heard_ns + int(self._patience_s() * 1e9) < self._due_ns:
            self._quiet.cancel()
            self._wait()

    def _patience_s(self) -> float:
        speech = self._speech
        if not speech.whole:
            return PATIENCE_S
        return ANSWER_S if self._requests else QUIET_S

    def _ready(self, events: int) -> None:
        try:
            for _ in range(_TURNS):
                data = self._client.sock.recv(_READ_BYTES)
                if not data:
                    self._end(None)
                    return
                self._heard += len(data)
                self._heard_ns = boottime_ns()
                self._service.received_bytes += len(data)
                self._hear(data)
                if self._done:
                    return
        except BlockingIOError:
            if events & GONE:
                self._end(None)
            else:
                self._wait_less()
        except Refused as err:
            self._refuse(err)
        except TlsError as err:
            self._break_off(err)
        except OSError:
            self._end(None)  # a client that was killed; what it had said whole counts

    def _hear(self, data: bytes) -> None:
        if self._tls is not None:
            self._read_tls(data)
            return
        if self._outer.said.hello is None:
            self._look(data)
        passed = self._outer.feed(data)
        hello = self._outer.said.hello
        if hello is None:
            self._keep(passed)
            return
        inspecting = self._service.inspecting
        if inspecting is None:
            reason = "what is said inside TLS cannot be held unless it is read"
            raise Refused(reason, host=self._host, rule="hold", would_allow="network.inspect = true")
        host = self._host or str(plain_address(self._place.address))
        protocol = "http/1.1" if b"http/1.1" in hello.alpn else None
        self._tls = TlsEnd(inspecting.authority.context(host, protocol), server_side=True)
        self._inner = Speech(self._service.rules, self._place, self._hear_head)
        self._read_tls(passed + self._outer.take_held())

    def _read_tls(self, data: bytes) -> None:
        tls, inner = self._tls, self._inner
        if tls is None or inner is None:
            return
        tls.receive(data)
        try:
            text = tls.read() if tls.handshake() else b""
        finally:
            if back := tls.outgoing():
                self._client.send(back)
        if len(self._client.waiting) > UNREAD:
            raise Refused("it reads nothing of what it is answered", host=self._host, rule="hold")
        if text:
            self._look(text, inside=True)
            self._keep(inner.feed(text))
        if inner.said.hello is not None:
            raise Refused("TLS inside TLS cannot be held", host=self._host, rule="hold")

    def _hear_head(self, head: RequestHead) -> None:
        if head.switches:
            raise Refused("a switch of protocols needs an answer, so it cannot be held", host=head.host, rule="hold")
        self._requests += 1
        if len(self._heads) < _LISTED:
            self._heads.append(head)

    def _keep(self, passed: bytes) -> None:
        self._hold.reserve(len(passed))
        self._counted += len(passed)
        self._kept += passed

    def _look(self, data: bytes, *, inside: bool = False) -> None:
        """Tell of decoys in what the client says, as on every connection."""
        if self._decoys is not None:
            where = written(self._host or str(plain_address(self._place.address)), self._place.port)
            self._decoys.look(data, where, inside=inside)

    # -- its end ---------------------------------------------------------------------------------------------------

    def close(self, error: str | None = None) -> None:
        """End it: what it said so far is held, if it is whole."""
        self._end(error)

    def _end(self, why: str | None) -> None:
        if self._done:
            return
        try:
            passed = self._speech.finish()
            self._keep(passed)
            if not self._speech.whole:
                raise Refused("what it began to say was never whole", host=self._host, rule="patience")  # noqa: TRY301
            self._put_away(why)
        except Refused as err:
            self._refuse(err)
        except OSError as err:
            self._refuse(Refused(f"it cannot be held: {err.strerror}", host=self._host, rule="hold"))

    def _put_away(self, why: str | None) -> None:
        data = bytes(self._kept)
        speech, place = self._speech, self._place
        self._give_back()
        host = self._host if self._host in place.names else place.host
        item = HeldItem(
            number=self.number, place=place, host=host, speaks=speech.said.speaks, tls=self._tls is not None,
            offset=self._hold.store(data), size_bytes=len(data),
        )  # fmt: skip
        if data:
            self._hold.items[self.number] = item
        event = ConnectionHeld(
            n=-1, time_ns=boottime_ns(), connection=self.number, ip=str(place.address), port=place.port,
            host=item.host, rule=speech.said.decision.rule, speaks=item.speaks, tls=item.tls, size_bytes=len(data),
            digest=f"sha256:{hashlib.sha256(data).hexdigest()}", count=self._requests,
            requests=tuple(url_of(head, item) for head in self._heads), opened_ns=self._opened_ns,
            offset=item.offset, ended=why, source=written(*self.source),
        )  # fmt: skip
        self._service.tell(event, self.source)
        self._drop(reset=False)

    def _refuse(self, why: Refused) -> None:
        """End it with a reset: nothing of it is held."""
        if self._done:
            return
        account = Account(number=self.number, place=self._place, source=self.source, opened_ns=self._opened_ns)
        told = account.blocked(why, kept_bytes=self._heard, origin=self._service.origin)
        self._service.tell(told, self.source)
        self._give_back()
        self._drop(reset=True)

    def _break_off(self, err: TlsError) -> None:
        host = self._host or str(plain_address(self._place.address))
        failed = InspectionFailed(
            n=-1, time_ns=boottime_ns(), connection=self.number, host=host, port=self._place.port, side="client",
            reason=err.reason, source=written(*self.source),
        )  # fmt: skip
        self._service.tell(failed, self.source)
        self._refuse(Refused(f"its TLS cannot be read: {err.reason}", host=self._host, rule="hold"))

    def _give_back(self) -> None:
        self._hold.open_bytes -= self._counted
        self._counted = 0
        self._kept = bytearray()

    def _drop(self, *, reset: bool) -> None:
        self._done = True
        self._hold.open_count -= 1
        if self._quiet is not None:
            self._quiet.cancel()
        self._client.drop(reset=reset)
        self._service.ended(self)


def url_of(head: RequestHead, item: HeldItem) -> str:
    """Name a request: ``METHOD URL``."""
    target = head.target.decode("ascii", "backslashreplace")
    if target.startswith("/") or target == "*":
        host = head.host or item.host or str(plain_address(item.place.address))
        usual = 443 if item.tls else 80
        where = host if item.place.port == usual else written(host, item.place.port)
        target = f"http{'s' if item.tls else ''}://{where}{target}"
    return f"{head.method.decode('ascii', 'backslashreplace')} {target[:_URL_CHARS]}"
