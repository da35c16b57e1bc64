"""How limits that were met are told: in the report, and in the summary where they were felt."""

from __future__ import annotations

import pytest

from completions import completion
from supervisor.report.summary import summary
from supervisor.report.text import render_text


@pytest.mark.parametrize(
    ("resource", "limit", "effect", "times", "told"),
    [
        ("pids", 4096, "refused", 1, "pids limit of 4,096: 1 fork refused [7]"),
        ("memory", 512 << 20, "killed", 1, "memory limit of 512MiB: 1 process was killed [7]"),
        ("memory", 100_000_000, "killed", 1200, "memory limit of 100MB: 1,200 processes were killed [7]"),
        ("memory", 1 << 30, "reclaimed", 2, "memory limit of 1GiB: caches were given up 2 times [7]"),
        ("cpu", 0.5, "throttled", 3, "cpu limit of 0.5: made to wait in 3 periods [7]"),
        ("io", 5, "delayed\x1b[2J", 2, "io limit of 5: delayed\\x1b[2J 2 times [7]"),
    ],
)
def test_a_limit_that_was_met_is_told_with_what_it_did(
    resource: str, limit: float, effect: str, times: int, told: str
) -> None:
    """Every effect has its sentence; only what ends or refuses something is told at the end of a run."""
    met = {"resource": resource, "limit": limit, "effect": effect, "times": times, "processes": [], "events": [7]}
    argument = completion(effects={"limits": [met]})
    assert f"limits that were met (1)\n  {told}\n" in render_text(argument)
    assert (f"supervise: {told}" in summary(argument)) == (effect in {"killed", "refused"})


def test_nothing_is_told_of_limits_that_were_not_met() -> None:
    """No heading without an entry."""
    assert "limits that were met" not in render_text(completion())
