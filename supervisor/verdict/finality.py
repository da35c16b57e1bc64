"""Finality as a table. In: a situation; out: the verdict with a reason for every row that applies.

The laws:

1. Every row that applies must say final (law 2 of the package). No row at all is unresolved, never final.
2. An endpoint claim about a live writer rests on a snapshot taken while frozen, with no write of the footprint between
   the endpoint and the freeze.
3. A freeze is not a cancel, and a kill for hygiene is not a settled effect.
4. A cancel counts only as declared before the run, with both proofs: the kill, and ``populated 0`` after it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec.structs import replace as with_fields

from policies.types import PeriodKind
from supervisor.evidence.facts import Facts, Process
from supervisor.evidence.naming import listed, show
from supervisor.values import dataclass
from supervisor.verdict import later, releases, services
from supervisor.verdict.bounds import BoundFound
from supervisor.verdict.completion import OpenEffect, Proof, Reason
from supervisor.verdict.situation import Capture, Captured, Following, Situation

_NAMED = 20
"""How many processes or files the reasons name one by one."""


class Answer(StrEnum):
    """What a row says for one period."""

    FINAL = "final"
    UNRESOLVED = "unresolved"
    SNAPSHOT = "final if the state at the endpoint was captured"
    BY_DEADLINE = "final if all had ended at D, or the state at D was captured"
    AT_DEADLINE = "final if the state at D was captured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: when it applies it gives findings ``(text, events)``, and one answer a period."""

    rule: str
    find: Callable[[Situation], Sequence[tuple[str, tuple[int, ...]]]]
    endpoint: Answer
    within: Answer
    eventually: Answer
    basis: str = "witnessed"

    def answer(self, period: PeriodKind) -> Answer:
        """Give the answer for a period."""
        answers = {PeriodKind.ENDPOINT: self.endpoint, PeriodKind.WITHIN: self.within}
        return answers.get(period, self.eventually)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalityFound:
    """The verdict without the label; ``captured`` is the state that the claim is about, when a snapshot decides."""

    final: bool
    intervened: bool
    reasons: tuple[Reason, ...]
    captured: Captured | None


BOUNDED_BY = {
    "service-contacted": "service",
    "service-open": "service",
    "service-later": "service",
    "schedule-persists": "schedule",
    "commit-failed": "file",
    "frozen": "process",
    "alive-when-following-ended": "process",
}
"""Rows whose open effects can be bounded by possible states, and the route that these name."""


def judge_finality(situation: Situation, *, bound: BoundFound | None = None) -> FinalityFound:
    """Read every row of the table for the period of the claim.

    Args:
        situation: what the facts mean.
        bound: what the possible states of open effects say together, None when none were declared.
    """
    period = situation.policy.claim.period.kind
    final: list[Reason] = []
    unresolved: list[Reason] = []
    for row in TABLE:
        findings = row.find(situation)
        if findings:
            answer = row.answer(period)
            closed, before, after, events = _resolve(answer, situation)
            for text, numbers in findings:
                said, cited = f"{before}{text}{after}", numbers + events
                reason = Reason(rule=row.rule, text=said, events=cited, basis=row.basis, keeps_open=not closed)
                kept = None if closed or bound is None else _bounded(reason, bound, situation)
                if closed or kept is not None:
                    final.append(kept or reason)
                else:
                    unresolved.append(reason)
    captured = situation.claimed
    return FinalityFound(
        final=bool(final) and not unresolved,
        intervened=period is not PeriodKind.ENDPOINT
        and (situation.following in _INTERVENTIONS or services.intervened(situation)),
        reasons=(*unresolved, *_changed_since(captured), *final),
        captured=captured,
    )


def _may_bound(route: str | None, what: str, bound: BoundFound, situation: Situation) -> bool:
    """Tell whether an open effect is bounded: declared, gradable, and no free writer's."""
    write = situation.policy.files.write
    restricted = write is not None and "**" not in write
    return bool(bound.label and route and bound.covers(route, what)) and (route != "process" or restricted)


def _bounded(reason: Reason, bound: BoundFound, situation: Situation) -> Reason | None:
    """Close a finding by its possible states; None where they do not."""
    if not _may_bound(BOUNDED_BY.get(reason.rule), reason.text, bound, situation):
        return None
    text = f"{reason.text}; bounded: in every state that was declared possible the label is {bound.label}"
    return Reason(rule="bounded", text=text, events=reason.events + bound.events, basis="declared")


def mark_bounded(effect: OpenEffect, bound: BoundFound, situation: Situation) -> OpenEffect:
    """Say of an open effect that what it may still do changes no label."""
    handled = effect.handling != "unresolved" or "outcome" not in effect.could_affect
    if handled or not _may_bound(effect.route, effect.what, bound, situation):
        return effect
    proof = Proof(prevented=(), checked=bound.events, supports=("finality",))
    bearing = f"does not affect the claim: in every state that was declared possible the label is {bound.label}"
    return with_fields(effect, handling="bounded", proof=proof, bearing=bearing)


def _changed_since(captured: Captured | None) -> tuple[Reason, ...]:
    """Say that the footprint went on changing after it was captured; that changes no verdict about the capture."""
    if captured is None or captured.snapshot is None or not captured.changed_since:
        return ()
    names = listed([show(history.path) for history in captured.changed_since])
    events = tuple(n for history in captured.changed_since[:_NAMED] for n in history.events[-2:])
    kept = f"the claim is about the captured state, kept in the run's {captured.snapshot.kept_in}"
    text = f"changed since it was captured: {names}; {kept}"
    return (Reason(rule="changed-since-captured", text=text, events=(captured.snapshot.event, *events)),)


def _resolve(answer: Answer, situation: Situation) -> tuple[bool, str, str, tuple[int, ...]]:
    """Turn an answer into whether it is final, what its sentence says around the finding, and the events of that."""
    match answer:
        case Answer.FINAL:
            return True, "", "", ()
        case Answer.UNRESOLVED:
            return False, "", "", ()
        case Answer.SNAPSHOT:
            return _by_capture(situation.at_endpoint, "the endpoint")
        case Answer.BY_DEADLINE if situation.by_deadline:
            return True, "", f"; that was within {situation.policy.claim.period.within_s:g} s", ()
        case Answer.BY_DEADLINE | Answer.AT_DEADLINE:
            within = f"{situation.policy.claim.period.within_s:g} s after the endpoint"
            return _by_capture(situation.at_deadline, within)


def _by_capture(captured: Captured | None, moment: str) -> tuple[bool, str, str, tuple[int, ...]]:
    """Say what the capture proves; what closes a finding comes before it, since a reason is for the verdict."""
    if captured is None or captured.how is Capture.MISSING:
        return False, "", f"; no snapshot shows the outcome as it was at {moment}", ()
    snapshot = captured.snapshot
    events = () if snapshot is None else tuple(n for n in (snapshot.frozen_event, snapshot.event) if n is not None)
    match captured.how:
        case Capture.WRITTEN:
            names = listed([show(history.path) for history in captured.spoiled_by])
            spoiled = tuple(n for history in captured.spoiled_by[:_NAMED] for n in history.events[-2:])
            return (
                False,
                "",
                f"; written, or maybe written, between {moment} and the capture: {names}",
                events + spoiled,
            )
        case Capture.LOST:
            return False, "", f"; events were lost between {moment} and the capture", events
        case _ if snapshot is None:
            return True, f"nothing wrote the outcome after {moment}, although ", "", ()
        case _:
            said = f"the outcome was captured frozen, unwritten between {moment} and the freeze, although "
            return True, said, "", events


# -- findings ------------------------------------------------------------------------------------------------------


def _when(following: Following, text: str) -> Callable[[Situation], Sequence[tuple[str, tuple[int, ...]]]]:
    """Find the processes that were handled in one way; ``{}`` in the text stands for the process."""

    def find(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
        if situation.following is not following:
            return ()
        events = _numbers(situation, "trial.killed", "trial.emptied")
        return _name_all(situation, situation.cut or situation.after, text, events)

    return find


def _name_all(
    situation: Situation, processes: Sequence[Process], text: str, events: tuple[int, ...]
) -> Sequence[tuple[str, tuple[int, ...]]]:
    names = situation.names
    found = [(text.format(names.of(process)), process.events + events) for process in processes[:_NAMED]]
    if len(processes) > _NAMED:
        found.append((text.format(f"{len(processes) - _NAMED} more processes"), events))
    return found


def _numbers(situation: Situation, *kinds: str) -> tuple[int, ...]:
    events = situation.facts.timeline.events
    return tuple(events[kind] for kind in kinds if kind in events)


def _unsealed(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    return () if situation.sealed else (("the log was never sealed: it may be cut or still change", ()),)


def _no_endpoint(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    line = situation.facts.timeline
    if line.endpoint_ns is not None:
        return ()
    return (("the trial never reached an endpoint", _numbers(situation, "trial.released")),)


def _not_emptied(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    if situation.emptied or situation.facts.timeline.endpoint_ns is None:
        return ()
    left = situation.facts.timeline.pids_left
    text = "nobody saw the trial empty" if left is None else f"{left} processes of the trial could not be ended"
    alive = [process for process in situation.after if process.exited_ns is None]
    events = _numbers(situation, "trial.endpoint", "trial.emptied")
    return [(text, events), *_name_all(situation, alive, "{} was never seen ending", ())]


def _gaps(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    return [(f"{gap.route} ({gap.rule}): {gap.text}", gap.events) for gap in situation.gaps]


def _empty(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    if situation.following is not Following.NOTHING or situation.facts.timeline.endpoint_ns is None:
        return ()
    text = "no process of the trial ran after the endpoint, and its cgroup was seen empty"
    return ((text, _numbers(situation, "trial.endpoint", "trial.emptied")),)


def _never_executed(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    if situation.facts.executed is not False or situation.facts.timeline.released_ns is None:
        return ()
    text = f"CMD was never executed: {why_not_executed(situation.facts)}; nothing of it ever ran"
    return ((text, _numbers(situation, "trial.released")),)


def why_not_executed(facts: Facts) -> str:
    """Say why CMD was never executed, as a shell does."""
    error = facts.exec_error
    if error is None:
        return "it ended before that"
    words = {errno.ENOENT: "not found", errno.EACCES: "permission denied", errno.ENOEXEC: "not in a known format"}
    return words.get(error) or errno.errorcode.get(error, f"error {error}")


def _descriptors(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    found = [contact for contact in situation.contacts if contact.descriptor]
    return [(f"{contact.what}: somebody outside may hold a file of the outcome", contact.events) for contact in found]


def _connections(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    policy = situation.policy
    found = [one for one in situation.contacts if not one.descriptor and services.declared_contact(one, policy) is None]
    text = "what was asked for there may still act"
    return [(f"{contact.what} was reached outside the box: {text}", contact.events) for contact in found]


def _commit_failed(situation: Situation) -> Sequence[tuple[str, tuple[int, ...]]]:
    committed = situation.facts.timeline.committed
    if committed is None or committed.state != "failed":
        return ()
    text = f"the staged writes could not all be applied: {committed.error or 'no reason was given'}"
    return ((text, _numbers(situation, "stage.committed")),)


_INTERVENTIONS = frozenset({Following.CANCELLED, Following.ISOLATED})

_F, _U = Answer.FINAL, Answer.UNRESOLVED

TABLE: tuple[Row, ...] = (
    Row(rule="unsealed-log", find=_unsealed, endpoint=_U, within=_U, eventually=_U),
    Row(rule="no-endpoint", find=_no_endpoint, endpoint=_U, within=_U, eventually=_U),
    Row(rule="evidence-gap", find=_gaps, endpoint=_U, within=_U, eventually=_U),
    Row(rule="descriptor-outside", find=_descriptors, endpoint=_U, within=_U, eventually=_U),
    Row(rule="service-contacted", find=_connections, endpoint=Answer.SNAPSHOT, within=_U, eventually=_U),
    Row(rule="held-undecided", find=releases.still_held, endpoint=Answer.SNAPSHOT, within=_U, eventually=_U),
    Row(rule="commit-failed", find=_commit_failed, endpoint=_U, within=_U, eventually=_U),
    Row(rule="not-emptied", find=_not_emptied, endpoint=Answer.SNAPSHOT, within=_U, eventually=_U),
    Row(rule="service-open", find=services.still_open, endpoint=_U, within=_U, eventually=_U),
    Row(rule="service-settled", find=services.settled, endpoint=_F, within=_F, eventually=_F),
    Row(rule="service-later", find=services.beside_the_files, endpoint=Answer.SNAPSHOT, within=_U, eventually=_U),
    Row(rule="service-stateless", find=services.stateless, endpoint=_F, within=_F, eventually=_F, basis="declared"),
    Row(rule=later.FIRES, find=later.firing, endpoint=_F, within=_U, eventually=_U),
    Row(rule="schedule-after-period", find=later.firing_later, endpoint=_F, within=_F, eventually=_U),
    Row(rule="dormant-trigger", find=later.dormant, endpoint=_F, within=_F, eventually=_F),
    Row(rule="schedule-discarded", find=later.discarded, endpoint=_F, within=_F, eventually=_F),
    Row(rule="never-executed", find=_never_executed, endpoint=_F, within=_F, eventually=_F),
    Row(rule="nothing-alive", find=_empty, endpoint=_F, within=_F, eventually=_F),
    Row(
        rule="ended-while-followed",
        find=_when(Following.SETTLED, "{} ran after the endpoint and was followed until it ended"),
        endpoint=Answer.SNAPSHOT,
        within=Answer.BY_DEADLINE,
        eventually=_F,
    ),
    Row(
        rule="cancelled",
        find=_when(Following.CANCELLED, "{} was cancelled as declared: killed, and the cgroup seen empty"),
        endpoint=Answer.SNAPSHOT,
        within=Answer.BY_DEADLINE,
        eventually=_F,
    ),
    Row(
        rule="frozen",
        find=_when(Following.FROZEN, "{} was alive at the endpoint and frozen; a freeze is not a cancel"),
        endpoint=Answer.SNAPSHOT,
        within=Answer.AT_DEADLINE,
        eventually=_U,
    ),
    Row(
        rule="isolated",
        find=_when(Following.ISOLATED, "{} was alive at the endpoint; the workspace was made read-only under it"),
        endpoint=Answer.SNAPSHOT,
        within=Answer.SNAPSHOT,
        eventually=Answer.SNAPSHOT,
    ),
    Row(
        rule="isolated-unproved",
        find=_when(Following.NOT_ISOLATED, "{} was alive at the endpoint, and nothing proves that it was isolated"),
        endpoint=Answer.SNAPSHOT,
        within=_U,
        eventually=_U,
    ),
    Row(
        rule="alive-when-following-ended",
        find=_when(Following.CUT, "{} was still alive when following ended; we killed it for hygiene only"),
        endpoint=Answer.SNAPSHOT,
        within=Answer.AT_DEADLINE,
        eventually=_U,
    ),
)
"""The table. Rows that close nothing come first, then exactly one row for what ran after the endpoint."""
