"""What was held back, in the completion argument: as effects on the network, as open effects, as a row of finality.

A connection that was released is a request that was sent; one that was discarded reached nobody; one of which neither
is known may still be sent by nobody we know of, and keeps everything but the endpoint's own claim open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from supervisor.events import ProcessKey
from supervisor.evidence.facts import Facts
from supervisor.evidence.held import DISCARDED, HELD, RELEASED, Held
from supervisor.verdict.completion import FlowSeen, OpenEffect, Proof
from supervisor.verdict.situation import Situation

_STATUS = {RELEASED: "terminal", DISCARDED: "terminal", HELD: "pending"}


def list_held(situation: Situation) -> Iterator[OpenEffect]:
    """Tell of what was held: what was sent of it another run can meet."""
    declared = {service.at for service in situation.policy.services}  # these have a row of their own
    for one in situation.facts.release.held:
        named = {f"{one.host}:{one.port}", f"{one.ip}:{one.port}"}
        if one.size_bytes and (one.state != RELEASED or declared.isdisjoint(named)):
            yield _open(one)


def still_held(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    """Find what was held and neither released nor discarded, as far as is known."""
    return [
        (f"{_what(one)} is held, and nothing is known of what becomes of it", one.events)
        for one in situation.facts.release.held
        if one.state == HELD and one.size_bytes
    ]


def _open(one: Held) -> OpenEffect:
    decided = one.events[1:]
    handling = {RELEASED: "observed", DISCARDED: "blocked", HELD: "unresolved"}[one.state]
    bearing = {
        RELEASED: "was sent once it was accepted; what it left there another run can meet",
        DISCARDED: f"reached nobody: {one.why}",
        HELD: "may still be sent: nothing is known of what becomes of it",
    }[one.state]
    return OpenEffect(
        id="",
        route="network",
        what=_what(one),
        status=_STATUS[one.state],
        could_affect=("outcome", "runs") if one.state == HELD else ("runs",) if one.state == RELEASED else (),
        handling=handling,
        settled=one.state != HELD,
        proof=Proof(
            prevented=decided if one.state == DISCARDED else (),
            checked=decided,
            supports=("finality", "separation") if one.state == DISCARDED else ("finality",) if decided else (),
        ),
        events=one.events,
        bearing=bearing,
    )


def _what(one: Held) -> str:
    host = one.host or one.ip
    where = f"[{host}]:{one.port}" if ":" in host else f"{host}:{one.port}"
    named = f": {one.requests[0]}" if one.requests else ""
    more = f" and {one.count - 1} more" if one.count > 1 else ""
    return f"{one.size_bytes} bytes held for {where}{named}{more}"


def held_flows(facts: Facts, ids: Mapping[ProcessKey | None, str | None]) -> Iterator[FlowSeen]:
    """Give what was held as entries of ``effects.network``; ``ids`` gives each process its id."""
    for one in facts.release.held:
        yield FlowSeen(
            protocol="tcp",
            host=one.host,
            ip=one.ip,
            port=one.port,
            decision=one.state,
            bytes_out=one.bytes_out,
            bytes_in=one.bytes_in,
            process=ids.get(one.process),
            events=one.events,
            connections=1,
            kept_bytes=max(0, one.size_bytes - one.bytes_out),
            rule=one.rule,
            reason=one.why,
        )
