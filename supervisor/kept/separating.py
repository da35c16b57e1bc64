"""Runs that were kept, judged against each other: what `supervise separate` and `supervisor.separate` are made of.

The rule: nothing is believed that a log does not vouch for. A run that is missing, was never sealed, does not verify or
comes from a version that wrote no index is told with the reason, and its edges are unresolved; it is never left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec

from supervisor.errors import LogError, LogUnsealedError, PolicyError, UsageError
from supervisor.kept.reading import addenda, verify_run
from supervisor.kept.staged import applied_afterwards
from supervisor.launch.runs.registry import Registry, read_registry
from supervisor.launch.runs.state import Home, RunDir
from supervisor.prepare.manifest import read_manifest
from supervisor.report.separation import separation_json
from supervisor.values import dataclass
from supervisor.verdict.runs.indexing import asked_contacts
from supervisor.verdict.runs.pairs import FULL, Separated, separate_pairs
from supervisor.verdict.runs.run_index import SCHEMA, RunIndex, applied_later, decode_index, head_of

_NAMED = 5
"""How many runs a warning names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSeparated:
    """The answer about some runs.

    Attributes:
        heads: one a run, in the order that they were named; those with a ``problem`` prove nothing.
        between: runs that nobody asked about, and that ran meanwhile: what they join is joined.
        found: units and edges, over the places of the heads, then of those in between.
        repeated: runs that were named more than once, and are counted once.
        missing: runs that the registry of this home knows, and that are not there any more.
        unsealed: of those that are there, the ones that are not among the heads and have no index yet.
        registry: what is wrong with the registry itself, and which heads it does not have.
    """

    heads: tuple[RunIndex, ...]
    found: Separated
    between: tuple[RunIndex, ...] = ()
    repeated: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unsealed: tuple[str, ...] = ()
    registry: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The ids, in order, also of those in between."""
        return [head.run for head in (*self.heads, *self.between)]

    def to_json(self) -> dict[str, Any]:
        """Give the form that ``supervise separate --json`` prints."""
        answer = separation_json(self.names, self.found)
        answer["problems"] = [
            {"run": head.run, "problem": head.problem} for head in self.heads if head.problem is not None
        ] + [{"run": name, "problem": "named more than once, counted once"} for name in self.repeated]
        answer["registry"] = {"missing": self.missing, "unsealed": self.unsealed, "problems": self.registry}
        return answer


def warnings(answer: RunsSeparated) -> Iterator[str]:
    """Say what the reader of an answer must know beside it."""
    yield from (f"{head.run}: {head.problem}" for head in answer.heads if head.problem is not None)
    yield from (f"{name} is named more than once, and counted once" for name in answer.repeated)
    yield from answer.registry
    for names, what in ((answer.missing, "not there any more"), (answer.unsealed, "never sealed, or still running")):
        if names:
            named = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            yield f"started here, not counted, {what}: {named}"


def everything(home: Home) -> list[str]:
    """Give the ids of all runs that were ever started here, those that are gone too."""
    started = [entry.run for entry in read_registry(home.path).entries]
    return list(dict.fromkeys([*started, *(run.id for run in home.all())]))


def separate_runs(home: Home, references: Sequence[str]) -> RunsSeparated:
    """Judge runs against each other.

    Args:
        home: where runs are kept.
        references: ids, their beginnings or last parts, ``last``, or directories.

    Raises:
        UsageError: fewer than two different runs are named, or a reference means more than one run.
    """
    runs, repeated = _resolve(home, references)
    judged = _Judged(runs)
    if judged.asked < 2:  # noqa: PLR2004
        message = f"expected two or more different runs, got {judged.asked}"
        raise UsageError(message, place="separate", hint="`supervise ls` lists the runs")
    registry = read_registry(home.path)
    for name, run in _in_between(home, registry, judged.heads):
        judged.add_between(name, run)
    heads = judged.heads[: judged.asked]
    known = {head.run for head in heads}
    lines = {entry.digest for entry in registry.entries}
    unregistered = (head.run for head in heads if head.registered is not None and head.registered not in lines)
    there = {run.id for run in home.all()}
    return RunsSeparated(
        heads=tuple(heads),
        between=tuple(judged.heads[judged.asked :]),
        found=separate_pairs(judged.heads, judged.indexes, asked=judged.asked),
        repeated=tuple(dict.fromkeys((*repeated, *judged.repeated))),
        missing=tuple(dict.fromkeys(entry.run for entry in registry.entries if entry.run not in there | known)),
        unsealed=tuple(name for name in _unsealed(home, registry) if name not in known),
        registry=(
            *registry.problems,
            *(f"{run} is not in the registry as its log says" for run in unregistered),
            *(f"{run} is kept under another name, {name}" for name, run in judged.renamed),
            *(f"{name} ran here too, and whether it lay in between is not known: {why}" for name, why in judged.unread),
        ),
    )


class _Judged:
    """The runs that are judged: those asked about, then those that may lie in between. Few are kept whole."""

    def __init__(self, runs: dict[str, RunDir | None]) -> None:
        self.heads: list[RunIndex] = []
        self.unread: list[tuple[str, str]] = []
        self.repeated: list[str] = []
        self.renamed: list[tuple[str, str]] = []
        self._runs: list[RunDir | None] = []
        self._whole: list[RunIndex] = []
        self._ids: set[str] = set()
        absent: list[str] = []
        for name, run in runs.items():
            if run is None:
                absent.append(name)
            else:
                self._add_asked(name, run)
        for name in absent:
            if name not in self._ids:  # else it was moved, and is here under another name
                self._add(_load(name, None), None)
        self.asked = len(self.heads)

    def _add_asked(self, name: str, run: RunDir) -> None:
        """Add one that was asked about. A copy of one that is there is the same run, whatever it is called."""
        index = _load(name, run)
        if index.run != name:
            self.renamed.append((name, index.run))
        if index.run in self._ids:
            self.repeated.append(name)
        else:
            self._add(index, run)

    def add_between(self, name: str, run: RunDir) -> None:
        """Add one that nobody asked about: what is not known of it is told, and joins nothing."""
        index = _load(name, run)
        if index.run in self._ids:
            return
        if index.problem is None:
            self._add(index, run)
        else:
            self.unread.append((name, index.problem))

    def _add(self, index: RunIndex, run: RunDir | None) -> None:
        self._ids.add(index.run)
        self.heads.append(head_of(index))
        self._runs.append(run)
        if len(self._runs) <= FULL:
            self._whole.append(index)

    def indexes(self) -> Iterable[RunIndex]:
        """Give every index whole."""
        if len(self._whole) == len(self._runs):
            return self._whole
        return _read_again(self.heads, self._runs)


def _in_between(home: Home, registry: Registry, heads: Sequence[RunIndex]) -> Iterator[tuple[str, RunDir]]:
    """Give the runs that nobody asked about and that ran between those asked about, or beside them.

    A run that was sealed before the first of these began met nothing of them, and one that began after the last had
    ended was met by none.
    """
    asked = {head.run for head in heads}
    proved = [head for head in heads if head.problem is None]
    if len(proved) < 2:  # noqa: PLR2004
        return
    since_ns = min(head.released_ns for head in proved)
    until_ns = max(head.ended_ns for head in proved)
    started = {entry.run: entry for entry in registry.entries}
    for run in home.all():
        entry = started.get(run.id)
        if run.id in asked or entry is None or _at_ns(entry.at) > until_ns:
            continue
        with suppress(OSError):
            if run.index.stat().st_mtime_ns >= since_ns:
                yield run.id, run


def _at_ns(at: str) -> int:
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1_000_000) * 1000
    except ValueError:
        return 0


def _resolve(home: Home, references: Sequence[str]) -> tuple[dict[str, RunDir | None], tuple[str, ...]]:
    """Find the runs that are meant, each once; one that is not there keeps its place."""
    runs: dict[str, RunDir | None] = {}
    repeated: list[str] = []
    for reference in references:
        try:
            run: RunDir | None = home.find(reference)
        except UsageError as err:
            if "no run is named" not in str(err) and "no run in this directory" not in str(err):
                raise
            run = None
        name = reference if run is None else run.id
        if name in runs:
            repeated.append(name)
        runs.setdefault(name, run)
    return runs, tuple(dict.fromkeys(repeated))


def _load(name: str, run: RunDir | None) -> RunIndex:
    """Read the index of a run that its log vouches for, or say why there is none."""
    problem = "there is no such run"
    try:
        if run is not None:
            verify_run(run)
            index = _read_index(run)
            if index.schema == SCHEMA:
                return index
            problem = f"its index is of another version: expected {SCHEMA}, got {index.schema}"
    except LogUnsealedError:
        problem = "it was never sealed"
    except LogError as err:
        problem = f"it does not verify: {err}"
    except FileNotFoundError:
        problem = "it was sealed by a version that kept no index of what it met"
    except (OSError, msgspec.DecodeError, PolicyError) as err:
        problem = f"its index cannot be read: {err}"
    return RunIndex(run=name, problem=problem)


def _read_index(run: RunDir) -> RunIndex:
    """Read what was sealed, and add what was applied of the stage since."""
    index = _settled_later(decode_index(run.index.read_bytes()), run)
    if not index.staged:
        return index
    applied = applied_afterwards(run)
    return index if applied is None else applied_later(index, *applied)


def _settled_later(index: RunIndex, run: RunDir) -> RunIndex:
    """Add what was read to ask services after the run: until its last addendum was sealed."""
    later = addenda(run)
    if not later:
        return index
    policy = read_manifest(run.read_manifest(), place=str(run.manifest)).policy
    last_ns = max(one.completion.stat().st_mtime_ns for one in later)
    asked = (asked_contacts(policy, run.id, service.name, index.ended_ns, last_ns) for service in policy.services)
    return msgspec.structs.replace(index, contacts=(*index.contacts, *chain.from_iterable(asked)))


def _read_again(heads: Sequence[RunIndex], runs: Sequence[RunDir | None]) -> Iterator[RunIndex]:
    for head, run in zip(heads, runs, strict=True):
        yield head if head.problem is not None or run is None else _read_index(run)


def _unsealed(home: Home, registry: Registry) -> Iterator[str]:
    """Give the runs that were released and have no index: they were never sealed, or still run."""
    started = dict.fromkeys(entry.run for entry in registry.entries)
    for run in home.all():
        if run.id in started and not run.index.exists():
            yield run.id
