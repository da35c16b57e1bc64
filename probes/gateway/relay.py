"""One TCP connection of the trial: judged, dialled, passed on, counted.

Laws:

1. What is not decided is not passed on, and what is passed on was decided (`probes.gateway.speech`).
2. Memory is bounded: at most `HELD` bytes wait in either direction; a side that does not read stops the other one.
3. A client that says nothing first is dialled for after `SILENCE_S` (SSH, SMTP: the server speaks first); what it then
   says is judged all the same.
4. Every connection ends with exactly one account: blocked, or closed with the bytes each way.
5. What can wait until the bytes have gone on waits: accounts are made when nobody is ready (`probes.gateway.telling`).
"""

from __future__ import annotations

import errno
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

from policies.addresses import Address, plain_address
from policies.hosts import written
from policies.network import Action
from probes.gateway.accounts import Account, Counted
from probes.gateway.loop import GONE, READ, WRITE, Later, boottime_ns
from probes.gateway.side import Side
from probes.gateway.speech import Place, Refused, Speech

if TYPE_CHECKING:
    from probes.gateway.inspecting import Inspected, Inspecting
    from probes.gateway.inspection import Step
    from probes.gateway.service import Service

HELD = 256 * 1024
SILENCE_S = 0.2
PATIENCE_S = 10.0
DIAL_S = 30.0
_READ_BYTES = 65536
_TURNS = 4
_OVER = frozenset({"blocked", "done"})
_scratch = bytearray(_READ_BYTES)
_view = memoryview(_scratch)


class Connection:
    """From accept to the account of its end."""

    __slots__ = (
        "_account", "_client", "_counted", "_deadline", "_decoys", "_dialling", "_early", "_inspected", "_opened_ns",
        "_place", "_server", "_service", "_silence", "_speech", "number", "source",
    )  # fmt: skip

    def __init__(
        self, service: Service, number: int, sock: socket.socket, *, source: tuple[str, int], place: Place
    ) -> None:
        """Take over an accepted socket, of which the address says that it is let through or blocked."""
        self._service = service
        self.number = number
        self.source = source
        self._client = Side(service.loop, sock, self._client_ready)
        self._server: Side | None = None
        self._place = place
        self._speech = Speech(service.rules, place)
        self._opened_ns = boottime_ns()
        self._counted = Counted()
        self._early = bytearray()  # what waits until the server is there
        self._silence: Later | None = None
        self._deadline: Later | None = None
        self._dialling = False
        self._account = ""
        self._inspected: Inspected | None = None  # what is inside TLS is read
        self._decoys = service.look_at(number, source)

    def begin(self) -> None:
        """Decide by the address alone, and hear what the client has said already."""
        decided = self._place.decided
        if decided.action is not Action.ALLOWED:
            why = Refused(decided.reason, host=self._place.host, rule=decided.rule, would_allow=decided.would_allow)
            self._block(why)
            return
        self._client_ready(READ)  # who connects speaks at once, mostly, and a turn is saved
        if self._server is None and not self._dialling and self._account not in _OVER:
            self._silence = self._service.loop.later(SILENCE_S, self._dial)

    def _of(self) -> Account:
        return Account(number=self.number, place=self._place, source=self.source, opened_ns=self._opened_ns)

    def _block(self, why: Refused) -> None:
        """End it with a reset, and say why. What is kept is the refusal's, none of what went on before it."""
        kept_bytes = self._counted.kept_bytes
        if self._account:
            self._counted.kept_bytes = 0
            self._tell_closed("refused")
        self._account = "blocked"
        told = self._of().blocked(why, kept_bytes=kept_bytes, origin=self._service.origin)
        self._service.tell(told, self.source)
        self._drop(reset=True)

    def _client_ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._client.flush()
            if events & READ:
                self._read_client()
            if self._account in _OVER:
                return
            if events & GONE and not events & READ and self._client.gone():
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
            if self._full():
                return
            try:
                count = self._client.sock.recv_into(_scratch)
            except BlockingIOError:
                return
            if not count:
                self._client.ended = True
                if self._inspected is not None:
                    self._take_step(self._inspected.ended(client=True))
                elif rest := self._speech.finish():
                    self._pass_on(rest)
                return
            self._service.received_bytes += count
            data = _view[:count]
            if self._decoys is not None and self._speech.said.speaks != "tls":
                self._look(bytes(data))
            self._hear(data)
            if count < _READ_BYTES or self._account in _OVER:
                return

    def _look(self, data: bytes, *, inside: bool = False) -> None:
        """Tell of decoys in what the client sends, before anything becomes of it."""
        if self._decoys is not None:
            where = written(self._speech.said.host or str(self._place.address), self._place.port)
            self._decoys.look(data, where, inside=inside)

    def _hear(self, data: memoryview) -> None:
        speech = self._speech
        if self._inspected is not None:
            self._take_step(self._inspected.hear(None, bytes(data)))
            return
        self._counted.kept_bytes += len(data)
        passed: bytes | memoryview = data if speech.open else speech.feed(bytes(data))
        if passed and self._service.inspecting is not None and speech.said.hello is not None:
            self._inspect(self._service.inspecting, bytes(passed) + speech.take_held())
        elif passed:
            self._pass_on(passed)
        if self._account not in _OVER:
            self._set_deadline(waiting=speech.waiting)

    def _pass_on(self, data: bytes | memoryview) -> None:
        self._counted.kept_bytes = max(0, self._counted.kept_bytes - len(data))
        self._counted.bytes_out += len(data)
        if self._server is None or self._dialling:
            self._early += data
            self._dial()
        else:
            self._server.send(data)

    def _inspect(self, inspecting: Inspecting, first: bytes) -> None:
        """Begin to read inside TLS: the server is dialled, and greeted before the client is."""
        from probes.gateway.inspecting import Inspected  # noqa: PLC0415 - only what reads inside TLS needs it

        speech, place = self._speech, self._place
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
        self._tell_read(inspected, step)
        for text in step.text_out if self._decoys is not None else ():
            self._look(text, inside=True)
        if step.to_server and server is not None:
            self._counted.bytes_out += len(step.to_server)
            server.send(step.to_server)
        if step.to_client:
            self._client.send(step.to_client)
        failure = inspected.failure
        if failure is not None and failure.side == "request":
            raise inspected.refusal or Refused(failure.reason, host=self._speech.said.host, rule="http")
        if failure is not None:
            self.close(failure.reason)
            return
        self._client.ended |= step.end_server
        if server is not None:
            server.ended |= step.end_client

    def _full(self) -> bool:
        """Tell whether so much waits that the client is not read."""
        if self._inspected is not None and max(self._inspected.waiting_bytes, len(self._client.waiting)) >= HELD:
            return True  # of TLS the client may owe us answers to be read, however little it is passed on
        server = self._server
        return len(self._early if server is None or self._dialling else server.waiting) >= HELD

    def _server_full(self, server: Side) -> bool:
        """Tell whether so much waits that the server is not read."""
        if self._inspected is not None and len(server.waiting) >= HELD:
            return True
        return len(self._client.waiting) >= HELD

    def _set_deadline(self, *, waiting: bool) -> None:
        """A client that is in the middle of saying whom it wants must say it within a time."""
        if waiting and self._deadline is None:
            self._deadline = self._service.loop.later(PATIENCE_S, self._overdue)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        reason = f"what it began to say was not whole within {PATIENCE_S:g} s"
        self._block(Refused(reason, host=self._place.host, rule="patience"))

    def _dial(self) -> None:
        """Connect to where the name or the address leads."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if self._server is not None or self._dialling:
            return
        place = self._place
        self._dialling = True
        host = place.leading(self._speech.said.host)
        mapping = self._service.rules.target(host or str(plain_address(place.address)), place.port)
        if mapping is not None:
            self._connect(mapping.to_address, mapping.to_port)
        elif host is not None and self._service.answers.is_synthetic(place.address):
            self._service.look_up(host, lambda found: self._found(host, found))
        else:
            self._connect_to(plain_address(place.address), place.port)

    def _found(self, host: str, addresses: tuple[Address, ...] | None) -> None:
        """Go on with the first address of a name that is within reach."""
        if self._account in _OVER:
            return
        port = self._place.port
        for address in addresses or ():
            if self._service.rules.decide(host, address, port).action is Action.ALLOWED:
                self._connect_to(address, port)
                if self._account not in _OVER:
                    self._settle()
                return
        self._block(Refused("the name leads to no address within reach", host=host, rule="address"))

    def _connect_to(self, address: Address, port: int) -> None:
        """Connect to an address that nobody chose: one of this host is out of reach."""
        if self._service.is_own(address):
            host = self._speech.said.host
            would = None if host is None else f"--map {written(host, port)}={written(str(address), port)}"
            why = f"{address} is an address of this host"
            self._block(Refused(why, host=host, rule="address", would_allow=would))
            return
        self._connect(str(address), port)

    def _connect(self, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = server = Side(self._service.loop, sock, self._server_ready)
        self._tell_allowed(written(address, port))
        try:
            number = sock.connect_ex((address, port))
            if number not in {0, errno.EINPROGRESS}:
                raise OSError(number, os.strerror(number))  # noqa: TRY301 - as if connect had raised it
            if self._early:
                server.send(self._early)  # over loopback it stands by now, and a turn is saved
        except OSError as err:
            self._fail(err, "dialling")
            return
        if self._early and len(server.waiting) < len(self._early):
            self._dialling = False
            self._early = bytearray()
            return
        server.waiting.clear()
        self._set_deadline(waiting=False)
        self._silence = self._service.loop.later(DIAL_S, lambda: self._fail(None, f"no answer within {DIAL_S:g} s"))
        server.wait(WRITE)

    def _dialled(self, server: Side) -> None:
        number = server.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._fail(OSError(number, os.strerror(number)), "dialling")
            return
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self._dialling = False
        early, self._early = self._early, bytearray()
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
        if self._account in _OVER:
            return
        self._set_deadline(waiting=self._speech.waiting)
        self._settle()

    def _server_ready(self, events: int) -> None:
        server = self._server
        if server is None:
            return
        if self._dialling:
            self._dialled(server)
            return
        try:
            if events & WRITE:
                server.flush()
            if events & READ:
                self._read_server(server)
            if self._account in _OVER:
                return
            if events & GONE and not events & READ and server.gone():
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
            if self._server_full(server):
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
            else:
                self._client.send(data)
                if not self._speech.open and (passed := self._speech.from_server(bytes(data))):
                    self._pass_on(passed)
            if count < _READ_BYTES or self._account in _OVER:
                return

    def _settle(self) -> None:
        """Pass on the ends that were reached, and wait for what comes next."""
        client, server = self._client, self._server
        if server is None or self._dialling:
            if client.ended and not self._dialling and not self._early and self._inspected is None:
                self._ended_early()
            else:
                client.wait(0 if client.ended or self._full() else READ)
            return
        if client.ended or server.ended:
            if client.ended and server.ended and not client.waiting and not server.waiting:
                self.close()
                return
            try:
                for source, target in ((client, server), (server, client)):
                    if source.ended and not target.waiting and not target.shut:
                        target.shut = True
                        target.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self.close()
                return
        read = 0 if client.ended or self._full() else READ
        client.wait(read | WRITE if client.waiting else read)
        read = 0 if server.ended or self._server_full(server) else READ
        server.wait(read | WRITE if server.waiting else read)

    def _ended_early(self) -> None:
        """The client left before anything was passed on."""
        if self._speech.waiting or self._counted.kept_bytes:
            reason = "it ended before it had said whom it wants"
            self._block(Refused(reason, host=self._speech.said.host, rule="patience"))
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
        self._account = "allowed"
        said = self._speech.said
        declined = self._inspected.declined if self._inspected is not None else ()
        account = partial(self._of().allowed, said, dialled, time_ns=boottime_ns(), declined=declined)
        self._service.tell(account, self.source)

    def _tell_read(self, inspected: Inspected, step: Step) -> None:
        now = boottime_ns()
        for event in inspected.events(step, n=-1, time_ns=now, connection=self.number, source=written(*self.source)):
            self._service.tell(event, self.source)

    def _tell_closed(self, error: str | None) -> None:
        if self._account in _OVER:
            return
        if not self._account:
            self._tell_allowed(None)  # it was used for nothing
        if self._inspected is not None:
            self._tell_read(self._inspected, self._inspected.broken_off())
        self._account = "done"
        self._counted.take_back(len(self._early) + (len(self._server.waiting) if self._server is not None else 0))
        self._counted.passed_ns = self._server.sent_ns if self._server is not None else None
        host = self._speech.said.host
        account = partial(self._of().closed, "allowed", host, self._counted, time_ns=boottime_ns(), error=error)
        self._service.tell(account, self.source)

    def _drop(self, *, reset: bool) -> None:
        for later in (self._silence, self._deadline):
            if later is not None:
                later.cancel()
        self._silence = self._deadline = None
        self._client.drop(reset=reset)
        if self._server is not None:
            self._server.drop(reset=reset)
        self._service.ended(self)
