"""Events as JSON lines say what happened, and no name breaks them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.events import (
    Event,
    FileOpened,
    FileRenamed,
    Kind,
    NoteReceived,
    Origin,
    ProcessExecuted,
    ProcessExited,
    ProcessKey,
    TrialEndpoint,
    TrialHeld,
)
from supervisor.report.events_json import kinds, to_line, to_lines

KEY = ProcessKey(412, 99)
OFFSET_NS = 1_796_000_000_000_000_000


def shown(event: Event) -> dict[str, Any]:
    """Write and read one line."""
    item = json.loads(to_line(event, realtime_offset_ns=OFFSET_NS))
    assert isinstance(item, dict)
    return item


def test_a_line_says_who_did_what_when() -> None:
    """The common fields come first, by their public names; time is UTC with nanoseconds."""
    event = FileOpened(n=41, time_ns=1_000_000_007, process=KEY, path=b"/a", reads=True, writes=False)
    line = to_line(event, realtime_offset_ns=OFFSET_NS)
    assert line.startswith(
        b'{"n":41,"t":"2026-11-30T00:53:21.000000007Z","kind":"file.opened","origin":"kernel","process":"412@99","path":"/a"'
    )
    assert shown(event)["what"] == Kind.FILE.value


def test_what_is_none_is_left_out() -> None:
    """An exit by signal has no exit code, and an event of nobody no process."""
    item = shown(ProcessExited(n=0, time_ns=0, exit_code=None, signal=9))
    assert set(item) == {"n", "t", "kind", "origin", "signal"}


def test_bytes_that_are_no_text_are_base64() -> None:
    """A path that is not UTF-8, or would decode to a surrogate, is base64; a list with one, all of it."""
    renamed = shown(FileRenamed(n=0, time_ns=0, path=b"/\xff", new_path="/é".encode()))
    assert renamed["path_b64"] == b64encode(b"/\xff").decode()
    assert "path" not in renamed
    assert renamed["new_path"] == "/é"
    executed = shown(ProcessExecuted(n=0, time_ns=0, exe=b"\xed\xb3\xbf", argv=(b"a", b"\x80")))
    assert executed["exe_b64"] == b64encode(b"\xed\xb3\xbf").decode()
    assert executed["argv_b64"] == ["YQ==", "gA=="]


def test_process_keys_are_text_everywhere() -> None:
    """A list of processes is a list of the same names as ``process``."""
    assert shown(TrialEndpoint(n=0, time_ns=0, reason="exit", alive=(KEY, KEY)))["alive"] == ["412@99", "412@99"]


@given(path=st.binary(max_size=60), text=st.text(max_size=40))
def test_no_name_breaks_a_line(path: bytes, text: str) -> None:
    """Any bytes and any text: one line, one object, read back the same."""
    item = shown(FileRenamed(n=1, time_ns=0, path=path, new_path=text.encode(errors="surrogatepass")))
    if "path" in item:
        assert item["path"].encode() == path
    else:
        assert item["path_b64"] == b64encode(path).decode()
    assert item["kind"] == "file.renamed"
    assert {"path", "path_b64"} & set(item)


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a\nb", '"}{"', "\x9b2J", "\x7f", "\u2028", "\u0085", "\u202egnp", "\ufeff"]
)
def test_no_name_acts_on_a_terminal(text: str) -> None:
    """Control characters and marks are escapes in the line, and the same text when read."""
    event = FileOpened(n=0, time_ns=0, path=text.encode(), reads=True, writes=False)
    line = to_line(event, realtime_offset_ns=OFFSET_NS).decode()
    assert all(letter.isprintable() for letter in line)
    assert len(line.splitlines()) == 1
    assert json.loads(line)["path"] == text


def test_a_text_with_a_lone_surrogate_is_base64() -> None:
    """A text that cannot be UTF-8 does not stop the listing."""
    item = shown(NoteReceived(n=0, time_ns=0, origin=Origin.TRIAL, text="a\udcff"))
    assert "text_b64" in item
    assert item["kind"] == "note.received"


def held(n: int) -> TrialHeld:
    """Make the event that knows the time of day."""
    return TrialHeld(n=n, time_ns=5, process=KEY, init=KEY, helpers=(), cgroup=1, realtime_offset_ns=OFFSET_NS)


def test_the_offset_is_taken_from_the_log() -> None:
    """Events before the one that records the offset have a time of day too."""
    early = NoteReceived(n=0, time_ns=0, text="")
    items = [json.loads(line) for line in to_lines(iter([early, held(1), early]))]
    assert [item["t"][:20] for item in items] == ["2026-11-30T00:53:20."] * 3


def test_without_an_offset_the_time_is_not_invented() -> None:
    """A log that ended before the offset was recorded gives the machine's clock only."""
    (item,) = [json.loads(line) for line in to_lines([NoteReceived(n=0, time_ns=7, text="")])]
    assert item["t"] is None
    assert item["boottime_ns"] == 7


def test_kinds_are_all_there() -> None:
    """Every kind that a log can hold is named once."""
    names = kinds()
    assert {"file.opened", "trial.sealed", "events.lost", "unknown.recorded"} <= set(names)
    assert "file.event" not in names
    assert sorted(set(names)) == list(names)
