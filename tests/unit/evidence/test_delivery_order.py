"""Any order of delivery gives the same facts."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from transcript import Transcript, ordinary, state, straggler

from supervisor import events as ev

NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d", "e", "/tmp/x", "/etc/y"])
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["create", "write", "delete", "rename", "fork", "exec", "map", "block", "contact", "lose"]),
        NAMES,
        NAMES,
        st.integers(0, 5),
    ),
    max_size=25,
)


def act(trial: Transcript, people: list[ev.ProcessKey], step: tuple[str, str, str, int]) -> None:
    """Tell of one act of one of the processes."""
    what, name, other, who = step
    process = people[who % len(people)]
    match what:
        case "fork":
            people.append(trial.fork(process))
        case "exec":
            trial.execute(process, "prog", name)
        case "rename":
            trial.rename(name, other, process=process)
        case "map":
            trial.file(ev.FileMapped, name, size_bytes=1, process=process)
        case "block":
            trial.add(ev.ConnectionBlocked, process=process, transport="tcp", ip="203.0.113.7", port=443)
        case "contact":
            trial.add(ev.ConnectionAttempted, process=process, transport="unix", path=b"/srv/s", outside=True)
        case "lose":
            trial.add(ev.EventsLost, process=None, count=1, hook="syscall", first_ns=1, last_ns=2)
        case _:
            getattr(trial, what)(name, process=process)


@settings(max_examples=150, deadline=None)
@given(ACTS, st.integers(0, 2**32))
def test_any_delivery_order_gives_the_same_facts(steps: list[tuple[str, str, str, int]], seed: int) -> None:
    """Shuffled events are folded into equal facts."""
    trial = Transcript()
    people = [trial.begin()]
    trial.found("a", state("x"), state("y"))
    for step in steps:
        act(trial, people, step)
    trial.exit()
    trial.endpoint(*people[1:])
    trial.snapshot()
    trial.end()
    shuffled = list(trial.events)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - an order, no secret
    assert trial.facts(events=shuffled) == trial.facts()


def test_told_backwards_is_the_same() -> None:
    """The two standard trials, last event first."""
    for trial in (ordinary(), straggler(), straggler(handling="ended", gap_write=True)):
        assert trial.facts(events=reversed(trial.events)) == trial.facts()
