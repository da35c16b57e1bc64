"""`supervise why`: every kind of reference, and the events it leads to."""

from __future__ import annotations

import pytest

from completions import completion, file, open_effect, process
from supervisor.errors import UsageError
from supervisor.events import Event, FileDeleted, ProcessKey, TrialReleased
from supervisor.report.lines import plain
from supervisor.report.why import LIMIT, answer, event_lines

ARGUMENT = completion(
    effects={"processes": [process(4)], "files": [file("a.txt", events=[41, 57]), file("41", events=[3])]},
    open_effects=[open_effect("o1")],
)


@pytest.mark.parametrize(
    ("reference", "numbers", "text"),
    [
        ("finality", {90}, "nothing-alive: nothing was alive at the endpoint [90]"),
        ("separation", set(), "separation: separate"),
        ("scope", set(), "scope: clean"),
        ("o1", {88}, "o1: process: sleep 300 (pid 12)"),
        ("a.txt", {41, 57}, "a.txt: modified: modified; in the claim's scope, allowed"),
        ("./41", {3}, "41: modified"),
    ],
)
def test_a_reference_leads_to_its_events(reference: str, numbers: set[int], text: str) -> None:
    """Verdicts, open effects and paths say what was concluded and cite the events."""
    found = answer(ARGUMENT, reference)
    assert found.numbers == numbers
    assert text in plain(found.lines)


@pytest.mark.parametrize(("reference", "span"), [("41", (41, 41)), ("41-57", (41, 57)), ("41..57", (41, 57))])
def test_numbers_and_ranges_mean_events(reference: str, span: tuple[int, int]) -> None:
    """A bare number is an event, never a file of that name."""
    assert answer(ARGUMENT, reference).span == span


@pytest.mark.parametrize("reference", ["nothing", "57-41", "o2", "9@9", ""])
def test_what_is_not_in_the_run_is_an_error(reference: str) -> None:
    """Silence would look like an answer."""
    with pytest.raises(UsageError):
        answer(ARGUMENT, reference)


def deleted(number: int, pid: int, path: bytes = b"/w/x") -> Event:
    """Make an event of a process."""
    return FileDeleted(n=number, time_ns=number, process=ProcessKey(pid, pid * 1000), path=path)


def test_a_process_leads_to_all_that_it_did() -> None:
    """Its events, and nobody else's."""
    events = [TrialReleased(n=0, time_ns=0), deleted(1, 4), deleted(2, 5), deleted(3, 4)]
    shown = plain(event_lines(events, answer(ARGUMENT, "4@4000"), realtime_offset_ns=0)).splitlines()
    assert [entry.split()[0] for entry in shown] == ["1", "3"]


def test_many_events_are_counted_and_hostile_names_escaped() -> None:
    """The list is bounded, says what it leaves out, and no name acts."""
    events = [deleted(n, 4, b"/w/\x1b[2J\xff") for n in range(LIMIT + 5)]
    text = plain(event_lines(events, answer(ARGUMENT, "0-9999"), realtime_offset_ns=None))
    assert text.endswith("… 5 more: supervise events RUN\n")
    assert "\x1b" not in text


def test_a_run_that_was_never_judged_still_has_events() -> None:
    """Numbers and processes mean something without a completion argument, verdicts do not."""
    assert answer(None, "3").span == (3, 3)
    assert answer(None, "4@4000").process == "4@4000"
    with pytest.raises(UsageError) as caught:
        answer(None, "finality")
    assert "never judged" in str(caught.value.hint)
