"""One place by several paths: what a mount shows twice, and files with several names, are met by any of them.

In: where the places of runs lie in their file systems, and what was seen of files; out: the names that mean the same.
The rule it keeps: a further name is added and none is taken away, so that it can only join more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from supervisor.evidence.file_facts import Ground
from supervisor.verdict.runs.placed import above, is_in
from supervisor.verdict.runs.run_index import RunIndex

T = TypeVar("T", bound=msgspec.Struct)
File = tuple[int, int]
"""Device and inode."""


def files_of(index: RunIndex) -> tuple[Mapping[bytes, File], Mapping[bytes, File]]:
    """Tell of which file with several names a path is one: of the paths that a run met, and of those that it changed.

    A path that got another file by a change, as a commit does it, leaves the file that lay there as it was.
    """
    met = {sight.path: (sight.device, sight.inode) for sight in index.found if sight.names > 1}
    after = {sight.path: (sight.device, sight.inode) for sight in index.left}
    gone = {path for path, (_, inode) in after.items() if not inode}
    changed = {path: file for path, file in met.items() if path in gone or after.get(path, file) == file}
    changed |= {sight.path: (sight.device, sight.inode) for sight in index.left if sight.names > 1}
    return met, changed


def further_names(heads: Sequence[RunIndex]) -> Callable[[RunIndex], RunIndex] | None:
    """Find places that runs know by different paths; gives what adds the common name to an index, None for none."""
    names = _names({ground for head in heads for ground in head.grounds})
    if not names:
        return None

    def add(index: RunIndex) -> RunIndex:
        rules = [(ground.path, names[ground]) for ground in index.grounds if ground in names]
        return _renamed(index, rules) if rules else index

    return add


def _names(grounds: Collection[Ground]) -> dict[Ground, bytes]:
    """Give the common name of each ground that has another path than that."""
    paths: dict[tuple[str, bytes], bytes] = {}
    for ground in grounds:
        key = ground.device, ground.inner
        paths[key] = min(ground.path, paths.get(key, ground.path))
    found = {}
    for ground in grounds:
        name = paths[ground.device, ground.inner]
        for inner in above(ground.inner):
            if (top := paths.get((ground.device, inner))) is not None:
                name = _moved(ground.inner, inner, top)
        if name != ground.path:
            found[ground] = name
    return found


def _moved(path: bytes, top: bytes, name: bytes) -> bytes:
    """Give a path that lies in ``top`` as one that lies in ``name``."""
    return (name.rstrip(b"/") + b"/" + path[len(top.rstrip(b"/")) :].lstrip(b"/")).rstrip(b"/") or b"/"


def _renamed(index: RunIndex, rules: Sequence[tuple[bytes, bytes]]) -> RunIndex:
    def others(path: bytes) -> Iterator[bytes]:
        return (_moved(path, top, name) for top, name in rules if is_in(path, top))

    return msgspec.structs.replace(
        index,
        places=(*index.places, *(name for place in (*index.places, index.workspace) for name in others(place))),
        wrote=(*index.wrote, *((name, since_ns) for place, since_ns in index.wrote for name in others(place))),
        contacts=(*index.contacts, *(_with(one, name) for one in index.contacts for name in others(one.path))),
        found=(*index.found, *(_with(one, name) for one in index.found for name in others(one.path))),
        left=(*index.left, *(_with(one, name) for one in index.left for name in others(one.path))),
    )


def _with(one: T, path: bytes) -> T:
    return msgspec.structs.replace(one, path=path)
