"""Where a name led: paths of calls that leave no open file behind, through the symlinks that may have been on the way.

In: the symlinks that the trial made, as the log tells them, and those that the host has. Out: every path that a name
may have meant. The rule it keeps: a link that was there at any time may have been followed; what is not known is said.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_MOST = 64
_MOST_NAMES = 20_000
_MOST_STEPS = 5_000_000
"""For all questions together, some seconds: whoever renames directories round and round gets no answer after that."""
_LONGEST = 4096
_FOR_EVER = 1 << 62
_MAGIC = re.compile(rb"/proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?/(root|cwd|exe|fd|map_files)\b")

ReadLinks = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]
"""Gives the text of each path that is a symlink on the host."""


def no_links(_paths: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """Say that the host has no symlinks."""
    return {}


class Leading:
    """Follows names, by what was told so far of what was made and moved; asks the host once for each path."""

    def __init__(self, links: ReadLinks) -> None:
        """Know of no symlink yet."""
        self._links = links
        self._made: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self._came: defaultdict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
        self._turn = self._steps = 0
        self._left: set[bytes] = set()
        self._former: dict[bytes, tuple[tuple[bytes, ...], bool]] = {}
        self._host: dict[bytes, bytes | None] = {}

    def made(self, path: bytes, text: bytes) -> None:
        """Take note of a symlink that the trial made."""
        self._made[path].add(text)

    def moved(self, old: bytes, new: bytes) -> None:
        """Take note of a rename, or of another name: what was, or lay below, the old name may be at the new one."""
        self._turn += 1
        self._came[new].append((self._turn, old))
        self._left.add(old)
        self._former.clear()

    def ask(self, paths: Iterable[bytes]) -> None:
        """Ask the host at once about every name on the way of some paths."""
        names = {name for path in paths for name in _names(path)}
        wanted = {former for name in names for former in self.names_of(name)[0]} - self._host.keys()
        if wanted:
            found = self._links(sorted(wanted))
            self._host.update((path, found.get(path)) for path in wanted)

    def follow(self, path: bytes) -> tuple[tuple[bytes, ...], bool]:
        """Give every path that a name may have meant, itself first, and whether those are all."""
        found, waiting, known = dict.fromkeys((path,)), [path], True
        while waiting:
            name = waiting.pop()
            if len(found) > _MOST:
                return tuple(found), False
            if magic := _MAGIC.match(name):
                known &= magic[1] == b"root"
                led = [name[magic.end() :] or b"/"] if magic[1] == b"root" else []
            else:
                led = self._led(name)
                known &= self.names_of(name)[1]
            for other in led:
                if other not in found:
                    found[other] = None
                    waiting.append(other)
        return tuple(found), known

    def names_of(self, name: bytes) -> tuple[tuple[bytes, ...], bool]:
        """Give every name that the thing at a path may have had, itself first, and whether those are all."""
        if not self._came:
            return (name,), True
        if name not in self._former:
            latest, waiting = {name: _FOR_EVER}, [name]
            while waiting and len(latest) < _MOST_NAMES and self._steps < _MOST_STEPS:
                path = waiting.pop()
                for former, turn in self._names_before(path, latest[path]):
                    if latest.get(former, 0) < turn and len(former) <= _LONGEST:
                        latest[former] = turn
                        waiting.append(former)
            self._former[name] = tuple(latest), not waiting
        return self._former[name]

    def _names_before(self, path: bytes, turn: int) -> Iterator[tuple[bytes, int]]:
        """Give the names that the thing at a path had before the last moves up to a turn, and the turn of each."""
        above = _names(path)
        self._steps += len(above)
        for new in above:
            came = self._came.get(new, ())
            self._steps += len(came)
            for moved, old in reversed(came):
                if moved < turn:
                    yield old + path[len(new) :], moved

    def _led(self, path: bytes) -> list[bytes]:
        """Give where a path leads by the first symlink on its way, for each that may have been there."""
        for name in _names(path):
            if texts := self._texts(name):
                rest = path[len(name) + 1 :]
                above = posixpath.dirname(name)
                return [posixpath.normpath(posixpath.join(above, text, rest)) for text in sorted(texts)] + (
                    [] if self._stays(name) else self._beyond(path, name)
                )
        return []

    def _stays(self, name: bytes) -> bool:
        """Tell whether the host's link at a name was there from the beginning and did not go away by a rename."""
        return name not in self._made and self.names_of(name)[0] == (name,) and self._left.isdisjoint(_names(name))

    def _beyond(self, path: bytes, name: bytes) -> list[bytes]:
        """Give where a path leads if a link that the trial made or moved was not there at the time."""
        for longer in _names(path):
            if len(longer) > len(name) and (texts := self._texts(longer)):
                rest, above = path[len(longer) + 1 :], posixpath.dirname(longer)
                return [posixpath.normpath(posixpath.join(above, text, rest)) for text in sorted(texts)]
        return []

    def _texts(self, name: bytes) -> set[bytes]:
        """Give the texts that a name may have had as a symlink."""
        texts: set[bytes] = set()
        for former in self.names_of(name)[0]:
            if former not in self._host:
                self._host[former] = self._links([former]).get(former)
            text = self._host[former]
            texts |= self._made.get(former, set()) | ({text} if text else set())
        return texts


def _names(path: bytes) -> list[bytes]:
    """Give the path and each directory on the way to it, the uppermost first."""
    parts = [part for part in path.split(b"/") if part]
    return [b"/" + b"/".join(parts[:count]) for count in range(1, len(parts) + 1)]
