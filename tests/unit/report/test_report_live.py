"""What is told while a trial runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from supervisor.report.live import count, live_line, progress_record
from supervisor.request import Phase, Progress


def test_the_live_line_is_shown_only_while_settling() -> None:
    """Until the endpoint, the terminal is CMD's."""
    told = {phase: live_line(Progress(run="r", phase=phase)) for phase in Phase}
    assert [phase for phase, line in told.items() if line is not None] == [Phase.SETTLING]


def test_the_live_line_says_how_long_how_many_and_how_much() -> None:
    """Elapsed time, processes and events."""
    progress = Progress(run="r", phase=Phase.SETTLING, elapsed_s=1.25, processes=1, events=12345, deadline_s=3.0)
    assert live_line(progress) == "supervise: settling, 1.2 of 3.0 s, 1 process, 12,345 events"
    heard = live_line(replace(progress, heard=True))
    assert heard == "supervise: settling, 1.2 of 3.0 s, 1 process, 12,345 events; Ctrl-C ends following"


def test_a_status_record_is_json() -> None:
    """One object, whatever the phase."""
    record = json.loads(json.dumps(progress_record(Progress(run="r", phase=Phase.HELD))))
    assert record == {"phase": "held", "run": "r", "elapsed_s": 0.0, "processes": 0, "events": 0}


@pytest.mark.parametrize(("number", "text"), [(0, "0 files"), (1, "1 file"), (2000, "2,000 files")])
def test_a_count_agrees_with_its_word(number: int, text: str) -> None:
    """One is singular."""
    assert count(number, "file") == text
