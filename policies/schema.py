"""The JSON Schema of policy files, made from the same table as the parser (`policies.keys`) and the types' defaults."""

from __future__ import annotations

from typing import Any, assert_never

from policies.amounts import BYTES_PATTERN, LEAST_CPUS, NONE, SIZE_PATTERN
from policies.canonical import policy_to_mapping
from policies.durations import DURATION_PATTERN, PERIOD_PATTERN
from policies.keys import SCHEMA_VERSION, SECTIONS
from policies.parse import MOST_REPEATS
from policies.services import services_schema
from policies.shapes import Key, Section, Shape
from policies.types import Policy

_AMOUNTS: dict[Shape, dict[str, Any]] = {
    Shape.COUNT: {"anyOf": [{"type": "integer", "minimum": 1}, {"const": NONE}]},
    Shape.CPUS: {"anyOf": [{"type": "number", "minimum": LEAST_CPUS}, {"const": NONE}]},
    Shape.TIMES: {"type": "integer", "minimum": 1, "maximum": MOST_REPEATS},
    Shape.BYTES: {"type": "string", "pattern": f"^{BYTES_PATTERN}$"},
    Shape.SIZE: {"type": "string", "pattern": f"^{SIZE_PATTERN}$"},
}
_FILLED = {"type": "string", "minLength": 1}
_PLACE: dict[str, Any] = {"type": "object", "additionalProperties": False, "required": ["path"]}
_NO_PARENT = r"^(?!(.*/)?\.\.(/|$))"
"""No component is ``..``: what `policies.parse.check_path` says."""


def json_schema() -> dict[str, Any]:
    """Give the schema (JSON Schema 2020-12) of a policy file."""
    defaults = policy_to_mapping(Policy())
    sections = {section.name: _section(section, defaults[section.name]) for section in SECTIONS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "supervise policy",
        "type": "object",
        "additionalProperties": False,
        "required": ["schema"],
        "properties": {
            "schema": {"const": SCHEMA_VERSION, "description": "The version of this form."},
            "name": {"type": "string", "minLength": 1, "description": "What reports call the policy."},
            **sections,
            "services": services_schema(),
        },
    }


def _section(section: Section, defaults: Any) -> dict[str, Any]:  # noqa: ANN401  (a table, or an array of them)
    if section.many:
        return {"type": "array", "description": section.about, "items": _items(section.keys)}
    return {
        "type": "object",
        "description": section.about,
        "additionalProperties": False,
        "properties": {key.name: _key(key, defaults) for key in section.keys},
    }


def _items(keys: tuple[Key, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [key.name for key in keys if key.required],
        "properties": {key.name: _key(key, {}) for key in keys},
    }


def _key(key: Key, defaults: dict[str, Any]) -> dict[str, Any]:
    default = {"default": defaults[key.name]} if key.name in defaults else {}
    return {**_shape(key), "description": key.about, **default}


def _shape(key: Key) -> dict[str, Any]:  # noqa: C901, PLR0911 - one row a shape
    pattern = f"^({key.pattern})$" if key.pattern else _NO_PARENT if key.is_path else None
    text = {"type": "string", "minLength": 1, **({"pattern": pattern} if pattern else {})}
    match key.shape:
        case Shape.TEXT:
            return text
        case Shape.MAPPINGS:
            return {"type": "object", "additionalProperties": text}
        case Shape.TEXTS | Shape.ALLOW | Shape.DENY:
            return {"type": "array", "items": text}
        case Shape.PLACES:
            return {"type": "array", "items": {**_PLACE, "properties": {"path": text, "reset": _FILLED}}}
        case Shape.DURATION:
            return {"type": "string", "pattern": f"^{DURATION_PATTERN}$"}
        case Shape.PERIOD:
            return {"type": "string", "pattern": f"^({PERIOD_PATTERN})$"}
        case Shape.CHOICE:
            return {"enum": [choice.value for choice in key.choices]}
        case Shape.TABLES:
            return {"type": "array", "items": _items(key.columns)}
        case Shape.FLAG:
            return {"type": "boolean"}
        case Shape.COUNT | Shape.CPUS | Shape.SIZE | Shape.TIMES | Shape.BYTES:
            return _AMOUNTS[key.shape]
        case _:
            assert_never(key.shape)
