"""Finds what lies in, below or above a path, among many: runs by the places that they worked in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Placed(Generic[T]):
    """Things by their places; a place overlaps another one that it lies in, or that lies in it."""

    def __init__(self, entries: Iterable[tuple[bytes, T]]) -> None:
        """Keep them."""
        self._found: dict[bytes, list[T]] = {}
        for place, thing in entries:
            self._found.setdefault(_top(place), []).append(thing)
        self._sorted = sorted(self._found)

    def overlapping(self, place: bytes) -> Iterator[T]:
        """Give what is kept at a place, below it and above it."""
        top = _top(place)
        for start in range(bisect_left(self._sorted, top), len(self._sorted)):
            if not self._sorted[start].startswith(top):
                break
            yield from self._found[self._sorted[start]]
        yield from self._above(top)

    def holding(self, place: bytes) -> Iterator[T]:
        """Give what is kept at a place and above it."""
        top = _top(place)
        yield from self._found.get(top, ())
        yield from self._above(top)

    def _above(self, top: bytes) -> Iterator[T]:
        parts = top.split(b"/")
        for depth in range(1, len(parts) - 1):
            yield from self._found.get(b"/".join(parts[:depth]) + b"/", ())


def _top(place: bytes) -> bytes:
    return place.rstrip(b"/") + b"/"


def is_in(path: bytes, place: bytes) -> bool:
    """Tell whether a path is a place or lies in it."""
    return path == place or path.startswith(_top(place))


def parent_of(path: bytes) -> bytes:
    """Give the directory of an absolute path."""
    return path.rpartition(b"/")[0] or b"/"


def above(path: bytes) -> Iterator[bytes]:
    """Give every directory above a path, the nearest first."""
    while path != b"/":
        path = parent_of(path)
        yield path
