"""The Python interface: the keywords of `supervisor.run` → a `RunRequest`, and references → completion arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.options import PolicyOptions, apply_options, set_environ
from policies.parse import load_policy
from policies.types import Policy
from supervisor.errors import LogError, UsageError
from supervisor.request import RunRequest

if TYPE_CHECKING:
    from supervisor.verdict.completion import Completion

_OF_THE_POLICY = frozenset(field.name for field in fields(PolicyOptions))
_OF_THE_REQUEST = frozenset({"name", "user", "home", "on_progress", "on_notice", "room_wait_s", "signing_key"})
_OURS = frozenset({"cwd", "environ"})


def run_command(
    command: Sequence[str | bytes], policy: str | Path | Policy | None, options: Mapping[str, Any]
) -> Completion:
    """Do what `supervisor.run` says."""
    from supervisor.run import run  # noqa: PLC0415  (the machinery, which a mistake in the arguments does not need)

    return run(make_request(command, policy, options)).completion


def make_request(
    command: Sequence[str | bytes], policy: str | Path | Policy | None, options: Mapping[str, Any]
) -> RunRequest:
    """Make the request that the keywords of `supervisor.run` mean.

    Raises:
        UsageError: the command is empty or a string, or a keyword is not known.
        PolicyError: the policy cannot be read.
    """
    if isinstance(command, str | bytes) or not command:
        message = f"expected a list of words, got {command!r}"
        raise UsageError(message, place="command", hint='["sh", "-c", "…"] runs a shell')
    if unknown := sorted(options.keys() - _OF_THE_POLICY - _OF_THE_REQUEST - _OURS):
        message = "unknown option"
        raise UsageError(message, place=unknown[0])
    of_the_policy: dict[str, Any] = {name: options[name] for name in options if name in _OF_THE_POLICY}
    given = PolicyOptions(**{name: _frozen(value) for name, value in of_the_policy.items()})
    return RunRequest(
        argv=tuple(os.fsencode(word) for word in command),
        policy=apply_options(_policy(policy), given),
        cwd=Path(options.get("cwd") or Path.cwd()).absolute(),
        environ=set_environ(dict(options.get("environ", os.environ)), given),
        quiet=True,
        **{name: value for name, value in options.items() if name in _OF_THE_REQUEST},
    )


def read_reference(reference: str | Path) -> Completion:
    """Do what `supervisor.read` says."""
    from supervisor.launch.state import Home  # noqa: PLC0415
    from supervisor.reading import read_run  # noqa: PLC0415

    home = Home.open(os.environ, uid=os.geteuid())
    reading = read_run(home.find(os.fspath(reference)))
    if reading.problem is not None or reading.completion is None:
        message = f"expected a run whose log verifies, got: {reading.problem}"
        raise LogError(message, place=reading.run)
    return reading.completion


def _policy(policy: str | Path | Policy | None) -> Policy:
    match policy:
        case None:
            return Policy()
        case Policy():
            return policy
        case Path():
            return load_policy(str(policy.absolute()))
        case str():
            return load_policy(policy)


def _frozen(value: Any) -> Any:  # noqa: ANN401  (a text or a list of texts)
    return tuple(value) if isinstance(value, list) else value
