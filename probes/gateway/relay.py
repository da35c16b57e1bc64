"""One TCP connection of the trial: judged, dialled, passed on, counted.

Laws:

1. What is not decided is not passed on, and what is passed on was decided (`probes.gateway.speech`).
2. Memory is bounded: at most `HELD` bytes wait in either direction; a side that does not read stops the other one.
3. A client that says nothing first is dialled for after `SILENCE_S` (SSH, SMTP: the server speaks first); what it then
   says is judged all the same.
4. Every connection ends with exactly one account: blocked, or closed with the bytes each way.
"""

from __future__ import annotations

import errno
import os
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from policies.addresses import Address, plain_address
from policies.hosts import written
from policies.network import Action
from probes.gateway.accounts import Account, Counted
from probes.gateway.loop import GONE, READ, WRITE, Later, boottime_ns
from probes.gateway.porter import CANARY, refused_canary
from probes.gateway.side import Side
from probes.gateway.speech import Place, Refused, Speech

if TYPE_CHECKING:
    from probes.gateway.inspecting import Inspected
    from probes.gateway.inspection import Step
    from probes.gateway.service import Service
    from probes.gateway.swallow import Swallowed

HELD = 256 * 1024
KEPT = 4096
SILENCE_S = 0.2
PATIENCE_S = 10.0
DIAL_S = 30.0
SWALLOWED_S = 3.0
_READ_BYTES = 65536
_TURNS = 4
_scratch = bytearray(_READ_BYTES)
_view = memoryview(_scratch)


class Connection:
    """From accept to the account of its end."""

    __slots__ = (
        "_account", "_client", "_counted", "_deadline", "_decoys", "_dialling", "_early", "_inspected",
        "_kept", "_opened_ns", "_place", "_server", "_service", "_silence", "_speech",
        "_swallowed", "number", "source",
    )  # fmt: skip

    def __init__(self, service: Service, number: int, sock: socket.socket, source: tuple[str, int]) -> None:
        """Take over an accepted socket; `begin` decides."""
        self._service = service
        self.number = number
        self.source = source
        self._client = Side(service.loop, sock)
        self._server: Side | None = None
        self._place: Place | None = None
        self._speech: Speech | None = None
        self._opened_ns = boottime_ns()
        self._counted = Counted()
        self._kept = bytearray()  # what a swallowed client sent
        self._early = bytearray()  # what waits until the server is there
        self._silence: Later | None = None
        self._deadline: Later | None = None
        self._dialling = False
        self._account = ""
        self._inspected: Inspected | None = None  # what is inside TLS is read
        self._swallowed: Swallowed | None = None  # the same of what is swallowed
        self._decoys = service.lookout.begin() if service.lookout else None

    def begin(self, address: Address, port: int) -> None:
        """Decide by the address alone."""
        service = self._service
        self._place = place = service.find_place(address, port)
        if (str(address), port) == CANARY:
            self._account = "blocked"
            self._service.tell(refused_canary(self.number, self.source), self.source)
            self._drop(reset=True)
        elif place.decided.action is Action.ALLOWED:
            self._speech = Speech(service.rules, place)
            self._silence = service.loop.later(SILENCE_S, self._dial)
            self._client.watch(READ, self._client_ready)
        elif place.decided.action is Action.SINKHOLED:
            self._swallow(place)
        else:
            decided = place.decided
            self._block(Refused(decided.reason, host=place.host, rule=decided.rule, would_allow=decided.would_allow))

    def _of(self, place: Place) -> Account:
        return Account(number=self.number, place=place, source=self.source, opened_ns=self._opened_ns)

    def _swallow(self, place: Place) -> None:
        self._account = "sinkholed"
        self._service.tell(self._of(place).sinkholed(), self.source)
        if self._service.inspecting is not None:
            self._swallowed = self._service.inspecting.swallow(place.host or str(plain_address(place.address)))
        self._client.watch(READ, self._swallow_ready)
        self._wait_for_more(-1)

    def _wait_for_more(self, before: int) -> None:
        """End what is swallowed once it says nothing more: it waits for an answer that will not come."""
        now = self._counted.kept_bytes
        if now == before:
            self.close("nobody answers")
        else:
            self._silence = self._service.loop.later(SWALLOWED_S, lambda: self._wait_for_more(now))

    def _swallow_ready(self, events: int) -> None:
        try:
            for _ in range(_TURNS):
                count = self._client.sock.recv_into(_scratch)
                if not count:
                    self.close()
                    return
                self._service.received_bytes += count
                self._counted.kept_bytes += count
                text = _view[:count]
                if self._swallowed is not None:
                    back, said = self._swallowed.feed(bytes(text))
                    self._client.send(back)
                    text = memoryview(said)
                self._look(text)
                self._kept += text[: max(0, KEPT - len(self._kept))]
        except BlockingIOError:
            if events & GONE:
                self.close()
        except OSError:
            self.close()

    def _block(self, why: Refused) -> None:
        """End it with a reset, and say why."""
        place = self._place
        if place is None:
            return
        was = self._account
        if was:
            self._tell_closed("refused")
        self._account = "blocked"
        told = self._of(place).blocked(why, kept_bytes=self._counted.kept_bytes, origin=self._service.origin)
        self._service.tell(told, self.source)
        self._drop(reset=True)

    def _client_ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._client.flush()
            if events & READ:
                self._read_client()
            if self._account in ("blocked", "done"):
                return
            if events & GONE and not events & READ and self._client.gone(self._client_ready):
                self._fail(None, "reset by the client")
                return
        except Refused as err:
            self._block(err)
            return
        except OSError as err:
            self._fail(err, "the client")
            return
        self._settle()

    def _read_client(self) -> None:
        for _ in range(_TURNS):
            if self._full(self._server):
                return
            try:
                count = self._client.sock.recv_into(_scratch)
            except BlockingIOError:
                return
            if not count:
                self._client.ended = True
                if self._inspected is not None:
                    self._take_step(self._inspected.ended(client=True))
                elif self._speech is not None and (rest := self._speech.finish()):
                    self._pass_on(rest)
                return
            self._service.received_bytes += count
            self._look(_view[:count])
            self._hear(_view[:count])
            if self._account in ("blocked", "done"):
                return

    def _look(self, data: memoryview) -> None:
        """Tell of decoys in what the client sends, before anything becomes of it."""
        place, speech = self._place, self._speech
        if self._decoys is None or place is None or (speech is not None and speech.said.speaks == "tls"):
            return
        self._look_at(bytes(data))

    def _look_at(self, data: bytes, how: str = "") -> None:
        place = self._place
        if self._decoys is None or place is None:
            return
        where = written(self._place_host() or place.host or str(place.address), place.port)
        common = {"n": -1, "time_ns": boottime_ns(), "connection": self.number}
        for event in self._decoys.look(data, f"{where}{how}", **common):
            self._service.tell(event, self.source)

    def _hear(self, data: memoryview) -> None:
        speech = self._speech
        if speech is None:
            return
        if self._inspected is not None:
            self._take_step(self._inspected.hear(None, bytes(data)))
            return
        self._counted.kept_bytes += len(data)
        passed: bytes | memoryview = data if speech.open else speech.feed(bytes(data))
        if passed and self._service.inspecting is not None and speech.said.hello is not None:
            self._inspect(bytes(passed) + speech.take_held())
        elif passed:
            self._pass_on(passed)
        self._set_deadline(waiting=speech.waiting)

    def _pass_on(self, data: bytes | memoryview) -> None:
        self._counted.kept_bytes = max(0, self._counted.kept_bytes - len(data))
        self._counted.bytes_out += len(data)
        if self._server is None or self._dialling:
            self._early += data
            self._dial()
        else:
            self._server.send(data)

    def _inspect(self, first: bytes) -> None:
        """Begin to read inside TLS: the server is dialled, and greeted before the client is."""
        from probes.gateway.inspecting import Inspected  # noqa: PLC0415 - only what reads inside TLS needs it

        place, speech, inspecting = self._place, self._speech, self._service.inspecting
        if place is None or speech is None or inspecting is None:
            return
        host = speech.said.host or str(plain_address(place.address))
        self._inspected = Inspected(inspecting, host, place.port, speech)
        self._counted.kept_bytes = 0
        self._take_step(self._inspected.hear(speech.said.hello, first))
        self._dial()

    def _take_step(self, step: Step) -> None:
        """Send what an inspection wants sent, tell what it found, and end what it wants ended.

        Raises:
            Refused: a request must not go on.
        """
        inspected, server = self._inspected, self._server
        if inspected is None:
            return
        now = boottime_ns()
        for event in inspected.events(step, n=-1, time_ns=now, connection=self.number, source=written(*self.source)):
            self._service.tell(event, self.source)
        for text in step.text_out if self._decoys is not None else ():
            self._look_at(text, ", inside TLS")
        if step.to_server and server is not None:
            self._counted.bytes_out += len(step.to_server)
            server.send(step.to_server)
        if step.to_client:
            self._client.send(step.to_client)
        failure = inspected.failure
        if failure is not None and failure.side == "request":
            raise inspected.refusal or Refused(failure.reason, host=self._place_host(), rule="http")
        if failure is not None:
            self.close(failure.reason)
            return
        self._client.ended |= step.end_server
        if server is not None:
            server.ended |= step.end_client

    def _full(self, side: Side | None) -> bool:
        if self._inspected is not None and self._inspected.waiting_bytes >= HELD:
            return True
        return len(self._early) >= HELD if side is None or self._dialling else len(side.waiting) >= HELD

    def _set_deadline(self, *, waiting: bool) -> None:
        """A client that is in the middle of saying whom it wants must say it within a time."""
        if waiting and self._deadline is None:
            self._deadline = self._service.loop.later(PATIENCE_S, self._overdue)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        host = self._place.host if self._place else None
        self._block(Refused(f"what it began to say was not whole within {PATIENCE_S:g} s", host=host, rule="patience"))

    def _dial(self) -> None:
        """Connect to where the name or the address leads."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        place, speech = self._place, self._speech
        if self._server is not None or self._dialling or place is None or speech is None:
            return
        self._dialling = True
        host = place.leading(speech.said.host)
        mapping = self._service.rules.target(host or str(plain_address(place.address)), place.port)
        if mapping is not None:
            self._connect(ip_address(mapping.to_address), mapping.to_port, chosen=True)
        elif host is not None and self._service.answers.is_synthetic(place.address):
            self._service.look_up(host, lambda found: self._found(host, found))
        else:
            self._connect(plain_address(place.address), place.port, chosen=False)

    def _found(self, host: str, addresses: tuple[Address, ...] | None) -> None:
        """Go on with the first address of a name that is within reach."""
        place = self._place
        if place is None or self._account in ("blocked", "done"):
            return
        for address in addresses or ():
            decided = self._service.rules.decide(host, address, place.port)
            if decided.action is Action.ALLOWED:
                self._connect(address, place.port, chosen=False)
                return
        self._block(Refused("the name leads to no address within reach", host=host, rule="address"))

    def _connect(self, address: Address, port: int, *, chosen: bool) -> None:
        if not chosen and self._service.is_own(address):
            host = written(self._speech.said.host, port) if self._speech and self._speech.said.host else None
            would = None if host is None else f"--map {host}={written(str(address), port)}"
            why = f"{address} is an address of this host"
            self._block(Refused(why, host=self._place_host(), rule="address", would_allow=would))
            return
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = Side(self._service.loop, sock)
        self._tell_allowed(written(str(address), port))
        number = sock.connect_ex(target := (str(address), port))
        if number == errno.EINPROGRESS:  # over loopback it stands by now, and a turn is saved
            number = sock.connect_ex(target)
        if number not in {0, errno.EISCONN, errno.EINPROGRESS, errno.EALREADY}:
            self._fail(OSError(number, os.strerror(number)), "dialling")
            return
        self._set_deadline(waiting=False)
        if number in {0, errno.EISCONN}:
            self._dialled(0)
            return
        self._silence = self._service.loop.later(DIAL_S, lambda: self._fail(None, f"no answer within {DIAL_S:g} s"))
        self._server.watch(WRITE, self._dialled)

    def _place_host(self) -> str | None:
        return self._speech.said.host if self._speech else None

    def _dialled(self, _events: int) -> None:
        server = self._server
        if server is None:
            return
        number = server.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._fail(OSError(number, os.strerror(number)), "dialling")
            return
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self._dialling = False
        early, self._early = self._early, bytearray()
        server.watch_anew(READ, self._server_ready)
        try:
            if early:
                server.send(early)
            if self._inspected is not None:
                self._take_step(self._inspected.dialled())
        except OSError as err:
            self._fail(err, "the server")
            return
        except Refused as err:
            self._block(err)
            return
        if self._account in ("blocked", "done"):
            return
        self._set_deadline(waiting=self._speech is not None and self._speech.waiting)
        self._settle()

    def _server_ready(self, events: int) -> None:
        server = self._server
        if server is None:
            return
        try:
            if events & WRITE:
                server.flush()
            if events & READ:
                self._read_server(server)
            if self._account in ("blocked", "done"):
                return
            if events & GONE and not events & READ and server.gone(self._server_ready):
                self._fail(None, "reset by the server")
                return
        except Refused as err:
            self._block(err)
            return
        except OSError as err:
            self._fail(err, "the server")
            return
        self._settle()

    def _read_server(self, server: Side) -> None:
        for _ in range(_TURNS):
            if len(self._client.waiting) >= HELD:
                return
            try:
                count = server.sock.recv_into(_scratch)
            except BlockingIOError:
                return
            if not count:
                server.ended = True
                if self._inspected is not None:
                    self._take_step(self._inspected.ended(client=False))
                return
            data = _view[:count]
            self._counted.bytes_in += count
            if self._inspected is not None:
                self._take_step(self._inspected.from_server(bytes(data)))
                if self._account in ("blocked", "done"):
                    return
                continue
            self._client.send(data)
            speech = self._speech
            if speech is not None and not speech.open:
                passed = speech.from_server(bytes(data))
                if passed:
                    self._pass_on(passed)

    def _settle(self) -> None:
        """Pass on the ends that were reached, and wait for what comes next."""
        client, server = self._client, self._server
        if server is None or self._dialling:
            if client.ended and not self._dialling and not self._early and self._inspected is None:
                self._ended_early()
                return
            want = 0 if client.ended or len(self._early) >= HELD else READ
            client.rewatch(want)
            return
        for source, target in ((client, server), (server, client)):
            if source.ended and not target.waiting and not target.shut:
                target.shut = True
                try:
                    target.sock.shutdown(socket.SHUT_WR)
                except OSError:
                    self.close()
                    return
        if client.shut and server.shut:
            self.close()
            return
        client.rewatch(client.interest_beside(server, HELD))
        server.rewatch(server.interest_beside(client, HELD))

    def _ended_early(self) -> None:
        """The client left before anything was passed on."""
        speech = self._speech
        if speech is not None and (speech.waiting or self._counted.kept_bytes):
            self._block(Refused("it ended before it had said whom it wants", host=self._place_host(), rule="patience"))
        else:
            self._dial()  # who sends nothing and shuts its side may still want to read

    def _fail(self, err: OSError | None, what: str) -> None:
        """End what cannot go on; the client sees a reset."""
        self._tell_closed(f"{what}: {err.strerror}" if err is not None else what)
        self._drop(reset=True)

    def close(self, error: str | None = None) -> None:
        """End it in good order."""
        self._tell_closed(error)
        self._drop(reset=False)

    def _tell_allowed(self, dialled: str | None) -> None:
        place, speech = self._place, self._speech
        if place is None or speech is None:
            return
        self._account = "allowed"
        self._service.tell(self._of(place).allowed(speech.said, dialled), self.source)

    def _tell_closed(self, error: str | None) -> None:
        place, decision = self._place, self._account
        if place is None or decision in ("blocked", "done"):
            return
        if not decision:
            self._tell_allowed(None)  # it was used for nothing
            decision = self._account
        self._account = "done"
        kept = bytes(self._kept) or (self._swallowed.pending if self._swallowed else b"")
        told = self._of(place).closed(decision, self._place_host(), self._counted, kept=kept, error=error)
        self._service.tell(told, self.source)

    def _drop(self, *, reset: bool) -> None:
        for later in (self._silence, self._deadline):
            if later is not None:
                later.cancel()
        self._silence = self._deadline = None
        for side in (self._client, self._server):
            if side is None or side.sock.fileno() < 0:
                continue
            side.drop(reset=reset)
        self._service.ended(self)
