"""Locks between runs: who waited for, or was refused, what another one held. In: the heads of indexes; out: findings.

A lock changes no byte, but what it keeps another run from doing, or when, is an effect that was met. Two runs meet when
one held locks of a file, by device and inode, in the time in which the other one waited, was refused or asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from supervisor.evidence.naming import show
from supervisor.verdict.runs.findings import Finding
from supervisor.verdict.runs.run_index import Lock, Mark, RunIndex

_DID = {"waited": "waited for it", "refused": "was refused it", "asked": "asked whether anybody did"}


def lock_meetings(heads: Sequence[RunIndex]) -> list[Finding]:
    """Give one finding for each run that held and each that met it, a file; costs what overlaps in time."""
    by_file: dict[tuple[int, int, str], list[tuple[int, Lock]]] = {}
    for run, head in enumerate(heads):
        for lock in head.locks:
            by_file.setdefault((lock.device, lock.inode, lock.sort), []).append((run, lock))
    found: list[Finding] = []
    for users in by_file.values():
        if len({run for run, _ in users}) > 1 and any(lock.how != "held" for _, lock in users):
            found += _meet(heads, users)
    return found


def _meet(heads: Sequence[RunIndex], users: list[tuple[int, Lock]]) -> Iterator[Finding]:
    told: set[tuple[int, int]] = set()
    holding: list[tuple[int, Lock]] = []
    wanting: list[tuple[int, Lock]] = []
    for run, lock in sorted(users, key=lambda user: user[1].first_ns):
        holding = [one for one in holding if one[1].last_ns >= lock.first_ns]
        wanting = [one for one in wanting if one[1].last_ns >= lock.first_ns]
        here = (run, lock)
        (holding if lock.how == "held" else wanting).append(here)
        pairs = [(here, one) for one in wanting] if lock.how == "held" else [(one, here) for one in holding]
        for cause, effect in pairs:
            if cause[0] != effect[0] and (cause[0], effect[0]) not in told:
                told.add((cause[0], effect[0]))
                yield _finding(heads, cause, effect)


def _finding(heads: Sequence[RunIndex], cause: tuple[int, Lock], effect: tuple[int, Lock]) -> Finding:
    (holder, held), (other, met) = cause, effect
    did = "held" if held.exact else "locked, and may still have held,"
    return Finding(
        runs=(holder, other),
        verdict="connected" if held.exact else "unresolved",
        rule="met-a-lock",
        text=f"{heads[holder].run} {did} a lock of {show(held.path)}, and {heads[other].run} {_DID[met.how]} meanwhile",
        events=(
            *(f"{heads[holder].run}:{n}" for n in held.events),
            *(f"{heads[other].run}:{n}" for n in met.events),
        ),
    )


def with_lock_want(heads: Sequence[RunIndex], meetings: Sequence[Finding]) -> list[RunIndex]:
    """Count a lock that somebody unknown kept from a run among its signs of contention."""
    explained = {finding.runs[1] for finding in meetings}
    return [
        head
        if run in explained or not (want := _unexplained(head))
        else msgspec.structs.replace(head, contention=(*head.contention, want))
        for run, head in enumerate(heads)
    ]


def _unexplained(head: RunIndex) -> Mark | None:
    for lock in head.locks:
        if lock.how == "waited" or (lock.how == "refused" and not lock.own):
            text = f"somebody held a lock of {show(lock.path)}, and it {_DID[lock.how]}"
            return Mark("lock", text, lock.events)
    return None
