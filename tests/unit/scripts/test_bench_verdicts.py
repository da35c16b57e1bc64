"""The confusion table: a wrong final is never counted as anything else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "scenario")]

from scenario_corpus import Case  # noqa: E402 - likewise

import bench_verdicts  # noqa: E402 - after the path


def case(truth: str | None) -> Case:
    """Give a case with this truth."""
    return Case(name="x", script="true", truth=truth, why="x")


@pytest.mark.parametrize(
    ("truth", "said", "wrong", "needless"),
    [
        ("success", "success", False, False),
        ("success", "failure", True, False),
        ("success", "unresolved", False, True),
        (None, "success", True, False),
        (None, "failure", True, False),
        (None, "unresolved", False, False),
    ],
)
def test_what_is_wrong_and_what_is_needless(
    truth: str | None,
    said: str,
    wrong: bool,  # noqa: FBT001 - a parameter of the test
    needless: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Final where it is open, or with the other label, is wrong; open where it is final is needless."""
    assert (bench_verdicts.is_wrong(case(truth), said), bench_verdicts.is_needless(case(truth), said)) == (
        wrong,
        needless,
    )


def test_the_table_counts_every_trial_once() -> None:
    """A line a truth, a column a verdict."""
    lines = list(bench_verdicts.table([(case("success"), "success"), (case(None), "failure")]))
    assert [line.split()[1:] for line in lines[1:]] == [["1", "0", "0"], ["0", "0", "0"], ["0", "1", "0"]]
