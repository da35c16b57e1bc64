"""What one run says to others, made from its facts when it is sealed: see `supervisor.verdict.runs.run_index`.

The rule it keeps: what can reach another run is in it, what cannot is not. A write that was staged and never applied is
nobody's contact; what was read is one, wherever it lies, since another run may have put it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.types import FilesMode, Policy, Service, ServiceState
from supervisor.events import Kind
from supervisor.evidence.credentials import CREATED, PASSED
from supervisor.evidence.facts import Facts, Route, Touch
from supervisor.evidence.file_facts import EVERYTHING, FileHistory, state_digest
from supervisor.evidence.guard import CANARY
from supervisor.evidence.naming import show
from supervisor.evidence.said import GradeRun
from supervisor.verdict.judge import Judgement
from supervisor.verdict.runs.adapters import addresses, is_unwitnessed, paths
from supervisor.verdict.runs.placed import is_in
from supervisor.verdict.runs.run_index import Contact, Lock, Mark, RunIndex, Secret, Server, Stream

_CONTENDED_ERRORS = {
    11: "EAGAIN", 12: "ENOMEM", 23: "ENFILE", 26: "ETXTBSY", 28: "ENOSPC", 37: "ENOLCK", 122: "EDQUOT",
}  # fmt: skip
_CONTENDED_ANSWERS = {429: "too many requests", 503: "service unavailable"}
_OWN_TO_GRADERS = (b"/proc", b"/sys", b"/dev", b"/run")
_OWN_TO_TRIALS = (*_OWN_TO_GRADERS, b"/tmp", b"/etc/resolv.conf", b"/etc/hosts", b"/etc/hostname")
"""What a box brings itself: by these names no trial, and no grader, sees anything of the host."""
_KEPT_EVENTS = 3
_NAMED = frozenset({Kind.FILE, Kind.FIFO})


def index_run(
    facts: Facts,
    policy: Policy,
    judgement: Judgement,
    *,
    run: str,
    workspace: bytes,
    places: tuple[bytes, ...] = (),
    left: tuple[bytes, ...] = (),
    registered: str | None = None,
) -> RunIndex:
    """Make the index of one run.

    Args:
        facts: with what became of the stage.
        policy: of the run.
        judgement: its verdicts and open effects.
        run: its id.
        workspace: absolute, as the host names it.
        places: the shared ones, absolute and free of symlinks.
        left: names that earlier runs left: of other paths outside of its places look-ups are not told.
        registered: digest of its line in the registry.
    """
    line = facts.timeline
    offset_ns = line.realtime_offset_ns
    released_ns = line.released_ns or 0
    ended_ns = line.emptied_ns or line.settled_ns or line.endpoint_ns or released_ns
    return RunIndex(
        run=run,
        registered=registered,
        unit=policy.claim.unit,
        depends_on=policy.claim.depends_on,
        released_ns=released_ns + offset_ns,
        ended_ns=ended_ns + offset_ns,
        workspace=workspace,
        places=places,
        contacts=(
            *_contacts(facts, policy, run, (workspace, *places), frozenset(left), offset_ns),
            *_given(facts, released_ns + offset_ns, ended_ns + offset_ns),
        ),
        staged=tuple(_staged(facts, policy, workspace, offset_ns)),
        servers=tuple(_servers(facts, policy, offset_ns)),
        secrets=tuple(_secrets(facts, run)),
        locks=tuple(_locks(facts, offset_ns, ended_ns)),
        streams=tuple(_streams(facts)),
        contention=tuple(_contention(facts)),
        gaps=tuple(_gaps(facts, policy)),
        later=tuple(_later(judgement)),
        assumptions=judgement.separation.assumptions,
    )


def paths_met(facts: Facts, workspace: bytes, places: tuple[bytes, ...] = ()) -> dict[bytes, bool]:
    """Give the paths of the host that a run met, and of each whether that nothing was there was met too.

    Args:
        facts: of the run.
        workspace: absolute, as the host names it.
        places: the shared ones.
    """
    met = {_absolute(history, workspace): False for history in facts.files if history.in_workspace or history.shared}
    met |= {read.path: False for read in _reads_of_host(facts, (workspace, *places)) if read.how != "looked"}
    for touch in facts.touches:
        met[touch.path] = met.get(touch.path, False) or touch.error is not None
    for grade in facts.grades:
        inside = (_in_workspace(path, workspace) for path in (*grade.footprint, *grade.listed) if path != EVERYTHING)
        for path in (*_elsewhere(grade), *inside):
            met.setdefault(path, False)
    return met


def _reads_of_host(facts: Facts, shown: tuple[bytes, ...]) -> Iterator[Touch]:
    """Leave out what the box brings itself; what is shown of the host may lie below it."""
    for read in facts.reads:
        if not _is_in_any(read.path, _OWN_TO_TRIALS) or _is_in_any(read.path, shown):
            yield read


def _elsewhere(grade: GradeRun) -> Iterator[bytes]:
    """Give what a grader met of the host, outside of the workspace."""
    return (path for path in grade.elsewhere if path != EVERYTHING and not _is_in_any(path, _OWN_TO_GRADERS))


def _is_in_any(path: bytes, places: tuple[bytes, ...]) -> bool:
    return any(is_in(path, place) for place in places if place)


# -- contacts with files -------------------------------------------------------------------------------------------


def _contacts(
    facts: Facts, policy: Policy, run: str, shown: tuple[bytes, ...], left: frozenset[bytes], offset_ns: int
) -> Iterator[Contact]:
    """Give every contact with files; ``shown`` are the workspace and the shared places."""
    workspace = shown[0]
    states = {_absolute(history, workspace): history for history in facts.files}
    for touch in facts.touches:
        yield _touched(touch, states.get(touch.path), offset_ns)
    told = {touch.path for touch in facts.touches}
    for read in _reads_of_host(facts, shown):
        if read.path in told or _own(states.get(read.path)):
            continue
        if read.how != "looked" or not left.isdisjoint(read.path.split(b"/")):
            yield _touched(read, None, offset_ns)
    for path, history in states.items():
        if path not in told and history.in_workspace and _reached_host(history, facts, policy):
            yield _left_behind(path, history, facts, policy, offset_ns)
    for grade in facts.grades:
        yield from _graded(grade, states, workspace, offset_ns)
    yield from _asked(facts, policy, run, offset_ns)


def _given(facts: Facts, first_ns: int, last_ns: int) -> Iterator[Contact]:
    """Give what it met by standard streams that have a name: from its release until nothing of it was alive."""
    for stream in facts.streams:
        if stream.named and stream.what in _NAMED:
            for how, does in (("read", stream.reads), ("changed", stream.writes)):
                times = (stream.ctime_ns, stream.left_ns if how == "changed" else 0)
                if does:
                    yield Contact(
                        stream.path, how, first_ns, last_ns, stream.events, before=stream.state, times=times, given=True
                    )


def _asked(facts: Facts, policy: Policy, run: str, offset_ns: int) -> Iterator[Contact]:
    """Give what was read to ask a service: whoever asks for a run is a reader like the trial."""
    for seen in facts.services:
        if seen.answers:
            span = seen.answers[0].asked_ns + offset_ns, seen.answers[-1].at_ns + offset_ns
            events = tuple(answer.event for answer in seen.answers[:_KEPT_EVENTS])
            yield from asked_contacts(policy, run, seen.name, *span, events)


def asked_contacts(
    policy: Policy, run: str, service: str, first_ns: int, last_ns: int, events: tuple[int, ...] = ()
) -> Iterator[Contact]:
    """Give the contacts of an adapter with files.

    Args:
        policy: of the run.
        run: its id.
        service: name of the one that was asked.
        first_ns: when it was asked first, wall clock.
        last_ns: when it answered last.
        events: its answers, where the run's own log has them.
    """
    for one in policy.services:
        if one.name == service and one.settle is not None:
            for path, how in paths(one.settle, run):
                yield Contact(path, how, first_ns, last_ns, events)


def _graded(
    grade: GradeRun, states: Mapping[bytes, FileHistory], workspace: bytes, offset_ns: int
) -> Iterator[Contact]:
    """Give what a grader met: it is a reader like the trial, and its label rests on what it read.

    Of an example (``selftest:``) the paths of the workspace are the example's own.
    """
    met = dict.fromkeys(_elsewhere(grade), "read")
    if not grade.state.startswith("selftest:"):
        inside = dict.fromkeys(grade.footprint, "looked") | dict.fromkeys(grade.listed, "listed")
        for path, how in inside.items():
            whole = path in {EVERYTHING, b"."}
            met[workspace if whole else _in_workspace(path, workspace)] = "listed" if whole else how
    for path, how in met.items():
        if not _own(states.get(path)):
            yield Contact(path, how, grade.began_ns + offset_ns, grade.ended_ns + offset_ns, grade.events)


def _staged(facts: Facts, policy: Policy, workspace: bytes, offset_ns: int) -> Iterator[Contact]:
    """Give what was changed in the workspace and not applied: it may be, by a word of the user."""
    committed = facts.timeline.committed
    if policy.files.mode is FilesMode.DIRECT or (committed is not None and committed.state != "kept"):
        return
    for history in facts.files:
        if history.in_workspace and history.changes and history.allowed and history.net != "unchanged":
            yield _left_behind(_absolute(history, workspace), history, facts, policy, offset_ns)


def _absolute(history: FileHistory, workspace: bytes) -> bytes:
    return _in_workspace(history.path, workspace) if history.in_workspace else history.path


def _in_workspace(path: bytes, workspace: bytes) -> bytes:
    """Give a path that is relative to the workspace as an absolute one."""
    return workspace if path == b"." else workspace.rstrip(b"/") + b"/" + path


def _touched(touch: Touch, history: FileHistory | None, offset_ns: int) -> Contact:
    return Contact(
        path=touch.path,
        how="looked" if touch.how == "changed" and touch.error is not None else touch.how,
        first_ns=touch.first_ns + offset_ns,
        last_ns=touch.last_ns + offset_ns,
        events=touch.events[:_KEPT_EVENTS],
        error=touch.error,
        before=state_digest(history.before) if history and history.net is not None else None,
        after=state_digest(history.after) if history and history.net is not None else None,
    )


def _own(history: FileHistory | None) -> bool:
    """Tell whether a path holds what the run itself made: reading that meets nobody."""
    return history is not None and bool(history.changes) and (history.private or history.before is None)


def _reached_host(history: FileHistory, facts: Facts, policy: Policy) -> bool:
    """Tell whether a change of the workspace was, at any moment, where others could meet it."""
    if not history.changes:
        return False
    if policy.files.mode is FilesMode.DIRECT:
        return True
    committed = facts.timeline.committed
    if committed is None or committed.state == "kept":
        return False
    return history.allowed and history.net != "unchanged" and history.path not in committed.left_out


def _left_behind(path: bytes, history: FileHistory, facts: Facts, policy: Policy, offset_ns: int) -> Contact:
    line = facts.timeline
    if policy.files.mode is FilesMode.DIRECT:
        first_ns, last_ns = history.changes[0].at_ns, max(change.at_ns for change in history.changes)
    else:
        # Staged writes reach the host when they are applied: after everything that the trial did.
        first_ns = last_ns = line.emptied_ns or line.endpoint_ns or 0
    return Contact(
        path=path,
        how="changed",
        first_ns=first_ns + offset_ns,
        last_ns=last_ns + offset_ns,
        events=history.events[-_KEPT_EVENTS:],
        before=state_digest(history.before),
        after=state_digest(history.after),
    )


# -- servers and credentials -----------------------------------------------------------------------------------------


def _servers(facts: Facts, policy: Policy, offset_ns: int) -> Iterator[Server]:
    """Give whom the trial reached, then whom only we asked for it: what a service says is met by the verdict.

    A service of the run's own is told by where it was asked: another run may have found the same one there.
    """
    reached = tuple(_reached(facts, policy, offset_ns))
    yield from reached
    known = {word for server in reached for word in (server.address, server.name) if word is not None}
    services = {service.name: service for service in policy.services}
    for seen in facts.services:
        service = services.get(seen.name)
        if service is None or not seen.answers:
            continue
        at = service.at or f"service {service.name}"
        span = seen.answers[0].asked_ns + offset_ns, seen.answers[-1].at_ns + offset_ns
        events = tuple(answer.event for answer in seen.answers[:_KEPT_EVENTS])
        for address in addresses(service):
            if address not in known:
                yield Server(address, at, service.state.value, *span, events)
        if service.state is ServiceState.PER_RUN or {at, service.name} & known:
            continue
        yield Server(at, service.name if service.socket else at, service.state.value, *span, events)


def _reached(facts: Facts, policy: Policy, offset_ns: int) -> Iterator[Server]:
    """Give whom the trial reached: through the gateway by what was really dialled, else by the socket's path."""
    declared = {service.at: service.state.value for service in policy.services}
    names = {service.at: service.name for service in policy.services}
    for flow in facts.flows:
        if flow.decision != "allowed":
            continue
        name = f"{flow.host or flow.ip}:{flow.port}"
        for address in flow.dialled or (f"{flow.ip}:{flow.port}",):
            state = declared.get(name) or declared.get(address)
            span = flow.first_ns + offset_ns, flow.last_ns + offset_ns
            yield Server(address, name, state, *span, flow.events[:_KEPT_EVENTS])
    for one in facts.release.sent:
        name, address = f"{one.host or one.ip}:{one.port}", one.dialled or f"{one.ip}:{one.port}"
        state = declared.get(name) or declared.get(address)
        at_ns = one.decided_ns + offset_ns
        yield Server(address, name, state, at_ns, at_ns, one.events[:_KEPT_EVENTS])
    for contact in facts.contacts:
        if contact.error is None:
            at_ns = contact.first_ns + offset_ns
            where = contact.what if contact.path is None else f"unix:{show(contact.path)}"
            where = next((one.at for one in policy.services if one.at and one.name == contact.service), where)
            span = at_ns, max(at_ns, contact.last_ns + offset_ns)
            yield Server(where, names.get(where), declared.get(where), *span, contact.events[:_KEPT_EVENTS])


def _secrets(facts: Facts, run: str) -> Iterator[Secret]:
    """Give credentials by their fingerprints, and decoys by the run whose they are: that run made them."""
    for use in facts.credentials:
        events = use.events[:_KEPT_EVENTS]
        if use.fingerprint is not None:
            yield Secret(use.fingerprint, use.name, use.action, events)
        elif use.what == CANARY and use.run is not None:
            yield Secret(f"canary {use.run}", f"canary {use.name}", use.action, events)
        elif use.what == CANARY and use.action == PASSED:
            yield Secret(f"canary {run}", CANARY, CREATED, events)


def _locks(facts: Facts, offset_ns: int, ended_ns: int) -> Iterator[Lock]:
    for use in facts.locks:
        last_ns = min(use.last_ns, max(ended_ns, use.first_ns))
        yield Lock(
            use.path, use.device, use.inode, use.sort, use.how, use.first_ns + offset_ns, last_ns + offset_ns,
            use.events[:_KEPT_EVENTS], use.own, use.exact,
        )  # fmt: skip


def _streams(facts: Facts) -> Iterator[Stream]:
    for one in facts.streams:
        yield Stream(
            one.number, one.what.value, one.path, one.named, one.device, one.inode, one.born_ns, one.reads, one.writes,
            one.ended, one.start, one.reached, one.events,
        )  # fmt: skip


# -- marks ---------------------------------------------------------------------------------------------------------


def _contention(facts: Facts) -> Iterator[Mark]:
    """Find signs that the run was short of something it may have shared: time, space, processes, memory."""
    line = facts.timeline
    if line.endpoint_reason == "timeout":
        yield Mark("timeout", "its time ran out", _numbers(facts, "trial.endpoint"))
    for met in facts.limits:
        yield Mark("limit", f"its limit of {met.resource} {met.effect} it {met.times} times", met.events)
    for request in facts.requests:
        if request.status in _CONTENDED_ANSWERS:
            text = f"{request.host} answered {request.status} ({_CONTENDED_ANSWERS[request.status]})"
            yield Mark("refused-for-want", text, request.events)
            break
    for history in facts.files:
        for attempt in history.attempts:
            if attempt.error in _CONTENDED_ERRORS:
                text = f"{show(history.path)}: {_CONTENDED_ERRORS[attempt.error]}"
                yield Mark("refused-for-want", text, (attempt.event,))
                return


def _gaps(facts: Facts, policy: Policy) -> Iterator[Mark]:
    for gap in facts.gaps:
        if "separation" in gap.costs:
            yield Mark(gap.rule, gap.text, gap.events, gap.route.value)
    for grade in facts.grades:
        if EVERYTHING in grade.elsewhere:
            text = "a grader met more paths than are told"
            yield Mark("unlisted-grader-reads", text, grade.events, Route.FILE.value)
        elif not grade.ended_ns:
            yield Mark("unfinished-grader", "what a grader met is not known", grade.events, Route.FILE.value)
    shared = {one.name for one in policy.services if one.state is ServiceState.SHARED and _is_unwitnessed(one)}
    for seen in facts.services:
        if seen.name in shared and seen.answers:
            text = f"what the program met that was asked about {seen.name} is not witnessed"
            yield Mark("unwitnessed-adapter", text, (seen.answers[0].event,), Route.SERVICE.value)
    if facts.timeline.emptied_ns is None:
        yield Mark("not-emptied", "nobody saw it empty: it may still act", (), Route.PROCESS.value)


def _is_unwitnessed(service: Service) -> bool:
    return service.settle is not None and is_unwitnessed(service.settle)


def _later(judgement: Judgement) -> Iterator[Mark]:
    """Tell what acts by itself. A hook or a start-up file is met like any other file, by the run that reads it."""
    for effect in judgement.open_effects:
        by_itself = effect.route == Route.CONTAINER or (
            effect.route == Route.SCHEDULE and "outcome" in effect.could_affect
        )
        if "runs" in effect.could_affect and by_itself:
            yield Mark("acts-later", effect.what, effect.events, effect.route)


def _numbers(facts: Facts, kind: str) -> tuple[int, ...]:
    found = facts.timeline.events.get(kind)
    return () if found is None else (found,)
