"""Mistakes of one policy, gathered so that all of them are told at once.

In: readers that raise at the first mistake of what they read. Out: one error that carries the others. The rule: what is
read of a thing is read of all things of its kind, whatever was wrong with those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

from supervisor.errors import PolicyError

T = TypeVar("T")
S = TypeVar("S")


class Mistakes:
    """Keeps what goes wrong in each ``with``."""

    def __init__(self) -> None:
        """Nothing went wrong yet."""
        self._found: list[PolicyError] = []

    def __enter__(self) -> None:
        """Begin something that may go wrong."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        """Keep a mistake, with those that it carries."""
        if isinstance(error, PolicyError):
            self._found += [error, *error.others]
        return isinstance(error, PolicyError)

    def tell(self) -> None:
        """Raise what went wrong, if anything did.

        Raises:
            PolicyError: the first; it carries the others.
        """
        if self._found:
            raise together(self._found)


def together(errors: Sequence[PolicyError]) -> PolicyError:
    """Give the first of some errors, which carries the others."""
    first = errors[0]
    first.others = tuple(errors[1:])
    return first


def read_each(read: Callable[[int, S], T], values: Iterable[S]) -> tuple[T, ...]:
    """Read every value, given its number, whatever is wrong with others.

    Raises:
        PolicyError: the first mistake; it carries the others.
    """
    mistakes, found = Mistakes(), []
    for number, value in enumerate(values):
        with mistakes:
            found.append(read(number, value))
    mistakes.tell()
    return tuple(found)
