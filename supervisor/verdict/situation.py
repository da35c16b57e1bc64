"""What the facts mean for a claim, before any rule is applied. In: facts and policy; out: one `Situation`.

A situation answers small questions (did anything outlive the endpoint, how was it handled, is there a good snapshot);
the table in `finality` says what follows from the answers.
"""

from __future__ import annotations

from enum import StrEnum

from policies.types import AtEndpoint, Commit, FilesMode, LimitRole, PeriodKind, Policy
from supervisor.evidence.facts import Facts, Gap, OutsideContact, Process, Snapshot
from supervisor.evidence.file_facts import FileHistory
from supervisor.evidence.naming import Names
from supervisor.evidence.routes import Schedule
from supervisor.values import dataclass

_BILLION = 1_000_000_000
SIGKILL = 9
"""Its number on every architecture of Linux; the signal module is system access."""


class Following(StrEnum):
    """What became of the processes that ran after the endpoint."""

    NOTHING = "nothing ran"
    SETTLED = "all ended by themselves"
    CANCELLED = "cancelled as declared"
    FROZEN = "frozen, then killed"
    ISOLATED = "isolated, and checked"
    NOT_ISOLATED = "to be isolated, without proof"
    CUT = "killed when following ended"
    UNKNOWN = "not known"


class Capture(StrEnum):
    """Whether the state of the footprint at one moment is known."""

    GOOD = "good"
    MISSING = "missing"
    WRITTEN = "written"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The state at one moment: how good it is, from which snapshot, who spoiled it, and what was written after it."""

    how: Capture
    snapshot: Snapshot | None = None
    spoiled_by: tuple[FileHistory, ...] = ()
    changed_since: tuple[FileHistory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The answers.

    Attributes:
        after: processes that ran after the endpoint.
        cut: those of them that did not end by themselves.
        last_end_ns: when the last of them ended, None when that is not known.
        at_endpoint, at_deadline: the state of the footprint then; ``at_deadline`` is for ``within D`` only.
        by_deadline: all of them had ended at D.
        gaps: those that cost finality.
        deadline_ns: D, for ``within D`` only.
    """

    facts: Facts
    policy: Policy
    sealed: bool
    after: tuple[Process, ...]
    cut: tuple[Process, ...]
    following: Following
    last_end_ns: int | None
    at_endpoint: Captured
    at_deadline: Captured | None
    by_deadline: bool
    gaps: tuple[Gap, ...]
    contacts: tuple[OutsideContact, ...]
    names: Names
    deadline_ns: int | None = None

    @property
    def emptied(self) -> bool:
        """Whether the cgroup said that nothing is alive."""
        return self.facts.timeline.emptied_ns is not None

    @property
    def claimed(self) -> Captured | None:
        """The state that the claim is about, where its period ends at a moment."""
        return self.at_endpoint if self.policy.claim.period.kind is PeriodKind.ENDPOINT else self.at_deadline

    def persists(self, schedule: Schedule) -> bool:
        """Tell whether a trigger stays, as it happened where that is known, else as the policy may have it."""
        files, committed = self.policy.files, self.facts.timeline.committed
        if not schedule.kept:
            return False
        if schedule.gone:
            return True  # it is not there, but what it started may be
        if files.mode is FilesMode.DIRECT or schedule.path.startswith(b"/"):
            return True  # what is kept outside the workspace was written in place
        if committed is not None:
            return committed.state not in {"kept", "discarded"} and schedule.path not in committed.conflicts
        return files.commit is not Commit.NEVER

    def fires_after_deadline(self, schedule: Schedule) -> bool:
        """Tell whether a trigger is known not to run before D."""
        if self.deadline_ns is None or schedule.next_ns is None:
            return False
        return schedule.next_ns > self.deadline_ns + self.facts.timeline.realtime_offset_ns


def read_situation(facts: Facts, policy: Policy, *, sealed: bool) -> Situation:
    """Answer the questions."""
    after = tuple(process for process in facts.processes if process.outlived)
    cut = _cut(facts, policy, after)
    last_end_ns = _last_end_ns(facts, after)
    deadline_ns = _deadline_ns(facts, policy)
    return Situation(
        facts=facts,
        policy=policy,
        sealed=sealed,
        after=after,
        cut=cut,
        following=_following(facts, policy, after, cut),
        last_end_ns=last_end_ns,
        at_endpoint=_at_endpoint(facts, after),
        at_deadline=None if deadline_ns is None else _captured(facts, deadline_ns),
        by_deadline=deadline_ns is not None and last_end_ns is not None and last_end_ns <= deadline_ns,
        gaps=tuple(gap for gap in facts.gaps if "finality" in gap.costs),
        contacts=tuple(contact for contact in facts.contacts if contact.error is None),
        names=Names(facts.processes),
        deadline_ns=deadline_ns,
    )


def _cut(facts: Facts, policy: Policy, after: tuple[Process, ...]) -> tuple[Process, ...]:
    """Find who did not end by itself. CMD's end is part of what a task limit measures, so it is not cut by one.

    A process that was forked between our list and our kill is not in the list: where we killed at all, every death by
    SIGKILL counts as our doing.
    """
    line, limited = facts.timeline, _is_task_limit(facts, policy)
    killed, settled = set(line.killed), line.settled_emptied is True
    return tuple(
        process
        for process in after
        if not (limited and process.key == facts.main)
        and (
            process.key in killed
            or (process.exited_ns is None and not settled)
            or (bool(line.kills) and process.signal == SIGKILL)
        )
    )


def _is_task_limit(facts: Facts, policy: Policy) -> bool:
    return policy.stop.role is LimitRole.TASK and facts.timeline.endpoint_reason in {"timeout", "budget"}


def _following(facts: Facts, policy: Policy, after: tuple[Process, ...], cut: tuple[Process, ...]) -> Following:
    if facts.timeline.emptied_ns is None:
        return Following.UNKNOWN
    if not cut:
        return Following.SETTLED if after else Following.NOTHING
    if policy.stop.at_endpoint is AtEndpoint.FREEZE:
        return Following.FROZEN
    if policy.stop.at_endpoint is AtEndpoint.ISOLATE:
        return Following.ISOLATED if _isolated(facts, policy) else Following.NOT_ISOLATED
    cancelled = policy.stop.at_endpoint is AtEndpoint.CANCEL and _cancelled(facts, policy)
    return Following.CANCELLED if cancelled else Following.CUT


def _isolated(facts: Facts, policy: Policy) -> bool:
    """Tell whether nothing alive can write the footprint any more: only the workspace is taken away.

    A shared place is a mount of its own, also one that lies in the workspace.
    """
    line = facts.timeline
    elsewhere = bool(policy.files.shared) or any(glob.startswith("/") for glob in policy.claim.footprint)
    elsewhere = elsewhere or any(history.in_scope and not history.in_workspace for history in facts.files)
    return line.isolated_ns is not None and line.isolation_error is None and not elsewhere


def _cancelled(facts: Facts, policy: Policy) -> bool:
    """Tell whether every kill was the declared cancellation; the one that ends CMD at a task limit is none."""
    spared = {facts.main} if _is_task_limit(facts, policy) else set()
    kills = [kill for kill in facts.timeline.kills if set(kill.killed) - spared]
    return bool(kills) and all(kill.why == "cancel" for kill in kills)


def _last_end_ns(facts: Facts, after: tuple[Process, ...]) -> int | None:
    ends = [process.exited_ns or facts.timeline.emptied_ns for process in after]
    known = [end for end in ends if end is not None]
    return max(known, default=facts.timeline.endpoint_ns) if len(known) == len(ends) else None


def _deadline_ns(facts: Facts, policy: Policy) -> int | None:
    within_s, endpoint_ns = policy.claim.period.within_s, facts.timeline.endpoint_ns
    return None if within_s is None or endpoint_ns is None else endpoint_ns + round(within_s * _BILLION)


def _at_endpoint(facts: Facts, after: tuple[Process, ...]) -> Captured:
    """Judge the state at the endpoint.

    Where nothing was alive any more when the supervisor looked, no snapshot was due: then the final state is the one of
    the endpoint, if the few that ended in between wrote nothing.
    """
    line = facts.timeline
    if line.endpoint_ns is None:
        return Captured(how=Capture.MISSING)
    if not after:
        return Captured(how=Capture.GOOD)
    if not line.alive_at_endpoint and not line.snapshots and line.emptied_ns is not None:
        return _unwritten(facts, line.endpoint_ns, line.emptied_ns, None)
    return _captured(facts, line.endpoint_ns)


def _captured(facts: Facts, at_ns: int) -> Captured:
    """Judge the state at a moment by the first snapshot that was taken frozen, not before that moment."""
    for snapshot in facts.timeline.snapshots:
        if snapshot.frozen_ns is not None and snapshot.frozen_ns >= at_ns:
            return _unwritten(facts, at_ns, snapshot.frozen_ns, snapshot)
    return Captured(how=Capture.MISSING)


def _unwritten(facts: Facts, from_ns: int, to_ns: int, snapshot: Snapshot | None) -> Captured:
    """Require that nothing wrote the footprint between a moment and its capture, and that nothing was lost there.

    What was written through a descriptor that the trial was given is in no snapshot: it must not be written later.
    """
    footprint = [history for history in facts.files if history.in_scope and history.written_after]
    spoiled = tuple(
        history
        for history in footprint
        if any(end > from_ns and (start <= to_ns or not history.reachable) for start, end in history.written_after)
    )
    since = snapshot and tuple(
        history for history in footprint if any(end > snapshot.at_ns for _, end in history.written_after)
    )
    if spoiled:
        return Captured(how=Capture.WRITTEN, snapshot=snapshot, spoiled_by=spoiled, changed_since=since or ())
    if any(not loss.timed or (loss.first_ns <= to_ns and loss.last_ns >= from_ns) for loss in facts.losses):
        return Captured(how=Capture.LOST, snapshot=snapshot, changed_since=since or ())
    return Captured(how=Capture.GOOD, snapshot=snapshot, changed_since=since or ())
