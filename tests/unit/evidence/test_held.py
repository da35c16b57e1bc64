"""What was held, joined with what became of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcript import MS, Transcript

from supervisor.events import (
    ConnectionDiscarded,
    ConnectionHeld,
    ConnectionReleased,
    Event,
    Origin,
    ValidationFinished,
    ValidationStarted,
)
from supervisor.evidence.held import DISCARDED, HELD, RELEASED, HeldFold, Release, add_decisions
from supervisor.verdict.releases import held_flows

BEFORE: tuple[Event, ...] = tuple(
    ConnectionHeld(
        n=number, time_ns=number, connection=number, ip="198.51.100.1", port=80, size_bytes=5, digest="sha256:0"
    )
    for number in (1, 2, 3)
)
LATER: tuple[Event, ...] = (
    ValidationStarted(n=4, time_ns=4, files=1, connections=3, digest="sha256:1"),
    ValidationFinished(n=5, time_ns=5, accepted=True, exit_code=0),
    ConnectionReleased(
        n=6, time_ns=6, connection=1, dialled="127.0.0.1:1", bytes_out=5, bytes_in=2, digest_in="sha256:2"
    ),
    ConnectionDiscarded(n=7, time_ns=7, origin=Origin.SUPERVISOR, connection=3, reason="the first one broke"),
)


def fold(events: tuple[Event, ...]) -> Release:
    """Fold events as they come."""
    made = HeldFold()
    for event in events:
        made.handlers()[type(event)](event)
    return made.finish()


@given(st.permutations([*BEFORE, *LATER]))
def test_any_order_gives_the_same(events: list[Event]) -> None:
    """However events are delivered, the facts are those of their order."""
    assert fold(tuple(events)) == fold((*BEFORE, *LATER))


def test_each_connection_has_one_state() -> None:
    """Released, undecided, discarded; with the events that say so."""
    found = fold((*BEFORE, *LATER))
    assert [(one.connection, one.state, one.events) for one in found.held] == [
        (1, RELEASED, (1, 6)),
        (2, HELD, (2,)),
        (3, DISCARDED, (3, 7)),
    ]
    assert [one.connection for one in found.sent] == [1]
    assert found.validation is not None
    assert (found.validation.accepted, found.validation.events) == (True, (4, 5))


def test_what_is_decided_later_is_as_if_folded_at_once() -> None:
    """Facts that decisions were added to are those of the whole log."""
    assert add_decisions(fold(BEFORE), LATER) == fold((*BEFORE, *LATER))


def test_an_answer_that_never_came_is_not_known() -> None:
    """A validator that was asked, and no more: neither accepted nor refused."""
    found = fold(LATER[:1]).validation
    assert found is not None
    assert found.accepted is None


@pytest.mark.parametrize(("acted_ms", "after"), [(-1, False), (1, True), (None, False)])
def test_what_was_held_lies_after_the_endpoint_when_the_trial_said_it_then(
    acted_ms: int | None,
    after: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A client that waits for an answer is let go long after it spoke; where its time is not known nothing is said."""
    trial = Transcript()
    trial.begin()
    trial.now_ns += 100 * MS
    trial.exit()
    said_ns = None if acted_ms is None else trial.now_ns + acted_ms * MS
    trial.endpoint()
    trial.now_ns += 20 * MS
    trial.add(
        ConnectionHeld, connection=1, ip="198.51.100.1", port=80, size_bytes=5, digest="sha256:0", said_ns=said_ns
    )
    (flow,) = held_flows(trial.facts(), {})
    assert flow.after_endpoint is after
