"""What counts as a credential, as it was fixed before the run. In: a path, an address or a socket; out: its name.

A name is what people call the thing: ``~/.ssh/id_ed25519`` below the home of the trial's user, else the whole path. The
globs are taken from the log, so that a later version with other data judges an old run as it was.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cached_property

from supervisor.events import CanaryPlaced, CredentialGuarded
from supervisor.evidence.naming import show
from supervisor.values import dataclass

FILE, AGENT, CANARY = "file", "agent", "canary"
_WILD = frozenset("*?[")
_HEAD = re.compile(r"[*?[]")
_CACHED = 65536
_KERNELS = (b"/proc/", b"/sys/", b"/dev/")
_MAJOR = 0xFFF
_MAPPED = "::ffff:"


@dataclass(frozen=True, slots=True)
class Guarded:
    """One thing that is guarded. ``masked``: what lay there was hidden; ``made_only``: reading it means nothing."""

    what: str
    name: str
    masked: bool = False
    made_only: bool = False


class Guard:
    """Answers for one run. Every answer about a path is kept, since a trial asks for the same ones again and again."""

    def __init__(self, guarded: CredentialGuarded, canaries: Iterable[CanaryPlaced] = ()) -> None:
        """Compile the globs once."""
        self._home = guarded.home
        self._homes = tuple(home + b"/" for home in dict.fromkeys((guarded.home, *guarded.homes)) if home)
        self._masked = frozenset(guarded.masked)
        self._relative, self._absolute = _Names(guarded.relative), _Names(guarded.absolute)
        self._sockets = _Names(guarded.sockets)
        self._anywhere, self._made = _Names(guarded.anywhere), _Names(guarded.made)
        self._addresses = frozenset(guarded.addresses)
        self._hosts = frozenset(guarded.names)
        self._canaries = {canary.path: canary.form for canary in canaries if canary.path}
        links = zip(guarded.linked_inodes, guarded.linked_devices, guarded.linked, strict=True)
        self._linked = {inode: (device, path) for inode, device, path in links}
        self._known: dict[bytes, Guarded | None] = {}
        self._areas: dict[bytes, tuple[str, bool]] = {}

    def find_linked(self, path: bytes, device: int, inode: int) -> Guarded | None:
        """Tell which masked file lies open by another name; None for none.

        An overlay gives the file the inode that it has on the host and a device of its own, of no driver.
        """
        found = self._linked.get(inode)
        if found is None or path.startswith(_KERNELS):
            return None
        own, masked = found
        return Guarded(FILE, self.name(masked)) if device == own or not device >> 8 & _MAJOR else None

    def find(self, path: bytes) -> Guarded | None:
        """Tell what a path of the trial is, None for what is no credential."""
        if path in self._known:
            return self._known[path]
        if len(self._known) >= _CACHED:
            self._known.clear()
        found = self._known[path] = self._find(path)
        return found

    def _find(self, path: bytes) -> Guarded | None:
        if path in self._canaries:
            return Guarded(CANARY, self.name(path))
        if not path.startswith(b"/"):
            return None
        what, masked = self._area(path)
        last = posixpath.basename(path)
        if what == AGENT:
            return Guarded(AGENT, self.name(path))
        if what or masked or self._anywhere.match(last):
            return Guarded(FILE, self.name(path), masked=masked)
        if self._made.match(last):
            return Guarded(FILE, self.name(path), made_only=True)
        return None

    def _area(self, path: bytes) -> tuple[str, bool]:
        """Tell what a path is by where it lies: what it is, empty for nothing, and whether it was masked."""
        above = posixpath.dirname(path)
        area = self._areas.get(above)
        if area is None:
            if len(self._areas) >= _CACHED:
                self._areas.clear()
            area = self._areas[above] = ("", False) if above == path else self._area(above)
        what, masked = area
        if not what:
            what = AGENT if self._sockets.match(path) else FILE if self._is_listed(path) else ""
        return what, masked or path in self._masked

    def _is_listed(self, path: bytes) -> bool:
        below = (path[len(home) :] for home in self._homes if path.startswith(home))
        return self._absolute.match(path) or any(self._relative.match(rest) for rest in below)

    def socket(self, path: bytes) -> str | None:
        """Give the name of a socket whose peer acts for somebody; abstract names are compared without their mark."""
        plain = path.lstrip(b"\0@")
        return self.name(plain) if plain.startswith(b"/") and self._area(plain)[0] == AGENT else None

    def gives_credentials(self, host: str | None) -> bool:
        """Tell whether an address, or a name, is where a cloud answers with credentials."""
        plain = (host or "").lower().rstrip(".").removeprefix(_MAPPED)
        return plain in self._addresses or plain in self._hosts

    def name(self, path: bytes) -> str:
        """Say a path as people do."""
        if self._home and path.startswith(self._home + b"/"):
            return show(b"~" + path[len(self._home) :])
        return show(path)


class _Names:
    """Globs that match a whole text; what a star matches may hold a slash, which only ever covers more.

    Expressions are compiled when a text begins like one of them: compiling all costs 10 ms, and hardly a run needs any.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        listed = tuple(globs)
        self._plain = frozenset(_encoded(glob).rstrip(b"/") for glob in listed if not _WILD.intersection(glob))
        ends = [glob for glob in listed if glob.startswith("*") and not _WILD.intersection(glob[1:])]
        self._ends = tuple(_encoded(glob[1:]) for glob in ends)
        self._wild = tuple(glob for glob in listed if _WILD.intersection(glob) and glob not in ends)
        self._heads = tuple(_encoded(_HEAD.split(glob, maxsplit=1)[0]) for glob in self._wild)

    def match(self, text: bytes) -> bool:
        """Tell whether one of them matches."""
        if text in self._plain or text.endswith(self._ends):
            return True
        return text.startswith(self._heads) and self._expression.fullmatch(text) is not None

    @cached_property
    def _expression(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(_encoded(translate(glob)) for glob in self._wild))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
