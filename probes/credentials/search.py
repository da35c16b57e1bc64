"""The search of touched files: for decoys of this run and earlier ones, passed credentials, and what looks like one.

In: a tree and the names of the files that a trial touched in it. Out: `Hit` values. The rule it keeps: it is bounded in
files, bytes and time, and says what it left out; no path is followed out of the tree.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping

from policies.spotting import VALUE_MIN_BYTES, Spotter
from probes.credentials.patterns import find_looks
from supervisor.launch.disk.tree import Tree
from supervisor.values import dataclass, field

_CHUNK = 1 << 18
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is looked at: files, bytes of one file and of all, seconds."""

    files: int = 5000
    file_bytes: int = 1 << 20
    all_bytes: int = 32 << 20
    time_s: float = 1.0
    hits: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """What one file holds.

    Attributes:
        name: of the file in its tree.
        run, form: of a decoy, or None.
        sort: what it looks like, or the name of a passed credential; for what is no decoy.
        passed: it is a passed one.
        encoding: of a decoy.
        line: from 1, of what is no decoy.
        value: of what is no decoy, for its fingerprint only.
    """

    name: bytes
    run: str | None = None
    form: str = ""
    sort: str = ""
    passed: bool = False
    encoding: str = ""
    line: int = 0
    value: bytes = b""


@dataclass(slots=True)
class Search:
    """One search, over one tree after the other.

    Attributes:
        decoys: finds decoys: each is called ``RUN FORM``; None when there are none.
        passed: values of credentials that were passed, by name.
        looks: whether what looks like a new credential is told too.
    """

    decoys: Spotter | None
    passed: Mapping[str, bytes]
    looks: bool = True
    bounds: Bounds = field(default_factory=Bounds)
    files: int = 0
    left_out: int = 0
    reason: str | None = None
    _bytes: int = 0
    _hits: int = 0
    _began_s: float = field(default_factory=time.monotonic)

    def run(self, tree: Tree, names: Iterable[bytes]) -> Iterator[Hit]:
        """Search files of a tree; one that is not there, or is no regular file, has nothing to tell."""
        for name in names:
            if self._is_over():
                self.left_out += 1
                continue
            for hit in self._file(tree, name):
                self._hits += 1
                yield hit

    def _is_over(self) -> bool:
        bounds = self.bounds
        for reached, why in (
            (self.files >= bounds.files, f"{bounds.files} files were searched"),
            (self._bytes >= bounds.all_bytes, f"{bounds.all_bytes >> 20} MiB were searched"),
            (self._hits >= bounds.hits, f"{bounds.hits} were found"),
            (time.monotonic() - self._began_s > bounds.time_s, f"it took {bounds.time_s:g} s"),
        ):
            if reached:
                self.reason = self.reason or why
                return True
        return False

    def _file(self, tree: Tree, name: bytes) -> Iterator[Hit]:
        try:
            with tree.parent(name) as (directory, last):
                descriptor = os.open(last, _FLAGS, dir_fd=directory)
        except OSError:
            return
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or not found.st_size:
                return
            content = self._read(descriptor)
        finally:
            os.close(descriptor)
        self.files += 1
        self._bytes += len(content)
        if found.st_size > len(content):
            self.left_out += 1
            self.reason = self.reason or f"only the first {self.bounds.file_bytes >> 20} MiB of a file are searched"
        yield from self._content(name, content)

    def _read(self, descriptor: int) -> bytes:
        parts, left = [], self.bounds.file_bytes
        while left and (part := os.read(descriptor, min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _content(self, name: bytes, content: bytes) -> Iterator[Hit]:
        decoys = self.decoys.spot(content) if self.decoys else ()
        for sighting in decoys:
            run, _, form = sighting.name.partition(" ")
            yield Hit(name=name, run=run, form=form, encoding=sighting.encoding.value)
        for passed, value in self.passed.items():
            if (at := content.find(value)) >= 0:
                line = content.count(b"\n", 0, at) + 1
                yield Hit(name=name, sort=passed, passed=True, line=line, value=value)
        if self.looks and not decoys:
            for look in find_looks(content):
                if look.value not in self.passed.values():
                    yield Hit(name=name, sort=look.sort, line=look.line, value=look.value)


def spotter_of(decoys: Iterable[tuple[str, str, bytes]], *, twice: str | None = None) -> Spotter | None:
    """Make what finds decoys; None when there are none.

    Args:
        decoys: the run, the form and the value of each.
        twice: the run whose decoys are looked for encoded twice, too.
    """
    named = [(f"{run} {form}", value) for run, form, value in decoys if len(value) >= VALUE_MIN_BYTES]
    both = frozenset(name for name, _ in named if twice is not None and name.startswith(f"{twice} "))
    return Spotter(named, twice=both) if named else None
