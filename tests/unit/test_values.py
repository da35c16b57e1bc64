"""Values: our `dataclass` does what the standard library's does, class by class."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest

from supervisor import values

Maker = Callable[..., Callable[[type], Any]]
MAKERS = pytest.mark.parametrize("maker", [dataclasses.dataclass, values.dataclass], ids=["standard", "ours"])


def point(maker: Maker, **options: bool) -> Any:
    """Make one class of values with everything that ours have: defaults, a factory, a constant, a method."""
    field = dataclasses.field if maker is dataclasses.dataclass else values.field

    class Point:
        """A point."""

        x: int
        y: int = 2
        names: list[str] = field(default_factory=list)
        origin: ClassVar[int] = 0

        def shifted(self, by: int) -> Any:
            """Give another one."""
            return values.replace(self, x=self.x + by)  # type: ignore[type-var]

        @property
        def sum(self) -> int:
            """Add up."""
            return self.x + self.y

    return maker(slots=True, **options)(Point)


@MAKERS
def test_it_is_made_compared_and_shown_like_a_standard_one(maker: Maker) -> None:
    """Defaults, factories, equality, hash and text are the standard ones."""
    made = point(maker, frozen=True, kw_only=True)
    one, other = made(x=1), made(x=1)
    assert one == other
    assert one != made(x=2)
    assert one.names is not other.names
    assert repr(one).endswith("Point(x=1, y=2, names=[])")
    assert (made.__name__, made.__doc__, made.__module__) == ("Point", "A point.", __name__)
    assert (one.sum, made.origin) == (3, 0)
    with pytest.raises(TypeError):
        hash(one)  # for the list in it
    with pytest.raises(TypeError):
        made(1)
    with pytest.raises(TypeError):
        made(y=1)


@MAKERS
def test_the_functions_of_the_standard_library_work_on_it(maker: Maker) -> None:
    """`replace`, `fields`, `asdict`, copies and ``match`` do not see a difference."""
    made = point(maker, frozen=True)
    one = made(1, names=["a"])
    assert one.shifted(4) == dataclasses.replace(one, x=5) == made(5, names=["a"])
    assert [field.name for field in dataclasses.fields(made)] == ["x", "y", "names"]
    assert dataclasses.asdict(one) == {"x": 1, "y": 2, "names": ["a"]}
    assert copy.deepcopy(one) == one
    assert dataclasses.is_dataclass(made)
    match one:
        case made(x, y):
            assert (x, y) == (1, 2)


@MAKERS
def test_a_frozen_one_does_not_change_and_another_does(maker: Maker) -> None:
    """Whoever assigns to a frozen one gets an AttributeError; nothing takes a name that it does not have."""
    frozen, open_one = point(maker, frozen=True)(1), point(maker)(1)
    with pytest.raises(AttributeError):
        frozen.x = 2
    open_one.x = 2
    assert open_one.x == 2
    with pytest.raises(AttributeError):
        open_one.z = 3
    with pytest.raises(TypeError):
        hash(open_one)


def test_a_frozen_one_is_a_key() -> None:
    """Equal ones are one key."""

    @values.dataclass(frozen=True, slots=True)
    class Key:
        name: bytes
        number: int = 0

    assert len({Key(b"a"), Key(b"a", 0), Key(b"b")}) == 2


def test_what_a_struct_cannot_be_is_a_standard_one() -> None:
    """A field that is left out of the text, a base, and what runs after ``__init__`` are honoured."""

    @values.dataclass(slots=True)
    class Hidden:
        shown: int
        thread: threading.Thread | None = values.field(default=None, repr=False)

    @values.dataclass(slots=True)
    class Checked:
        x: int

        def __post_init__(self) -> None:
            self.x += 1

    @values.dataclass(slots=True)
    class Derived(Checked):
        y: int = 0

    assert "thread" not in repr(Hidden(1))
    assert Checked(1).x == 2
    assert (Derived(1).x, Derived(1).y) == (2, 0)
    assert not any(issubclass(one, msgspec.Struct) for one in (Hidden, Checked, Derived))


def test_ours_stands_on_a_struct() -> None:
    """That is what it is for: no function is compiled for it."""
    assert issubclass(point(values.dataclass, frozen=True, kw_only=True), msgspec.Struct)


def run_python(code: str) -> str:
    """Give what a program prints that a fresh interpreter runs."""
    started = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return started.stdout.strip()


def test_nothing_of_the_standard_ones_is_imported_before_it_is_asked_for() -> None:
    """A trial's start imports every class there is, and asks none of them for its fields."""
    told = "import sys, supervisor.run, supervisor.conclude.concluding; print('dataclasses' in sys.modules, end=' ')"
    asked = "from supervisor.request import Progress; import dataclasses; print(dataclasses.fields(Progress)[0].name)"
    assert run_python(f"from supervisor.command.beginning import begin; begin(['--']); {told}; {asked}") == "False run"


def test_without_msgspec_they_are_standard_ones() -> None:
    """``doctor`` says what is missing, so that its own classes must be made without it."""
    made = "from probes.doctor import examine; from supervisor.launch.runs.owner import Owner"
    tried = "from supervisor import values; import dataclasses; print(values.replace(Owner.current(), pid=7).pid)"
    assert run_python(f"import sys; sys.modules['msgspec'] = None; {made}; {tried}") == "7"
