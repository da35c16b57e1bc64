"""How a key of a policy file is described: its shape, its words, and the type that holds it."""

from __future__ import annotations

from enum import StrEnum

from policies.types import (
    Claim,
    CredentialsPolicy,
    FilesPolicy,
    GradePolicy,
    Limits,
    LogPolicy,
    NetworkPolicy,
    OrderRule,
    PossibleState,
    Selftest,
    StopRule,
    ValidatePolicy,
)
from supervisor.values import dataclass


class Shape(StrEnum):
    """How the value of a key is written."""

    TEXT = "text"
    TEXTS = "texts"
    PLACES = "places"
    DURATION = "duration"
    PERIOD = "period"
    CHOICE = "choice"
    COUNT = "count"
    CPUS = "number"
    SIZE = "size"
    TIMES = "times"
    TABLES = "tables"
    BYTES = "bytes"
    FLAG = "flag"
    ALLOW = "hosts"
    DENY = "denied hosts"
    MAPPINGS = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    Attributes:
        name: in the file.
        field: of the section's type.
        about: one sentence for people.
        choices: the values that are accepted, for `Shape.CHOICE`.
        pattern: what a text must look like, whole, or None.
        expects: the same for people.
        is_path: a path or a glob: ``..`` would never match what the kernel says, so it is refused.
        required: in a table of an array, it must be there.
        columns, item: for `Shape.TABLES`, the keys of each table and the type that holds one.
        spare: not written out where it is empty: a policy from before there was such a key keeps its digest.
    """

    name: str
    field: str
    shape: Shape
    about: str
    choices: tuple[StrEnum, ...] = ()
    pattern: str | None = None
    expects: str = "a text"
    is_path: bool = False
    required: bool = False
    columns: tuple[Key, ...] = ()
    item: type[Selftest | PossibleState] | None = None
    spare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the file, and the type that holds it; ``many``: an array of such tables (``[[order]]``)."""

    name: str
    type: type[
        Claim
        | StopRule
        | FilesPolicy
        | NetworkPolicy
        | CredentialsPolicy
        | Limits
        | LogPolicy
        | GradePolicy
        | OrderRule
        | ValidatePolicy
    ]
    about: str
    keys: tuple[Key, ...]
    many: bool = False
