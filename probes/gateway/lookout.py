"""Decoys in what clients send. In: the bytes of a connection as they come; out: which decoy of the run is in them.

It looks at all that a client says in the open, whether or not it is let through; `inspection` looks inside TLS. Only
the decoys of this run are known here: those of earlier ones are looked for in what is kept, after the trial.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.spotting import Spotter, SpottingStream
from supervisor.events import CanaryLeaked, Origin
from supervisor.values import dataclass


@dataclass(frozen=True, slots=True)
class Lookout:
    """What to look for; ``spotter`` calls each decoy ``RUN FORM``."""

    run: str
    spotter: Spotter

    def begin(self) -> Watch:
        """Begin to look at a connection."""
        return Watch(self, self.spotter.stream())


@dataclass(slots=True)
class Watch:
    """One connection that is looked at."""

    lookout: Lookout
    _stream: SpottingStream

    def look(self, data: bytes, where: str, **common: Any) -> Iterator[CanaryLeaked]:  # noqa: ANN401 - fields of the event
        """Take what the client sent next.

        Args:
            data: the bytes.
            where: it was to go, ``HOST:PORT``.
            common: ``n``, ``time_ns`` and ``connection``.
        """
        for sighting in self._stream.feed(data):
            placed_by, _, form = sighting.name.partition(" ")
            yield CanaryLeaked(
                origin=Origin.GATEWAY,
                form=form,
                placed_by=placed_by,
                seen_in=self.lookout.run,
                where=f"sent to {where}",
                encoding=sighting.encoding.value,
                **common,
            )
