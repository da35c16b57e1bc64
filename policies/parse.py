"""TOML text → `Policy`. Unknown keys and wrong types are errors that carry their path (``claim.scope[2]``).

What comes in is text or the name of a built-in policy; what goes out is whole and checked. The rule: nothing in a file
is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from policies.amounts import parse_bytes, parse_count, parse_cpus, parse_memory
from policies.checking import check_policy, suggest
from policies.durations import parse_duration, parse_period
from policies.keys import SCHEMA_VERSION, SECTIONS
from policies.mistakes import Mistakes, read_each, together
from policies.shapes import Key, Section, Shape
from policies.types import Policy, SharedPlace
from supervisor.errors import PolicyError

BUILT_IN = ("default",)
"""Names of the policies that come with the program."""

MOST_REPEATS = 100
"""How often a grader may be run for one label."""

_TYPE_NAMES: Mapping[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    list: "an array",
    dict: "a table",
}
"""TOML's own words for what `tomllib` gives; the rest are dates and times."""


def load_policy(name_or_path: str, *, place: str = "policy") -> Policy:
    """Read a policy file, or a built-in policy by its name.

    Args:
        name_or_path: a path when it has a slash or ends with ``.toml``, else the name of a built-in policy.
        place: what the caller calls the argument.

    Raises:
        PolicyError: when there is no such policy, it cannot be read, or it does not hold together.
    """
    path = find_policy(name_or_path, place=place)
    try:
        text = path.read_bytes().decode()
    except OSError as err:
        message = f"cannot read the policy: {err.strerror}"
        raise PolicyError(message, place=name_or_path) from err
    except UnicodeDecodeError as err:
        message = f"expected UTF-8 text, got byte 0x{err.object[err.start]:02x} at offset {err.start}"
        raise PolicyError(message, place=name_or_path) from err
    return parse_policy(text, place=name_or_path)


def find_policy(name_or_path: str, *, place: str = "policy") -> Path:
    """Give the file that a name or a path means; whether a path exists is not looked up.

    Raises:
        PolicyError: when a bare name is no built-in policy.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    if name_or_path in BUILT_IN:
        return Path(__file__).with_name(f"{name_or_path}.toml")
    built_in = f"the built-in policy {BUILT_IN[0]}" if len(BUILT_IN) == 1 else f"one of {', '.join(BUILT_IN)}"
    message = f"expected a file, by a path with / or .toml, or {built_in}, got {name_or_path!r}"
    raise PolicyError(message, place=place, hint=f"write ./{name_or_path} for a file of that name")


def parse_policy(text: str, *, place: str) -> Policy:
    """Read the text of a policy file.

    Args:
        text: TOML.
        place: the file's name, for errors.

    Raises:
        PolicyError: for text that is no TOML, an unknown key, a wrong type or a value that is not accepted.
    """
    import tomllib  # noqa: PLC0415  (14 ms that a run without a policy file does not need)

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        message = f"not TOML: {err}"
        raise PolicyError(message, place=place) from err
    try:
        return policy_from_mapping(document)
    except PolicyError as err:
        raise together([_placed(one, place) for one in (err, *err.others)]) from err


def policy_from_mapping(document: Mapping[str, Any]) -> Policy:
    """Make a policy from the tables of a file, or from `policies.canonical.policy_to_mapping`.

    Raises:
        PolicyError: its place is the path of the key (``network.default``); it carries every mistake that was found.
    """
    sections = {section.name: section for section in SECTIONS}
    mistakes = Mistakes()
    with mistakes:
        _check_schema(document)
    for key in document:
        with mistakes:
            _refuse_unknown(key, ("schema", "name", *sections, "services"), "")
    name = "unnamed"
    with mistakes:
        name = _read_name(document)
    tables: dict[str, Any] = {
        name: (_read_many if section.many else _read_section)(section, document[name], mistakes)
        for name, section in sections.items()
        if name in document
    }
    with mistakes:
        if "services" in document:
            from policies.services import parse_services  # noqa: PLC0415  (hardly any policy has one)

            tables["services"] = parse_services(document["services"], _refuse_unknown)
    mistakes.tell()
    policy = Policy(name=name, **tables)
    check_policy(policy)
    return policy


def _placed(err: PolicyError, place: str) -> PolicyError:
    return PolicyError(err.message, place=f"{place}: {err.place}" if err.place else place, hint=err.hint)


def _check_schema(document: Mapping[str, Any]) -> None:
    if "schema" not in document:
        message = f"expected schema = {SCHEMA_VERSION}, got nothing"
        raise PolicyError(message, place="schema")
    if document["schema"] != SCHEMA_VERSION or isinstance(document["schema"], bool):
        message = f"expected {SCHEMA_VERSION}, got {_shown(document['schema'])}"
        raise PolicyError(message, place="schema")


def _read_name(document: Mapping[str, Any]) -> str:
    return _text(document["name"], "name") if "name" in document else "unnamed"


def _read_section(section: Section, table: object, mistakes: Mistakes) -> Any:  # noqa: ANN401  (a section type)
    read: dict[str, Any] = {}
    with mistakes:
        if not isinstance(table, dict):
            _refuse("a table", table, section.name)
        for name in table:
            with mistakes:
                _refuse_unknown(name, [key.name for key in section.keys], f"{section.name}.")
        for key in section.keys:
            with mistakes:
                if key.name in table:
                    read[key.field] = _read_key(key, table[key.name], section.name)
    return section.type(**read)


def _read_many(section: Section, tables: object, mistakes: Mistakes) -> tuple[Any, ...]:
    """Read an array of tables (``[[order]]``), each as a section of its own."""
    with mistakes:
        return _read_tables(section.type, section.keys, tables, section.name)
    return ()


def _read_tables(kind: Callable[..., Any], keys: tuple[Key, ...], tables: object, place: str) -> tuple[Any, ...]:
    if not isinstance(tables, list | tuple):
        _refuse("an array of tables", tables, place)
    return read_each(lambda index, table: _read_table(kind, keys, table, f"{place}[{index}]"), tables)


def _read_table(kind: Callable[..., Any], keys: tuple[Key, ...], table: object, place: str) -> Any:  # noqa: ANN401
    if not isinstance(table, dict):
        _refuse("a table", table, place)
    mistakes, read = Mistakes(), {}
    for name in table:
        with mistakes:
            _refuse_unknown(name, [key.name for key in keys], f"{place}.")
    for key in keys:
        with mistakes:
            if key.name in table:
                read[key.field] = _read_key(key, table[key.name], place)
            elif key.required:
                message = f"expected {key.name}, got nothing"
                raise PolicyError(message, place=place)
    mistakes.tell()
    return kind(**read)


def _read_key(key: Key, value: object, section: str) -> object:
    return _SHAPES[key.shape](key, value, f"{section}.{key.name}")


def _flag(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        _refuse("a boolean", value, place)
    return value


def _one_text(key: Key, value: str, place: str) -> str:
    if key.pattern is not None and not re.fullmatch(key.pattern, value):
        message = f"expected {key.expects}, got {value!r}"
        raise PolicyError(message, place=place)
    return check_path(value, place=place) if key.is_path else value


def check_path(text: str, *, place: str) -> str:
    """Refuse a path or glob that could never match: the kernel tells paths without ``..``.

    Raises:
        PolicyError: when ``..`` is one of its components.
    """
    if ".." in text.split("/"):
        message = f"expected a path without .., got {text!r}"
        raise PolicyError(message, place=place, hint="paths begin at the workspace, or with / at the root")
    return text


def _texts(key: Key, value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        _refuse("an array of strings", value, place)
    return read_each(lambda index, item: _one_text(key, _text(item, f"{place}[{index}]"), f"{place}[{index}]"), value)


def _times(value: object, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse("an integer", value, place)
    if not 1 <= value <= MOST_REPEATS:
        message = f"expected 1 to {MOST_REPEATS}, got {value}"
        raise PolicyError(message, place=place)
    return value


def _rules(key: Key, value: object, place: str) -> tuple[str, ...]:
    from policies.network import Effect, canonical_rules  # noqa: PLC0415  (10 ms that hardly any policy needs)

    effect = Effect.ALLOW if key.shape is Shape.ALLOW else Effect.DENY
    return canonical_rules(_texts(key, value, place), effect, place=place)


def _mappings(value: object, place: str) -> tuple[str, ...]:
    from policies.network import mapping_from_pair  # noqa: PLC0415  (as above)

    if not isinstance(value, dict):
        _refuse('a table of "HOST:PORT" = "ADDR:PORT"', value, place)
    read: dict[tuple[str, int], str] = {}

    def read_one(_: int, pair: tuple[str, object]) -> None:
        at = f"{place}.{pair[0]}"
        one = mapping_from_pair(pair[0], _text(pair[1], at), place=at)
        if (one.host, one.port) in read:
            message = f"expected one mapping of a host and port, got another spelling of {read[one.host, one.port]!r}"
            raise PolicyError(message, place=at)
        read[one.host, one.port] = str(one)

    read_each(read_one, value.items())
    return tuple(sorted(read.values()))


def _places(value: object, place: str) -> tuple[SharedPlace, ...]:
    if not isinstance(value, list | tuple):
        _refuse("an array of tables", value, place)
    return read_each(lambda index, item: _place(item, f"{place}[{index}]"), value)


def _place(value: object, place: str) -> SharedPlace:
    if not isinstance(value, dict):
        _refuse("a table with path", value, place)
    mistakes, path, reset = Mistakes(), "", None
    for name in value:
        with mistakes:
            _refuse_unknown(name, ("path", "reset"), f"{place}.")
    with mistakes:
        if "path" not in value:
            message = "expected a path, got nothing"
            raise PolicyError(message, place=f"{place}.path")
        path = check_path(_text(value["path"], f"{place}.path"), place=f"{place}.path")
    with mistakes:
        reset = _text(value["reset"], f"{place}.reset") if "reset" in value else None
    mistakes.tell()
    return SharedPlace(path=path, reset=reset)


def parse_choice(choices: Iterable[StrEnum], value: object, *, place: str) -> StrEnum:
    """Read one of the words of a closed set; those joined by commas in any order.

    Raises:
        PolicyError: when the value is none of them; the message lists them.
    """
    known = {frozenset(choice.value.split(",")): choice for choice in choices}
    text = _text(value, place)
    found = known.get(frozenset(text.split(",")))
    if found is None:
        message = f"expected {' or '.join(choice.value for choice in known.values())}, got {text!r}"
        raise PolicyError(message, place=place)
    return found


_SHAPES: dict[Shape, Callable[[Key, Any, str], object]] = {
    Shape.TEXT: lambda key, value, place: _one_text(key, _text(value, place), place),
    Shape.TEXTS: _texts,
    Shape.DURATION: lambda _key, value, place: parse_duration(_duration_text(value, place), place=place),
    Shape.PERIOD: lambda _key, value, place: parse_period(_text(value, place), place=place),
    Shape.CHOICE: lambda key, value, place: parse_choice(key.choices, value, place=place),
    Shape.COUNT: lambda _key, value, place: parse_count(value, place=place),
    Shape.CPUS: lambda _key, value, place: parse_cpus(value, place=place),
    Shape.SIZE: lambda _key, value, place: parse_memory(value, place=place),
    Shape.ALLOW: _rules,
    Shape.DENY: _rules,
    Shape.MAPPINGS: lambda _key, value, place: _mappings(value, place),
    Shape.PLACES: lambda _key, value, place: _places(value, place),
    Shape.BYTES: lambda _key, value, place: parse_bytes(value, place=place),
    Shape.FLAG: lambda _key, value, place: _flag(value, place),
    Shape.TIMES: lambda _key, value, place: _times(value, place),
    Shape.TABLES: lambda key, value, place: _read_tables(key.item or dict, key.columns, value, place),
}
"""How the value of each shape is read: the key, the value, its place."""


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        _refuse("a string", value, place)
    if not value:
        message = "expected a string, got an empty one"
        raise PolicyError(message, place=place)
    if "\0" in value:
        message = f"expected a string without NUL, got {value!r}"
        raise PolicyError(message, place=place)
    return value


def _duration_text(value: object, place: str) -> str:
    """Read the text of a duration; a bare number gets the hint that is most likely meant."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        message = f"expected a string, got {_shown(value)}"
        raise PolicyError(message, place=place, hint=f'for seconds write "{value}s"')
    return _text(value, place)


def _refuse(expected: str, value: object, place: str) -> NoReturn:
    message = f"expected {expected}, got {_shown(value)}"
    raise PolicyError(message, place=place)


def _shown(value: object) -> str:
    """Name the type, and the value where it is short: ``an integer 3``."""
    name = _TYPE_NAMES.get(type(value), "a date or time")
    return f"{name} {value!r}" if isinstance(value, int | float | str) else name


def _refuse_unknown(key: str, known: Iterable[str], prefix: str) -> None:
    names = tuple(known)
    if key not in names:
        message = "unknown key"
        raise PolicyError(message, place=f"{prefix}{key}", hint=suggest(key, names))
