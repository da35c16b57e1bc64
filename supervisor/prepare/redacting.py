"""Taking known values out of events before they are recorded, out of policies, and out of what else is said."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from policies.canonical import policy_to_mapping
from policies.parse import policy_from_mapping
from policies.redaction import Redactor
from policies.types import Policy
from supervisor.errors import PolicyError
from supervisor.events import Event

WHERE = "records"
_E = TypeVar("_E", bound=Event)


def redact_event(event: _E, redactor: Redactor, *, where: str = WHERE) -> _E:
    """Give the event without the values that the redactor knows: the same one when it has none.

    Args:
        event: any event.
        redactor: knows the values.
        where: what they are counted under; empty for an event that was counted already.
    """
    changed = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        clean = _redact(value, redactor, where)
        if clean is not value:
            changed[name] = clean
    return msgspec.structs.replace(event, **changed) if changed else event


def _redact(value: object, redactor: Redactor, where: str) -> object:
    kind = type(value)
    if kind is str:
        return redactor.redact_text(str(value), where=where)
    if kind is bytes:
        assert isinstance(value, bytes)  # noqa: S101 - for the type checker
        return redactor.sweep(value, where=where)
    if kind is tuple:
        assert isinstance(value, tuple)  # noqa: S101 - as above
        clean = tuple(_redact(part, redactor, where) for part in value)
        return clean if any(new is not old for new, old in zip(clean, value, strict=True)) else value
    return value


def redact_policy(policy: Policy, redactor: Redactor) -> Policy:
    """Give the policy without the values that the redactor knows: the same one when it has none.

    What was typed into a grader's command or a service's address is kept in manifests and arguments in this form only;
    digests are of the policy as it was declared.

    Raises:
        PolicyError: a value stands where nothing else can: in a host or a port.
    """
    mapping = policy_to_mapping(policy)
    clean = _redact_plain(mapping, redactor)
    if clean == mapping:
        return policy
    try:
        return policy_from_mapping(clean)
    except PolicyError as err:
        message = f"expected no credential there, since it would be kept with the run, got one: {err}"
        hint = "name a variable that has it (credentials.pass, password_env, token_env)"
        raise PolicyError(message, hint=hint) from err


def _redact_plain(value: Any, redactor: Redactor) -> Any:  # noqa: ANN401 - whatever JSON can hold
    match value:
        case str():
            return redactor.redact_text(value, where=WHERE)
        case dict():
            return {name: _redact_plain(one, redactor) for name, one in value.items()}
        case list():
            return [_redact_plain(one, redactor) for one in value]
        case _:
            return value
