"""What a commit is going to do, as data, and how far it has come: enough to finish it after any interruption.

Laws:
    * The plan is made once, while the workspace is untouched, and is on disk before anything is changed.
    * A commit goes through the phases in order; the next one is on record only when everything of the one before is
      done (and, with a durable commit, on disk). Doing a phase again from its start gives the same result as once:

      ``prepare``     copies of all new content are made in the quarantine, a private directory inside the workspace;
                      an interruption, or a full disk, leaves the workspace as it was. What the stage may give away
                      is not copied (`supervisor.launch.stage.giving`): it stays where it is until it has a place.
      ``take``        directories that moved are renamed into the quarantine, the innermost first.
      ``delete``      what is gone is removed.
      ``place``       directories are made, and everything is renamed from the quarantine, or from the stage itself,
                      to its place, outer first. What finds no place stays in the stage.
      ``attributes``  the overlay's marks are taken off, then owners, modes, attributes and times of directories are
                      set, inner before outer.
      ``done``        the quarantine is gone.
    * What another program changed on the host since the trial began is left as it is, and is reported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from supervisor.errors import MachineError
from supervisor.launch.disk.durable import write_whole
from supervisor.values import dataclass

JOURNAL_VERSION = 3
"""Of what is written. Version 1 had no `Give` and no `Strip`, version 2 no `Journal.coming`. Both are read."""


class Phase(StrEnum):
    """How far a commit has come: the phase that is being done."""

    PREPARE = "prepare"
    TAKE = "take"
    DELETE = "delete"
    PLACE = "place"
    ATTRIBUTES = "attributes"
    DONE = "done"


class Source(StrEnum):
    """Where content or attributes come from: one of the overlay's three trees, or a slot of the quarantine."""

    UPPER = "upper"
    LOWER = "lower"
    WORK = "work"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What is expected to be at a path that is going to be replaced or removed."""

    inode: int
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Identity:
        """Describe what was found. Not the change time: removing one of several names changes that of the others."""
        return cls(inode=found.st_ino, size_bytes=found.st_size, mtime_ns=found.st_mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copy an entry into the quarantine, under the name ``slot``; of a directory only the attributes."""

    source: Source
    path: str
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Make ``slot`` another name of what is in the quarantine as ``first``."""

    first: str
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Rename a directory of the workspace into the quarantine."""

    path: str
    slot: str
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove one entry; ``slot`` when it lies in a directory that was taken, with ``path`` relative to that.

    Attributes:
        shown: where it is seen when it cannot be removed, if that is not ``path``.
    """

    path: str
    slot: str | None
    directory: bool
    identity: Identity
    shown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Rename from the quarantine to a path, over what is expected there (None: nothing)."""

    path: str
    slot: str
    over: Identity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Give:
    """Rename from the upper tree to the same path, over what is expected there (None: nothing).

    Attributes:
        entries: how many paths come with it: a directory is given with all that it holds.
    """

    path: str
    over: Identity | None
    entries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Take the overlay's own attributes from an entry, if it is still that inode.

    Attributes:
        staged: the entry is the upper tree's: a directory that hid the host's, or showed what was at another place, and
            now holds only what was left out.
        over: of such a one, the inode of the host directory that must have come to that place; None: any.
    """

    path: str
    inode: int
    staged: bool = False
    over: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeDirectory:
    """Make a directory, unless there is one."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAttributes:
    """Give a directory the owner, mode, attributes and times of another one.

    Attributes:
        differs: more than the times is another than before.
        times_ns: of access and modification, where those of the source do not stay what they are: it gives files away.
    """

    path: str
    source: Source
    source_path: str
    differs: bool = True
    times_ns: tuple[int, int] | None = None


Step = Copy | Link | Take | Delete | Place | Give | Strip | MakeDirectory | SetAttributes
_STEPS: dict[str, Callable[..., Step]] = {
    kind.__name__: kind for kind in (Copy, Link, Take, Delete, Place, Give, Strip, MakeDirectory, SetAttributes)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A path that was not applied: ``why`` is ``changed on the host``, ``not allowed`` or what the kernel said."""

    path: bytes
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole commit.

    Attributes:
        workspace: device and inode of the workspace's root, so that a plan is never applied to another directory.
        quarantine: name of the private directory inside the workspace.
        left: what is known from the start not to be applied.
    """

    workspace: tuple[int, int]
    quarantine: str
    prepare: tuple[Copy | Link, ...] = ()
    take: tuple[Take, ...] = ()
    delete: tuple[Delete, ...] = ()
    place: tuple[MakeDirectory | Place | Give, ...] = ()
    strip: tuple[Strip, ...] = ()
    attributes: tuple[SetAttributes, ...] = ()
    left: tuple[Left, ...] = ()

    @property
    def entries(self) -> int:
        """How many entries are made, replaced, moved, removed or given other attributes."""
        return len(self.delete) + len(self.place) + len(self.attributes) + self._within

    @property
    def _within(self) -> int:
        """How many entries come with a directory that is given."""
        return sum(step.entries - 1 for step in self.place if isinstance(step, Give))

    @property
    def changes(self) -> int:
        """How many paths show something else afterwards: times alone make a directory no change."""
        removed = {(step.slot, step.path) for step in self.delete}
        made = {(None, step.path) for step in self.place}
        altered = {(None, step.path) for step in self.attributes if step.differs}
        return len(removed | made | altered) + self._within

    def changes_without(self, left: Iterable[Left]) -> int:
        """How many paths show something else afterwards, when some could not be applied."""
        lost = {os.fsdecode(entry.path) for entry in left}
        within = sum(step.entries - 1 for step in self.place if isinstance(step, Give) and step.path in lost)
        return max(0, self.changes - len(lost) - within)


class Journal:
    """The record of one commit on disk: the plan, the phase, what is exchanged for what, and what was left out."""

    __slots__ = ("_directory", "durable")

    def __init__(self, directory: Path, *, durable: bool) -> None:
        """Name the directory; nothing is written yet."""
        self._directory = directory
        self.durable = durable

    @property
    def exists(self) -> bool:
        """Whether a commit was begun."""
        return (self._directory / "commit.json").exists()

    def begin(self, plan: Plan) -> None:
        """Write the plan, and that nothing has been done."""
        self.advance(Phase.PREPARE)
        write_whole(self._directory / "commit.json", json.dumps(_plan_to_json(plan)).encode(), durable=self.durable)

    def plan(self) -> Plan:
        """Read the plan.

        Raises:
            MachineError: it is no journal of this version.
        """
        path = self._directory / "commit.json"
        try:
            return _plan_from_json(json.loads(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError) as err:
            message = f"journal of the commit cannot be read: {err}"
            raise MachineError(message, place=str(path)) from err

    def phase(self) -> Phase:
        """Read the phase that is being done."""
        return Phase((self._directory / "commit.phase").read_text(encoding="ascii").strip())

    def advance(self, phase: Phase) -> None:
        """Record that everything before `phase` is done."""
        write_whole(self._directory / "commit.phase", phase.encode() + b"\n", durable=self.durable)

    def note_coming(self, inodes: dict[str, int]) -> None:
        """Record, by path, the inodes of what is going to be exchanged for what lies there."""
        if inodes:
            write_whole(self._directory / "commit.coming", json.dumps(inodes).encode(), durable=self.durable)

    def coming(self) -> dict[str, int]:
        """Read what `note_coming` recorded; nothing where that was not done."""
        try:
            found: dict[str, int] = json.loads((self._directory / "commit.coming").read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def leave(self, left: tuple[Left, ...], phase: Phase) -> None:
        """Record what a phase could not apply."""
        if left:
            data = json.dumps([[os.fsdecode(entry.path), entry.why] for entry in left]).encode()
            write_whole(self._directory / f"commit.left.{phase}", data, durable=self.durable)

    def left(self) -> tuple[Left, ...]:
        """Read what the phases could not apply."""
        files = [self._directory / f"commit.left.{phase}" for phase in Phase]
        found = [entry for file in files if file.exists() for entry in json.loads(file.read_bytes())]
        return tuple(Left(path=os.fsencode(path), why=why) for path, why in found)


_PHASES = ("prepare", "take", "delete", "place", "strip", "attributes")


def _plan_to_json(plan: Plan) -> dict[str, object]:
    phases = {
        name: [{"do": type(step).__name__, **msgspec.to_builtins(step)} for step in getattr(plan, name)]
        for name in _PHASES
    }
    left = [[os.fsdecode(entry.path), entry.why] for entry in plan.left]
    return {
        "version": JOURNAL_VERSION,
        "workspace": plan.workspace,
        "quarantine": plan.quarantine,
        "left": left,
    } | phases


def _plan_from_json(data: dict[str, Any]) -> Plan:
    if data["version"] not in range(1, JOURNAL_VERSION + 1):
        message = f"version {data['version']}, expected 1 to {JOURNAL_VERSION}"
        raise ValueError(message)
    phases: dict[str, Any] = {name: tuple(map(_step, data.get(name, ()))) for name in _PHASES}
    left = tuple(Left(path=os.fsencode(path), why=why) for path, why in data["left"])
    device, inode = data["workspace"]
    return Plan(workspace=(device, inode), quarantine=data["quarantine"], left=left, **phases)


def _step(fields: dict[str, Any]) -> Step:
    kind = _STEPS[fields.pop("do")]
    for key in ("identity", "over"):
        if isinstance(known := fields.get(key), dict):
            fields[key] = Identity(**known)
    if "source" in fields:
        fields["source"] = Source(fields["source"])
    if isinstance(times := fields.get("times_ns"), list):
        fields["times_ns"] = tuple(times)
    return kind(**fields)
