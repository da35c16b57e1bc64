"""Options of the command line laid over a policy.

Options that can be repeated add to what the policy lists; the others replace what it says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from policies.amounts import parse_count, parse_cpus, parse_memory
from policies.durations import parse_duration, parse_period
from policies.keys import FILES, STOP, Key, Section
from policies.parse import check_policy, parse_choice
from policies.types import (
    AtEndpoint,
    Claim,
    Commit,
    CredentialsPolicy,
    FilesMode,
    FilesPolicy,
    LimitRole,
    Limits,
    LogPolicy,
    Policy,
    StopRule,
)
from supervisor.errors import PolicyError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """What was given on the command line, as it was typed; None or empty for what was not given.

    Attributes:
        mode: ``staged`` (``--stage``) or ``direct`` (``--direct``).
        env: ``NAME`` or ``NAME=VALUE`` each.
    """

    workspace: str | None = None
    mode: str | None = None
    commit: str | None = None
    write: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    outcome: str | None = None
    scope: tuple[str, ...] = ()
    period: str | None = None
    timeout: str | None = None
    limit_role: str | None = None
    at_endpoint: str | None = None
    settle: str | None = None
    checkpoint_to: tuple[str, ...] = ()
    pids: str | None = None
    memory: str | None = None
    cpus: str | None = None


def apply_options(policy: Policy, options: PolicyOptions) -> Policy:
    """Lay options over a policy.

    Raises:
        UsageError: its place is the option (``--settle``).
    """
    try:
        changed = replace(
            policy,
            claim=_claim(policy.claim, options),
            stop=_stop(policy.stop, options),
            files=_files(policy.files, options),
            credentials=_credentials(policy.credentials, options),
            log=LogPolicy(checkpoint_to=_added(policy.log.checkpoint_to, options.checkpoint_to, "--checkpoint-to")),
            limits=_limits(policy.limits, options),
        )
        check_policy(changed)
    except PolicyError as err:
        # What does not hold together only with the options is told by the option.
        place = {"files.commit": "--commit", "stop.wall": "--timeout"}.get(err.place or "", err.place)
        raise UsageError(err.message, place=place, hint=err.hint) from err
    return changed


def set_environ(environ: dict[str, str], options: PolicyOptions) -> dict[str, str]:
    """Give the environment with every ``--env NAME=VALUE`` set. Values stay out of the policy, so out of the log.

    Raises:
        UsageError: when a name is empty.
    """
    return environ | {name: value for name, given, value in map(_split_env, options.env) if given}


def _split_env(text: str) -> tuple[str, bool, str]:
    name, equals, value = text.partition("=")
    if not name:
        message = f"expected NAME or NAME=VALUE, got {text!r}"
        raise UsageError(message, place="--env")
    return name, bool(equals), value


def _claim(claim: Claim, options: PolicyOptions) -> Claim:
    return replace(
        claim,
        outcome=_filled(options.outcome, "--outcome") or claim.outcome,
        scope=_added(claim.scope, options.scope, "--scope"),
        period=claim.period if options.period is None else parse_period(options.period, place="--period"),
    )


def _stop(stop: StopRule, options: PolicyOptions) -> StopRule:
    return replace(
        stop,
        wall_s=stop.wall_s if options.timeout is None else parse_duration(options.timeout, place="--timeout"),
        role=stop.role if options.limit_role is None else LimitRole(_choice(STOP, "role", options.limit_role)),
        at_endpoint=stop.at_endpoint
        if options.at_endpoint is None
        else AtEndpoint(_choice(STOP, "at_endpoint", options.at_endpoint)),
        settle_s=stop.settle_s if options.settle is None else parse_duration(options.settle, place="--settle"),
    )


def _files(files: FilesPolicy, options: PolicyOptions) -> FilesPolicy:
    return replace(
        files,
        workspace=_filled(options.workspace, "--workspace") or files.workspace,
        mode=files.mode if options.mode is None else FilesMode(_choice(FILES, "mode", options.mode)),
        commit=files.commit if options.commit is None else Commit(_choice(FILES, "commit", options.commit)),
        write=_added(files.write or (), options.write, "--write") if options.write else files.write,
    )


def _credentials(credentials: CredentialsPolicy, options: PolicyOptions) -> CredentialsPolicy:
    names = tuple(_split_env(text)[0] for text in options.env)
    return replace(credentials, env=_added(credentials.env, names, "--env"))


def _limits(limits: Limits, options: PolicyOptions) -> Limits:
    return replace(
        limits,
        pids=limits.pids if options.pids is None else parse_count(options.pids, place="--pids"),
        memory=limits.memory if options.memory is None else parse_memory(options.memory, place="--memory"),
        cpu=limits.cpu if options.cpus is None else parse_cpus(options.cpus, place="--cpus"),
    )


def _choice(section: Section, name: str, text: str) -> str:
    key: Key = next(key for key in section.keys if key.name == name)
    option = {"role": "--limit-role"}.get(name, f"--{name.replace('_', '-')}")
    return parse_choice(key.choices, text, place=option)


def _filled(text: str | None, option: str) -> str | None:
    if text == "":
        message = "expected a path or a glob, got an empty string"
        raise UsageError(message, place=option)
    return text


def _added(listed: tuple[str, ...], given: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Add without repeating: an option that says what the policy says leaves its digest alone."""
    for text in given:
        _filled(text, option)
    return tuple(dict.fromkeys((*listed, *given)))
