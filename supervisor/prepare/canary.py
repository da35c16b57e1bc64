"""The box's test of itself: four acts that must be refused, and must have been witnessed.

In: the events of the acts, and what the host says of the marker. Out: findings, empty when the box holds. The acts are
done inside by our init; whether they were refused is read from the kernel witness alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.events import ConnectionAttempted, ConnectionBlocked, Event, FileOpened, ProcessKey
from supervisor.values import dataclass

CORE_PATTERN = b"/proc/sys/kernel/core_pattern"
OUTSIDE_IP = "192.0.2.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """What was tried where.

    Attributes:
        log: a path in the run's directory that must not be reachable.
        marker: a path outside every scope.
    """

    log: bytes
    marker: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What came of it: ``findings`` is empty when the box holds; ``witnessed`` are the events of the acts."""

    findings: tuple[str, ...]
    witnessed: tuple[int, ...]


def judge_canary(
    events: Iterable[Event], actor: ProcessKey, canary: Canary, *, marker_on_host: bool, served: bool = True
) -> Tested:
    """Judge the acts of ``actor``.

    Args:
        events: all events so far, or those around the acts.
        actor: who did them.
        canary: what was tried.
        marker_on_host: whether the marker appeared on the host.
        served: somebody serves the network, and says that it refused the attempt; else nobody can have accepted it.
    """
    acts: dict[str, Event] = {}
    for event in events:
        if event.process == actor and (name := _act(event, canary, served=served)):
            acts[name] = event
    findings = [f"the {name} attempt was not witnessed" for name in _ACTS if name not in acts]
    findings += [
        f"the {name} attempt was not refused"
        for name in ("log directory", "core_pattern")
        if isinstance(act := acts.get(name), FileOpened) and act.error is None
    ]
    if marker_on_host:
        findings.append("a write outside the scope reached the host")
    return Tested(findings=tuple(findings), witnessed=tuple(sorted(event.n for event in acts.values())))


_ACTS = ("log directory", "core_pattern", "out-of-scope write", "egress")


def _act(event: Event, canary: Canary, *, served: bool) -> str | None:
    if isinstance(event, ConnectionBlocked) or (not served and isinstance(event, ConnectionAttempted)):
        return "egress" if event.ip == OUTSIDE_IP else None
    if isinstance(event, FileOpened):
        return {canary.log: "log directory", CORE_PATTERN: "core_pattern", canary.marker: "out-of-scope write"}.get(
            event.path
        )
    return None
