"""Decoys in what clients send. In: the bytes of a connection as they come; out: which decoy is in them.

Bodies of HTTP/1 are looked at as they are once their chunks are joined and their compression undone.

It looks at all that a client says in the open, whether or not it is let through; `inspection` looks inside TLS. Known
are the decoys of this run, and of a few before it: those of more are looked for in what is kept, after the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from policies.spotting import Sighting, Spotter, SpottingStream
from probes.gateway.loop import boottime_ns
from probes.gateway.sent_bodies import HOW, SentBodies
from supervisor.events import CanaryLeaked, Origin
from supervisor.values import dataclass, field


@dataclass(frozen=True, slots=True)
class Lookout:
    """What to look for; ``spotter`` calls each decoy ``RUN FORM``."""

    run: str
    spotter: Spotter

    def begin(self, connection: int, tell: Callable[[CanaryLeaked], object]) -> Watch:
        """Begin to look at a connection, by its number; ``tell`` gets what is seen."""
        stream = self.spotter.stream()
        in_bodies = {how: SpottingStream(self.spotter, stream.seen) for how in HOW}
        return Watch(self.run, connection, tell, stream, in_bodies)


@dataclass(slots=True)
class Watch:
    """One connection that is looked at."""

    _run: str
    _connection: int
    _tell: Callable[[CanaryLeaked], object]
    _stream: SpottingStream
    _in_bodies: Mapping[str, SpottingStream]
    _bodies: SentBodies = field(default_factory=SentBodies)
    _inside: bool = False

    def look(self, data: bytes, where: str, *, inside: bool = False) -> None:
        """Take what the client sent next, and tell which decoys are in it.

        Args:
            data: the bytes.
            where: it was to go, ``HOST:PORT``.
            inside: they were inside TLS.
        """
        if inside and not self._inside:
            self._inside, self._bodies = True, SentBodies()
        place = f"{where}, inside TLS" if inside else where
        self._say(self._stream.feed(data), place)
        for content, how in self._bodies.feed(data):
            self._say(self._in_bodies[how].feed(content), f"{place}, in a {how} body")

    def _say(self, sightings: Iterable[Sighting], where: str) -> None:
        for sighting in sightings:
            placed_by, _, form = sighting.name.partition(" ")
            leaked = CanaryLeaked(
                n=-1, time_ns=boottime_ns(), origin=Origin.GATEWAY, connection=self._connection, form=form,
                placed_by=placed_by, seen_in=self._run, where=f"sent to {where}", encoding=sighting.encoding.value,
            )  # fmt: skip
            self._tell(leaked)
