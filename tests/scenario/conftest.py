"""Scenarios run the command end to end; each gets a lab of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab in a directory of the test's own."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    return Lab(home, work)
