"""Values: `dataclass` as the standard library means it, made in a twentieth of the time.

The standard library writes six functions as text for each frozen class and compiles them, half a millisecond a class,
and a trial's start imports about 150. Here the same class stands on a `msgspec.Struct`, whose functions exist already.
The law it keeps: whatever works with a standard one works with this one, `dataclasses.replace`, `fields`, `asdict` and
``match`` included; what those read of a class is made when the first of them asks, because importing them costs 10 ms.
What a struct cannot be (a base class, ``__post_init__``, a field left out of repr or comparison) is left to the
standard library, and so is everything where msgspec is missing, which ``supervise doctor`` must be able to say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

__all__ = ["dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    try:
        import msgspec
    except ImportError:
        msgspec = None

    class _Factory:
        """The default of a field that is made anew for each."""

        __slots__ = ("make",)

        def __init__(self, make: Callable[[], object]) -> None:
            self.make = make

    def field(**options: object) -> object:
        """Describe one field; as `dataclasses.field`."""
        match options:
            case {"default": default} if len(options) == 1:
                return default
            case {"default_factory": make} if len(options) == 1:
                return _Factory(make)
        import dataclasses  # noqa: PLC0415 - what few classes ask for

        return dataclasses.field(**options)

    def replace(value: object, /, **changes: object) -> object:
        """Give the same value with some fields changed; as `dataclasses.replace`."""
        if msgspec is not None and isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **changes)
        import dataclasses  # noqa: PLC0415 - for what is no struct

        return dataclasses.replace(value, **changes)

    def dataclass(*, frozen: bool = False, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Make a class of values. Its attributes are slots; ``slots`` has to say so."""

        def make(cls: type) -> type:
            own = vars(cls)
            defaults = {name: own[name] for name in own.get("__annotations__", ()) if name in own}
            plain = slots and cls.__bases__ == (object,) and "__post_init__" not in own
            if msgspec is None or not plain or any(map(_is_standard, defaults.values())):
                return _standard(cls, defaults, frozen=frozen, slots=slots, kw_only=kw_only)
            members = {name: value for name, value in own.items() if name not in {"__dict__", "__weakref__"}}
            for name, value in defaults.items():
                if isinstance(value, _Factory):
                    members[name] = msgspec.field(default_factory=value.make)
            for name in _Described.NAMES:
                members[name] = _Described(name, cls, defaults, kw_only=kw_only)
            return type(msgspec.Struct)(cls.__name__, (msgspec.Struct,), members, frozen=frozen, kw_only=kw_only)

        return make

    def _standard(cls: type, defaults: dict[str, object], **options: bool) -> type:
        import dataclasses  # noqa: PLC0415 - for what is no struct

        for name, value in defaults.items():
            if isinstance(value, _Factory):
                setattr(cls, name, dataclasses.field(default_factory=value.make))
        return dataclasses.dataclass(**options)(cls)

    def _is_standard(value: object) -> bool:
        standard = sys.modules.get("dataclasses")
        return standard is not None and isinstance(value, standard.Field)

    class _Described:
        """What the functions of the standard library read of a class, made when one of them first does."""

        NAMES = ("__dataclass_fields__", "__dataclass_params__")

        def __init__(self, name: str, cls: type, defaults: dict[str, object], *, kw_only: bool) -> None:
            self._name, self._cls, self._defaults, self._kw_only = name, cls, defaults, kw_only

        def __get__(self, value: object, owner: type) -> object:
            if self._name not in vars(self._cls):
                _standard(self._cls, self._defaults, init=False, repr=False, eq=False, kw_only=self._kw_only)
            return vars(self._cls)[self._name]
