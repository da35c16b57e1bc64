"""The completion argument: what the score represents, what could still change it, and on what evidence.

This is the typed form of ``completion.json`` (``completion-argument/1``). Fields may be added, never renamed or removed
within version 1. What is no UTF-8 stands in ``…_b64`` instead of its plain field.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, Struct, UnsetType

from supervisor.evidence.acting import escape_acting
from supervisor.verdict.doings import FileSeen, ProcessSeen
from supervisor.verdict.exchanges import FlowSeen, RequestMade, UnreadSeen, ValidationSeen

SCHEMA = "completion-argument/1"

_INDENTED = 5000
"""Above so many processes, files and flows the JSON is not indented: nobody reads it, and it would be twice as long."""
_CHUNK = 2000


class PolicyName(Struct, frozen=True, kw_only=True):
    """Which policy was in force."""

    name: str
    digest: str


class OrderDemanded(Struct, frozen=True, kw_only=True):
    """Events that must come in an order, as patterns."""

    first: str
    then: str


class ClaimMade(Struct, frozen=True, kw_only=True):
    """What the label is about, fixed before the run.

    Attributes:
        decided_by: ``state``, ``event`` (then ``event`` is its pattern) or ``history`` (then ``order`` is).
        grader: command of the grader, None when there is none.
    """

    outcome: str | None
    scope: tuple[str, ...]
    period: str
    unit: str
    decided_by: str = "state"
    event: str | None = None
    order: tuple[OrderDemanded, ...] = ()
    grader: str | None = None


class StopRuleUsed(Struct, frozen=True, kw_only=True):
    """What could end the trial, in which role."""

    wall_s: float | None
    role: str
    at_endpoint: str
    settle_s: float
    tool_calls: int | None = None
    tokens: int | None = None


class Endpoint(Struct, frozen=True, kw_only=True):
    """How and when the interaction ended; all None while it never did.

    Attributes:
        executed: whether CMD's process ever became CMD. False: the exit code and all that was written are our own
            message; None: that event may be among those that were lost.
        exec_error: name of the error for which it did not (``ENOENT``).
    """

    reason: str | None
    at: str | None
    exit_code: int | None
    signal: int | None
    executed: bool | None = True
    exec_error: str | None = None


class GapFound(Struct, frozen=True, kw_only=True):
    """Evidence that is missing, and the verdicts it costs."""

    rule: str
    text: str
    events: tuple[int, ...]
    costs: tuple[str, ...]


class RouteCovered(Struct, frozen=True, kw_only=True):
    """One route, who witnessed it and what is missing."""

    route: str
    witnesses: tuple[str, ...]
    complete: bool
    gaps: tuple[GapFound, ...]
    note: str | None = None


class CredentialSeen(Struct, frozen=True, kw_only=True):
    """One use of a credential: as `supervisor.evidence.facts.CredentialUse`, whose ``what`` is ``kind`` here."""

    kind: str
    name: str
    action: str
    process: str | None
    events: tuple[int, ...]
    fingerprint: str | None = None
    where: str | None = None
    run: str | None = None


class ContactSeen(Struct, frozen=True, kw_only=True):
    """A contact with somebody outside the box."""

    what: str
    descriptor: bool
    errno: int | None
    process: str | None
    events: tuple[int, ...]


class RefusalSeen(Struct, frozen=True, kw_only=True):
    """Calls that the box refuses to everybody."""

    what: str
    errno: int
    count: int
    process: str | None
    events: tuple[int, ...]


class LimitSeen(Struct, frozen=True, kw_only=True):
    """A limit of the trial's resources that it met; ``processes`` are those whose end it explains."""

    resource: str
    limit: int | float
    effect: str
    times: int
    processes: tuple[str, ...]
    events: tuple[int, ...]


class Effects(Struct, frozen=True, kw_only=True):
    """All that the trial did."""

    processes: tuple[ProcessSeen, ...] = ()
    files: tuple[FileSeen, ...] = ()
    network: tuple[FlowSeen, ...] = ()
    credentials: tuple[CredentialSeen, ...] = ()
    contacts: tuple[ContactSeen, ...] = ()
    refusals: tuple[RefusalSeen, ...] = ()
    limits: tuple[LimitSeen, ...] = ()
    requests: tuple[RequestMade, ...] = ()
    unread: tuple[UnreadSeen, ...] = ()


class Proof(Struct, frozen=True, kw_only=True):
    """The two proofs of a handling, as event numbers, and the decisions they support together."""

    prevented: tuple[int, ...] = ()
    checked: tuple[int, ...] = ()
    supports: tuple[str, ...] = ()


class OpenEffect(Struct, frozen=True, kw_only=True):
    """An effect that may still act, or that persists where another run can meet it; ``bearing`` is what follows."""

    id: str
    route: str
    what: str
    status: str
    could_affect: tuple[str, ...]
    handling: str
    settled: bool
    proof: Proof
    events: tuple[int, ...]
    bearing: str | None = None


class Reason(Struct, frozen=True, kw_only=True):
    """Why a verdict is what it is; ``basis`` is what it rests on: ``witnessed``, ``declared`` or ``assumed``.

    ``keeps_open`` (finality only): this reason alone would keep the verdict unresolved.
    """

    rule: str
    text: str
    events: tuple[int, ...]
    basis: str = "witnessed"
    keeps_open: bool = False


class OutcomeState(Struct, frozen=True, kw_only=True):
    """What lies at the path that the claim names; ``as_of`` is ``captured`` or ``end``.

    Where the claim is about a captured state it is that which is told, as far as it is known.

    Attributes:
        exists: None when nobody could look.
        existed_before: before the trial; None when that was not recorded.
        kind: ``file``, ``directory``, …, None when nothing is there.
        digest: of the content, ``sha256:…``, None for what has none or could not be read.
    """

    path: str
    as_of: str
    exists: bool | None
    existed_before: bool | None
    kind: str | None = None
    size_bytes: int | None = None
    digest: str | None = None


class ObservedOutcome(Struct, frozen=True, kw_only=True):
    """What was seen of the outcome, whatever the verdict.

    Attributes:
        at, digest: of the captured state where a snapshot decides, else of the end.
        kept_in: where the captured state is kept, below the directory of the run; None when nothing was captured.
        changed_since: paths of the footprint that changed, or may have, after they were captured.
        differs: those of them that, at the end, are not known to be what was captured: what was applied, lies in the
            stage or was written in place is not what the verdict is about.
        state: what lies at the path that the claim names; None when it names none.
    """

    label: str | None
    at: str | None
    digest: str | None
    kept_in: str | None = None
    changed_since: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    state: OutcomeState | None = None


class GraderSaid(Struct, frozen=True, kw_only=True):
    """How the run of a grader ended that gave no success, and the end of what it wrote for people."""

    exit_code: int | None
    signal: int | None
    output: str
    events: tuple[int, ...]


class Finality(Struct, frozen=True, kw_only=True):
    """Can anything still change the claimed outcome? ``final`` or ``unresolved``."""

    verdict: str
    label: str | None
    observed: ObservedOutcome
    intervened: bool
    reasons: tuple[Reason, ...]
    cause: str | None = None
    grader: GraderSaid | UnsetType = UNSET


class OpenRoute(Struct, frozen=True, kw_only=True):
    """A route that this run leaves open towards other runs."""

    route: str
    text: str
    events: tuple[int, ...]


class Separation(Struct, frozen=True, kw_only=True):
    """Could this run and another change each other? A single run is ``separate`` or ``unresolved``."""

    verdict: str
    routes: tuple[OpenRoute, ...]
    assumptions: tuple[str, ...]
    reasons: tuple[Reason, ...]


class Scope(Struct, frozen=True, kw_only=True):
    """Did it do only what it was allowed to do? ``clean``, ``violated`` or ``unresolved``."""

    verdict: str
    violations: tuple[Reason, ...]
    reasons: tuple[Reason, ...] = ()


class Result(Struct, frozen=True, kw_only=True):
    """Label and scope together, by Kleene's logic: None is not known."""

    passed: bool | None
    because: tuple[str, ...]


NEVER = "the policy says never"
"""Why staged writes are kept where that was asked for."""


class StageSeen(Struct, frozen=True, kw_only=True):
    """What became of the staged writes.

    Attributes:
        state: ``applied``, ``kept`` (``supervise commit`` or ``discard`` decides), ``failed`` (not all were applied),
            ``discarded`` (the validator did not accept them),
            ``direct`` (nothing was staged), or ``unknown``.
        changes: how many paths of the workspace that may be written ended otherwise than they began.
        why: why it was kept or failed.
        left_out: paths that may not be written, and were not applied.
        conflicts: paths that the host stood against.
    """

    state: str
    changes: int
    why: str | None = None
    left_out: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


class BudgetSeen(Struct, frozen=True, kw_only=True):
    """A budget that was used up; ``claimed`` when the count is what the trial said of itself."""

    name: str
    limit: int
    counted: int
    claimed: bool
    events: tuple[int, ...]


class UsageSeen(Struct, frozen=True, kw_only=True):
    """How much of its budgets the trial used, retries among it: see `supervisor.evidence.facts.Usage`."""

    tool_calls: int
    failed: int
    retries: int
    refused: int
    claimed_tool_calls: int
    claimed_tokens: int
    unanswered: tuple[str, ...]
    reached: BudgetSeen | None
    events: tuple[int, ...]


class LogFigures(Struct, frozen=True, kw_only=True):
    """The log that all this rests on, up to the evidence checkpoint."""

    frames: int
    events: int
    lost: int
    root: str
    sealed: bool
    key: str | None = None


class Completion(Struct, frozen=True, kw_only=True):
    """The completion argument; ``name`` is what the caller called the run."""

    schema: str = SCHEMA
    run: str
    command: tuple[str, ...] | UnsetType = UNSET
    command_b64: tuple[str, ...] | UnsetType = UNSET
    policy: PolicyName
    claim: ClaimMade
    stop_rule: StopRuleUsed
    endpoint: Endpoint
    coverage: tuple[RouteCovered, ...]
    effects: Effects
    open_effects: tuple[OpenEffect, ...]
    finality: Finality
    separation: Separation
    scope: Scope
    result: Result
    log: LogFigures
    stage: StageSeen | None = None
    usage: UsageSeen | None = None
    validation: ValidationSeen | None = None
    name: str | None = None


def to_json(completion: Completion) -> bytes:
    """Write ``completion.json`` in one piece: see `json_parts`."""
    return b"".join(json_parts(completion))


def json_parts(completion: Completion) -> Iterator[bytes]:
    """Write ``completion.json`` part by part: indented unless it is too long for people anyway; ends with a newline.

    In parts, because the whole of a long one would be held in memory beside what it is made from. No name in it acts on
    a terminal that it is printed on.
    """
    return map(escape_acting, _parts(completion))


def _parts(completion: Completion) -> Iterator[bytes]:
    effects = completion.effects
    if len(effects.files) + len(effects.processes) + len(effects.network) + len(effects.requests) <= _INDENTED:
        yield msgspec.json.format(msgspec.json.encode(completion), indent=1) + b"\n"
        return
    yield from _struct_parts(completion)
    yield b"\n"


def _struct_parts(value: Struct) -> Iterator[bytes]:
    """Write a struct; its tuples are written `_CHUNK` items at a time."""
    before = b"{"
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if field is UNSET:
            continue
        yield before + msgspec.json.encode(name) + b":"
        before = b","
        if isinstance(field, Effects):
            yield from _struct_parts(field)
        elif isinstance(field, tuple):
            yield b"["
            for start in range(0, len(field), _CHUNK):
                yield (b"," if start else b"") + msgspec.json.encode(field[start : start + _CHUNK])[1:-1]
            yield b"]"
        else:
            yield msgspec.json.encode(field)
    yield b"}"


def from_json(raw: bytes) -> Completion:
    """Read ``completion.json``; fields of later versions are passed over.

    Raises:
        msgspec.ValidationError: it is no completion argument.
    """
    return msgspec.json.decode(raw, type=Completion)


_MEANING = {"final": ("finality", "final"), "separate": ("separation", "separate"), "clean": ("scope", "clean")}


def unmet_requirements(completion: Completion, required: frozenset[str]) -> tuple[str, ...]:
    """List what of that which is required does not hold, in a fixed order.

    Args:
        completion: what was concluded.
        required: verdicts to be reached (``final``, ``separate``, ``clean``); ``success``: that this is the label,
            which no run has that is not final; ``applied``: that nothing which was staged in the workspace was kept
            back or dropped, and what the claim is about is there as it was judged.
    """
    verdicts = {
        "finality": completion.finality.verdict,
        "separation": completion.separation.verdict,
        "scope": completion.scope.verdict,
    }
    met = {word: verdicts[which] == wanted for word, (which, wanted) in _MEANING.items()}
    met |= {"success": completion.finality.label == "success", "applied": all_applied(completion)}
    return tuple(word for word, holds in met.items() if word in required and not holds)


def all_applied(completion: Completion) -> bool:
    """Tell whether everything that was written to the workspace is in it; of what is not known, it is not.

    What lies there otherwise than it was judged is not what was asked for, though it be the trial's last word.
    """
    stage, claim = completion.stage, completion.claim
    if stage is None or stage.left_out or (completion.finality.observed.differs and claim.decided_by == "state"):
        return False
    return stage.state in {"applied", "direct"} or (stage.state == "kept" and not stage.changes)


def without_seal(completion: Completion) -> Completion:
    """Present an argument whose log was never sealed: what rests on the log is unresolved, a violation stays one."""
    reason = Reason(rule="unsealed-log", text="the log was never sealed: it may be cut or still change", events=())
    scope, violated = completion.scope, completion.scope.verdict == "violated"
    replace = msgspec.structs.replace
    return replace(
        completion,
        finality=replace(
            completion.finality, verdict="unresolved", label=None, reasons=(reason, *completion.finality.reasons)
        ),
        separation=replace(
            completion.separation, verdict="unresolved", reasons=(reason, *completion.separation.reasons)
        ),
        scope=scope if violated else replace(scope, verdict="unresolved", reasons=(reason, *scope.reasons)),
        result=Result(passed=False if violated else None, because=(reason.text, *completion.result.because)),
        log=replace(completion.log, sealed=False),
    )
