"""Options of a command or a call laid over a policy.

Options that can be repeated add to what the policy lists; the others replace what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from policies.amounts import parse_count, parse_cpus, parse_memory
from policies.called import OPTION_OF, Called, as_option
from policies.checking import check_policy
from policies.durations import parse_duration, parse_period
from policies.keys import FILES, STOP
from policies.mistakes import read_each
from policies.parse import check_path, parse_choice
from policies.shapes import Key, Section
from policies.types import (
    AtEndpoint,
    Claim,
    Commit,
    CredentialsPolicy,
    FilesMode,
    FilesPolicy,
    GradePolicy,
    LimitRole,
    Limits,
    LogPolicy,
    NetworkPolicy,
    Policy,
    SharedPlace,
    StopRule,
    ValidatePolicy,
)
from supervisor.errors import PolicyError, UsageError
from supervisor.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """What was given with a command or a call, as text; None or empty for what was not given.

    Attributes:
        mode: ``staged`` (``--stage``) or ``direct`` (``--direct``).
        env: ``NAME`` or ``NAME=VALUE`` each.
    """

    workspace: str | None = None
    mode: str | None = None
    commit: str | None = None
    write: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    read_deny: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    outcome: str | None = None
    scope: tuple[str, ...] = ()
    period: str | None = None
    timeout: str | None = None
    limit_role: str | None = None
    at_endpoint: str | None = None
    settle: str | None = None
    checkpoint_to: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    map: tuple[str, ...] = ()
    pids: str | None = None
    memory: str | None = None
    cpus: str | None = None
    validate: str | None = None
    grade: str | None = None


def apply_options(policy: Policy, options: PolicyOptions, *, called: Called = as_option) -> Policy:
    """Lay options over a policy.

    Raises:
        UsageError: its place is what the caller calls the option (``--settle``).
    """
    try:
        changed = replace(
            policy,
            claim=_claim(policy.claim, options, called),
            stop=_stop(policy.stop, options, called),
            files=_files(policy.files, options, called),
            network=_network(policy.network, options, called),
            credentials=_credentials(policy.credentials, options, called),
            log=LogPolicy(checkpoint_to=_places(policy.log, options, called)),
            limits=_limits(policy.limits, options, called),
            grade=_grade(policy.grade, options, called),
            validate=_validate(policy.validate, options, called),
        )
        check_policy(changed)
    except PolicyError as err:
        raise _by_caller(err, options, called) from err
    return changed


def _by_caller(err: PolicyError, options: PolicyOptions, called: Called) -> UsageError:
    """Tell what does not hold together only with the options by the option, with all other mistakes."""
    field = OPTION_OF.get(err.place or "")
    given = field is not None and getattr(options, field)
    told = UsageError(err.message, place=called(field) if field and given else err.place, hint=err.hint)
    told.others = tuple(_by_caller(one, options, called) for one in err.others)
    return told


def set_environ(environ: dict[str, str], options: PolicyOptions, *, called: Called = as_option) -> dict[str, str]:
    """Give the environment with every ``--env NAME=VALUE`` set. Values stay out of the policy, so out of the log.

    Raises:
        UsageError: when a name is empty.
    """
    split = [_split_env(text, called("env", at)) for at, text in enumerate(options.env)]
    return environ | {name: value for name, given, value in split if given}


def names_not_set(environ: Mapping[str, str], options: PolicyOptions) -> tuple[str, ...]:
    """List the names that are to be kept though the caller's environment does not have them."""
    return tuple(text for text in options.env if "=" not in text and text not in environ)


def _split_env(text: str, place: str) -> tuple[str, bool, str]:
    name, equals, value = text.partition("=")
    if not name:
        message = f"expected NAME or NAME=VALUE, got {text!r}"
        raise UsageError(message, place=place)
    return name, bool(equals), value


def _claim(claim: Claim, options: PolicyOptions, called: Called) -> Claim:
    return replace(
        claim,
        outcome=claim.outcome if options.outcome is None else _path(options.outcome, called("outcome")),
        scope=_added(claim.scope, options.scope, "scope", called),
        period=claim.period if options.period is None else parse_period(options.period, place=called("period")),
    )


def _stop(stop: StopRule, options: PolicyOptions, called: Called) -> StopRule:
    role, at_endpoint = options.limit_role, options.at_endpoint
    return replace(
        stop,
        wall_s=stop.wall_s if options.timeout is None else parse_duration(options.timeout, place=called("timeout")),
        role=stop.role if role is None else LimitRole(_choice(STOP, "role", role, called("limit_role"))),
        at_endpoint=stop.at_endpoint
        if at_endpoint is None
        else AtEndpoint(_choice(STOP, "at_endpoint", at_endpoint, called("at_endpoint"))),
        settle_s=stop.settle_s if options.settle is None else parse_duration(options.settle, place=called("settle")),
    )


def _files(files: FilesPolicy, options: PolicyOptions, called: Called) -> FilesPolicy:
    mode, commit = options.mode, options.commit
    return replace(
        files,
        workspace=files.workspace if options.workspace is None else _filled(options.workspace, called("workspace")),
        mode=files.mode if mode is None else FilesMode(_choice(FILES, "mode", mode, called("mode"))),
        commit=files.commit if commit is None else Commit(_choice(FILES, "commit", commit, called("commit"))),
        write=_added(files.write or (), options.write, "write", called) if options.write else files.write,
        read_deny=_added(files.read_deny, options.read_deny, "read_deny", called),
        shared=_shared(files.shared, options.shared, called),
    )


def _network(network: NetworkPolicy, options: PolicyOptions, called: Called) -> NetworkPolicy:
    if not (options.allow or options.map):
        return network
    from policies.network import Effect, canonical_rules, parse_mapping  # noqa: PLC0415  (10 ms that few runs need)

    allowed = read_each(
        lambda at, text: canonical_rules((text,), Effect.ALLOW, places=(called("allow", at),)), options.allow
    )
    given = read_each(lambda at, text: parse_mapping(text, place=called("map", at)), options.map)
    # The later one says where: a policy's mapping can be sent elsewhere for one run.
    mapped = {text.partition("=")[0]: text for text in (*network.map, *map(str, given))}
    rules = _without_repeats((*network.allow, *chain(*allowed)))
    return replace(network, allow=rules, map=tuple(sorted(mapped.values())))


def _shared(declared: tuple[SharedPlace, ...], given: tuple[str, ...], called: Called) -> tuple[SharedPlace, ...]:
    known = {one.path for one in declared}
    new = (path for path in _added((), given, "shared", called) if path not in known)
    return (*declared, *(SharedPlace(path=path) for path in new))


def _credentials(credentials: CredentialsPolicy, options: PolicyOptions, called: Called) -> CredentialsPolicy:
    names = (_split_env(text, called("env", at))[0] for at, text in enumerate(options.env))
    return replace(credentials, env=tuple(dict.fromkeys((*credentials.env, *names))))


def _limits(limits: Limits, options: PolicyOptions, called: Called) -> Limits:
    return replace(
        limits,
        pids=limits.pids if options.pids is None else parse_count(options.pids, place=called("pids")),
        memory=limits.memory if options.memory is None else parse_memory(options.memory, place=called("memory")),
        cpu=limits.cpu if options.cpus is None else parse_cpus(options.cpus, place=called("cpus")),
    )


def _grade(grade: GradePolicy, options: PolicyOptions, called: Called) -> GradePolicy:
    if options.grade is None:
        return grade
    if not options.grade.strip():
        message = "expected a shell command, got nothing"
        raise PolicyError(message, place=called("grade"))
    return replace(grade, command=options.grade)


def _validate(validate: ValidatePolicy, options: PolicyOptions, called: Called) -> ValidatePolicy:
    if options.validate is None:
        return validate
    if not options.validate.strip():
        message = "expected a shell command, got nothing"
        raise PolicyError(message, place=called("validate"))
    return replace(validate, command=options.validate)


def _places(log: LogPolicy, options: PolicyOptions, called: Called) -> tuple[str, ...]:
    given = read_each(lambda at, text: _filled(text, called("checkpoint_to", at)), options.checkpoint_to)
    return _without_repeats((*log.checkpoint_to, *given))


def _choice(section: Section, name: str, text: str, place: str) -> str:
    key: Key = next(key for key in section.keys if key.name == name)
    return parse_choice(key.choices, text, place=place)


def _filled(text: str, place: str) -> str:
    if not text:
        message = "expected a path or a glob, got an empty string"
        raise PolicyError(message, place=place)
    return text


def _path(text: str, place: str) -> str:
    return check_path(_filled(text, place), place=place)


def _added(listed: tuple[str, ...], given: tuple[str, ...], field: str, called: Called) -> tuple[str, ...]:
    """Add without repeating: an option that says what the policy says leaves its digest alone."""
    return _without_repeats((*listed, *read_each(lambda at, text: _path(text, called(field, at)), given)))


def _without_repeats(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
