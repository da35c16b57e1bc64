"""The controlled replay, on real processes and a real queue: everything in a row comes from the logs of its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

CELLS = [("endpoint", "shared"), ("endpoint", "isolated"), ("settled", "shared"), ("settled", "isolated")]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, dict[tuple[str, str], dict[str, Any]], Path]:
    """Run the replay once."""
    home, work = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work")
    home.chmod(0o700)
    lab, plot = Lab(home, work), work / "cells.svg"
    done = lab.call("replay", "--json", "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    return lab, {(row["score"], row["state"]): row for row in rows}, plot


Replayed = tuple[Lab, dict[tuple[str, str], dict[str, Any]], Path]


def test_there_is_one_row_a_cell(replayed: Replayed) -> None:
    """Two moments of scoring times two ways to keep state."""
    assert list(replayed[1]) == CELLS


@pytest.mark.parametrize("state", ["shared", "isolated"])
def test_the_moment_of_scoring_alone_changes_finality(replayed: Replayed, state: str) -> None:
    """At the endpoint the order is pending: observed as a failure, and not final. Followed, it is a final success."""
    endpoint, settled = replayed[1]["endpoint", state], replayed[1]["settled", state]
    assert (endpoint["finality"], endpoint["label"], endpoint["observed"]) == ("unresolved", None, "failure")
    assert (settled["finality"], settled["label"], settled["observed"]) == ("final", "success", "success")


@pytest.mark.parametrize("score", ["endpoint", "settled"])
def test_the_sharing_of_state_alone_changes_separation(replayed: Replayed, score: str) -> None:
    """Following an order settles it and leaves its stock to the next run; a shop of its own does not."""
    shared, isolated = replayed[1][score, "shared"], replayed[1][score, "isolated"]
    assert (shared["separation"], isolated["separation"]) == ("connected", "separate")
    assert isolated["next_start"] == "stock 1, orders: 0 pending, 0 committed, 0 failed"
    assert shared["next_start"] != isolated["next_start"]


def test_what_a_row_says_is_in_the_logs_of_its_runs(replayed: Replayed) -> None:
    """Each run verifies, and its own report has the same verdict and label."""
    lab, rows, _ = replayed
    for row in rows.values():
        assert lab.call("verify", *row["runs"]).returncode == 0
        shown = json.loads(lab.call("show", row["runs"][0], "--format", "json").stdout)
        assert shown["finality"]["verdict"] == row["finality"]
        assert shown["finality"]["label"] == row["label"]
        assert [effect["route"] for effect in shown["open_effects"]] == ["service"]


def test_the_next_run_starts_with_what_the_log_of_it_says(replayed: Replayed) -> None:
    """The service was asked before the second run was released."""
    lab, rows, _ = replayed
    for row in rows.values():
        told = lab.call("events", row["runs"][1], "--kind", "service.answered").stdout.splitlines()
        first = json.loads(told[0])
        assert first["moment"] == "start"
        assert first["origin"] == "service"
        assert first["detail"].endswith(row["next_start"])


def test_the_picture_shows_every_cell(replayed: Replayed) -> None:
    """One tile each, with both verdicts."""
    drawn = replayed[2].read_text()
    assert drawn.startswith("<svg")
    assert drawn.count("finality: ") == len(CELLS)
    assert drawn.count("separation: connected") == 2
