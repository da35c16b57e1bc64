"""Names that went through a symlink. In: paths and states on disk; out: which differences such a name explains.

A call that is given a name (unlink, rename, mkdir) is told with the name as it was given. Where a directory in it is a
symlink, the change happens somewhere else: ``link/x`` is deleted and ``real/x`` is gone. The disk confirms it: the
state of a symlink is the digest of its text, and the text must lead from the one directory to the other.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from supervisor.events import Kind
from supervisor.evidence.file_facts import Observed
from supervisor.evidence.places import UNREACHABLE


class Symlinks:
    """Looks for symlinks on the way to a path; asks the disk only for what it needs, once each.

    Args:
        observe: gives states on disk.
        told: every path that events told a change of.
    """

    def __init__(
        self, observe: Callable[[Sequence[bytes]], Mapping[bytes, Observed]], told: Callable[[], Iterable[bytes]]
    ) -> None:
        """Ask nothing yet."""
        self._observe, self._told = observe, told
        self._digests: dict[bytes, frozenset[str]] = {}
        self._by_name: defaultdict[bytes, list[bytes]] = defaultdict(list)

    def crosses(self, path: bytes) -> bool:
        """Tell whether a directory of this path is, or was, a symlink: then the path itself is not what changed."""
        return any(self._texts(parent) for parent in _parents(path))

    def explain(self, path: bytes) -> bool:
        """Tell whether a change of this path was told under a name that leads here through a symlink."""
        if not self._by_name:
            for told in self._told():
                if told.startswith(UNREACHABLE):
                    continue  # the name of a descriptor that was given: no path of the trial's leads there
                self._by_name[posixpath.basename(told)].append(told)
        return any(self._leads(told, path) for told in self._by_name.get(posixpath.basename(path), ()))

    def _leads(self, told: bytes, path: bytes) -> bool:
        """Compare two paths from their ends; where they part, one must be a symlink to the other."""
        link, target = told, path
        while link != target and posixpath.basename(link) == posixpath.basename(target) and link not in {b"/", b""}:
            link, target = posixpath.dirname(link), posixpath.dirname(target)
            texts = self._texts(link)
            if texts and not texts.isdisjoint(_digests(link, target)):
                return True
        return False

    def _texts(self, path: bytes) -> frozenset[str]:
        """Give the digests of the texts that a path had as a symlink; empty for one that never was."""
        known = self._digests.get(path)
        if known is None:
            state = self._observe([path]).get(path)
            both = (state.before, state.after) if state else ()
            known = frozenset(s.digest for s in both if s is not None and s.kind is Kind.SYMLINK and s.digest)
            self._digests[path] = known
        return known


def _digests(link: bytes, target: bytes) -> Iterator[str]:
    """Give the digests of the texts by which a symlink can name a directory."""
    for text in (target, posixpath.relpath(target, posixpath.dirname(link))):
        for written in (text, text + b"/", b"./" + text):
            yield f"sha256:{hashlib.sha256(written).hexdigest()}"


def _parents(path: bytes) -> Iterator[bytes]:
    path = posixpath.dirname(path)
    while path not in {b"/", b""}:
        yield path
        path = posixpath.dirname(path)
