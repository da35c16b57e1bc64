"""Shared places: what their files were before the trial, and what they are.

It answers what `supervisor.launch.stage.stage.Stage` answers for staged writes, from an inventory that was taken
before the trial was released (``<run>/before-shared``, laws: `supervisor.launch.disk.inventory`). Who changed something
meanwhile is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from supervisor.evidence.file_facts import FileState, Observed, Sight, state_digest
from supervisor.launch.disk.inventory import Bounds, Inventory, Recorded, describe, reduce_inventory, walk
from supervisor.launch.disk.observe import Observer, problem
from supervisor.launch.disk.recording import take_inventory
from supervisor.launch.disk.sights import from_recorded, recorded
from supervisor.launch.disk.tree import Tree, is_below, split
from supervisor.launch.view.view import nested_in_place


class SharedStates:
    """The shared places of one run. `prepare` it before the trial is released."""

    def __init__(self, store: Path, names: Mapping[bytes, bytes], *, state: bytes) -> None:
        """Name the places; nothing is read yet.

        Args:
            store: directory of the run for what they were before.
            names: every absolute path under which a place appears, with its own.
            state: the directory of all runs.
        """
        self._store, self._names, self._state = store, names, state
        self._roots: list[bytes] = []
        self._files: dict[bytes, FileState | None] = {}
        self._single: list[Recorded] = []

    def prepare(self, *, limit_bytes: int | None) -> None:
        """Record what is there.

        Args:
            limit_bytes: how much content is copied; None is everything.

        Raises:
            MachineError: there is no room for it.
        """
        for place in dict.fromkeys(self._names.values()):
            if Path(os.fsdecode(place)).is_dir():
                self._roots += [place, *nested_in_place(place, self._state)]
            else:
                self._files[place] = _look(place, Observer())
                self._single.append(describe(place))
        take_inventory(self._roots, self._store, Bounds(copied_bytes=limit_bytes), hidden=self._state)

    def covers(self, path: bytes) -> bool:
        """Tell whether a path lies in one of the places."""
        return any(is_below(path, name) for name in self._names)

    def observe(self, paths: Iterable[bytes]) -> dict[bytes, Observed]:
        """Read the states of paths of the places before the trial and now; what is not known has a ``problem``."""
        observer = Observer()
        with ExitStack() as stack:
            inventory = self._open(stack)
            return {path: self._observe(self._own(path), inventory, observer) for path in paths}

    def changed(self) -> Iterator[bytes]:
        """Give every path to which something was done since it was recorded, by its place's own name."""
        with ExitStack() as stack:
            inventory = self._open(stack)
            if inventory is None:
                return
            missing = dict.fromkeys(inventory.entries)
            for now in walk(inventory.roots, None, hidden=self._state):
                missing.pop(now.path, None)
                was = inventory.entries.get(now.path)
                if was.differs(now) if was is not None else inventory.was_listed(now.path):
                    yield now.path
            yield from missing

    def recorded(self) -> Iterator[Recorded]:
        """Give what was recorded, under every path by which the trial saw it."""
        with ExitStack() as stack:
            inventory = self._open(stack)
            entries = [*(inventory.entries.values() if inventory is not None else ()), *self._single]
        for entry in entries:
            yield entry
            for name, place in self._names.items():
                if name != place and is_below(entry.path, place):
                    yield msgspec.structs.replace(entry, path=name.rstrip(b"/") + entry.path[len(place.rstrip(b"/")) :])

    def found(self, paths: Iterable[bytes]) -> Iterator[Sight]:
        """Give what some paths of the places were before the trial, as far as it was recorded."""
        single = {entry.path: entry for entry in self._single}
        with ExitStack() as stack:
            inventory = self._open(stack)
            for path in paths:
                place = self._own(path)
                if place in single:
                    yield from_recorded(single[place], state_digest(self._files[place]))
                elif inventory is not None and inventory.covers(place):
                    sight = recorded(inventory, place)
                    if sight is not None:
                        yield sight

    def reduce(self) -> None:
        """Keep only what was changed: an inventory of everything is large."""
        reduce_inventory(self._store, list(self.changed()))

    def _open(self, stack: ExitStack) -> Inventory | None:
        try:
            inventory = Inventory(self._store)
        except OSError:
            return None
        stack.callback(inventory.close)
        return inventory

    def _own(self, path: bytes) -> bytes:
        """Give a path by its place's own name."""
        name = max((name for name in self._names if is_below(path, name)), key=len)
        return (self._names[name].rstrip(b"/") + path[len(name.rstrip(b"/")) :]) or b"/"

    def _observe(self, path: bytes, inventory: Inventory | None, observer: Observer) -> Observed:
        if path in self._files:
            before = self._files[path]
        elif inventory is None or not inventory.covers(path):
            before = problem("was not recorded before the trial")
        else:
            before = inventory.state(path)
        return Observed(before=before, after=_look(path, observer))


def _look(path: bytes, observer: Observer) -> FileState | None:
    """Read the state of one path of the host; no symlink is followed below its directory."""
    above, name = split(path)
    try:
        with Tree(above or b"/") as tree:
            return observer.state(tree, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        return problem(f"cannot be read: {err.strerror}")
