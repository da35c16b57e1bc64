"""The gateway at work: accepts what the trial connects, answers what it asks, and tells of all of it. One thread.

Only looking up names is left to a few more threads, since the host's resolver can be had blocking only.

Laws:

* Every connection that was accepted, and every question that was taken, is told.
* However many come, what is kept is bounded: no more connections are accepted than there are descriptors for, and the
  kernel holds the rest; telling waits for whoever reads.
"""

from __future__ import annotations

import os
import queue
import resource
import socket
import threading
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Union

from policies.addresses import Address, plain_address, read_address
from policies.hosts import written
from policies.network import Action, NetworkRules
from probes.gateway.answers import Answers
from probes.gateway.datagrams import Asked, reply_from, sent_ns, sent_to
from probes.gateway.ground import Ground, lost_datagrams
from probes.gateway.lookout import Lookout, Watch
from probes.gateway.loop import READ, Loop, boottime_ns
from probes.gateway.porter import CANARY, RESET, Porter, refused_canary
from probes.gateway.questions import Judged, Question, judge_found, judge_question, name_in, read_question, write_answer
from probes.gateway.relay import Connection
from probes.gateway.speech import Place, find_place
from probes.gateway.telling import Teller
from probes.gateway.wire import TCP, UDP
from supervisor.events import GatewayStopped, NameAsked, Origin

if TYPE_CHECKING:
    from probes.gateway.holding import HeldConnection, Hold
    from probes.gateway.inspecting import Inspecting
    from probes.gateway.sinkhole import SinkholedConnection

HOSTNAME = "trial"
_ACCEPT_AT_ONCE = 256
_ASKED_AT_ONCE = 64
_SPARE_DESCRIPTORS = 64
_LOOKERS = 8
_WAITING_LOOKUPS = 256
_DNS_PORT = 53
_PLACES = 4096
_MAX_DATAGRAM = 65535
_MALFORMED_KEPT = 4096
_DNS_IDLE_S = 30.0

Answer = Callable[[bytes], None]
Found = Callable[[tuple[Address, ...] | None], None]
LookUp = Callable[[str, int], tuple[Address, ...] | None]
AnyConnection = Union["Connection", "HeldConnection", "SinkholedConnection", "DnsStream"]


class Service:
    """Everything that one trial's gateway holds."""

    origin = Origin.GATEWAY

    def __init__(
        self,
        ground: Ground,
        rules: NetworkRules,
        control: socket.socket,
        look_up: LookUp,
        *,
        lookout: Lookout | None = None,
        inspecting: Inspecting | None = None,
        hold: Hold | None = None,
    ) -> None:
        """Take over what was made.

        Args:
            ground: sockets in the trial's namespace.
            rules: of its policy.
            control: to the supervisor; events go there, words come from there.
            look_up: asks the host for the addresses of a name in a family, blocking.
            lookout: which decoys to look for in what clients send.
            inspecting: what reading inside TLS needs, None when that is not wanted.
            hold: where what is allowed is kept instead of being passed on, None when it is passed on.
        """
        self._hold = hold
        self.loop, self.rules, self.answers = Loop(), rules, Answers()
        self.lookout = lookout
        self.received_bytes = 0
        self.inspecting = inspecting
        self._places: dict[tuple[str, int], Place] = {}
        self._places_of = 0  # what had been answered when they were decided
        self._teller = Teller(self.loop, control)
        self.tell = self._teller.tell
        self._ground, self._control = ground, control
        self._connections: dict[int, AnyConnection] = {}
        self._accepted = self._questions = 0
        self._at_once = 1
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = max(16, (descriptors - _SPARE_DESCRIPTORS) // 2)
        self._paused = False
        self._lookers = Lookers(look_up, self.loop)
        for listener in ground.listeners:
            self._watch_listener(listener)
        for resolver in ground.resolvers:
            self._watch_resolver(resolver)
        self.loop.watch(control.fileno(), READ, lambda _: self._obey())

    def run(self) -> None:
        """Serve until told to stop."""
        self.loop.run()

    def take_over(self, porter: Porter) -> None:
        """Go on from where the porter stands."""
        self._accepted = porter.accepted
        for sock, source in porter.held:
            self._begin(sock, source)

    # -- words of the supervisor -----------------------------------------------------------------------------------

    def _obey(self) -> None:
        word = self._control.recv(64)
        if word == b"flush":
            self._take_all()
            self._teller.flush()
            self._control.send(b"flushed")
        elif word == b"stop":
            self._stop()
        else:
            os._exit(0)  # the supervisor is gone

    def _take_all(self) -> None:
        """Accept and read all that has come so far."""
        for listener in self._ground.listeners:
            while not self._paused and self._accept(listener):
                pass
        for resolver in self._ground.resolvers:
            while self._asked(resolver):
                pass

    def _stop(self) -> None:
        self._take_all()
        self._lookers.give_up()
        for connection in tuple(self._connections.values()):
            connection.close("the trial is over")
            self._take_all()  # those that there was no room for
        counted = GatewayStopped(
            n=-1, time_ns=boottime_ns(), connections=self._accepted, questions=self._questions,
            received_bytes=self.received_bytes, lost=sum(map(lost_datagrams, self._ground.resolvers)),
        )  # fmt: skip
        self.tell(counted)
        self._teller.flush()
        self.loop.stop()

    # -- connections -----------------------------------------------------------------------------------------------

    def _watch_resolver(self, resolver: socket.socket) -> None:
        self.loop.watch(resolver.fileno(), READ, lambda _: self._asked(resolver))

    def _watch_listener(self, listener: socket.socket) -> None:
        self.loop.watch(listener.fileno(), READ, lambda _: self._accept(listener))

    def _accept(self, listener: socket.socket) -> bool:
        """Accept what waits, a few at once, and more as long as more come; False when there was nothing left."""
        for _ in range(self._at_once):
            if len(self._connections) >= self._room:
                self._pause()
                return False
            try:
                sock, peer = listener.accept()
            except OSError:  # none is there, it was gone already, or no descriptor is left for us
                self._at_once = 1
                return False
            self._begin(sock, (peer[0], peer[1]))
        self._at_once = min(2 * self._at_once, _ACCEPT_AT_ONCE)
        return True

    def _begin(self, sock: socket.socket, source: tuple[str, int]) -> None:
        self._accepted += 1
        number = self._accepted
        meant = sock.getsockname()
        sock.settimeout(0)
        if meant[1] == _DNS_PORT:
            self._connections[number] = DnsStream(self, number, sock, source)
        elif meant[:2] == CANARY:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.close()
            self.tell(refused_canary(number, source), source)
        else:
            begun = self._begin_at(number, sock, source, self._place_at(meant[0], meant[1]))
            self._connections[number] = begun
            begun.begin()

    def _begin_at(
        self, number: int, sock: socket.socket, source: tuple[str, int], place: Place
    ) -> Connection | HeldConnection | SinkholedConnection:
        action = place.decided.action
        if action is Action.SINKHOLED:
            from probes.gateway.sinkhole import SinkholedConnection  # noqa: PLC0415 - most policies swallow nothing

            return SinkholedConnection(self, number, sock, source=source, place=place)
        if self._hold is not None and action is Action.ALLOWED:
            from probes.gateway.holding import HeldConnection  # noqa: PLC0415 - hardly any policy holds anything

            return HeldConnection(self, self._hold, number, sock, source=source, place=place)
        return Connection(self, number, sock, source=source, place=place)

    def look_at(self, number: int, source: tuple[str, int]) -> Watch | None:
        """Begin to look for decoys in what a connection says; None when there are none."""
        if self.lookout is None:
            return None
        return self.lookout.begin(number, lambda leaked: self.tell(leaked, source))

    def _place_at(self, text: str, port: int) -> Place:
        """Decide about an address, or remember what was decided: most connections go where others went."""
        if self._places_of != self.answers.changes:
            self._places.clear()
            self._places_of = self.answers.changes
        place = self._places.get((text, port))
        if place is None:
            address = read_address(text)
            synthetic = self.answers.is_synthetic(address)
            place = find_place(self.rules, address, port, self.answers.names_at(address), synthetic=synthetic)
            if len(self._places) >= _PLACES:
                self._places.clear()
            self._places[text, port] = place
        return place

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            for listener in self._ground.listeners:
                self.loop.forget(listener.fileno())

    def ended(self, connection: AnyConnection) -> None:
        """Let go of a connection that has told its end."""
        self._connections.pop(connection.number, None)
        if self._paused and len(self._connections) < self._room:
            self._paused = False
            for listener in self._ground.listeners:
                self._watch_listener(listener)

    # -- questions -------------------------------------------------------------------------------------------------

    def _asked(self, sock: socket.socket) -> bool:
        """Take questions that came by datagram; False when none is left."""
        for _ in range(_ASKED_AT_ONCE):
            try:
                data, ancillary, _, peer = sock.recvmsg(_MAX_DATAGRAM, 256)
            except OSError:
                return False
            self._questions += 1
            self.received_bytes += len(data)
            back = reply_from(sock.family, ancillary)

            def answer(packed: bytes, peer: object = peer, back: object = back) -> None:
                try:
                    sock.sendmsg([packed], back, 0, peer)  # type: ignore[arg-type]
                except OSError:
                    return  # nobody waits for it any more

            to, source = sent_to(ancillary), (peer[0], peer[1])
            server = None if to is None else (to, _DNS_PORT)
            said_ns = sent_ns(ancillary)
            self.ask(Asked(data=data, source=source, datagram=True, server=server, said_ns=said_ns), answer)
        return True

    def ask(self, asked: Asked, answer: Answer) -> None:
        """Judge one question, tell it, and answer it at once or when the host has been asked."""
        question = read_question(asked.data) if asked.whole else None
        if question is None:
            self._tell_asked(None, Judged(decision="malformed", reason="it is no DNS question"), asked)
            return
        judged = judge_question(question, self.rules, self.answers, hostname=HOSTNAME)
        if judged.look_up and question.host is not None:
            family = socket.AF_INET if question.record == "A" else socket.AF_INET6
            host = question.host

            def found(addresses: tuple[Address, ...] | None) -> None:
                if addresses and family == socket.AF_INET6:
                    # We accept before we dial: a client would take an address that this host has no way to for good.
                    addresses = tuple(address for address in addresses if source_for(address) is not None)
                own = frozenset(filter(self.is_own, addresses or ()))
                complete = judge_found(question, judged, addresses, own)
                self.answers.note(host, complete.addresses)
                self._finish(question, complete, asked, answer)

            self._lookers.look_up(host, family, found)
            return
        self._finish(question, judged, asked, answer)

    def _finish(self, question: Question, judged: Judged, asked: Asked, answer: Answer) -> None:
        self._tell_asked(question, judged, asked)
        answer(write_answer(question, judged, datagram=asked.datagram))

    def _tell_asked(self, question: Question | None, judged: Judged, asked: Asked) -> None:
        answers = (judged.pointer,) if judged.pointer is not None else tuple(map(str, judged.addresses))
        unread = asked.data[:_MALFORMED_KEPT] if question is None else b""
        ip, port = asked.server or (None, None)
        event = NameAsked(
            n=-1, time_ns=boottime_ns(), name=question.name if question else name_in(unread),
            record=question.record if question else "", decision=judged.decision, rule=judged.rule,
            reason=judged.reason, would_allow=judged.would_allow, answers=answers, said_ns=asked.said_ns,
            transport="udp" if asked.datagram else "tcp", ip=ip, port=port, source=written(*asked.source), data=unread,
        )  # fmt: skip
        self.tell(event, asked.source, UDP if asked.datagram else TCP)

    def look_up(self, host: str, found: Found) -> None:
        """Ask the host for the addresses of an allowed name, IPv4 first."""

        def second(first: tuple[Address, ...] | None) -> None:
            if first:
                found(first)
            else:
                self._lookers.look_up(host, socket.AF_INET6, found)

        self._lookers.look_up(host, socket.AF_INET, second)

    @staticmethod
    def is_own(address: Address) -> bool:
        """Tell whether an address is the host's: who would go there, would go there from that very address."""
        return source_for(address) == str(plain_address(address))


def source_for(address: Address) -> str | None:
    """Ask the host's routes, sending nothing, from which of its addresses it would go to another; None for no way."""
    plain = plain_address(address)
    family = socket.AF_INET if plain.version == 4 else socket.AF_INET6  # noqa: PLR2004
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(plain), _DNS_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None


class DnsStream:
    """Questions over TCP: each with its length before it (RFC 1035, 4.2.2). Closed when the client is done."""

    def __init__(self, service: Service, number: int, sock: socket.socket, source: tuple[str, int]) -> None:
        """Wait for the first question."""
        self.number = number
        self._service, self._sock, self._source = service, sock, source
        meant = sock.getsockname()
        self._server = (str(plain_address(read_address(meant[0]))), int(meant[1]))
        self._read = bytearray()
        self._idle = service.loop.later(_DNS_IDLE_S, self.close)
        service.loop.watch(sock.fileno(), READ, lambda _: self._ready())

    def _ready(self) -> None:
        try:
            data = self._sock.recv(_MAX_DATAGRAM)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._service.received_bytes += len(data)
        self._read += data
        while len(self._read) >= 2 and len(self._read) >= 2 + (size := int.from_bytes(self._read[:2], "big")):  # noqa: PLR2004
            asked = bytes(self._read[2 : 2 + size])
            del self._read[: 2 + size]
            self._ask(asked)

    def _ask(self, data: bytes, *, whole: bool = True) -> None:
        asked = Asked(data=data, source=self._source, datagram=False, server=self._server, whole=whole)
        self._service.ask(asked, self._answer)

    def _answer(self, packed: bytes) -> None:
        if self._sock.fileno() < 0:
            return
        framed = len(packed).to_bytes(2, "big") + packed
        try:
            if self._sock.send(framed) != len(framed):
                self.close()  # a client that does not read its answers
        except OSError:
            self.close()

    def close(self, _error: str | None = None) -> None:
        """End it. What was begun and is no question is told all the same: it was meant to leave."""
        if self._sock.fileno() >= 0:
            if self._read:
                self._ask(bytes(self._read), whole=False)
            self._idle.cancel()
            self._service.loop.forget(self._sock.fileno())
            self._sock.close()
            self._service.ended(self)


class Lookers:
    """A few threads that ask the host for names; so many questions wait, the rest fails at once."""

    def __init__(self, look_up: LookUp, loop: Loop) -> None:
        """Start none yet."""
        self._look_up = look_up
        self._asked: queue.SimpleQueue[tuple[int, str, int]] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[tuple[int, tuple[Address, ...] | None]] = queue.SimpleQueue()
        self._waiting: dict[int, Found] = {}
        self._count = self._threads = 0
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        loop.watch(self._wake, READ, lambda _: self._hand_back())

    def look_up(self, host: str, family: int, found: Found) -> None:
        """Ask; ``found`` is called by the loop later, or now with None when too many wait."""
        if len(self._waiting) >= _WAITING_LOOKUPS:
            found(None)
            return
        self._count += 1
        self._waiting[self._count] = found
        self._asked.put((self._count, host, family))
        if self._threads < min(_LOOKERS, len(self._waiting)):
            self._threads += 1
            threading.Thread(target=self._work, daemon=True).start()

    def give_up(self) -> None:
        """Tell all who wait that nobody can tell."""
        while self._waiting:
            self._waiting.popitem()[1](None)

    def _work(self) -> None:
        while True:
            number, host, family = self._asked.get()
            self._found.put((number, self._look_up(host, family)))
            os.eventfd_write(self._wake, 1)

    def _hand_back(self) -> None:
        os.eventfd_read(self._wake)
        while True:
            try:
                number, addresses = self._found.get_nowait()
            except queue.Empty:
                return
            found = self._waiting.pop(number, None)
            if found is not None:
                found(addresses)


def ask_host(host: str, family: int) -> tuple[Address, ...] | None:
    """Ask the resolver of the host; empty when the name has no address of that family, None when it cannot be told."""
    try:
        entries = socket.getaddrinfo(host.encode("ascii"), None, family, socket.SOCK_STREAM)
    except socket.gaierror as err:
        absent = {
            socket.EAI_NONAME,
            getattr(socket, "EAI_NODATA", socket.EAI_NONAME),
            getattr(socket, "EAI_ADDRFAMILY", -9),
        }
        return () if err.errno in absent else None
    except (OSError, UnicodeError):
        return None
    found = (ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries)
    return tuple(dict.fromkeys(found))
