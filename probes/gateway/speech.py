"""What a client says on one connection, judged as it says it: bytes in, bytes to pass on out. Pure.

Laws:

1. Nothing is passed on before it is known what it belongs to: a TLS hello, the head of a request, or neither.
2. Every name that is said (SNI, Host, CONNECT, the target of a request) is judged, on each request of a connection.
3. A connection that names nobody (SSH, SMTP, a raw protocol) stands on the address alone.
4. `Refused` ends the connection; what was given before it was good.

After CONNECT was granted, what is said inside is judged again, as if it came to the host that CONNECT named.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address

from policies.addresses import Address, parse_address, plain_address
from policies.hosts import normal_name, written
from policies.network import Action, Decision, NetworkRules
from probes.gateway.client_hello import (
    TLS_1_3,
    ClientHello,
    HelloError,
    HelloReader,
    NotTlsError,
    SecondHello,
    hides_hello,
    may_be_tls,
)
from probes.gateway.http_body import HttpError, Opaque, Payload
from probes.gateway.http_head import (
    HTTP2_PREFACE,
    FirstLine,
    Protocol,
    RequestHead,
    RequestReader,
    protocol_of,
)
from supervisor.values import dataclass, replace

_NOWHERE = ip_address("192.0.2.1")
"""Stands for the address of a name that somebody else will look up: of no class that is out of reach."""
_FIRST_LINE = len(b"HTTP/1.1 200")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_SWITCHED, _GRANTED, _INTERIM = b"101", b"2", b"1"


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """A connection must end. ``host`` is the name that was said, if that is why."""

    def __init__(
        self, reason: str, *, host: str | None = None, rule: str = "names", would_allow: str | None = None
    ) -> None:
        """Say why, and what would let it through."""
        super().__init__(reason)
        self.reason, self.host, self.rule, self.would_allow = reason, host, rule, would_allow


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a connection goes, and on what it stands.

    Attributes:
        address: that the trial connected to; ``leads_to`` is the same for the rules, unless it stands for a name.
        names: that the address was an answer for, and that are allowed at the port.
        by_address: the address is allowed whatever names are said there (a rule of addresses, or the default).
        decided: the decision that it stands on when nobody is named; ``host`` the name in it.
    """

    address: Address
    leads_to: Address
    port: int
    names: tuple[str, ...]
    by_address: bool
    decided: Decision
    host: str | None = None

    def leading(self, said: str | None) -> str | None:
        """Give the name by which it is found out where to dial; None when the address itself is meant.

        A name that was said counts only if the address was an answer for it. What a proxy is asked for does not lead
        there, and neither does a name that is said at an allowed address: there nobody judged where it leads.
        """
        return said if said in self.names else self.host


def find_place(
    rules: NetworkRules, address: Address, port: int, answered: tuple[str, ...], *, synthetic: bool = False
) -> Place:
    """Decide about an address before anything is said.

    Args:
        rules: of the trial.
        address: that the trial connected to.
        port: likewise.
        answered: names that the address was an answer for, latest first.
        synthetic: the address only stands for a name, so that its own class says nothing.
    """
    leads_to = _NOWHERE if synthetic else address
    by_name = [(name, _plainly(rules.decide(name, leads_to, port))) for name in answered]
    allowed = [(name, decision) for name, decision in by_name if decision.action is Action.ALLOWED]
    alone = rules.decide(None, leads_to, port)
    by_address = alone.action is Action.ALLOWED
    host, decided = allowed[0] if allowed else (None, alone)
    if not allowed and not by_address and by_name:
        host, decided = by_name[0]
    return Place(
        address=address,
        leads_to=leads_to,
        port=port,
        names=tuple(name for name, _ in allowed),
        by_address=by_address,
        decided=decided,
        host=host,
    )


def _plainly(decision: Decision) -> Decision:
    """Leave the address that stands for nothing out of what is told."""
    return replace(decision, reason=decision.reason.replace(f" at {_NOWHERE}", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is known of a connection by what was said last.

    Attributes:
        speaks: ``tls``, ``http``, ``http2``, ``other``, or None as long as it is not known.
        host: the name that it goes by.
        decision: that let it through.
        hello: of TLS.
    """

    speaks: str | None
    host: str | None
    decision: Decision
    hello: ClientHello | None = None


class Speech:
    """One client on one connection."""

    def __init__(
        self, rules: NetworkRules, place: Place, hear: Callable[[RequestHead], object] = lambda _: None
    ) -> None:
        """Begin before the first byte; the address itself was decided by `find_place`. ``hear`` gets each good head."""
        self._hear = hear
        self._rules, self._place = rules, place
        self._kept = bytearray()
        self._hello: HelloReader | None = None
        self._read_already = 0
        self._second: SecondHello | None = None
        self._line: FirstLine | None = None
        self._requests: RequestReader | None = None
        self._inner: Speech | None = None
        self._switching: RequestHead | None = None
        self._answer = bytearray()
        self._open = False  # the rest passes unread
        self.said = Said(speaks=None, host=place.host, decision=place.decided)
        self.unanswered = 0

    @property
    def open(self) -> bool:
        """Tell whether all that follows passes unread."""
        return self._open if self._inner is None else self._inner.open

    @property
    def waiting(self) -> bool:
        """Tell whether bytes are held back until the client says more."""
        if self._inner is not None:
            return self._inner.waiting
        if self._second is not None:
            return self._second.holding
        return not self._open and (bool(self._kept) or self._hello is not None)

    @property
    def whole(self) -> bool:
        """Tell whether everything that was begun was also ended, as far as that can be told."""
        if self._inner is not None:
            return self._inner.whole
        return not self._kept and (self._requests is None or self._requests.between)

    def take_held(self) -> bytes:
        """Give what of TLS is held back, to somebody who reads inside it: from now on nothing is."""
        second, self._second, self._open = self._second, None, True
        if second is None:
            return b""
        second.done = True
        return second.feed(b"")

    def feed(self, data: bytes) -> bytes:
        """Take what the client said next; give what is to be passed on.

        Raises:
            Refused: the connection must end.
        """
        if self._inner is not None:
            return self._inner.feed(data)
        if self._open:
            return data
        if self._requests is not None:
            return self._read_requests(data)
        if self._second is not None:
            return self._read_second(self._second, data)
        if self._line is not None:
            return self._read_line(self._line, data)
        self._kept += data
        return self._classify()

    def finish(self) -> bytes:
        """Be told that the client says no more: what it began that could still have become a request is none.

        Raises:
            Refused: as for `feed`.
        """
        if self._inner is not None:
            return self._inner.finish()
        if self._open or self._hello is not None or self._requests is not None or not self._kept:
            return b""
        return self._let_through("other", bytes(self._kept))

    def _classify(self) -> bytes:
        first = bytes(self._kept)
        if not first:
            return b""
        if may_be_tls(first):
            return self._read_hello(first)
        hidden = hides_hello(first)
        if hidden:
            raise Refused("a record of TLS that could hide a hello", host=self._place.host, rule="tls")
        match None if hidden is None else protocol_of(first):
            case None:
                return b""
            case Protocol.HTTP1:
                self._kept.clear()
                self._requests = RequestReader()
                return self._read_requests(first)
            case Protocol.HTTP2:
                return self._let_http2(first)
            case Protocol.OTHER:
                line = FirstLine(first)
                self._line = None if line.done else line
                return self._let_through("other", first)

    def _let_through(self, speaks: str, data: bytes, hello: ClientHello | None = None) -> bytes:
        """Pass what names nobody, on the strength of the address."""
        if self._place.decided.action is not Action.ALLOWED:
            raise _refusal(self._place.decided, self._place.host)
        self.said = Said(speaks=speaks, host=self._place.host, decision=self._place.decided, hello=hello)
        self._open = self._line is None
        self._kept.clear()
        return data

    def _read_line(self, line: FirstLine, data: bytes) -> bytes:
        try:
            line.feed(data)
        except HttpError as err:
            raise Refused(f"a request that must not be passed on: {err}", host=self.said.host, rule="http") from err
        if line.done:
            self._line, self._open = None, True
        return data

    def _let_http2(self, data: bytes) -> bytes:
        if len(data) < len(HTTP2_PREFACE) and HTTP2_PREFACE.startswith(data):
            return b""
        hidden = self._rules.denies_names(self._place.port)
        mapped = self._place.host is not None and self._rules.target(self._place.host, self._place.port) is not None
        if hidden or not (self._place.by_address or (mapped and len(self._place.names) == 1)):
            reason = "HTTP/2 without TLS hides which hosts its requests name"
            raise Refused(reason, host=self._place.host, rule="http2")
        return self._let_through("http2", data)

    # -- TLS -------------------------------------------------------------------------------------------------------

    def _read_hello(self, first: bytes) -> bytes:
        data = first
        if self._hello is None:
            self._hello = HelloReader()
        else:
            data = first[self._read_already :]
        self._read_already = len(first)
        try:
            hello = self._hello.feed(data)
        except NotTlsError:
            self._hello = None
            return self._classify()
        except HelloError as err:
            raise Refused(f"a TLS hello that no server should take: {err}", rule="tls") from err
        if hello is None:
            return b""
        self._hello = None
        if hello.server_name is None:
            self._let_through("tls", first, hello)
            return self._follow(first, hello)
        name = normal_name(hello.server_name)
        if name is None:
            shown = hello.server_name.decode("ascii", "backslashreplace")
            raise Refused(f"the TLS hello names {shown}, which is no host", host=shown, rule="tls")
        decision = self._judge(name, "the TLS hello names")
        self.said = Said(speaks="tls", host=name, decision=decision, hello=hello)
        self._kept.clear()
        return self._follow(first, hello)

    def _follow(self, first: bytes, hello: ClientHello) -> bytes:
        """Let a hello that was judged go on; behind it there may be another one."""
        self._open = TLS_1_3 not in hello.versions
        if self._open:
            return first
        self._second = SecondHello(hello)
        return first[: hello.size_bytes] + self._read_second(self._second, first[hello.size_bytes :])

    def _read_second(self, second: SecondHello, data: bytes) -> bytes:
        try:
            passed = second.feed(data)
        except HelloError as err:
            raise Refused(f"what no server should take: {err}", host=self.said.host, rule="tls") from err
        if second.done:
            self._second, self._open = None, True
        return passed

    # -- names -----------------------------------------------------------------------------------------------------

    def _judge(self, name: str, how: str) -> Decision:
        """Judge a name that was said to be behind the address."""
        rules, place = self._rules, self._place
        denying = rules.denied_name(name, place.port)
        if denying is not None:
            raise Refused(f"{how} {name}, which is denied", host=name, rule=str(denying))
        if name in place.names:
            return rules.decide(name, place.leads_to, place.port)
        if place.by_address:
            return rules.decide(None, place.leads_to, place.port)
        reason = f"{how} {name}, which {place.address} was no answer for"
        if rules.allows_name(name, place.port):
            raise Refused(f"{reason}; it is allowed where its own look-up leads", host=name)
        raise Refused(reason, host=name, would_allow=f"--allow {written(name, place.port)}")

    def judge_request(self, head: RequestHead) -> Decision:
        """Judge the host that a request names.

        Raises:
            Refused: it is not one that may be reached here.
        """
        place = self._place
        if head.host is None:
            if head.host_text is not None:
                shown = head.host_text.decode("ascii", "backslashreplace")
                raise Refused(f"the request names {shown!r}, which is no host", host=shown, rule="http")
            if place.decided.action is not Action.ALLOWED:
                raise _refusal(place.decided, place.host)
            return place.decided
        if head.method == b"CONNECT" or (not head.target.startswith(b"/") and head.host not in place.names):
            return self._judge_beyond(head)
        address = parse_address(head.host)
        if address is not None:
            if place.by_address and plain_address(place.address) == address:
                return self._rules.decide(None, place.leads_to, place.port)
            reason = f"the request names {head.host}, which is not allowed as an address"
            raise Refused(reason, host=head.host, would_allow=f"--allow {written(head.host, place.port)}")
        return self._judge(head.host, "the request names")

    def _judge_beyond(self, head: RequestHead) -> Decision:
        """Judge the host that a proxy is asked to go to: it must be allowed as if the trial went there itself."""
        if self._place.decided.action is not Action.ALLOWED:
            raise _refusal(self._place.decided, self._place.host)
        host, port = head.host or "", head.port or 80
        address = parse_address(host)
        decision = self._rules.decide(None if address else host, address or _NOWHERE, port)
        if decision.action is not Action.ALLOWED:
            raise Refused(
                f"the request asks a proxy for {written(host, port)}: {decision.reason}",
                host=host,
                rule=decision.rule,
                would_allow=decision.would_allow,
            )
        return decision

    # -- HTTP ------------------------------------------------------------------------------------------------------

    def _read_requests(self, data: bytes) -> bytes:
        if self._requests is None:
            return b""
        try:
            return b"".join(map(self._take, self._requests.feed(data)))
        except HttpError as err:
            raise Refused(f"a request that must not be passed on: {err}", host=self.said.host, rule="http") from err

    def _take(self, piece: RequestHead | Payload | Opaque) -> bytes:
        if isinstance(piece, RequestHead):
            decision = self.judge_request(piece)
            if piece.switches and self.unanswered:
                raise Refused("a switch of protocols behind a request without an answer", rule="http")
            if piece.switches and self._requests is not None and self._requests.in_body:
                raise Refused("a switch of protocols with a body", rule="http")
            self.said = Said(speaks="http", host=piece.host or self._place.host, decision=decision)
            self.unanswered += 1
            self._hear(piece)
            if piece.switches:
                self._switching = piece
                self._answer.clear()
        return piece.forward

    def from_server(self, data: bytes) -> bytes:
        """Be told what the server said; gives what the client had said meanwhile and may now be passed on.

        Raises:
            Refused: as for `feed`.
        """
        if self._inner is not None:
            return self._inner.from_server(data)
        if self._second is not None:
            self._second.answered(data)
            return self._read_second(self._second, b"")
        self.unanswered = 0
        if self._switching is None:
            return b""
        self._answer += data
        return self._read_answer(self._switching)

    def _read_answer(self, head: RequestHead) -> bytes:
        """Read how the server answers a head that switches, as far as it is there; heads in between are passed over."""
        while (status := _status(self._answer)) is not None and (
            interim := status.startswith(_INTERIM) and status != _SWITCHED
        ) | (head.method == b"CONNECT" and status.startswith(_GRANTED)):
            end = _HEAD_END.search(self._answer)
            if end is None:
                if len(self._answer) > 1 << 16:
                    raise Refused("an answer without an end to a switch of protocols", rule="http")
                return b""
            del self._answer[: end.end()]
            if not interim:
                behind = bytes(self._answer)
                passed = self._switch(status)
                return passed + (self._inner.from_server(behind) if self._inner is not None and behind else b"")
        if status is None and len(self._answer) < _FIRST_LINE:
            return b""
        return self._switch(status or b"")

    def _switch(self, status: bytes) -> bytes:
        head, self._switching = self._switching, None
        if head is None or self._requests is None:
            return b""
        self._answer.clear()
        connect = head.method == b"CONNECT"
        switched = status.startswith(_GRANTED) if connect else status == _SWITCHED
        try:
            pieces = self._requests.answered(switched=switched)
            if not switched:
                return b"".join(map(self._take, pieces))
            held = b"".join(piece.forward for piece in pieces)
        except HttpError as err:
            raise Refused(f"a request that must not be passed on: {err}", rule="http") from err
        if not connect:
            self._open = True
            return held
        self._inner = Speech(self._rules, self._beyond(head))
        return self._inner.feed(held) if held else b""

    def _beyond(self, head: RequestHead) -> Place:
        host, port = head.host or "", head.port or 443
        address = parse_address(host)
        decided = self._rules.decide(None if address else host, address or _NOWHERE, port)
        return Place(
            address=address or _NOWHERE,
            leads_to=address or _NOWHERE,
            port=port,
            names=() if address else (host,),
            by_address=address is not None,
            decided=decided,
            host=host,
        )


def _status(answer: bytes | bytearray) -> bytes | None:
    """Give the three digits of a status line, None when there is none (yet)."""
    if len(answer) < _FIRST_LINE or not answer.startswith(b"HTTP/1.") or answer[8:9] != b" ":
        return None
    return bytes(answer[9:12])


def _refusal(decision: Decision, host: str | None) -> Refused:
    return Refused(decision.reason, host=host, rule=decision.rule, would_allow=decision.would_allow)
