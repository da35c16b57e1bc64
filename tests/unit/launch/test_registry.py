"""The registry of started runs: what it says after crashes, rewriting and removal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor.errors import MachineError
from supervisor.launch.runs.registry import NAME, read_registry, register


def add(home: Path, *runs: str) -> None:
    """Register some runs."""
    for run in runs:
        register(home, run, at="2026-01-01T00:00:00Z", manifest="sha256:0")


def test_every_run_is_a_line_that_states_the_one_before(tmp_path: Path) -> None:
    """In order, without a problem."""
    add(tmp_path, "a", "b", "c")
    registry = read_registry(tmp_path)
    assert [entry.run for entry in registry.entries] == ["a", "b", "c"]
    assert [entry.number for entry in registry.entries] == [0, 1, 2]
    assert registry.problems == ()


def test_a_home_without_one_has_no_runs(tmp_path: Path) -> None:
    """And nothing wrong."""
    assert read_registry(tmp_path).entries == ()


@pytest.mark.parametrize("removed", [0, 1])
def test_a_line_that_was_taken_out_is_seen(tmp_path: Path, removed: int) -> None:
    """The one after it does not follow."""
    add(tmp_path, "a", "b", "c")
    lines = (tmp_path / NAME).read_bytes().splitlines(keepends=True)
    del lines[removed]
    (tmp_path / NAME).write_bytes(b"".join(lines))
    (problem,) = read_registry(tmp_path).problems
    assert "does not follow" in problem


def test_a_line_that_was_changed_is_seen(tmp_path: Path) -> None:
    """Its digest is not what the next one states."""
    add(tmp_path, "a", "b")
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b'"run":"a"', b'"run":"x"'))
    (problem,) = read_registry(tmp_path).problems
    assert "(b)" in problem


def test_a_line_that_was_cut_is_told_and_the_next_one_follows_it(tmp_path: Path) -> None:
    """A crash in the middle of a line loses that line only."""
    add(tmp_path, "a", "b")
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:-20])
    add(tmp_path, "c", "d")
    registry = read_registry(tmp_path)
    assert [entry.run for entry in registry.entries] == ["a", "c", "d"]
    assert registry.problems == ("line 2 of the registry is no entry",)


def test_runs_that_start_together_stand_one_after_the_other(tmp_path: Path) -> None:
    """Nobody's line is lost, and the chain holds."""
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                add(tmp_path, *(f"{os.getpid()}-{run}" for run in range(20)))
            finally:
                os._exit(len(read_registry(tmp_path).problems))
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
    registry = read_registry(tmp_path)
    assert len({entry.run for entry in registry.entries}) == 80
    assert registry.problems == ()


def test_what_cannot_be_registered_is_an_error(tmp_path: Path) -> None:
    """With the place; a symlink is not followed."""
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MachineError, match="registry"):
        add(tmp_path, "a")
    assert not (tmp_path / "elsewhere").exists()


def test_lines_are_plain_json(tmp_path: Path) -> None:
    """Anybody can read them."""
    add(tmp_path, "a")
    assert json.loads((tmp_path / NAME).read_text())["run"] == "a"
