"""What the kernel knows of a flow, put beside what the gateway tells of it."""

from __future__ import annotations

import pytest

from probes.kernel.witness import Dial
from supervisor.events import CanaryLeaked, ConnectionAllowed, ConnectionClosed, Event, NameAsked, Origin, ProcessKey
from supervisor.trial.attributing import attribute

WHO = ProcessKey(7, 1)
KNOWN = Dial(process=WHO, begun_ns=10, said_ns=20, left_ns=30)


def closed(*, opened_ns: int) -> ConnectionClosed:
    """A connection that the gateway accepted at one time, and says much later that it was closed."""
    return ConnectionClosed(
        n=-1, time_ns=900, connection=1, ip="203.0.113.7", port=80, decision="allowed", opened_ns=opened_ns
    )


def times(event: Event) -> tuple[int | None, ...]:
    """Give the kernel's times of an event."""
    return tuple(getattr(event, f"{name}_ns") for name in ("attempted", "said", "left"))


def test_an_event_gets_the_process_and_the_times_of_its_socket() -> None:
    """Whose it is, when it was asked for, said and left."""
    told = attribute(closed(opened_ns=11), KNOWN)
    assert (told.process, times(told)) == (WHO, (10, 20, 30))


@pytest.mark.parametrize("opened_ns", [9, 5])
def test_a_socket_that_was_begun_after_the_gateway_had_accepted_is_another_one(opened_ns: int) -> None:
    """The port was used again: its times are left out, as of what is not known."""
    assert times(attribute(closed(opened_ns=opened_ns), KNOWN)) == (None, None, None)
    early = ConnectionAllowed(n=-1, time_ns=9, connection=1, ip="203.0.113.7", port=80)
    assert times(attribute(early, KNOWN)) == (None, None, None)


def test_what_is_not_known_is_left_out() -> None:
    """No socket, or one of which the process alone is known."""
    assert attribute(closed(opened_ns=11), None) == closed(opened_ns=11)
    told = attribute(closed(opened_ns=11), Dial(process=WHO))
    assert (told.process, times(told)) == (WHO, (None, None, None))


@pytest.mark.parametrize(("transport", "expected"), [("udp", (None, 5, None)), ("tcp", (10, 20, 30))])
def test_a_question_by_datagram_keeps_the_moment_that_came_with_it(
    transport: str, expected: tuple[int | None, ...]
) -> None:
    """The same socket may have asked again since."""
    asked = NameAsked(
        n=-1, time_ns=900, name="a.test", record="A", decision="refused", transport=transport, said_ns=5
    )  # fmt: skip
    told = attribute(asked, KNOWN)
    assert (told.process, times(told)) == (WHO, expected)


def test_what_is_no_account_of_a_flow_gets_the_process_alone() -> None:
    """A decoy was seen in what somebody sent."""
    seen = CanaryLeaked(
        n=-1, time_ns=900, origin=Origin.GATEWAY, connection=1, form="aws", placed_by="r", seen_in="r", where="x",
        encoding="plain",
    )  # fmt: skip
    assert attribute(seen, KNOWN).process == WHO
