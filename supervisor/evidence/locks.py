"""Locks that the trial held, waited for, or was refused. In: lock events in any order; out: one `LockUse` a span.

The laws:

1. A lock is held from the first time that a file was locked until the last release that was told; where none is told,
   or not each, until its process, or the trial, has ended. Too long a span can only join more.
2. A wait whose holder is of this trial is its own affair. Whoever waits does so until his next event, or his end.
3. Who held what was refused at once is not known. ``own``: this trial held that file's locks itself at that time, so
   that nobody else need have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from supervisor.events import Event, FileLocked, FileLookedUp, ProcessKey
from supervisor.events.files import READ_WINDOW_NS
from supervisor.evidence.bounded import Numbers
from supervisor.evidence.processes import Cast
from supervisor.evidence.routes import LockUse

_TOGETHER_NS = 1_000_000_000
"""Refusals that follow each other within this are one span."""


class _Told(NamedTuple):
    """One event, by time."""

    at_ns: int
    number: int
    process: ProcessKey | None
    path: bytes
    what: str
    each: bool


class LockFold:
    """Keeps a line an event, by the file that it is about."""

    def __init__(self) -> None:
        """Begin with no lock."""
        self._told: dict[tuple[int, int, str], list[_Told]] = {}

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {FileLocked: self._locked, FileLookedUp: self._asked}

    def _locked(self, event: Event) -> None:
        if isinstance(event, FileLocked) and not (event.waits and event.inside):
            what = "held"
            if event.lock == "unlocked":
                what = "released"
            elif event.error is not None:
                what = "refused"
            elif event.waits:
                what = "waited"
            self._add(event, "flock" if event.how == "flock" else "record", what, each=event.each)

    def _asked(self, event: Event) -> None:
        if isinstance(event, FileLookedUp) and event.how == "getlk" and event.error is None:
            self._add(event, "record", "asked", each=True)

    def _add(self, event: FileLocked | FileLookedUp, sort: str, what: str, *, each: bool) -> None:
        told = _Told(event.time_ns, event.n, event.process, event.path, what, each)
        self._told.setdefault((event.device, event.inode, sort), []).append(told)

    def finish(
        self, cast: Cast, ended_ns: Callable[[ProcessKey | None], int], named: Callable[[bytes], bytes]
    ) -> tuple[LockUse, ...]:
        """Give the spans.

        Args:
            cast: who belongs to the box itself.
            ended_ns: until when a process, or one that it forked, was there; None asks for the trial.
            named: gives a path of a shared place by the place's own name.
        """
        found = []
        for (device, inode, sort), all_told in self._told.items():
            told = sorted(one for one in all_told if not cast.ignores(one.process, one.at_ns))
            found += [
                msgspec.structs.replace(use, path=named(use.path), device=device, inode=inode, sort=sort)
                for use in _spans(told, ended_ns)
            ]
        return tuple(sorted(found, key=lambda use: (use.first_ns, use.events)))


def _spans(told: list[_Told], ended_ns: Callable[[ProcessKey | None], int]) -> Iterator[LockUse]:
    held = _held(told, ended_ns)
    if held is not None:
        yield held
    spans: dict[str, tuple[_Told, int, Numbers]] = {}
    for place, one in enumerate(told):
        if one.what not in {"waited", "refused", "asked"}:
            continue
        end_ns = one.at_ns + (READ_WINDOW_NS if one.what == "refused" else 0)
        if one.what == "waited":
            after = (next_.at_ns for next_ in told[place + 1 :] if next_.process == one.process)
            end_ns = next(after, None) or ended_ns(one.process)
        open_span = spans.get(one.what)
        if open_span is not None and one.at_ns > open_span[1] + _TOGETHER_NS:
            yield _use(*spans.pop(one.what), held)
            open_span = None
        first, last_ns, numbers = open_span or (one, end_ns, Numbers())
        numbers.add(one.number, one.at_ns)
        spans[one.what] = first, max(last_ns, end_ns), numbers
    for span in spans.values():
        yield _use(*span, held)


def _held(told: list[_Told], ended_ns: Callable[[ProcessKey | None], int]) -> LockUse | None:
    mine = [one for one in told if one.what in {"held", "released"}]
    first = next((one for one in mine if one.what == "held"), None)
    if first is None:
        return None
    numbers = Numbers()
    for one in mine:
        numbers.add(one.number, one.at_ns)
    last, exact = mine[-1], all(one.each for one in mine)
    until_ns = last.at_ns if last.what == "released" else ended_ns(last.process)
    return _line(first, "held", until_ns if exact else ended_ns(None), numbers, exact=exact)


def _use(first: _Told, last_ns: int, numbers: Numbers, held: LockUse | None) -> LockUse:
    own = held is not None and held.first_ns <= last_ns and first.at_ns <= held.last_ns
    return _line(first, first.what, last_ns, numbers, exact=True, own=own)


def _line(first: _Told, how: str, last_ns: int, numbers: Numbers, *, exact: bool, own: bool = False) -> LockUse:
    return LockUse(
        path=first.path, device=0, inode=0, sort="", how=how, first_ns=first.at_ns, last_ns=last_ns,
        process=first.process, events=numbers.values(), own=own, exact=exact,
    )  # fmt: skip
