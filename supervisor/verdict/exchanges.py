"""What went over the network and what was read of it inside TLS, as the completion argument tells it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType

from supervisor.events import ProcessKey
from supervisor.evidence.facts import Facts
from supervisor.evidence.held import DISCARDED, RELEASED


class FlowSeen(Struct, frozen=True, kw_only=True):
    """What one process did to reach one host; see `supervisor.evidence.facts.Flow`.

    ``unfinished`` is there when connections were never seen ending: the bytes of those are in no number.
    """

    protocol: str
    host: str | None
    ip: str | None
    port: int | None
    decision: str
    bytes_out: int
    bytes_in: int
    process: str | None
    events: tuple[int, ...]
    connections: int = 0
    kept_bytes: int = 0
    rule: str | None = None
    reason: str | None = None
    after_endpoint: bool = False
    unfinished: int | UnsetType = UNSET
    server: str | UnsetType = UNSET
    unread: str | UnsetType = UNSET


class RequestMade(Struct, frozen=True, kw_only=True):
    """One request and its answer; ``method`` is null for a stream that was no HTTP. Digests are of bodies."""

    host: str
    port: int
    method: str | None
    url: str | None
    status: int | None
    bytes_out: int
    bytes_in: int
    digest_out: str
    digest_in: str | None
    complete: bool
    process: str | None
    events: tuple[int, ...]


class UnreadSeen(Struct, frozen=True, kw_only=True):
    """A connection that was ended because the ``client`` or the ``server`` did not agree to be read."""

    host: str
    port: int
    side: str
    reason: str
    process: str | None
    events: tuple[int, ...]


class ValidationSeen(Struct, frozen=True, kw_only=True):
    """What the validator decided; ``accepted`` is null when nothing is known of its answer.

    ``released`` and ``discarded`` count connections that were held; what became of files is told by the stage.
    """

    accepted: bool | None
    exit_code: int | None
    problem: str | None
    said: str
    released: int
    discarded: int
    events: tuple[int, ...]


def requests_made(facts: Facts, ids: Mapping[ProcessKey | None, str | None]) -> tuple[RequestMade, ...]:
    """List the requests; ``ids`` gives each process its id."""
    return tuple(
        RequestMade(
            host=one.host,
            port=one.port,
            method=one.method,
            url=one.url,
            status=one.status,
            bytes_out=one.bytes_out,
            bytes_in=one.bytes_in,
            digest_out=one.digest_out,
            digest_in=one.digest_in,
            complete=one.complete,
            process=ids.get(one.process),
            events=one.events,
        )
        for one in facts.requests
    )


def unread_seen(facts: Facts, ids: Mapping[ProcessKey | None, str | None]) -> tuple[UnreadSeen, ...]:
    """List the connections that could not be read."""
    return tuple(
        UnreadSeen(
            host=one.host,
            port=one.port,
            side=one.side,
            reason=one.reason,
            process=ids.get(one.process),
            events=one.events,
        )
        for one in facts.unread
    )


def validation_seen(facts: Facts) -> ValidationSeen | None:
    """Give what the validator decided, and how many connections followed; None when it was not asked."""
    validation = facts.release.validation
    if validation is None:
        return None
    states = [one.state for one in facts.release.held]
    return ValidationSeen(
        accepted=validation.accepted,
        exit_code=validation.exit_code,
        problem=validation.problem,
        said=validation.said,
        released=states.count(RELEASED),
        discarded=states.count(DISCARDED),
        events=validation.events,
    )
