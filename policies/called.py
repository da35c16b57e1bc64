"""What a caller calls the keys of a policy: the options that he gave, and the keys of the file that he named.

In: the place of a mistake, as the whole policy has it (``files.read_deny[2]``). Out: a place that he can find in what
he wrote. The rule: a value that came by an option is never told by the key that it was laid over, nor one of a file
without the file's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from policies.keys import SECTIONS
from policies.types import Policy
from supervisor.values import dataclass

OPTION_OF = {
    "claim.outcome": "outcome",
    "claim.scope": "scope",
    "claim.period": "period",
    "stop.wall": "timeout",
    "stop.role": "limit_role",
    "stop.at_endpoint": "at_endpoint",
    "stop.settle": "settle",
    "files.workspace": "workspace",
    "files.commit": "commit",
    "files.write": "write",
    "files.read_deny": "read_deny",
    "files.shared": "shared",
    "network.allow": "allow",
    "network.map": "map",
    "credentials.env": "env",
    "log.checkpoint_to": "checkpoint_to",
    "limits.pids": "pids",
    "limits.memory": "memory",
    "limits.cpu": "cpus",
    "validate.command": "validate",
    "grade.command": "grade",
}
"""The field of `policies.options.PolicyOptions` that a key can be given by."""

_PLACE = re.compile(r"(?P<key>\w+\.\w+)(?:\[(?P<index>[0-9]+)\])?.*", re.DOTALL)
_SECTIONS = frozenset(section.name for section in SECTIONS) | {"services"}


class Called(Protocol):
    """From a field of `PolicyOptions` to what the caller calls it: ``limit_role`` is ``--limit-role`` to a shell.

    ``number`` is that of one value of several, where the caller can see it.
    """

    def __call__(self, field: str, number: int | None = None) -> str:
        """Give the name."""


def as_option(field: str, number: int | None = None) -> str:  # noqa: ARG001 - each value has an option of its own
    """Give the option of the command line that sets a field."""
    return f"--{field.replace('_', '-')}"


def as_keyword(field: str, number: int | None = None) -> str:
    """Give the keyword of `supervisor.run` that sets a field, and which of its values."""
    return field if number is None else f"{field}[{number}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What one caller wrote.

    Attributes:
        file: the policy before any option was laid over it.
        options: the values that were given, by field of `PolicyOptions`.
        source: what the policy was named by, None when none was.
        called: what the caller calls an option.
    """

    file: Policy
    options: Mapping[str, Any]
    source: str | None
    called: Called

    def place(self, key: str) -> str:
        """Give the caller's name for a place of the whole policy; what is no key of a policy stays as it is."""
        found = _PLACE.fullmatch(key)
        name = found["key"] if found else key
        if name.partition(".")[0].partition("[")[0] not in _SECTIONS:
            return key
        field = OPTION_OF.get(name)
        given = self.options.get(field) if field is not None else None
        if field is None or not given or (found and self._in_file(name, found["index"])):
            return f"{self.source}: {key}" if self.source is not None else key
        number = self._number(name, given, found["index"]) if found and isinstance(given, tuple) else None
        return self.called(field, number)

    def _listed(self, name: str) -> tuple[str, ...]:
        section, _, field = name.partition(".")
        listed = getattr(getattr(self.file, section), field) or ()
        return tuple(str(getattr(one, "path", one)) for one in listed) if isinstance(listed, tuple) else ()

    def _in_file(self, name: str, index: str | None) -> bool:
        return index is not None and int(index) < len(self._listed(name))

    def _number(self, name: str, given: tuple[str, ...], index: str | None) -> int | None:
        """Find which of the given values an entry of the whole is: repeated ones were left out of it."""
        if index is None:
            return None
        own = self._listed(name)
        added = [text for text in dict.fromkeys(given) if text not in own]
        at = int(index) - len(own)
        return given.index(added[at]) if at < len(added) else None
