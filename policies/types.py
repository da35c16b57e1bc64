"""What may happen in a trial and what is claimed about it: plain values, made by `policies.parse`.

All durations are seconds, all globs are relative to the workspace unless they begin with ``/``.
"""

from __future__ import annotations

from enum import StrEnum

from supervisor.values import dataclass, field


class PeriodKind(StrEnum):
    """How long the outcome is judged: at the endpoint, within a time after it, or for ever."""

    ENDPOINT = "endpoint"
    WITHIN = "within"
    EVENTUALLY = "eventually"


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The period of a claim; ``within_s`` is set for `PeriodKind.WITHIN` only and counts from the endpoint."""

    kind: PeriodKind = PeriodKind.ENDPOINT
    within_s: float | None = None

    def __str__(self) -> str:
        """Give the form of the report: ``endpoint``, ``within 10s``, ``eventually``."""
        return f"within {self.within_s:g}s" if self.within_s is not None else self.kind.value


class LimitRole(StrEnum):
    """Whether a limit is part of what is measured, or only ends the watching of actions."""

    TASK = "task"
    OBSERVATION = "observation"


class AtEndpoint(StrEnum):
    """What is done with what is still alive at the endpoint."""

    FOLLOW = "follow"
    CANCEL = "cancel"
    FREEZE = "freeze"
    ISOLATE = "isolate"


class FilesMode(StrEnum):
    """Where writes to the workspace go: into a stage that is committed, or in place."""

    STAGED = "staged"
    DIRECT = "direct"


class Commit(StrEnum):
    """When staged writes are applied to the host's workspace: always, on verdicts that must be reached, or never."""

    ALWAYS = "always"
    FINAL = "final"
    CLEAN = "clean"
    FINAL_CLEAN = "final,clean"
    NEVER = "never"

    @property
    def asks_final(self) -> bool:
        """Whether they are kept back unless the outcome is final."""
        return self in {Commit.FINAL, Commit.FINAL_CLEAN}

    @property
    def asks_clean(self) -> bool:
        """Whether they are kept back, all of them, unless the scope is clean."""
        return self in {Commit.CLEAN, Commit.FINAL_CLEAN}


class Outside(StrEnum):
    """What becomes of a write outside what may be written: it is staged and discarded, or fails at the call."""

    STAGE = "stage"
    DENY = "deny"


class NetworkDefault(StrEnum):
    """What happens to traffic that no rule allows; with ``hold`` it is blocked, and what a rule allows is held."""

    DENY = "deny"
    SINKHOLE = "sinkhole"
    ALLOW = "allow"
    HOLD = "hold"


SERVICE_OUTCOME = "service:"
"""An outcome that begins so is what a service of that name says has become of it."""


class DecidedBy(StrEnum):
    """What decides a claim: the state of the outcome, one witnessed event, or the whole history."""

    STATE = "state"
    EVENT = "event"
    HISTORY = "history"


class Expected(StrEnum):
    """What a grader has to say of an example."""

    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the label is about, fixed before the run.

    Attributes:
        outcome: the path, words or ``service:NAME`` that name the outcome, or None when the exit code is the outcome.
        scope: globs of the files the claim is about (its footprint); empty means the outcome path, else the workspace.
        period: how long.
        decided_by: what decides it; ``event`` decides by ``event``, ``history`` by the order that the policy states.
        event: a pattern of the event that decides it (see `supervisor.evidence.orders`), for ``event`` only.
        unit: ``run`` or ``stream:NAME``.
        requirements: files that tell the trial what is asked of it; their digests go into the manifest.
        depends_on: ids of runs on whose effects this one is built: it is counted together with each of them.
    """

    outcome: str | None = None
    scope: tuple[str, ...] = ()
    period: Period = field(default_factory=Period)
    decided_by: DecidedBy = DecidedBy.STATE
    event: str | None = None
    unit: str = "run"
    requirements: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()

    @property
    def service(self) -> str | None:
        """The name of the service that the outcome lies in (``service:NAME``), None when it is none."""
        named = self.outcome or ""
        return named.removeprefix(SERVICE_OUTCOME) if named.startswith(SERVICE_OUTCOME) else None

    @property
    def footprint(self) -> tuple[str, ...]:
        """The globs that the claim is about: the scope, else the outcome, else the whole workspace."""
        return self.scope or ((self.outcome,) if self.outcome else ("**",))


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """What ends the trial, in which role, and what happens then. A limit that is None is none.

    Attributes:
        tool_calls, tokens: as `supervise tool` counts them, or as the trial says of itself.
    """

    wall_s: float | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    role: LimitRole = LimitRole.TASK
    at_endpoint: AtEndpoint = AtEndpoint.FOLLOW
    settle_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPlace:
    """A file or directory that this run shares with others: it is written in place, and every contact is told.

    Attributes:
        path: absolute, or relative to the workspace.
        reset: how it is put back between runs, in words for whoever counts them; None: it is not.
    """

    path: str
    reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPolicy:
    """What may be written and where it goes.

    Attributes:
        workspace: directory, or None for the current one.
        write: globs of what may be written; None (not declared) allows the workspace and takes writes elsewhere as
            discarded without calling them violations.
        before_limit: bytes of content that are copied, in direct mode, to know what files were before; None is no
            limit.
        keep: the first 4 KiB of each burst of writes to a file of the workspace are kept in the log.
        outside: what becomes of writes elsewhere.
        read_deny: globs of what the trial must not see; attempts are violations.
        shared: places outside the stage that it shares with other runs.
    """

    workspace: str | None = None
    mode: FilesMode = FilesMode.STAGED
    commit: Commit = Commit.ALWAYS
    write: tuple[str, ...] | None = None
    before_limit: int | None = 256 << 20
    keep: bool = False
    outside: Outside = Outside.STAGE
    read_deny: tuple[str, ...] = ()
    shared: tuple[SharedPlace, ...] = ()

    @property
    def confines(self) -> bool:
        """Whether a write elsewhere is a violation: what may be written was declared, or the rest is denied."""
        return self.write is not None or self.outside is Outside.DENY


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """What may be sent. Loopback inside the trial always works.

    Attributes:
        allow: rules in the spelling of `policies.network.canonical_rules`: ``api.example.com:443``.
        deny: the same; they win over what is allowed.
        map: where the gateway dials for a host and port, ``HOST:PORT=ADDR:PORT`` each.
        inspect: TLS is ended by the gateway, so that requests are evidence.
        trust: files of certificates that vouch for inspected servers, beside the host's own list.
    """

    default: NetworkDefault = NetworkDefault.DENY
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    map: tuple[str, ...] = ()
    inspect: bool = False
    trust: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsPolicy:
    """Which names of the environment are kept, set or passed although they look secret; which paths are masked.

    Attributes:
        env: names that are kept, whatever they look like.
        passed: names that are passed as credentials (the key ``pass``): each must be set.
        mask: globs of paths beside those of ``credentials.toml``.
        canaries: decoys are placed where credentials usually lie and nothing real is passed.
    """

    env: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    canaries: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPolicy:
    """Where signed checkpoints of the log are sent as they are made: files, directories or https URLs."""

    checkpoint_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """An amount of memory: a size, or (``percent`` set) a share of what the machine has."""

    size_bytes: int = 0
    percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of the machine a trial may use; None is no limit.

    The box's own two processes come on top of ``pids``.
    """

    pids: int | None = 4096
    memory: Memory | None = field(default_factory=lambda: Memory(percent=80))
    cpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatePolicy:
    """Who decides whether what was staged and held is released.

    Attributes:
        command: for the shell, run once the trial is over; None: nobody is asked.
        timeout_s: how long it may take; one that takes longer has not accepted.
    """

    command: str | None = None
    timeout_s: float = 60.0


class ServiceState(StrEnum):
    """Who else meets what a trial leaves at a service: everybody, nobody, or nothing is left."""

    SHARED = "shared"
    PER_RUN = "per-run"
    STATELESS = "stateless"


class ServiceStatus(StrEnum):
    """What a service says has become of what it was asked for; all but ``pending`` and ``unknown`` are for good."""

    PENDING = "pending"
    COMMITTED = "committed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SETTLED = "settled"
    UNKNOWN = "unknown"


class SettleKind(StrEnum):
    """How a service is asked."""

    HTTP = "http"
    REDIS = "redis"
    POSTGRES = "postgres"
    BEANSTALK = "beanstalk"
    RABBITMQ = "rabbitmq"
    COMMAND = "command"
    FILE = "file"
    DOCKER = "docker"
    CGROUP = "cgroup"


Option = str | bool | tuple[str, ...]
"""The value of an option of ``settle``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """How the supervisor asks a service what became of what it was asked for.

    Attributes:
        every_s: between two questions.
        deadline_s: after which a question has no answer.
        options: of the kind, sorted by name; see `policies.services.KINDS`.
    """

    kind: SettleKind
    every_s: float = 0.25
    deadline_s: float = 2.0
    options: tuple[tuple[str, Option], ...] = ()

    def text(self, name: str) -> str | None:
        """Give an option that is a text."""
        value = dict(self.options).get(name)
        return value if isinstance(value, str) else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Give an option that is a list; empty when it is not there."""
        value = dict(self.options).get(name)
        return value if isinstance(value, tuple) else ()

    @property
    def cancels(self) -> bool:
        """Whether what was asked for can be called off."""
        return bool(dict(self.options).get("cancel"))

    def flag(self, name: str) -> bool:
        """Tell whether an option is there and true."""
        return dict(self.options).get(name) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Somebody outside the box whom the trial may ask for something.

    Attributes:
        at: ``unix:/PATH`` or ``HOST:PORT``, as the trial names it; None when it gets there in another way.
        settle: None when nobody can ask.
    """

    name: str
    at: str | None = None
    state: ServiceState = ServiceState.SHARED
    settle: Settle | None = None

    @property
    def socket(self) -> str | None:
        """The path of its unix socket, None when it has none."""
        return self.at.removeprefix("unix:") if self.at and self.at.startswith("unix:") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selftest:
    """An example outcome, a directory or a file, and what the grader has to say of it."""

    outcome: str
    expect: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleState:
    """One way in which an open effect may end, told before the run.

    Attributes:
        effect: the route of the effect (``service``), or ``route:GLOB`` for those whose description matches.
        reason: why it can end so.
        script: shell commands that make a copy of the outcome what it is then; or
        overlay: a directory that is laid over the copy. Neither: the outcome stays what it is.
    """

    effect: str
    reason: str
    script: str | None = None
    overlay: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradePolicy:
    """Who gives the label: a shell command, or nobody (``command`` None).

    Attributes:
        reads: reference material beside ``files.read_deny``: a trial that opened any of it gets no label.
        executes: globs of files of the trial that the grader may run.
        timeout_s: how long one run of it may take.
        repeats: how often it is run; runs that differ give no label.
        states: ways in which open effects may end; every combination is graded.
        selftest: examples; a grader that fails one gives no label.
    """

    command: str | None = None
    reads: tuple[str, ...] = ()
    executes: tuple[str, ...] = ()
    timeout_s: float = 60.0
    repeats: int = 1
    states: tuple[PossibleState, ...] = ()
    selftest: tuple[Selftest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRule:
    """Every event like ``then`` must come after one like ``first``."""

    first: str
    then: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One whole policy. ``digest`` covers its canonical form, ``sha256:…``."""

    name: str = "default"
    claim: Claim = field(default_factory=Claim)
    stop: StopRule = field(default_factory=StopRule)
    files: FilesPolicy = field(default_factory=FilesPolicy)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    credentials: CredentialsPolicy = field(default_factory=CredentialsPolicy)
    log: LogPolicy = field(default_factory=LogPolicy)
    limits: Limits = field(default_factory=Limits)
    services: tuple[Service, ...] = ()
    validate: ValidatePolicy = field(default_factory=ValidatePolicy)
    grade: GradePolicy = field(default_factory=GradePolicy)
    order: tuple[OrderRule, ...] = ()

    @property
    def labelled(self) -> bool:
        """Whether anybody gives a label: a grader, the log itself, or a service that the outcome lies in."""
        return bool(self.grade.command or self.claim.service) or self.claim.decided_by is not DecidedBy.STATE

    @property
    def captured(self) -> tuple[str, ...]:
        """Globs of what a snapshot keeps: all of the workspace for a grader, which may look at any of it."""
        return self.claim.footprint if self.grade.command is None else ("**",)
