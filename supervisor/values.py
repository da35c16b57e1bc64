"""Values: `dataclass` as the standard library means it, made in a tenth of the time.

The standard library writes six functions as text for each frozen class and compiles them, half a millisecond a class,
and a trial's start imports about 150. Here the same class stands on a `msgspec.Struct`, whose functions exist already.
The law it keeps: whatever works with a standard one works with this one, `dataclasses.replace`, `fields`, `asdict` and
``match`` included. What a struct cannot be (a base class, ``__post_init__``, a field left out of repr or comparison) is
left to the standard library, and so is what has to work before msgspec is imported: the command line, ``doctor``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

__all__ = ["dataclass", "field"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field
else:
    field = dataclasses.field
    _PLAIN = (True, True, True, None)

    def dataclass(*, frozen: bool = False, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Make a class of values. Its attributes are slots; ``slots`` has to say so."""

        def make(cls: type) -> type:
            own = vars(cls)
            if not slots or cls.__bases__ != (object,) or "__post_init__" in own:
                return dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only)(cls)
            defaults = {name: own[name] for name in own.get("__annotations__", ()) if name in own}
            if any(isinstance(one, dataclasses.Field) and not _plain(one) for one in defaults.values()):
                return dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only)(cls)
            described = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
            members = {name: value for name, value in vars(cls).items() if name not in {"__dict__", "__weakref__"}}
            for one in dataclasses.fields(described):
                if one.default_factory is not dataclasses.MISSING:
                    members[one.name] = msgspec.field(default_factory=one.default_factory)
            return type(msgspec.Struct)(cls.__name__, (msgspec.Struct,), members, frozen=frozen, kw_only=kw_only)

        return make

    def _plain(one: dataclasses.Field[object]) -> bool:
        return (one.init, one.repr, one.compare, one.hash) == _PLAIN
