"""The accounts of one connection, as events: let through, swallowed, blocked, closed."""

from __future__ import annotations

from collections.abc import Iterator

from policies.hosts import normal_name, written
from probes.gateway.client_hello import HelloError, HelloReader, NotTlsError, may_be_tls
from probes.gateway.http_body import HttpError
from probes.gateway.http_head import Protocol, RequestHead, RequestReader, protocol_of
from probes.gateway.loop import boottime_ns
from probes.gateway.speech import Place, Refused, Said
from supervisor.events import ConnectionAllowed, ConnectionBlocked, ConnectionClosed, ConnectionSinkholed, Origin
from supervisor.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What all accounts of a connection have in common: its number, where it went, and the trial's end of it."""

    number: int
    place: Place
    source: tuple[str, int]
    opened_ns: int

    def sinkholed(self) -> ConnectionSinkholed:
        """Tell that it is swallowed."""
        place, decided = self.place, self.place.decided
        return ConnectionSinkholed(
            n=-1, time_ns=self.opened_ns, connection=self.number, ip=str(place.address), port=place.port,
            host=place.host, rule=decided.rule, reason=decided.reason, would_allow=decided.would_allow,
            source=written(*self.source),
        )  # fmt: skip

    def allowed(
        self, said: Said, dialled: str | None, *, time_ns: int, declined: tuple[str, ...] = ()
    ) -> ConnectionAllowed:
        """Tell that it is let through, and to where; None when it was used for nothing."""
        return ConnectionAllowed(
            n=-1, time_ns=time_ns, connection=self.number, ip=str(self.place.address), port=self.place.port,
            host=said.host, rule=said.decision.rule, speaks=said.speaks,
            encrypted_hello=said.hello is not None and said.hello.encrypted, declined=declined,
            dialled=dialled,
            source=written(*self.source),
        )  # fmt: skip

    def blocked(self, why: Refused, *, kept_bytes: int, origin: Origin) -> ConnectionBlocked:
        """Tell that it was ended, and why."""
        return ConnectionBlocked(
            n=-1, time_ns=boottime_ns(), origin=origin, transport="tcp", ip=str(self.place.address),
            port=self.place.port, connection=self.number, host=why.host, rule=why.rule, reason=why.reason,
            would_allow=why.would_allow, kept_bytes=kept_bytes, source=written(*self.source),
        )  # fmt: skip

    def closed(
        self, decision: str, host: str | None, counted: Counted, *, time_ns: int, error: str | None, kept: bytes = b""
    ) -> ConnectionClosed:
        """Tell that it came to its end; what a swallowed client sent is looked at for the host that it names."""
        swallowed = decision == "sinkholed"
        named = host or self.place.host
        if swallowed and named is None:
            named = next(what_it_names(kept), None)
        return ConnectionClosed(
            n=-1, time_ns=time_ns, connection=self.number, ip=str(self.place.address), port=self.place.port,
            host=named, decision=decision, bytes_out=counted.bytes_out, bytes_in=counted.bytes_in,
            kept_bytes=counted.kept_bytes, opened_ns=self.opened_ns, data_out=kept if swallowed else b"", error=error,
            source=written(*self.source), passed_ns=counted.passed_ns,
        )  # fmt: skip


@dataclass(slots=True)
class Counted:
    """The bytes of a connection: passed on each way, and kept; ``passed_ns`` is when the last were passed on."""

    bytes_out: int = 0
    bytes_in: int = 0
    kept_bytes: int = 0
    passed_ns: int | None = None

    def take_back(self, unsent: int) -> None:
        """Count as kept what was to be passed on and never could be: a server that was not reached was sent nothing."""
        unsent = min(unsent, self.bytes_out)
        self.bytes_out -= unsent
        self.kept_bytes += unsent


def what_it_names(first: bytes) -> Iterator[str]:
    """Give the host that the first bytes of a client name, for the record only; nothing when they name none."""
    if not first:
        return
    try:
        if may_be_tls(first):
            hello = HelloReader().feed(first)
            named = hello.server_name if hello is not None else None
            if named is not None:
                yield normal_name(named) or named.decode("ascii", "backslashreplace")
            return
        if protocol_of(first) is Protocol.HTTP1:
            for piece in RequestReader().feed(first):
                if isinstance(piece, RequestHead) and piece.host is not None:
                    yield piece.host
                return
    except (NotTlsError, HelloError, HttpError):
        return
