"""The words of `supervise run` → a `RunRequest`: policy with options, environment, working directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from policies.called import Caller, as_option
from policies.options import PolicyOptions, apply_options, names_not_set, set_environ
from policies.types import Policy
from supervisor.command.arguments import Parsed
from supervisor.errors import UsageError
from supervisor.request import (
    Progress,
    Requirement,
    RunRequest,
    check_places,
    check_workspace,
    ignore_notice,
    named_by_caller,
)
from supervisor.streams import is_open

_REPEATED = ("write", "env", "scope", "checkpoint_to", "allow", "map")


def make_request(
    parsed: Parsed,
    *,
    environ: Mapping[str, str],
    closed: frozenset[int],
    on_progress: Callable[[Progress], None],
    on_notice: Callable[[Sequence[str]], None] = ignore_notice,
) -> RunRequest:
    """Make the request that a command line means.

    Args:
        parsed: of the command ``run``, with a CMD.
        environ: of the caller.
        closed: standard streams that the caller has closed.
        on_progress: see `RunRequest`.
        on_notice: likewise.

    Raises:
        UsageError: an option has a value that means nothing, or the workspace is no directory.
        PolicyError: the policy cannot be read.
    """
    options, given = parsed.options, policy_options(parsed)
    if options.status_fd is not None and (options.status_fd in closed or not is_open(options.status_fd)):
        message = f"expected the number of an open descriptor, got {options.status_fd}"
        raise UsageError(message, place="--status-fd")
    if options.json and 1 in closed:
        message = "expected an open standard output to print completion.json on, got a closed one"
        raise UsageError(message, place="--json")
    cwd, file = working_directory(environ), _policy(options.policy)
    caller = Caller(file=file, options=vars(options), source=options.policy, called=as_option)
    with named_by_caller(caller.place):
        policy = apply_options(file, given)
    own = "files.workspace" if options.policy is None else f"{options.policy}: files.workspace"
    check_workspace(policy, cwd, place=own if given.workspace is None else "--workspace")
    check_places(policy, place="--checkpoint-to" if given.checkpoint_to else "log.checkpoint_to")
    require = frozenset(Requirement(word) for word in options.require)
    _check_requirements(require, policy)
    return RunRequest(
        argv=tuple(os.fsencode(word) for word in parsed.argv),
        policy=policy,
        name=options.name,
        environ=set_environ(dict(environ), given),
        cwd=cwd,
        user=options.user,
        quiet=options.quiet,
        json=options.json,
        status_fd=options.status_fd,
        require=require,
        signing_key=Path(options.key) if options.key else None,
        on_progress=on_progress,
        on_notice=on_notice,
        closed=closed,
        place_of=caller.place,
    )


def _check_requirements(require: frozenset[Requirement], policy: Policy) -> None:
    """Refuse to wait for a label that nobody gives."""
    if Requirement.SUCCESS in require and not policy.labelled:
        message = "expected somebody who gives the label with success, got no grader"
        raise UsageError(message, place="--require", hint="--grade COMMAND gives one; CMD's own exit code is passed on")


def policy_options(parsed: Parsed) -> PolicyOptions:
    """Give the options that change the policy: each has the name of its field."""
    found: dict[str, Any] = {name: getattr(parsed.options, name) for name in PolicyOptions.__annotations__}
    found |= {name: tuple(found[name]) for name in _REPEATED}
    return PolicyOptions(**found)


def warnings(parsed: Parsed, request: RunRequest) -> Iterator[str]:
    """Say what was asked for and will do nothing, or not what it seems to."""
    from policies.doubts import doubts  # noqa: PLC0415

    for name in names_not_set(request.environ, policy_options(parsed)):
        yield f"--env {name}: not set in the environment, so not in that of CMD either"
    workspace = os.path.realpath(request.cwd / (request.policy.files.workspace or "."))
    yield from doubts(request.policy, workspace=workspace)


def working_directory(environ: Mapping[str, str]) -> Path:
    """Give the working directory by the caller's name for it, which may lead through symlinks (POSIX pwd)."""
    named = environ.get("PWD", "")
    try:
        if named.startswith("/") and ".." not in named.split("/") and Path(named).samefile(Path.cwd()):
            return Path(named)
    except OSError:
        pass
    try:
        return Path.cwd()
    except FileNotFoundError as err:
        raise UsageError("expected a directory, got one that was removed", place="the working directory") from err


def _policy(name: str | None) -> Policy:
    if name is None:  # what default.toml says (a test holds them equal), without reading it
        return Policy()
    from policies.parse import load_policy  # noqa: PLC0415

    return load_policy(name, place="--policy")
