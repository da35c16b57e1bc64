"""Seeded faults that no other page of tests has: no verdict is final with another label than a careful human's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scenario_corpus import CASES, Case

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import bench_verdicts

pytestmark = [pytest.mark.kernel("bpf", "cgroup", "bubblewrap", "overlayfs")]

TRIED = (
    "writer that never rests",
    "a mapping that is written later",
    "another name of the outcome",
    "double fork into nowhere",
    "out of order",
)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in TRIED], ids=lambda case: case.name)
def test_a_seeded_fault_has_the_verdict_of_a_careful_human(case: Case, tmp_path: Path) -> None:
    """Final with the right label where it can be known, unresolved where it cannot."""
    assert bench_verdicts.given(bench_verdicts.run_case(case, tmp_path / "lab")) == bench_verdicts.wanted(case)


def test_every_case_that_is_tried_is_in_the_corpus() -> None:
    """A case that was renamed is not skipped in silence."""
    assert set(TRIED) <= {case.name for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)
