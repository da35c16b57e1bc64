"""The open-effects record. In: a situation and whether it is final; out: what may still act, or persists.

A process is listed when it ran after the endpoint; one that ended by itself is terminal. Its handling is ``cancelled``
only with both proofs: the kill, and the empty cgroup after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from policies.types import Commit, FilesMode, PeriodKind
from supervisor.events import Kind
from supervisor.evidence.facts import Flow, OutsideContact, Process, Route
from supervisor.evidence.file_facts import FileHistory
from supervisor.evidence.naming import listed, show
from supervisor.verdict.completion import OpenEffect, Proof
from supervisor.verdict.later import list_schedules
from supervisor.verdict.releases import list_held
from supervisor.verdict.services import declared_contact, list_services
from supervisor.verdict.situation import SIGKILL, Capture, Following, Situation

IN_SHARED = "changes of shared places"
"""Begins what is said of them: no commit that is left out would keep them apart."""
_NAMED = 10
_CAPTURED = "does not affect the claim: the outcome was captured at the endpoint"


def list_open_effects(situation: Situation, *, final: bool) -> tuple[OpenEffect, ...]:
    """List every open effect, numbered ``o1``, ``o2``, ….

    Args:
        situation: what the facts mean.
        final: the finality verdict, on which a conditional commit depends.
    """
    found = (
        *_processes(situation),
        *_contacts(situation),
        *_connections(situation),
        *list_held(situation),
        *list_services(situation),
        *list_schedules(situation),
        *_credentials(situation),
        *_persistent_files(situation, final=final),
        *_shared_files(situation),
    )
    return tuple(_numbered(effect, place) for place, effect in enumerate(found, start=1))


def _numbered(effect: OpenEffect, place: int) -> OpenEffect:
    return replace(effect, id=f"o{place}")


def _processes(situation: Situation) -> Iterator[OpenEffect]:
    cut = {process.key for process in situation.cut}
    for process in situation.after:
        yield _cut_process(process, situation) if process.key in cut else _ended_process(process, situation)


def _ended_process(process: Process, situation: Situation) -> OpenEffect:
    emptied = situation.facts.timeline.events.get("trial.emptied")
    checked = process.events[-1:] if process.exited_ns is not None else () if emptied is None else (emptied,)
    effect = _process(
        process,
        situation,
        status="terminal" if checked else "unknown",
        handling="observed",
        settled=bool(checked),
        proof=Proof(checked=checked, supports=("finality",) if checked else ()),
    )
    if not checked:
        return replace(effect, bearing="may still change the outcome: nobody saw it end")
    bearing = "is over: it was followed until it ended by itself, so what it did is part of the settled outcome"
    return replace(effect, bearing=_CAPTURED if _captured(situation) else bearing)


def _cut_process(process: Process, situation: Situation) -> OpenEffect:
    line = situation.facts.timeline
    kills = [kill for kill in line.kills if process.key in kill.killed or process.signal == SIGKILL]
    kill = kills[-1] if kills else None
    prevented = (kill.event,) if kill else ()
    emptied = line.events.get("trial.emptied")
    checked = (emptied,) if situation.emptied and emptied is not None else ()
    proved = bool(prevented and checked)
    if situation.following is Following.CANCELLED and proved:
        proof = Proof(prevented=prevented, checked=checked, supports=("finality", "separation"))
        effect = _process(process, situation, status="terminal", handling="cancelled", settled=True, proof=proof)
        return replace(effect, bearing="does not affect the claim: it was killed, as declared, and seen gone")
    if situation.following is Following.ISOLATED:
        isolated = (line.events["trial.isolated"],)
        proof = Proof(prevented=isolated, checked=isolated + _snapshot(situation), supports=("finality",))
        effect = _process(process, situation, status="pending", handling="isolated", settled=False, proof=proof)
        return replace(effect, bearing="does not affect the claim: the workspace was read-only to it from then on")
    proof = Proof(prevented=prevented, checked=checked, supports=("separation",) if proved else ())
    if _captured(situation):
        proof = Proof(
            prevented=_frozen(situation) + prevented,
            checked=_snapshot(situation) + checked,
            supports=("finality", *proof.supports),
        )
        effect = _process(process, situation, status="pending", handling="observed", settled=False, proof=proof)
        return replace(effect, bearing=_CAPTURED)
    status = "pending" if prevented else "unknown"
    effect = _process(process, situation, status=status, handling="unresolved", settled=False, proof=proof)
    bearing = "keeps the claim open: it had not ended by itself when we killed it"
    return replace(effect, bearing=bearing if prevented else "may still change the outcome: nobody saw it end")


def _captured(situation: Situation) -> bool:
    """Tell whether the claim is about the endpoint, and the state then is known whatever came later."""
    return situation.policy.claim.period.kind is PeriodKind.ENDPOINT and situation.at_endpoint.how is Capture.GOOD


def _process(
    process: Process, situation: Situation, *, status: str, handling: str, settled: bool, proof: Proof
) -> OpenEffect:
    return OpenEffect(
        id="",
        route="process",
        what=situation.names.of(process),
        status=status,
        # Every process of the trial can write the workspace, and all footprints lie where the trial can write.
        could_affect=("outcome",),
        handling=handling,
        settled=settled,
        proof=proof,
        events=process.events,
    )


def _frozen(situation: Situation) -> tuple[int, ...]:
    snapshot = situation.at_endpoint.snapshot
    return () if snapshot is None or snapshot.frozen_event is None else (snapshot.frozen_event,)


def _snapshot(situation: Situation) -> tuple[int, ...]:
    snapshot = situation.at_endpoint.snapshot
    return () if snapshot is None else (snapshot.event,)


def _contacts(situation: Situation) -> Iterator[OpenEffect]:
    for contact in situation.contacts:
        if declared_contact(contact, situation.policy) is None:
            yield _contact(contact)


_STARTERS = {
    b"docker.sock": Route.CONTAINER,
    b"containerd.sock": Route.CONTAINER,
    b"podman.sock": Route.CONTAINER,
    b"crio.sock": Route.CONTAINER,
    b"system_bus_socket": Route.SCHEDULE,
    b"private": Route.SCHEDULE,
}
"""Sockets, by their last component, of those who start containers or units when asked to; the rest are services."""


def _contact(contact: OutsideContact) -> OpenEffect:
    return OpenEffect(
        id="",
        route=_STARTERS.get((contact.path or b"").rpartition(b"/")[2], Route.SERVICE).value,
        what=contact.what,
        status="unknown",
        could_affect=("outcome", "runs"),
        handling="unresolved",
        settled=False,
        proof=Proof(),
        events=contact.events,
        bearing="is not known: what was asked for there may still act, and nobody here can see it",
    )


def _connections(situation: Situation) -> Iterator[OpenEffect]:
    """Tell of hosts outside that were sent something: what they made of it is theirs, and another run can meet it."""
    declared = {service.at for service in situation.policy.services}  # these have a row of their own
    reached: dict[str, list[Flow]] = {}
    for flow in situation.facts.flows:
        if flow.decision == "allowed" and declared.isdisjoint({host_and_port(flow), f"{flow.ip}:{flow.port}"}):
            reached.setdefault(host_and_port(flow), []).append(flow)
    for host, flows in reached.items():
        if any(flow.bytes_out for flow in flows) or any(flow.unfinished for flow in flows):
            yield _connection(host, flows)


def _connection(host: str, flows: list[Flow]) -> OpenEffect:
    open_then = sum(flow.open_at_endpoint for flow in flows)
    unfinished = sum(flow.unfinished for flow in flows)
    sent = sum(flow.bytes_out for flow in flows)
    at_least = "at least " if unfinished else ""  # what went on is only told at the end of a connection
    what = f"{at_least}{sent} bytes sent to {host} over {_count(sum(flow.connections for flow in flows))}"
    if open_then:
        what += f", {open_then} of them open at the endpoint"
    if under_way := sum(flow.under_way_at_endpoint for flow in flows):
        what += f", {under_way} of them left by then and still being passed on"
    if unfinished:
        what += f", {unfinished} never seen ending"
    closed = tuple(flow.events[-1] for flow in flows) if not unfinished else ()
    return OpenEffect(
        id="",
        route="network",
        what=what,
        status="unknown" if unfinished else "terminal",
        could_affect=("runs",),
        handling="unresolved" if unfinished else "observed",
        settled=not unfinished,
        proof=Proof(checked=closed, supports=("finality",) if closed else ()),
        events=tuple(number for flow in flows for number in flow.events[:_NAMED]),
        bearing="does not affect this run's finality and scope; what it left there another run can meet",
    )


def _count(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections} connections"


def host_and_port(flow: Flow) -> str:
    """Name where a flow went, as a rule would."""
    host = flow.host or flow.ip or ""
    return f"[{host}]:{flow.port}" if ":" in host else f"{host}:{flow.port}"


def _persistent_files(situation: Situation, *, final: bool) -> Iterator[OpenEffect]:
    """Tell of changes that stay in the host's workspace, where another run can meet them."""
    if not _stays(situation, final=final):
        return
    committed = situation.facts.timeline.committed
    refused = frozenset(committed.conflicts) if committed else frozenset()
    kept = [h for h in situation.facts.files if _persists(h) and h.path not in refused]
    yield from (_met(history) for history in kept if history.after is not None and history.after.kind in _MEETING)
    changed = [h for h in kept if h.after is None or h.after.kind not in _MEETING]
    changed.sort(key=lambda history: _is_hidden(history.path))
    if changed:
        yield OpenEffect(
            id="",
            route="file",
            what=f"changes that stay in the workspace: {listed([show(history.path) for history in changed])}",
            status="persistent",
            could_affect=("runs",),
            handling="unresolved",
            settled=True,
            proof=Proof(),
            events=_latest(changed),
            bearing="does not affect this run's verdicts on finality and scope; another run can meet it",
        )


def _latest(changed: Sequence[FileHistory]) -> tuple[int, ...]:
    """Give the last event of each; two names of one file may have the same."""
    return tuple(dict.fromkeys(n for history in changed[:_NAMED] for n in history.events[-1:]))


def _is_hidden(path: bytes) -> bool:
    """Tell whether a path lies in a hidden directory: what tools keep there is named after what people work on."""
    return any(part.startswith(b".") for part in path.split(b"/")[:-1])


_MEETING = frozenset({Kind.FIFO, Kind.SOCKET})
"""What is no content, but a place where processes of different runs can meet."""


def _met(history: FileHistory) -> OpenEffect:
    kind = history.after.kind.value if history.after else "place"
    return OpenEffect(
        id="",
        route=Route.IPC.value,
        what=f"{kind} that stays in the workspace: {show(history.path)}",
        status="persistent",
        could_affect=("runs",),
        handling="unresolved",
        settled=True,
        proof=Proof(),
        events=history.events[-1:],
        bearing="does not affect this run's outcome; another run can meet whoever opens it",
    )


def _credentials(situation: Situation) -> Iterator[OpenEffect]:
    """Tell of credentials that the trial made: taking its files away does not make one invalid elsewhere."""
    for use in situation.facts.credentials:
        if use.action == "created":
            yield OpenEffect(
                id="",
                route=Route.CREDENTIAL.value,
                what=f"{use.what} credential that was made: {use.name}",
                status="persistent",
                could_affect=("runs",),
                handling="unresolved",
                settled=True,
                proof=Proof(),
                events=use.events,
                bearing="does not affect this run's outcome; nothing shows that it is not valid any more",
            )


def _persists(history: FileHistory) -> bool:
    if history.shared or not history.in_workspace:
        return False
    return history.allowed and bool(history.changes) and history.net != "unchanged"


def _shared_files(situation: Situation) -> Iterator[OpenEffect]:
    """Tell of changes of shared places: they were there for others at once, also what was put back later."""
    changed = [history for history in situation.facts.files if history.shared and history.changes]
    if not changed:
        return
    resets = [place.reset for place in situation.policy.files.shared if place.reset is not None]
    declared = f" (declared: {'; '.join(resets)}; nobody here saw it done)" if resets else ""
    in_scope = any(history.in_scope for history in changed)
    yield OpenEffect(
        id="",
        route="file",
        what=f"{IN_SHARED}: {listed([show(history.path) for history in changed])}",
        status="persistent",
        could_affect=("outcome", "runs") if in_scope else ("runs",),
        handling="unresolved",
        settled=True,
        proof=Proof(),
        events=_latest(changed),
        bearing=f"was met by whoever looked since, and stays until somebody takes it back{declared}",
    )


def _stays(situation: Situation, *, final: bool) -> bool:
    """Tell whether staged writes are applied: as it happened when that is known, else as the policy will have it."""
    files, committed = situation.policy.files, situation.facts.timeline.committed
    if files.mode is FilesMode.DIRECT:
        return True
    if committed is not None:
        return committed.state not in {"kept", "discarded"}
    return files.commit is not Commit.NEVER and (final or not files.commit.asks_final)
