"""Places that a trial shares with others, or must not see: what was declared, and who else changed them."""

from __future__ import annotations

import msgspec

from supervisor.events.base import Event


class PlaceDeclared(Event, frozen=True, kw_only=True):
    """A place that the policy shares with other runs, or hides, was found on this host and mounted.

    Attributes:
        path: absolute, free of symlinks: the name that facts use.
        names: further absolute paths of it: as it was declared, and where other mounts show it.
        hidden: it must not be seen; else it is shared.
        workspace: it is the workspace, which is written in place.
        watched: whoever else changes it is seen, but for what `PlaceUnwatched` tells.
        devices: of the file systems of a shared place, or of what lies over a hidden one, as file events have them;
            empty when they prove nothing.
        total: how many places were declared: all of them are told before the trial is released.
    """

    path: bytes
    names: tuple[bytes, ...] = ()
    hidden: bool = False
    workspace: bool = False
    watched: bool = False
    devices: tuple[int, ...] = ()
    total: int = 1


class PlaceChanged(Event, frozen=True, kw_only=True):
    """Somebody else than the trial changed a place that is written in place: another run, a service, the host.

    ``change`` is created, modified, deleted, moved or attributes, and in a workspace also closed (somebody had it open
    for writing) or held (somebody still has, when the trial is over); it happened between ``since_ns`` and ``seen_ns``.
    """

    path: bytes
    change: str
    since_ns: int
    seen_ns: int


class PlaceUnwatched(Event, frozen=True, kw_only=True):
    """From ``since_ns`` to ``seen_ns`` changes of a place by others may have gone unseen; ``why`` says so."""

    path: bytes
    why: str
    since_ns: int
    seen_ns: int


class Sighting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the watch of a place saw, whoever did it; no event yet. Fields as in `PlaceChanged`."""

    path: bytes
    change: str
    since_ns: int
    seen_ns: int
