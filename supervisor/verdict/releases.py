"""What was held back, in the completion argument: as effects on the network, as open effects, as a row of finality.

A connection that was released is a request that was sent; one that was discarded reached nobody; one of which neither
is known may still be sent by nobody we know of, and keeps everything but the endpoint's own claim open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from supervisor.events import ProcessKey
from supervisor.evidence.facts import Facts
from supervisor.evidence.held import DISCARDED, HELD, RELEASED, Held
from supervisor.verdict.completion import OpenEffect, Proof
from supervisor.verdict.exchanges import FlowSeen
from supervisor.verdict.situation import Situation


def list_held(situation: Situation) -> Iterator[OpenEffect]:
    """Tell of what was held: what was sent of it another run can meet."""
    declared = {service.at for service in situation.policy.services}  # these have a row of their own
    for one in situation.facts.release.held:
        named = {f"{one.host}:{one.port}", f"{one.ip}:{one.port}"}
        if one.size_bytes and (_stands(one) != RELEASED or declared.isdisjoint(named)):
            yield _open(one)


def still_held(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    """Find what was held of which nobody knows whether it was sent, or will be."""
    return [
        (f"{_what(one)}: nobody knows whether it was sent", one.events)
        for one in situation.facts.release.held
        if one.size_bytes and _stands(one) == HELD
    ]


def _stands(one: Held) -> str:
    """Tell what is known of it: what was released and did not say how much it sent is as good as undecided."""
    return one.state if one.known else HELD


def _open(one: Held) -> OpenEffect:
    decided, stands = one.events[1:], _stands(one)
    could_affect: dict[str, tuple[str, ...]] = {HELD: ("outcome", "runs"), RELEASED: ("runs",), DISCARDED: ()}
    bearing = {
        RELEASED: "was sent once it was accepted; what it left there another run can meet",
        DISCARDED: f"reached nobody: {one.why}",
        HELD: f"may have been sent, or still be: {one.why or 'nothing is known of what became of it'}",
    }
    supports = {RELEASED: ("finality",), DISCARDED: ("finality", "separation")}
    return OpenEffect(
        id="",
        route="network",
        what=_what(one),
        status="terminal" if stands != HELD else "unknown" if one.state == RELEASED else "pending",
        could_affect=could_affect[stands],
        handling={RELEASED: "observed", DISCARDED: "blocked", HELD: "unresolved"}[stands],
        settled=stands != HELD,
        proof=Proof(
            prevented=decided if stands == DISCARDED else (),
            checked=decided if stands != HELD else (),
            supports=supports.get(stands, ()),
        ),
        events=one.events,
        bearing=bearing[stands],
    )


def _what(one: Held) -> str:
    host = one.host or one.ip
    where = f"[{host}]:{one.port}" if ":" in host else f"{host}:{one.port}"
    named = f": {one.requests[0]}" if one.requests else ""
    more = f" and {one.count - 1} more" if one.count > 1 else ""
    return f"{one.size_bytes} bytes held for {where}{named}{more}"


def held_flows(facts: Facts, ids: Mapping[ProcessKey | None, str | None]) -> Iterator[FlowSeen]:
    """Give what was held as entries of ``effects.network``; ``ids`` gives each process its id."""
    endpoint_ns = facts.timeline.endpoint_ns
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
            after_endpoint=endpoint_ns is not None and one.acted_ns > endpoint_ns,
        )
