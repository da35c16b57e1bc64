"""Who reached whom. In: what the kernel refused and the gateway told; out: flows, and the gateway's own account.

There is one `Flow` for each process, host, address and decision. Loopback inside the trial is none: it leaves nothing
and reaches nobody. A name that was answered is none either: what came of it is. One that was refused is one, since a
look-up alone can carry what must not leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from policies.hosts import written
from supervisor.events import (
    ConnectionAllowed,
    ConnectionBlocked,
    ConnectionClosed,
    ConnectionSinkholed,
    DatagramBlocked,
    Event,
    GatewayDied,
    GatewayStarted,
    GatewayStopped,
    NameAsked,
    ProcessKey,
)
from supervisor.evidence.acts import last_act_ns
from supervisor.evidence.bounded import Numbers
from supervisor.evidence.facts import Flow
from supervisor.evidence.processes import Cast
from supervisor.values import dataclass

DNS = "dns"
_DNS_PORT = 53
_CANARY = "canary"
_REFUSED_NAMES = {"refused": "blocked", "malformed": "blocked", "sinkholed": "sinkholed"}
_SPANS = 1000
_FOR_EVER = 1 << 62

_OWN_RESOLVER = "192.0.2.53:53"
"""Whom the box's own settings say to ask, as `supervisor.launch.view` writes them: nobody chose to ask there."""
_MALFORMED = "malformed"


class _Asking(NamedTuple):
    """What sets flows of questions apart beside the name: who was asked, and how what was no question went there."""

    server: str | None = None
    unread: str | None = None


_Key = tuple[ProcessKey | None, str, str | None, str | None, int, str, _Asking]
_NO_QUESTION = _Asking()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccount:
    """What the gateway said of itself; ``stopped`` and ``died`` are None when it did not say so."""

    started: int | None = None
    stopped: GatewayStopped | None = None
    died: GatewayDied | None = None
    bytes_out: int = 0


class _Span(NamedTuple):
    """One connection: when the gateway had done with it, the trial asked for it and left it, the last was passed on."""

    ended_ns: int
    begun_ns: int
    left_ns: int
    passed_ns: int

    def is_open(self, at_ns: int) -> bool:
        """Tell whether the trial had it then."""
        return self.begun_ns <= at_ns < self.left_ns

    def is_under_way(self, at_ns: int) -> bool:
        """Tell whether the trial had left it then, and what it had said was still to be passed on."""
        return self.left_ns <= at_ns < self.passed_ns


class _Draft:
    """What is known of one flow so far."""

    __slots__ = (
        "acted_ns", "bytes_in", "bytes_out", "count", "dialled", "first_ns", "kept_bytes", "last_ns", "numbers",
        "passed_ns", "spans", "why", "why_n",
    )  # fmt: skip

    def __init__(self) -> None:
        self.numbers = Numbers()
        self.last_ns = self.bytes_out = self.bytes_in = self.kept_bytes = self.count = 0
        self.acted_ns = self.passed_ns = 0
        self.first_ns = _FOR_EVER
        self.dialled: set[str] = set()
        self.why: tuple[str | None, str | None, str | None] = (None, None, None)
        self.why_n = _FOR_EVER
        self.spans: list[_Span] = []

    def act(self, event: Event, *, left_ns: int = _FOR_EVER) -> None:
        """Add an event; nothing was said in it after ``left_ns``, whatever was leaving still."""
        self.first_ns, self.last_ns = min(self.first_ns, event.time_ns), max(self.last_ns, event.time_ns)
        self.acted_ns = max(self.acted_ns, min(last_act_ns(event), left_ns))
        self.numbers.add(event.n, event.time_ns)

    def explain(self, n: int, rule: str | None, reason: str | None, would_allow: str | None) -> None:
        """Keep what the first event said of why."""
        if n < self.why_n and (rule or reason):
            self.why_n, self.why = n, (rule, reason, would_allow)

    def span(self, span: _Span) -> None:
        self.passed_ns = max(self.passed_ns, span.passed_ns)
        self.spans.append(span)
        if len(self.spans) > 2 * _SPANS:
            self.spans = sorted(self.spans)[-_SPANS:]


class FlowFold:
    """Merges attempts and connections."""

    def __init__(self) -> None:
        """Begin with no flow."""
        self._flows: dict[_Key, _Draft] = {}
        self._opened: dict[int, ConnectionAllowed | ConnectionSinkholed] = {}
        self._closed: dict[int, ConnectionClosed] = {}
        self._started: int | None = None
        self._stopped: GatewayStopped | None = None
        self._died: GatewayDied | None = None
        self._bytes_out = 0

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {
            ConnectionBlocked: self._blocked,
            DatagramBlocked: self._blocked,
            ConnectionAllowed: self._open,
            ConnectionSinkholed: self._open,
            ConnectionClosed: self._close,
            NameAsked: self._asked,
            GatewayStarted: self._gateway,
            GatewayStopped: self._gateway,
            GatewayDied: self._gateway,
        }

    def _draft(self, key: _Key) -> _Draft:
        draft = self._flows.get(key)
        if draft is None:
            draft = self._flows[key] = _Draft()
        return draft

    def _blocked(self, event: Event) -> None:
        if isinstance(event, DatagramBlocked):
            self._draft((event.process, event.transport, None, event.ip, event.port, "blocked", _NO_QUESTION)).act(
                event
            )
        elif isinstance(event, ConnectionBlocked) and not (event.process is None and event.rule == _CANARY):
            key = (event.process, event.transport, event.host, event.ip, event.port, "blocked", _NO_QUESTION)
            draft = self._draft(key)
            draft.act(event)
            draft.count += 1
            draft.kept_bytes += event.kept_bytes
            draft.explain(event.n, event.rule, event.reason, event.would_allow)

    def _asked(self, event: Event) -> None:
        if isinstance(event, NameAsked) and event.decision in _REFUSED_NAMES:
            server = None if event.ip is None else written(event.ip, event.port or _DNS_PORT)
            unread = event.transport if event.decision == _MALFORMED else None
            asking = _Asking(server if unread or server != _OWN_RESOLVER else None, unread)
            ip, decision = event.ip if unread else None, _REFUSED_NAMES[event.decision]
            draft = self._draft((event.process, DNS, event.name or None, ip, _DNS_PORT, decision, asking))
            draft.act(event)
            draft.explain(event.n, event.rule, event.reason, event.would_allow)

    def _open(self, event: Event) -> None:
        if isinstance(event, ConnectionAllowed | ConnectionSinkholed):
            closed = self._closed.pop(event.connection, None)
            if closed is None:
                self._opened[event.connection] = event
            else:
                self._join(event, closed)

    def _close(self, event: Event) -> None:
        if isinstance(event, ConnectionClosed):
            opened = self._opened.pop(event.connection, None)
            if opened is None:
                self._closed[event.connection] = event
            else:
                self._join(opened, event)

    def _join(self, opened: ConnectionAllowed | ConnectionSinkholed | None, closed: ConnectionClosed | None) -> None:
        """Add one connection, as far as it was told, to its flow."""
        first = opened or closed
        if first is None:
            return
        decision = closed.decision if closed else "allowed" if isinstance(opened, ConnectionAllowed) else "sinkholed"
        host = first.host if first.host is not None else closed.host if closed else None
        process = first.process if first.process is not None else closed.process if closed else None
        draft = self._draft((process, first.transport, host, first.ip, first.port, decision, _NO_QUESTION))
        draft.count += 1
        span = _span(opened, closed)
        if opened is not None:
            draft.act(opened, left_ns=span.left_ns)
            if isinstance(opened, ConnectionAllowed) and opened.dialled is not None:
                draft.dialled.add(opened.dialled)
            sinkholed = opened if isinstance(opened, ConnectionSinkholed) else None
            draft.explain(
                opened.n,
                opened.rule,
                sinkholed.reason if sinkholed else None,
                sinkholed.would_allow if sinkholed else None,
            )
        if closed is not None:
            draft.act(closed, left_ns=span.left_ns)
            draft.bytes_out += closed.bytes_out
            draft.bytes_in += closed.bytes_in
            draft.kept_bytes += closed.kept_bytes
            self._bytes_out += closed.bytes_out
        draft.span(span)

    def _gateway(self, event: Event) -> None:
        if isinstance(event, GatewayStarted):
            self._started = event.n
        elif isinstance(event, GatewayStopped):
            self._stopped = event
        elif isinstance(event, GatewayDied):
            self._died = event

    def account(self) -> GatewayAccount:
        """Give what the gateway said of itself. Call it after `finish`."""
        return GatewayAccount(started=self._started, stopped=self._stopped, died=self._died, bytes_out=self._bytes_out)

    def finish(self, cast: Cast, endpoint_ns: int | None = None) -> tuple[Flow, ...]:
        """Build the flows of the trial, first attempt first.

        Args:
            cast: who is who.
            endpoint_ns: of the trial, None when there was none.
        """
        for opened in self._opened.values():
            self._join(opened, None)
        for closed in self._closed.values():
            self._join(None, closed)
        self._opened, self._closed = {}, {}
        flows = (self._flow(key, draft, cast, endpoint_ns) for key, draft in self._flows.items())
        return tuple(sorted((flow for flow in flows if flow is not None), key=lambda flow: flow.events))

    def _flow(self, key: _Key, draft: _Draft, cast: Cast, endpoint_ns: int | None) -> Flow | None:
        process, protocol, host, ip, port, decision, asking = key
        # CMD's process acts for the box until its release, so an entry counts by its last attempt.
        if process is not None and cast.ignores(process, draft.last_ns):
            return None
        kept = draft.numbers.since(cast.released_ns if process == cast.main else None).values()
        if not kept:
            return None
        rule, reason, would_allow = draft.why
        ended_ns = _FOR_EVER if endpoint_ns is None else endpoint_ns
        return Flow(
            protocol=protocol,
            host=host,
            ip=ip,
            port=port,
            decision=decision,
            bytes_out=draft.bytes_out,
            bytes_in=draft.bytes_in,
            process=process,
            events=kept,
            connections=draft.count,
            kept_bytes=draft.kept_bytes,
            rule=rule,
            reason=reason,
            would_allow=would_allow,
            open_at_endpoint=sum(span.is_open(ended_ns) for span in draft.spans),
            under_way_at_endpoint=sum(span.is_under_way(ended_ns) for span in draft.spans),
            unfinished=sum(span.ended_ns == _FOR_EVER for span in draft.spans),
            after_endpoint=draft.acted_ns > ended_ns,
            dialled=tuple(sorted(draft.dialled)),
            first_ns=draft.first_ns,
            last_ns=draft.last_ns,
            passed_ns=draft.passed_ns,
            server=asking.server,
            unread=asking.unread,
        )


def _span(opened: ConnectionAllowed | ConnectionSinkholed | None, closed: ConnectionClosed | None) -> _Span:
    """Tell of one connection when what became of it. Where the kernel does not know, it lasted as long as was told."""
    attempted = {told.attempted_ns for told in (opened, closed) if told is not None} - {None}
    begun_ns = min((at_ns for at_ns in attempted if at_ns is not None), default=None)
    if closed is None:
        told_ns = opened.time_ns if opened is not None else 0
        return _Span(ended_ns=_FOR_EVER, begun_ns=begun_ns or told_ns, left_ns=_FOR_EVER, passed_ns=0)
    ended_ns = closed.time_ns
    left_ns = closed.left_ns if len(attempted) == 1 else None  # else the port had been used for another one meanwhile
    return _Span(
        ended_ns=ended_ns,
        begun_ns=begun_ns or closed.opened_ns,
        left_ns=ended_ns if left_ns is None else min(left_ns, ended_ns),
        passed_ns=closed.passed_ns or 0,
    )
