"""The standard streams that the caller gave a trial: the record of them, and of how they were left.

In: a trial that is held, and later the same one of which nothing is alive. The rule it keeps: what others can meet too
is told before CMD can have touched it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from supervisor.events import Kind, StreamGiven, StreamLeft
from supervisor.launch.handed import look_again, look_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from supervisor.trial.trial import Trial


def record_given(trial: Trial) -> None:
    """Record what others can meet of what CMD was given, before it is released."""
    for number, ours, theirs in _streams(trial):
        handed = look_at(ours)
        if handed is not None:
            fields = asdict(handed) | {"position": look_again(ours, shared=theirs).position}
            trial.given.append(trial.record(StreamGiven, number=number, **fields))


def record_left(trial: Trial) -> None:
    """Record how files that were given were left, once nothing of the trial is alive."""
    given = {event.number for event in trial.given if event.what is Kind.FILE}
    for number, ours, theirs in _streams(trial):
        if number in given:
            trial.record(StreamLeft, number=number, **asdict(look_again(ours, shared=theirs)))


def _streams(trial: Trial) -> Iterator[tuple[int, int, int]]:
    """Give the number of each stream, what we were given, and what CMD was given of it."""
    relay = trial.prepared.request.relay
    for number, (ours, theirs) in enumerate(zip(trial.prepared.spec.stdio, trial.box.streams.stdio, strict=True)):
        if relay is not None and number in relay.client:  # what the client says is passed on, and so are the answers
            yield number, relay.client[number], relay.client[number]
        elif ours is not None and theirs is not None:
            yield number, ours, theirs
