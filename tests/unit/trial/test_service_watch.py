"""Services asked beside a trial: when they are asked, what is told, and what ends the waiting."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policies.types import Policy, Service, Settle, SettleKind
from supervisor.trial.service_watch import ServiceWatch, parse_announcement, watch_services

PATIENCE_S = 60.0


def policy(place: Path, name: str = "state") -> Policy:
    """Give a policy with a service that answers with a file."""
    options = {"path": f"{place}/{name}", "absent": "pending", "committed": ("done",), "pending": ("queued",)}
    settle = Settle(kind=SettleKind.FILE, every_s=0.01, deadline_s=30.0, options=tuple(sorted(options.items())))
    return Policy(services=(Service(name="shop", settle=settle), Service(name="mute")))


@pytest.fixture
def told() -> list[dict[str, Any]]:
    """Give what was told, in order."""
    return []


@pytest.fixture
def watch(tmp_path: Path, told: list[dict[str, Any]]) -> Iterator[ServiceWatch]:
    """Give a watch that has begun."""
    found = ServiceWatch(policy(tmp_path), run="r", environ={}, tell=lambda **fields: told.append(fields))
    found.start()
    yield found
    found.stop()
    found.close()


def heard(descriptor: int) -> bool:
    """Wait for a descriptor."""
    return bool(select.select([descriptor], [], [], PATIENCE_S)[0])


def test_at_a_boundary_every_service_that_can_be_asked_is_told(watch: ServiceWatch, told: list[dict[str, Any]]) -> None:
    """Also when its answer is the one before."""
    for moment in ("start", "endpoint"):
        watch.ask(moment)
        assert heard(watch.answered)
    assert [(one["service"], one["moment"], one["answer"].status) for one in told] == [
        ("shop", "start", "pending"),
        ("shop", "endpoint", "pending"),
    ]


def say(state: Path, word: str) -> None:
    """Let the service say something else, with no moment at which it says nothing."""
    beside = state.with_name("beside")
    beside.write_text(word)
    beside.replace(state)


def test_following_ends_when_nothing_may_act_and_tells_only_what_differs(
    watch: ServiceWatch, told: list[dict[str, Any]], tmp_path: Path
) -> None:
    """However often it was asked in between."""
    watch.follow(on=True)
    while not told:
        select.select([], [], [], 0.01)
    say(tmp_path / "state", "queued")
    while len(told) < 2:
        select.select([], [], [], 0.01)
    say(tmp_path / "state", "done")
    assert heard(watch.settled)
    watch.follow(on=False)
    assert [one["answer"].status for one in told] == ["pending", "pending", "committed"]


def test_what_was_announced_is_asked_about(tmp_path: Path, told: list[dict[str, Any]]) -> None:
    """A service that is not asked by operation, or that nobody knows, is not touched by it."""
    watch = ServiceWatch(
        policy(tmp_path, "{operation}"), run="r", environ={}, tell=lambda **fields: told.append(fields)
    )
    (tmp_path / "7").write_text("done")
    watch.start()
    for note in ('{"service": "shop", "operation": 7}', '{"service": "other", "operation": "8"}', "hello"):
        watch.announce(note)
    watch.ask("endpoint")
    assert heard(watch.answered)
    watch.stop()
    watch.close()
    assert [(one["operations"], one["answer"].status) for one in told] == [(("7",), "committed")]


def test_a_failure_to_record_is_raised_by_whoever_stops(tmp_path: Path) -> None:
    """An answer that is not in the log must not be forgotten."""

    def refuse(**_fields: object) -> None:
        message = "no room"
        raise OSError(message)

    watch = ServiceWatch(policy(tmp_path), run="r", environ={}, tell=refuse)
    watch.start()
    watch.ask("start")
    assert heard(watch.answered)
    with pytest.raises(OSError, match="no room"):
        watch.stop()
    watch.close()


def test_there_is_no_watch_where_nobody_can_be_asked() -> None:
    """So that an ordinary trial has no thread more."""
    assert watch_services(Policy(services=(Service(name="mute"),)), run="r", environ={}, tell=print) is None


@pytest.mark.parametrize(
    ("note", "named"),
    [
        ('{"service": "shop", "operation": "a"}', ("shop", "a")),
        ('{"service": "shop", "operation": 3}', ("shop", "3")),
        ('{"service": "shop", "operation": true}', None),
        ('{"service": "shop", "operation": ""}', None),
        ('{"service": 1, "operation": "a"}', None),
        ('{"service": "shop"}', None),
        ("{" * 20_000, None),
        ('{"service": "shop", "operation": ' + "[" * 100_000, None),
        ("[]", None),
    ],
)
def test_an_announcement_is_read_strictly(note: str, named: tuple[str, str] | None) -> None:
    """Notes are words of the trial: what is not one is passed over, whatever it is."""
    assert parse_announcement(note) == named
