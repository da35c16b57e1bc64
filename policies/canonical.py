"""A policy written out: as plain values, as canonical bytes with their digest, as TOML.

The rule: ``policy_from_mapping(policy_to_mapping(policy)) == policy``, and two policies have one digest exactly when
they are equal. Defaults are written out, so a digest does not change its meaning when a default does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from policies.amounts import plain_amount, plain_bytes
from policies.durations import format_duration, format_period
from policies.keys import SCHEMA_VERSION, SECTIONS
from policies.shapes import Key, Section, Shape
from policies.types import Memory, Period, Policy, SharedPlace

_AMOUNTS = frozenset({Shape.COUNT, Shape.CPUS, Shape.SIZE})


def policy_to_mapping(policy: Policy) -> dict[str, Any]:
    """Give the tables of the policy's file, every key that has a value among them."""
    tables = {section.name: _value(section, getattr(policy, section.name)) for section in SECTIONS}
    # Left out where there are none: a policy from before there were services keeps its digest.
    services = {"services": _services(policy)} if policy.services else {}
    return {"schema": SCHEMA_VERSION, "name": policy.name, **tables, **services}


def _services(policy: Policy) -> list[dict[str, Any]]:
    from policies.services import services_to_list  # noqa: PLC0415 - hardly any policy has one

    return services_to_list(policy.services)


def canonical_bytes(policy: Policy) -> bytes:
    """Give the bytes that the digest covers: JSON with sorted keys, no spaces, ASCII only."""
    return json.dumps(policy_to_mapping(policy), sort_keys=True, separators=(",", ":")).encode()


def policy_digest(policy: Policy) -> str:
    """Give ``sha256:…`` of the canonical bytes."""
    return f"sha256:{hashlib.sha256(canonical_bytes(policy)).hexdigest()}"


def render_toml(policy: Policy) -> str:
    """Write the policy as a TOML file that `policies.parse` reads back as the same policy."""
    return _render(policy, unset=False)


def render_whole(policy: Policy) -> str:
    """Write the policy like `render_toml`, with the keys that are not set as comments that say what they would mean."""
    return _render(policy, unset=True)


def _render(policy: Policy, *, unset: bool) -> str:
    mapping = policy_to_mapping(policy)
    head = [f"{key} = {toml_value(mapping[key])}" for key in ("schema", "name")]
    tables = [line for section in SECTIONS for line in _toml_table(section, mapping[section.name], unset=unset)]
    services = toml_tables("services", mapping.get("services", ()))
    return "\n".join([*head, *tables, *services]) + "\n"


def _value(section: Section, value: Any) -> Any:  # noqa: ANN401  (a section, or many)
    return [_table(section.keys, one) for one in value] if section.many else _table(section.keys, value)


def _table(keys: tuple[Key, ...], value: object) -> dict[str, Any]:
    found = {key.name: _plain(key, getattr(value, key.field)) for key in keys}
    found |= {key.name: None for key in keys if key.spare and not found[key.name]}
    return {name: plain for name, plain in found.items() if plain is not None}


def _plain(key: Key, value: object) -> Any:  # noqa: ANN401, C901, PLR0911  (whatever JSON can hold; one row a shape)
    match value:
        case tuple() if key.shape is Shape.MAPPINGS:
            return dict(text.split("=", 1) for text in sorted(value))
        case Memory() | float() | int() | None if key.shape in _AMOUNTS:
            return plain_amount(value)
        case int() | None if key.shape is Shape.BYTES:
            return plain_bytes(value)
        case bool():
            return value
        case Period():
            return format_period(value)
        case SharedPlace():
            return {"path": value.path, **({} if value.reset is None else {"reset": value.reset})}
        case StrEnum():
            return value.value
        case float() | int():
            return value if key.shape is Shape.TIMES else format_duration(value)
        case tuple():
            return [_table(key.columns, item) if key.columns else _plain(key, item) for item in value]
        case str() | None:
            return value
        case _:
            message = f"no plain form for {key.name}"
            raise TypeError(message)


def _toml_table(section: Section, table: Any, *, unset: bool) -> list[str]:  # noqa: ANN401  (as `_value` gives it)
    if section.many:
        absent = ["", f"# [[{section.name}]] is not set. {section.about}"] if unset and not table else []
        return absent or toml_tables(section.name, table)
    lines = ["", f"[{section.name}]"]
    for key in section.keys:
        if key.name in table:
            lines.append(f"{key.name} = {toml_value(table[key.name])}")
        elif unset:
            lines.append(f"# {key.name} is not set. {key.about}")
    return lines


def toml_tables(name: str, tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Give the lines of an array of tables, each with an empty line before it."""
    lines: list[str] = []
    for table in tables:
        lines += ["", f"[[{name}]]", *(f"{key} = {toml_value(value)}" for key, value in table.items())]
    return lines


def toml_value(value: object) -> str:
    """Write a plain value as TOML has it, on one line."""
    if isinstance(value, list):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{_toml_key(name)} = {toml_value(item)}' for name, item in value.items())} }}"
            if value
            else "{}"
        )
    # JSON strings are TOML basic strings, but for DEL, which TOML wants escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(name: str) -> str:
    """Write a key bare where TOML lets it be."""
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else toml_value(name)
