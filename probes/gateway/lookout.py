"""Decoys in what clients send. In: the bytes of a connection as they come; out: which decoy of the run is in them.

It looks at all that a client says in the open, whether or not it is let through; `inspection` looks inside TLS. Only
the decoys of this run are known here: those of earlier ones are looked for in what is kept, after the trial.
"""

from __future__ import annotations

from collections.abc import Callable

from policies.spotting import Spotter, SpottingStream
from probes.gateway.loop import boottime_ns
from supervisor.events import CanaryLeaked, Origin
from supervisor.values import dataclass


@dataclass(frozen=True, slots=True)
class Lookout:
    """What to look for; ``spotter`` calls each decoy ``RUN FORM``."""

    run: str
    spotter: Spotter

    def begin(self, connection: int, tell: Callable[[CanaryLeaked], object]) -> Watch:
        """Begin to look at a connection, by its number; ``tell`` gets what is seen."""
        return Watch(self.run, connection, tell, self.spotter.stream())


@dataclass(slots=True)
class Watch:
    """One connection that is looked at."""

    _run: str
    _connection: int
    _tell: Callable[[CanaryLeaked], object]
    _stream: SpottingStream

    def look(self, data: bytes, where: str) -> None:
        """Take what the client sent next, and tell which decoys are in it.

        Args:
            data: the bytes.
            where: it was to go, ``HOST:PORT``.
        """
        for sighting in self._stream.feed(data):
            placed_by, _, form = sighting.name.partition(" ")
            leaked = CanaryLeaked(
                n=-1, time_ns=boottime_ns(), origin=Origin.GATEWAY, connection=self._connection, form=form,
                placed_by=placed_by, seen_in=self._run, where=f"sent to {where}", encoding=sighting.encoding.value,
            )  # fmt: skip
            self._tell(leaked)
