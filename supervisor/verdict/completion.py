"""The completion argument: what the score represents, what could still change it, and on what evidence.

This is the typed form of ``completion.json`` (``completion-argument/1``). Fields may be added, never renamed or removed
within version 1. What is no UTF-8 stands in ``…_b64`` instead of its plain field.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, UnsetType

SCHEMA = "completion-argument/1"

_INDENTED = 4_000_000
"""Above so many bytes the JSON is not indented: formatting would hold it in memory twice."""


class PolicyName(Struct, frozen=True, kw_only=True):
    """Which policy was in force."""

    name: str
    digest: str


class ClaimMade(Struct, frozen=True, kw_only=True):
    """What the label is about, fixed before the run."""

    outcome: str | None
    scope: tuple[str, ...]
    period: str
    unit: str


class StopRuleUsed(Struct, frozen=True, kw_only=True):
    """What could end the trial, in which role."""

    wall_s: float | None
    role: str
    at_endpoint: str
    settle_s: float


class Endpoint(Struct, frozen=True, kw_only=True):
    """How and when the interaction ended; all None while it never did."""

    reason: str | None
    at: str | None
    exit_code: int | None
    signal: int | None


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


class ExecutionSeen(Struct, frozen=True, kw_only=True):
    """An earlier exec of a process."""

    argv: tuple[str, ...] | UnsetType = UNSET
    argv_b64: tuple[str, ...] | UnsetType = UNSET
    event: int


class ProcessSeen(Struct, frozen=True, kw_only=True):
    """One process of the trial."""

    id: str
    pid: int
    argv: tuple[str, ...] | UnsetType = UNSET
    argv_b64: tuple[str, ...] | UnsetType = UNSET
    argv_truncated: bool = False
    exe: str | UnsetType = UNSET
    exe_b64: str | UnsetType = UNSET
    parent: str | None
    alive_at_endpoint: bool
    outlived: bool
    exit_code: int | None = None
    signal: int | None = None
    execs: tuple[ExecutionSeen, ...] = ()
    events: tuple[int, ...] = ()


class AttemptSeen(Struct, frozen=True, kw_only=True):
    """A change that was tried and failed."""

    kind: str
    errno: int
    process: str | None
    event: int


class FileSeen(Struct, frozen=True, kw_only=True):
    """Everything that happened to one path."""

    path: str | UnsetType = UNSET
    path_b64: str | UnsetType = UNSET
    net: str | None
    restored: bool | None
    history: tuple[str, ...]
    history_total: int
    in_scope: bool
    allowed: bool
    private: bool
    reachable: bool
    writers: tuple[str, ...]
    before: str | None
    after: str | None
    attempts: tuple[AttemptSeen, ...]
    events: tuple[int, ...]


class FlowSeen(Struct, frozen=True, kw_only=True):
    """Attempts of one process to reach one address."""

    protocol: str
    host: str | None
    ip: str | None
    port: int | None
    decision: str
    bytes_out: int
    bytes_in: int
    process: str | None
    events: tuple[int, ...]


class CredentialSeen(Struct, frozen=True, kw_only=True):
    """One use of a credential."""

    kind: str
    name: str
    action: str
    process: str | None
    events: tuple[int, ...]


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


class Proof(Struct, frozen=True, kw_only=True):
    """The two proofs of a handling, as event numbers, and the decisions they support together."""

    prevented: tuple[int, ...] = ()
    checked: tuple[int, ...] = ()
    supports: tuple[str, ...] = ()


class OpenEffect(Struct, frozen=True, kw_only=True):
    """An effect that may still act, or that persists where another run can meet it."""

    id: str
    route: str
    what: str
    status: str
    could_affect: tuple[str, ...]
    handling: str
    settled: bool
    proof: Proof
    events: tuple[int, ...]


class Reason(Struct, frozen=True, kw_only=True):
    """Why a verdict is what it is; ``basis`` is what it rests on: ``witnessed``, ``declared`` or ``assumed``."""

    rule: str
    text: str
    events: tuple[int, ...]
    basis: str = "witnessed"


class ObservedOutcome(Struct, frozen=True, kw_only=True):
    """What was seen of the outcome, whatever the verdict."""

    label: str | None
    at: str | None
    digest: str | None


class Finality(Struct, frozen=True, kw_only=True):
    """Can anything still change the claimed outcome? ``final`` or ``unresolved``."""

    verdict: str
    label: str | None
    observed: ObservedOutcome
    intervened: bool
    reasons: tuple[Reason, ...]
    cause: str | None = None


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


class LogFigures(Struct, frozen=True, kw_only=True):
    """The log that all this rests on, up to the evidence checkpoint."""

    frames: int
    events: int
    lost: int
    root: str
    sealed: bool
    key: str | None = None


class Completion(Struct, frozen=True, kw_only=True):
    """The completion argument."""

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


def to_json(completion: Completion) -> bytes:
    """Write ``completion.json``: indented unless it is too long for people anyway, one newline at the end."""
    raw = msgspec.json.encode(completion)
    return (msgspec.json.format(raw, indent=1) if len(raw) < _INDENTED else raw) + b"\n"


def from_json(raw: bytes) -> Completion:
    """Read ``completion.json``; fields of later versions are passed over.

    Raises:
        msgspec.ValidationError: it is no completion argument.
    """
    return msgspec.json.decode(raw, type=Completion)


_MEANING = {"final": ("finality", "final"), "separate": ("separation", "separate"), "clean": ("scope", "clean")}


def unmet_requirements(completion: Completion, required: frozenset[str]) -> tuple[str, ...]:
    """List which of the required verdicts (``final``, ``separate``, ``clean``) were not reached, in a fixed order."""
    verdicts = {
        "finality": completion.finality.verdict,
        "separation": completion.separation.verdict,
        "scope": completion.scope.verdict,
    }
    return tuple(word for word, (which, wanted) in _MEANING.items() if word in required and verdicts[which] != wanted)


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
