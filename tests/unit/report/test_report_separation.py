"""What several runs have to do with each other, in words."""

from __future__ import annotations

import pytest

from supervisor.report.lines import plain
from supervisor.report.separation import separation_lines
from supervisor.verdict.pairs import separate_pairs
from supervisor.verdict.run_index import Contact, RunIndex


@pytest.mark.parametrize(("runs", "one_by_one"), [(4, 3), (6, 0)])
def test_many_pairs_that_only_others_join_are_counted(runs: int, one_by_one: int) -> None:
    """In a chain of n runs n - 1 pairs met; all others of the unit are joined through those, and would drown them."""
    chain = []
    for at in range(runs):
        found = Contact(b"/s/%d" % at, "read", 10 * at, 10 * at, (1,), None, None)
        made = Contact(b"/s/%d" % (at + 1), "changed", 10 * at + 1, 10 * at + 1, (2,), None, None)
        chain.append(RunIndex(run=f"r{at}", released_ns=10 * at, ended_ns=10 * at + 5, contacts=(found, made)))
    text = plain(separation_lines([run.run for run in chain], separate_pairs(chain, lambda: chain)))
    assert text.count("met-a-change") == runs - 1
    assert text.count(" through r") == one_by_one
    joined = (runs - 1) * (runs - 2) // 2
    assert (f"{joined} more pairs are joined through the runs in between" in text) is (one_by_one == 0)
