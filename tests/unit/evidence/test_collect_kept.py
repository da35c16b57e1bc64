"""Content that was kept is found again from the file that it was in, and says nothing about what happened to it."""

from __future__ import annotations

from base64 import b64decode
from json import loads

from transcript import Transcript, policy_for, state

from supervisor import events as ev
from supervisor.evidence.file_facts import FileHistory, Observed
from supervisor.report.events_json import to_line

A = b"/home/me/work/a"


def told(*, kept: int) -> FileHistory:
    """Give the history of a file that was changed and put back, with so much of it kept."""
    trial = Transcript()
    trial.begin()
    trial.write("a")
    for place in range(kept):
        trial.file(ev.FileKept, "a", content=b"secret %d" % place, offset=0, size_bytes=8)
    trial.write("a")
    trial.disk[A] = Observed(before=state(), after=state())
    trial.exit(code=0)
    trial.endpoint()
    trial.settled()
    trial.end()
    (history,) = (one for one in trial.facts(policy_for()).files if one.path == b"a")
    return history


def test_a_history_names_the_events_that_hold_content() -> None:
    """In their order; of very many the first and the last ones."""
    assert len(told(kept=3).kept) == 3
    assert told(kept=3).kept == tuple(sorted(told(kept=3).kept))
    assert 2 < len(told(kept=5000).kept) < 5000


def test_kept_content_is_no_change_of_its_own() -> None:
    """With or without it, the history is the same."""
    assert [change.kind for change in told(kept=2).changes] == [change.kind for change in told(kept=0).changes]
    assert told(kept=2).restored is True
    assert told(kept=0).kept == ()


def test_content_is_always_written_in_base64() -> None:
    """Whether or not it happens to be a text: what a file held is no name."""
    event = ev.FileKept(n=1, time_ns=0, path=b"/a", content=b"plain text", offset=4, size_bytes=10)
    line = loads(to_line(event, realtime_offset_ns=0))
    assert b64decode(line["content_b64"]) == b"plain text"
    assert "content" not in line
