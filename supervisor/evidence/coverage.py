"""Which routes were witnessed, and every gap. In: what was lost, left or not tested; out: one `Coverage` a route.

The laws:

1. Gaps cost by dependency: a gap takes away only the verdicts that rest on what is missing.
2. An independent account stays good: ``populated 0`` says that nothing is alive whatever exit events are missing.
3. A route without a witness is listed too, with why it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.types import FilesMode, Policy
from supervisor.events import MembershipLeft, TrialCounted
from supervisor.evidence.facts import Coverage, Gap, Loss, OutsideContact, Process, Route, Timeline
from supervisor.evidence.flows import GatewayAccount
from supervisor.evidence.naming import Names
from supervisor.evidence.processes import NOBODY, Cast
from supervisor.values import dataclass, field

ALL = frozenset({"finality", "separation", "scope"})
_OTHERS = frozenset({"separation", "scope"})
_KEEPS_MEMBERS = frozenset({"syscall", "fork", "exec", "exit", "signal", "socket"})
"""Hooks of the kernel witness that never tell of somebody leaving the trial."""

_WITNESSED = (
    (Route.PROCESS, "kernel", None),
    (Route.FILE, "kernel", None),
    (Route.NETWORK, "kernel", None),
    (Route.SERVICE, "kernel", None),
    (Route.IPC, "kernel", None),
    (
        Route.SCHEDULE,
        "kernel",
        "no scheduler of the host is reachable from the box; its files are seen as files",
    ),
)
_UNWITNESSED = (
    (Route.CONTAINER, "no container service of the host is reachable from the box"),
    ("gpu-memory", "what stays in the memory of a device is not witnessed; the box holds no such device"),
    ("provider", "what a model's provider keeps on its side is not witnessed"),
    ("contention", "load that runs put on each other by sharing the machine is not witnessed"),
    ("caller", "what the program that called us does with the outcome is not witnessed"),
    ("address-space", "what happens inside one process is not witnessed: all samples in it are one unit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What bears on the worth of all other events.

    Attributes:
        departures: moves out of the trial.
        counted: the counters of the witness, None when nobody read them.
        cut: events of changes whose path was not whole.
        gateway: what the gateway said of itself.
        datagram_sockets: events in which datagram sockets of the unix family were made.
        watched: whoever else wrote a workspace that is written in place was seen.
    """

    departures: tuple[MembershipLeft, ...] = ()
    counted: TrialCounted | None = None
    cut: tuple[int, ...] = ()
    datagram_sockets: tuple[int, ...] = ()
    watched: bool = False
    gateway: GatewayAccount = field(default_factory=GatewayAccount)


def find_gaps(
    *,
    line: Timeline,
    processes: tuple[Process, ...],
    cast: Cast,
    losses: tuple[Loss, ...],
    noted: Noted,
    contacts: tuple[OutsideContact, ...],
    policy: Policy,
) -> tuple[Gap, ...]:
    """Find what is missing on every route but the final state of files (see `reconcile`)."""
    names = Names(processes)
    return (
        *_boundaries(line),
        *_canary_gaps(line),
        *_lost(losses, contacts),
        *_left(noted.departures, names),
        *_lineage(processes, line, cast, names),
        *_cut(noted.cut),
        *_counted(noted.counted, line),
        *_gateway(noted.gateway, noted.counted),
        *(() if noted.watched else _direct(policy, line)),
        *_datagrams(policy, noted.datagram_sockets),
    )


def _boundaries(line: Timeline) -> Iterator[Gap]:
    """Without a release nothing of the log is the trial's; without an empty cgroup the trial goes on unwatched."""
    if line.released_ns is None:
        text = "the trial was never released: nothing shows what was CMD's doing"
        yield Gap(route=Route.PROCESS, rule="never-released", text=text, events=(), costs=ALL)
    if line.emptied_ns is None:
        text = "nobody saw the trial empty: what it did after the log was closed was not witnessed"
        events = _events(line, "trial.emptied")
        yield Gap(route=Route.PROCESS, rule="not-emptied", text=text, events=events, costs=frozenset({"scope"}))


def _cut(events: tuple[int, ...]) -> Iterator[Gap]:
    """A change whose path was not whole may have been of anything, the outcome too."""
    if events:
        text = f"{len(events)} changes were told with a path that is not whole: what they changed is not known"
        yield Gap(route=Route.FILE, rule="path-not-whole", text=text, events=events, costs=ALL)


def _counted(counted: TrialCounted | None, line: Timeline) -> Iterator[Gap]:
    """An independent counter of what left must agree with the events, which tell of refused traffic only."""
    if counted is None and line.released_ns is not None:
        text = "the witness's own counters are missing: nothing shows that no packet left beside the events"
        yield Gap(route=Route.NETWORK, rule="missing-counters", text=text, events=(), costs=_OTHERS)
    if counted is not None and counted.egress_packets:
        text = (
            f"{counted.egress_packets} packets ({counted.egress_bytes} bytes) left for addresses outside, and no event"
            " tells of them"
        )
        yield Gap(route=Route.NETWORK, rule="unexplained-egress", text=text, events=(counted.n,), costs=ALL)


def _gateway(account: GatewayAccount, counted: TrialCounted | None) -> Iterator[Gap]:
    """What the gateway says it took must be what the kernel saw go there, and it must have said so."""
    if account.died is not None:
        text = f"the gateway ended before the trial did ({account.died.problem}): then everything was refused unseen"
        yield Gap(route=Route.NETWORK, rule="gateway-died", text=text, events=(account.died.n,), costs=ALL)
        return
    if account.started is None:
        return
    stopped = account.stopped
    if stopped is None:
        text = "the gateway never said what it had taken and passed on"
        yield Gap(route=Route.NETWORK, rule="gateway-unaccounted", text=text, events=(account.started,), costs=ALL)
        return
    events = (stopped.n, *(() if counted is None else (counted.n,)))
    if counted is not None and counted.gateway_starts != stopped.connections:
        text = f"{counted.gateway_starts} connections were begun, and the gateway tells of {stopped.connections}"
        yield Gap(route=Route.NETWORK, rule="unexplained-connections", text=text, events=events, costs=ALL)
    if counted is not None and counted.gateway_bytes < stopped.received_bytes:
        text = f"{counted.gateway_bytes} bytes went to the gateway, and it tells of {stopped.received_bytes}"
        yield Gap(route=Route.NETWORK, rule="unexplained-bytes", text=text, events=events, costs=ALL)
    if stopped.lost:
        text = f"{stopped.lost} questions for names came faster than they were read: nobody knows what was asked"
        yield Gap(route=Route.NETWORK, rule="lost-questions", text=text, events=events, costs=frozenset({"scope"}))
    if account.bytes_out > stopped.received_bytes:
        text = f"the gateway passed on {account.bytes_out} bytes, and took {stopped.received_bytes}"
        yield Gap(route=Route.NETWORK, rule="unexplained-bytes", text=text, events=events, costs=ALL)


def _canary_gaps(line: Timeline) -> Iterator[Gap]:
    for name, findings in (("opening", line.opening_findings), ("closing", line.closing_findings)):
        events = _events(line, f"trial.tested.{name}")
        if findings is None:
            text = f"the {name} test of the box is missing: nothing shows that box and witness held then"
            yield Gap(route=Route.PROCESS, rule="missing-canary", text=text, events=events, costs=ALL)
        elif findings:
            text = f"the {name} test of the box failed: {'; '.join(findings)}"
            yield Gap(route=Route.PROCESS, rule="failed-canary", text=text, events=events, costs=ALL)


def _lost(losses: tuple[Loss, ...], contacts: tuple[OutsideContact, ...]) -> Iterator[Gap]:
    for loss in losses:
        text = f"{loss.count} events or more were lost at {loss.hook}"
        costs = ALL if _reaches_outcome(loss, contacts) else _OTHERS
        yield Gap(route=_route(loss.hook), rule="lost-events", text=text, events=(loss.event,), costs=costs)


def _reaches_outcome(loss: Loss, contacts: Iterable[OutsideContact]) -> bool:
    """Tell whether a loss may hide a writer outside.

    That is somebody who left, at a hook that tells of it or that we do not know; or a descriptor that was passed, which
    needs a contact outside first.
    """
    return loss.hook not in _KEEPS_MEMBERS or any(
        c.error is None and (not loss.timed or c.first_ns <= loss.last_ns) for c in contacts
    )


def _route(hook: str) -> Route:
    return {"syscall": Route.FILE, "socket": Route.NETWORK}.get(hook, Route.PROCESS)


def _left(departures: tuple[MembershipLeft, ...], names: Names) -> Iterator[Gap]:
    for event in departures:
        who = names.find(event.process)
        text = f"{who} was moved out of the trial: what it did from then on was not witnessed"
        yield Gap(route=Route.PROCESS, rule="left-membership", text=text, events=(event.n,), costs=ALL)


def _lineage(processes: tuple[Process, ...], line: Timeline, cast: Cast, names: Names) -> Iterator[Gap]:
    if cast.main == NOBODY:
        text = "no process of CMD was ever held"
        yield Gap(route=Route.PROCESS, rule="missing-main", text=text, events=(), costs=ALL)
    for process in processes:
        if process.exited_ns is None and line.emptied_ns is not None:
            text = f"no exit of {names.of(process)} was seen, and the trial is empty"
            costs = ALL if process.key == cast.main else _OTHERS
            yield Gap(route=Route.PROCESS, rule="missing-exit", text=text, events=process.events, costs=costs)
        if process.parent is None and process.key != cast.main:
            text = f"nobody was seen making {names.of(process)}"
            yield Gap(route=Route.PROCESS, rule="missing-start", text=text, events=process.events, costs=_OTHERS)


def _direct(policy: Policy, line: Timeline) -> Iterator[Gap]:
    """In direct mode the outcome lies where every program of the machine can write, and nobody watched those."""
    if policy.files.mode is FilesMode.DIRECT and line.released_ns is not None:
        text = "the workspace is written in place: other programs of this machine could write it unseen"
        costs = frozenset({"finality", "separation"})
        yield Gap(route=Route.FILE, rule="unwatched-writers", text=text, events=(), costs=costs)


def _datagrams(policy: Policy, sockets: tuple[int, ...]) -> Iterator[Gap]:
    """A datagram needs no connection, and the kernel forgets at once whose socket it went to.

    In a staged workspace no socket of the host can be reached (an overlay's are nodes of its own).
    """
    if policy.files.mode is FilesMode.DIRECT and sockets:
        text = "datagrams may have reached a socket of this machine that lies in the workspace: nobody sees whose it is"
        yield Gap(route=Route.IPC, rule="unwatched-datagrams", text=text, events=sockets[:1], costs=ALL)


def _events(line: Timeline, kind: str) -> tuple[int, ...]:
    return (line.events[kind],) if kind in line.events else ()


_CREDENTIALS_WITNESSED = "what was passed can be used outside by whoever got hold of it; that is not witnessed"
_CREDENTIALS_UNWITNESSED = "secret paths and names are kept out of the box; the use of a credential is not witnessed"


def cover(
    gaps: Iterable[Gap], line: Timeline, *, served: bool = False, credentials: bool = False
) -> tuple[Coverage, ...]:
    """List every route with its witness and its gaps, then the ones that nobody witnessed.

    Args:
        gaps: of all routes.
        line: of the trial.
        served: a gateway served the network, and is a witness beside the kernel.
        credentials: the log says what a credential is, so that attempts on one were recorded.
    """
    found = tuple(gaps)
    witnessed = []
    of_credentials = (Route.CREDENTIAL, "kernel", _CREDENTIALS_WITNESSED)
    if not credentials:
        of_credentials = (Route.CREDENTIAL, "", _CREDENTIALS_UNWITNESSED)
    for route, name, note in (*_WITNESSED, of_credentials):
        own = tuple(gap for gap in found if gap.route == route)
        witnesses: tuple[str, ...] = (name,) if line.released_ns is not None and name else ()
        if witnesses and served and route is Route.NETWORK:
            witnesses = (name, "gateway")
        witnessed.append(
            Coverage(route=route.value, witnesses=witnesses, complete=bool(witnesses) and not own, gaps=own, note=note)
        )
    rest = [
        Coverage(route=str(route), witnesses=(), complete=False, gaps=(), note=note) for route, note in _UNWITNESSED
    ]
    return (*witnessed, *rest)
