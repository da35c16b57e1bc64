"""The completion argument put together. In: facts, policy, judgement and the figures of the log; out: `Completion`."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

from policies.types import Commit, FilesMode, Policy
from supervisor.events import CaptureCompared, ProcessKey
from supervisor.evidence.captured import captured_in
from supervisor.evidence.facts import Coverage, Facts, Process
from supervisor.evidence.file_facts import ChangeKind, FileHistory
from supervisor.evidence.naming import show
from supervisor.evidence.routes import Budget, Usage
from supervisor.verdict.completion import (
    NEVER,
    BudgetSeen,
    ClaimMade,
    Completion,
    ContactSeen,
    CredentialSeen,
    Effects,
    Endpoint,
    GapFound,
    LimitSeen,
    LogFigures,
    OrderDemanded,
    PolicyName,
    RefusalSeen,
    RouteCovered,
    StageSeen,
    StopRuleUsed,
    UsageSeen,
)
from supervisor.verdict.doings import AttemptSeen, ExecutionSeen, FileSeen, ProcessSeen
from supervisor.verdict.exchanges import FlowSeen, requests_made, unread_seen, validation_seen
from supervisor.verdict.judge import Judgement
from supervisor.verdict.naming import b64, exact, exact_all, moment
from supervisor.verdict.releases import held_flows

_Words = tuple[str, ...] | UnsetType
_SHORT = 64
_Ids = Mapping[ProcessKey | None, str | None]


def argue(
    facts: Facts,
    policy: Policy,
    judgement: Judgement,
    *,
    run: str,
    command: Sequence[bytes],
    log: LogFigures,
    policy_digest: str,
    name: str | None = None,
) -> Completion:
    """Put the argument together.

    Args:
        facts: of the trial.
        policy: what was allowed and claimed.
        judgement: the verdicts.
        run: its id.
        command: CMD as it was given.
        log: figures of the log at the evidence checkpoint; ``sealed`` is what the seal will make true.
        policy_digest: ``sha256:…`` of the policy's canonical form.
        name: what the caller called the run; bytes that are no text as surrogates.
    """
    words, raw = _words(command)
    return Completion(
        run=run,
        command=words,
        command_b64=raw,
        policy=PolicyName(name=policy.name, digest=policy_digest),
        claim=_claim(policy),
        stop_rule=_stop_rule(policy),
        endpoint=_endpoint(facts),
        coverage=tuple(_coverage(entry) for entry in facts.coverage),
        effects=_effects(facts, judgement.finality.observed.kept_in),
        open_effects=judgement.open_effects,
        finality=judgement.finality,
        separation=judgement.separation,
        scope=judgement.scope,
        result=judgement.result,
        log=log,
        stage=_stage(facts, policy, judgement),
        usage=_usage(facts.usage),
        validation=validation_seen(facts),
        name=None if name is None else show(name.encode(errors="surrogateescape")),
    )


def _stage(facts: Facts, policy: Policy, judgement: Judgement) -> StageSeen:
    changes = sum(1 for h in facts.files if h.in_workspace and h.allowed and h.changes and h.net != "unchanged")
    committed = facts.timeline.committed
    if policy.files.mode is FilesMode.DIRECT:
        return StageSeen(state="direct", changes=changes)
    if committed is None:
        return StageSeen(state="unknown", changes=changes)
    why = committed.error
    if committed.state == "kept" and why is None:
        why = _kept_back(policy.files.commit, judgement)
    return StageSeen(
        state=committed.state,
        changes=changes,
        why=why,
        left_out=tuple(show(path) for path in committed.left_out),
        conflicts=tuple(show(path) for path in committed.conflicts),
    )


def _kept_back(commit: Commit, judgement: Judgement) -> str:
    """Say what kept a stage from being applied."""
    finality, scope = judgement.finality.verdict, judgement.scope.verdict
    if commit.asks_clean and scope != "clean":
        return f"the policy applies nothing unless the scope is clean, and it is {scope}"
    if commit.asks_final:
        return f"the policy applies a final outcome only, and this one is {finality}"
    return NEVER


def _claim(policy: Policy) -> ClaimMade:
    claim = policy.claim
    return ClaimMade(
        outcome=claim.outcome,
        scope=claim.footprint,
        period=str(claim.period),
        unit=claim.unit,
        decided_by=claim.decided_by.value,
        event=claim.event,
        order=tuple(OrderDemanded(first=rule.first, then=rule.then) for rule in policy.order),
        grader=policy.grade.command,
    )


def _stop_rule(policy: Policy) -> StopRuleUsed:
    stop = policy.stop
    return StopRuleUsed(
        wall_s=stop.wall_s,
        role=stop.role.value,
        at_endpoint=stop.at_endpoint.value,
        settle_s=stop.settle_s,
        tool_calls=stop.tool_calls,
        tokens=stop.tokens,
    )


def _usage(usage: Usage) -> UsageSeen | None:
    """Say what was used of the budgets; nothing where nobody counted anything."""
    if usage == Usage():
        return None
    return UsageSeen(
        tool_calls=usage.tool_calls,
        failed=usage.failed,
        retries=usage.retries,
        refused=usage.refused,
        claimed_tool_calls=usage.claimed_tool_calls,
        claimed_tokens=usage.claimed_tokens,
        unanswered=usage.unanswered,
        reached=None if usage.reached is None else _budget(usage.reached),
        events=usage.events,
    )


def _budget(budget: Budget) -> BudgetSeen:
    return BudgetSeen(
        name=budget.name,
        limit=budget.limit,
        counted=budget.counted,
        claimed=budget.claimed,
        events=(budget.event,),
    )


def _endpoint(facts: Facts) -> Endpoint:
    line = facts.timeline
    main = next((process for process in facts.processes if process.key == facts.main), None)
    return Endpoint(
        reason=line.endpoint_reason,
        at=None if line.endpoint_ns is None else moment(line.endpoint_ns, line.realtime_offset_ns),
        exit_code=main.exit_code if main else None,
        signal=main.signal if main else None,
        executed=facts.executed,
        exec_error=None if facts.exec_error is None else errno.errorcode.get(facts.exec_error, str(facts.exec_error)),
    )


def _coverage(entry: Coverage) -> RouteCovered:
    gaps = tuple(
        GapFound(rule=gap.rule, text=gap.text, events=gap.events, costs=tuple(sorted(gap.costs))) for gap in entry.gaps
    )
    return RouteCovered(
        route=entry.route, witnesses=entry.witnesses, complete=entry.complete, gaps=gaps, note=entry.note
    )


def _effects(facts: Facts, kept_in: str | None) -> Effects:
    ids: dict[ProcessKey | None, str | None] = {process.key: str(process.key) for process in facts.processes}
    shared, captured = _Shared(), captured_in(facts, kept_in) if kept_in is not None else {}
    return Effects(
        processes=tuple(_process(process, ids) for process in facts.processes),
        files=tuple([_file(history, ids, shared, captured.get(history.path)) for history in facts.files]),
        network=(*_network(facts, ids), *held_flows(facts, ids)),
        requests=requests_made(facts, ids),
        unread=unread_seen(facts, ids),
        credentials=tuple(
            CredentialSeen(
                kind=use.what,
                name=use.name,
                action=use.action,
                process=ids.get(use.process),
                events=use.events,
                fingerprint=use.fingerprint,
                where=use.where,
                run=use.run,
            )
            for use in facts.credentials
        ),
        contacts=tuple(
            ContactSeen(
                what=c.what, descriptor=c.descriptor, errno=c.error, process=ids.get(c.process), events=c.events
            )
            for c in facts.contacts
        ),
        refusals=tuple(
            RefusalSeen(what=r.what, errno=r.error, count=r.count, process=ids.get(r.process), events=r.events)
            for r in facts.refusals
        ),
        limits=tuple(
            LimitSeen(
                resource=met.resource,
                limit=met.limit,
                effect=met.effect,
                times=met.times,
                processes=tuple(str(key) for key in met.processes),
                events=met.events,
            )
            for met in facts.limits
        ),
    )


def _process(process: Process, ids: _Ids) -> ProcessSeen:
    argv, argv_b64 = _words(process.argv)
    exe = exact(process.exe)
    return ProcessSeen(
        id=str(process.key),
        pid=process.pid,
        argv=argv,
        argv_b64=argv_b64,
        argv_truncated=process.argv_truncated,
        exe=UNSET if exe is None else exe,
        exe_b64=b64(process.exe) if exe is None else UNSET,
        parent=ids.get(process.parent),
        alive_at_endpoint=process.alive_at_endpoint,
        outlived=process.outlived,
        exit_code=process.exit_code,
        signal=process.signal,
        execs=_earlier(process),
        events=process.events,
    )


def _earlier(process: Process) -> tuple[ExecutionSeen, ...]:
    seen = []
    for execution in process.executions[:-1]:
        argv, argv_b64 = _words(execution.argv)
        seen.append(ExecutionSeen(argv=argv, argv_b64=argv_b64, event=execution.event))
    return tuple(seen)


class _Shared:
    """Values that thousands of files have in common, made once each."""

    def __init__(self) -> None:
        self._words: dict[tuple[ChangeKind, ...], tuple[str, ...]] = {}
        self._writers: dict[tuple[ProcessKey, ...], tuple[str, ...]] = {}

    def history(self, history: FileHistory) -> tuple[str, ...]:
        kinds = tuple([change.kind for change in history.changes])
        words = self._words.get(kinds)
        if words is None:
            words = tuple(kind.value for kind in kinds)
            if len(words) <= _SHORT:  # a long one is one of its kind
                self._words[kinds] = words
        return words

    def writers(self, history: FileHistory) -> tuple[str, ...]:
        writers = self._writers.get(history.writers)
        if writers is None:
            writers = self._writers[history.writers] = tuple(map(str, history.writers))
        return writers


def _name(path: bytes | None) -> str | None:
    return None if path is None else show(path)


def _file(history: FileHistory, ids: _Ids, shared: _Shared, captured: CaptureCompared | None) -> FileSeen:
    path = exact(history.path)
    return FileSeen(
        path=UNSET if path is None else path,
        path_b64=b64(history.path) if path is None else UNSET,
        net=history.net,
        restored=history.restored,
        history=shared.history(history),
        history_total=history.changes_total,
        in_scope=history.in_scope,
        allowed=history.allowed,
        private=history.private,
        reachable=history.reachable,
        writers=shared.writers(history),
        before=history.before.digest if history.before else None,
        after=history.after.digest if history.after else None,
        attempts=tuple(
            AttemptSeen(kind=a.kind.value, errno=a.error or 0, process=ids.get(a.process), event=a.event)
            for a in history.attempts
        )
        if history.attempts
        else (),
        events=history.events,
        renamed_from=_name(history.renamed_from),
        renamed_to=_name(history.renamed_to),
        mtime_kept=_mtime_kept(history),
        kept=history.kept or UNSET,
        captured=UNSET if captured is None else captured.digest,
        discarded=_is_discarded(history) or UNSET,
    )


def _is_discarded(history: FileHistory) -> bool:
    """Tell whether a change that is allowed is nowhere any more: outside the workspace it was the trial's alone."""
    kept = history.in_workspace or history.shared or history.private or not history.reachable
    return history.allowed and not kept and bool(history.changes)


def _mtime_kept(history: FileHistory) -> bool | None:
    before, after = history.before, history.after
    if before is None or after is None or None in {before.modified_ns, after.modified_ns}:
        return None
    return before.modified_ns == after.modified_ns


def _network(facts: Facts, ids: _Ids) -> tuple[FlowSeen, ...]:
    return tuple(
        FlowSeen(
            protocol=flow.protocol,
            host=flow.host,
            ip=flow.ip,
            port=flow.port,
            decision=flow.decision,
            bytes_out=flow.bytes_out,
            bytes_in=flow.bytes_in,
            process=ids.get(flow.process),
            events=flow.events,
            connections=flow.connections,
            kept_bytes=flow.kept_bytes,
            rule=flow.rule,
            reason=flow.reason,
            after_endpoint=flow.after_endpoint,
            unfinished=flow.unfinished or UNSET,
            server=flow.server or UNSET,
            unread=flow.unread or UNSET,
        )
        for flow in facts.flows
    )


def _words(words: Sequence[bytes]) -> tuple[_Words, _Words]:
    """Give words as text, or all of them in base64 when one is no UTF-8."""
    texts = exact_all(words)
    return (tuple(texts), UNSET) if texts is not None else (UNSET, tuple(b64(word) for word in words))
