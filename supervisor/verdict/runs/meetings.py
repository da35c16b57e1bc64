"""Where runs meet: their contacts, brought together by what they are contacts with.

In: indexes, read once or twice each; out: groups of parties, one a resource that one run changed and another one met.

The laws:

1. Two runs meet where their keys are equal; a key is a hash of what is shared, so no pair is looked at for nothing.
   A file with several names is one more key of each of them.
2. A change of a path is met by whoever touches that path, looks for something below it, or lists where it lies.
   Who writes through a standard stream that was handed over, and cannot read from it, meets nothing by that.
3. Whoever works in a directory may have looked at anything in it: look-ups there are not witnessed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Protocol

from supervisor.values import dataclass, field
from supervisor.verdict.runs.grounds import File, files_of
from supervisor.verdict.runs.placed import parent_of
from supervisor.verdict.runs.run_index import Contact, RunIndex

Key = int
Indexes = Callable[[], Iterable[RunIndex]]
"""Gives the indexes in the same order each time that it is asked."""

_SEVERAL = -1
_LISTING = frozenset({"listed", "looked"})


class Resource(StrEnum):
    """What is met: a path, the entries of a directory, or anything of a workspace."""

    PATH = "path"
    ENTRIES = "entries"
    ANYTHING = "anything"


@dataclass(slots=True)
class Party:
    """One run's part in a group: its first change, if it made one, and its last contact, if it met anything."""

    run: int
    changed: Contact | None = None
    met: Contact | None = None

    def change(self, contact: Contact) -> None:
        """Take a change; the first one counts."""
        if self.changed is None or contact.first_ns < self.changed.first_ns:
            self.changed = contact

    def meet(self, contact: Contact) -> None:
        """Take a contact; the last one counts."""
        if self.met is None or contact.last_ns > self.met.last_ns:
            self.met = contact

    @property
    def first_ns(self) -> int:
        """When it first took part, as far as is kept."""
        return min(contact.first_ns for contact in (self.changed, self.met) if contact is not None)

    def found(self, path: bytes) -> str | None:
        """Give what it found at a path, where that was checked."""
        states = (one.before for one in (self.changed, self.met) if one is not None and one.path == path)
        return next((state for state in states if state is not None), None)

    def touched_ns(self, path: bytes) -> int:
        """Tell when a path was last touched before it came, 0 where that is not known."""
        return max(
            (one.times[0] for one in (self.changed, self.met) if one and one.times and one.path == path), default=0
        )

    def meets(self, other: Party) -> bool:
        """Tell whether it met what another party changed."""
        return self.met is not None and other.changed is not None and self.met.last_ns > other.changed.first_ns


@dataclass(slots=True)
class Group:
    """The parties of one resource, by run. ``path`` is what was changed, of `Resource.PATH` only."""

    resource: Resource
    parties: dict[int, Party] = field(default_factory=dict)
    path: bytes = b""

    def party(self, run: int) -> Party:
        """Give the part of a run."""
        return self.parties.setdefault(run, Party(run))


class Reader(Protocol):
    """Whoever reads every index too, twice in the same order; so that none is read once more for it alone."""

    def begin(self, run: int, index: RunIndex) -> None:
        """Take an index for the first time."""

    def go_on(self, run: int, index: RunIndex) -> None:
        """Take it again, when all have been given once."""


def gather(indexes: Indexes, *readers: Reader) -> list[Group]:
    """Bring together what one run changed and another one met.

    Memory grows with the number of changes, and with what is really shared.
    """
    owner = _owners(indexes, readers)
    groups: dict[Key, Group] = {}
    for run, index in enumerate(indexes()):
        for reader in readers:
            reader.go_on(run, index)
        for key, resource, contact in _met_keys(index, run, owner):
            groups.setdefault(key, Group(resource)).party(run).meet(contact)
    wanted = {owner[key] for key in groups}
    for run, index in enumerate(indexes()):
        if run in wanted or _SEVERAL in wanted:
            for key, resource, contact in _changed_keys(index):
                if key in groups:
                    groups[key].party(run).change(contact)
                    if resource is Resource.PATH:  # who changes a path has met it; what lies beside it, he has not
                        groups[key].path = contact.path
                        if not contact.given:
                            groups[key].party(run).meet(contact)
    return [group for group in groups.values() if len(group.parties) > 1]


# Millions of contacts come through here: numbers stand for resources, whose own hashes are computed in Python.
_PATH, _ENTRIES, _ANYTHING, _FILE = 1, 2, 3, 4


def _owners(indexes: Indexes, readers: Iterable[Reader]) -> dict[Key, int]:
    """Tell who changed what: a run's number, or that there are several."""
    owner: dict[Key, int] = {}
    claim = owner.setdefault
    for run, index in enumerate(indexes()):
        for reader in readers:
            reader.begin(run, index)
        parents: set[bytes] = set()
        above: set[bytes] = set()  # of what was there already: the list of names stays as it is
        for contact in index.contacts:
            if contact.how == "changed":
                path = contact.path
                key = hash((_PATH, path))
                if claim(key, run) != run:
                    owner[key] = _SEVERAL
                (above if contact.given else parents).add(parent_of(path))
        keys = [key for key, _ in _changed_files(index)]
        keys += [hash((_ENTRIES, parent)) for parent in parents]
        keys += [hash((_ANYTHING, directory)) for directory in _with_above(parents | above)]
        for key in keys:
            if claim(key, run) != run:
                owner[key] = _SEVERAL
    return owner


def _changed_files(index: RunIndex) -> Iterator[tuple[Key, Contact]]:
    """Give the keys of files with several names that a run changed by one of them."""
    files = files_of(index)[1] if index.found or index.left else {}
    if files:
        for contact in index.contacts:
            if contact.how == "changed" and contact.path in files:
                yield _file_key(files[contact.path]), contact


def _file_key(file: File) -> Key:
    return hash((_FILE, *file))


def _with_above(directories: Iterable[bytes]) -> set[bytes]:
    """Give directories and all those above them."""
    found: set[bytes] = set()
    for directory in directories:
        above = directory
        while above not in found:
            found.add(above)
            above = parent_of(above)
    return found


def _changed_keys(index: RunIndex) -> Iterator[tuple[Key, Resource, Contact]]:
    """Give the keys under which the changes of a run are met."""
    yield from ((key, Resource.PATH, contact) for key, contact in _changed_files(index))
    seen: set[bytes] = set()
    for contact in index.contacts:
        if contact.how != "changed":
            continue
        yield hash((_PATH, contact.path)), Resource.PATH, contact
        parent = parent_of(contact.path)
        if not contact.given:
            yield hash((_ENTRIES, parent)), Resource.ENTRIES, contact
        while parent not in seen:
            seen.add(parent)
            yield hash((_ANYTHING, parent)), Resource.ANYTHING, contact
            parent = parent_of(parent)


def _met_keys(index: RunIndex, run: int, owner: Mapping[Key, int]) -> Iterator[tuple[Key, Resource, Contact]]:
    """Give the keys under which a run meets changes of others."""
    above: dict[bytes, tuple[Key, ...]] = {}
    owner_of = owner.get
    files = files_of(index)[0] if index.found else {}
    for contact in index.contacts:
        if contact.given and contact.how == "changed":
            continue
        path = contact.path
        key = hash((_PATH, path))
        if owner_of(key, run) != run:
            yield key, Resource.PATH, contact
        if files and path in files and owner_of(key := _file_key(files[path]), run) != run:
            yield key, Resource.PATH, contact
        if contact.how in _LISTING and contact.error is None:
            key = hash((_ENTRIES, path))
            if owner_of(key, run) != run:
                yield key, Resource.ENTRIES, contact
        parent = parent_of(path)
        keys = above.get(parent)
        if keys is None:
            keys = above[parent] = tuple(key for key in _above(parent) if owner_of(key, run) != run)
        for key in keys:
            yield key, Resource.PATH, contact
    yield from _may_look(index, run, owner)


def _may_look(index: RunIndex, run: int, owner: Mapping[Key, int]) -> Iterator[tuple[Key, Resource, Contact]]:
    """Give the key of a workspace in which others changed anything."""
    if index.workspace:
        key = hash((_ANYTHING, index.workspace))
        if owner.get(key, run) != run:
            yield key, Resource.ANYTHING, Contact(index.workspace, "may look", index.released_ns, index.ended_ns)


def _above(directory: bytes) -> Iterator[Key]:
    """Give the keys of a directory and those above it."""
    while True:
        yield hash((_PATH, directory))
        if directory == b"/":
            return
        directory = parent_of(directory)
