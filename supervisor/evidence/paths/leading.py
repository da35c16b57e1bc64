"""Where a name led: paths of calls that leave no open file behind, through the symlinks that may have been on the way.

In: the symlinks that the trial made, as the log tells them, and those that the host has. Out: every path that a name
may have meant. The rule it keeps: a link that was there at any time may have been followed; what is not known is said.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

_MOST = 64
_MAGIC = re.compile(rb"/proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?/(root|cwd|exe|fd|map_files)\b")

ReadLinks = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]
"""Gives the text of each path that is a symlink on the host."""


def no_links(_paths: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """Say that the host has no symlinks."""
    return {}


class Leading:
    """Follows names; asks the host once for each path."""

    def __init__(self, links: ReadLinks) -> None:
        """Know of no symlink yet."""
        self._links = links
        self._made: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self._host: dict[bytes, bytes | None] = {}

    def made(self, path: bytes, text: bytes) -> None:
        """Take note of a symlink that the trial made."""
        self._made[path].add(text)

    def moved(self, old: bytes, new: bytes) -> None:
        """Take note of a rename: what was below the old name may be a symlink below the new one."""
        for path in [path for path in self._made if path == old or path.startswith(old + b"/")]:
            self._made[new + path[len(old) :]] |= self._made[path]

    def ask(self, paths: Iterable[bytes]) -> None:
        """Ask the host at once about every name on the way of some paths."""
        wanted = {name for path in paths for name in _names(path)} - self._host.keys()
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
            for other in led:
                if other not in found:
                    found[other] = None
                    waiting.append(other)
        return tuple(found), known

    def _led(self, path: bytes) -> list[bytes]:
        """Give where a path leads by the first symlink on its way, for each that may have been there."""
        for name in _names(path):
            if texts := self._texts(name):
                rest = path[len(name) + 1 :]
                above = posixpath.dirname(name)
                return [posixpath.normpath(posixpath.join(above, text, rest)) for text in sorted(texts)] + (
                    self._beyond(path, name) if name in self._made else []
                )
        return []

    def _beyond(self, path: bytes, name: bytes) -> list[bytes]:
        """Give where a path leads if a link that the trial made was not there at the time."""
        for longer in _names(path):
            if len(longer) > len(name) and (texts := self._texts(longer)):
                rest, above = path[len(longer) + 1 :], posixpath.dirname(longer)
                return [posixpath.normpath(posixpath.join(above, text, rest)) for text in sorted(texts)]
        return []

    def _texts(self, name: bytes) -> set[bytes]:
        if name not in self._host:
            self._host[name] = self._links([name]).get(name)
        text = self._host[name]
        return self._made.get(name, set()) | ({text} if text else set())


def _names(path: bytes) -> list[bytes]:
    """Give the path and each directory on the way to it, the uppermost first."""
    parts = [part for part in path.split(b"/") if part]
    return [b"/" + b"/".join(parts[:count]) for count in range(1, len(parts) + 1)]
