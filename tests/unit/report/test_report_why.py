"""`supervise why`: every kind of reference, and the events it leads to."""

from __future__ import annotations

import pytest

from completions import completion, file, open_effect, process
from supervisor.errors import UsageError
from supervisor.events import (
    CredentialGuarded,
    Event,
    FileDeleted,
    FileWritten,
    NoteReceived,
    Origin,
    ProcessExecuted,
    ProcessKey,
    TrialReleased,
)
from supervisor.report.lines import plain
from supervisor.report.why import LIMIT, Beginning, answer, event_lines

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


ASKED = {
    "protocol": "dns", "host": "evil.test", "ip": None, "port": 53, "decision": "blocked", "bytes_out": 0,
    "bytes_in": 0, "process": None, "events": [4], "server": "[2001:db8::5]:53",
}  # fmt: skip


@pytest.mark.parametrize("reference", ["evil.test", "2001:db8::5", "[2001:db8::5]:53"])
def test_a_question_is_found_by_its_name_and_by_the_server_that_was_asked(reference: str) -> None:
    """With a port or without."""
    found = answer(completion(effects={"network": [ASKED]}), reference)
    assert found.numbers == {4}
    assert "dns evil.test port 53, asked of [2001:db8::5]:53: blocked" in plain(found.lines)


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
    shown = plain(event_lines(events, answer(ARGUMENT, "4@4000"), Beginning())).splitlines()
    assert [entry.split()[0] for entry in shown] == ["1", "3"]


def test_many_events_are_counted_and_hostile_names_escaped() -> None:
    """The list is bounded, says what it leaves out, and no name acts."""
    events = [deleted(n, 4, b"/w/\x1b[2J\xff") for n in range(LIMIT + 5)]
    text = plain(event_lines(events, answer(ARGUMENT, "0-9999"), Beginning()))
    assert text.endswith("… 5 more: supervise events RUN\n")
    assert "\x1b" not in text


RELEASED = Beginning(released_ns=100, helpers=frozenset({ProcessKey(1, 1000)}))
BUILT = (
    deleted(40, 1, b"/newroot/dev"),  # the box's own process
    deleted(41, 4, b"/w/canary"),  # CMD's process, while it still acts for the box
)


def told(events: list[Event], reference: str, beginning: Beginning = RELEASED) -> list[str]:
    """Give the lines on a reference."""
    return plain(event_lines(events, answer(ARGUMENT, reference), beginning)).splitlines()


@pytest.mark.parametrize(("reference", "built"), [("0-999", 2), ("4@4000", 1)])
def test_what_builds_the_box_is_counted_and_not_shown(reference: str, built: int) -> None:
    """A reader of a range or of a process is not led through the making of devices; all after the release is there."""
    events = [*BUILT, TrialReleased(n=99, time_ns=100), deleted(100, 4), deleted(101, 4)]
    shown = told(events, reference)
    assert [entry.split()[0] for entry in shown if "file.deleted" in entry] == ["100", "101"]
    assert shown[-1] == f"  … {built} of the box being built, before CMD was let go: supervise events RUN"


@pytest.mark.parametrize("reference", ["40", "41"])
def test_what_builds_the_box_is_shown_when_it_is_asked_for(reference: str) -> None:
    """By its number, and said to be the box's."""
    (shown,) = told(list(BUILT), reference)
    assert shown.split()[0] == reference
    assert "(the box)  " in shown


def test_cited_events_are_shown_whatever_they_are() -> None:
    """What a conclusion rests on is never left out."""
    assert [entry.split()[0] for entry in told([deleted(41, 4), deleted(57, 4)], "a.txt")] == ["41", "57"]


def test_no_event_of_the_trial_is_taken_for_the_building_of_its_box() -> None:
    """Neither what it did at the release, nor writes that went on over it, nor what others told before."""
    key = ProcessKey(4, 4000)
    events: list[Event] = [
        ProcessExecuted(n=10, time_ns=100, process=key, exe=b"/bin/sh", argv=(b"sh",), cwd=b"/"),
        FileWritten(n=11, time_ns=99, last_ns=100, process=key, path=b"/w/x", count=2, size_bytes=2, how="write"),
        TrialReleased(n=12, time_ns=99, origin=Origin.SUPERVISOR, process=key),
        NoteReceived(n=13, time_ns=99, origin=Origin.TRIAL, process=key, text="x"),
    ]
    assert [entry.split()[0] for entry in told(events, "0-999")] == ["10", "11", "12", "13"]


def test_of_a_command_that_was_never_let_go_the_building_is_shown() -> None:
    """It is all that happened, and where the fault is to be found."""
    assert [entry.split()[0] for entry in told(list(BUILT), "0-999", Beginning())] == ["40", "41"]


def test_after_the_release_the_box_is_marked_and_shown() -> None:
    """The closing test is nothing that CMD did."""
    first, second = told([deleted(200, 1), deleted(201, 4)], "0-999")
    assert "1@1000 (the box)  " in first
    assert "(the box)" not in second


def test_the_list_of_credentials_is_cut_and_counted_and_one_of_the_trial_is_whole() -> None:
    """What is masked is the same in every run; which words a command had is not."""
    many = tuple(f"w{number}" for number in range(20))
    lists = {"absolute": (), "anywhere": (), "made": (), "sockets": (), "addresses": (), "names": (), "masked": ()}
    guarded = CredentialGuarded(n=1, time_ns=1, home=b"/root", homes=(), relative=many, **lists)  # type: ignore[arg-type]
    executed = ProcessExecuted(
        n=2, time_ns=1, process=ProcessKey(4, 4000), exe=b"/x", argv=tuple(map(str.encode, many)), cwd=b"/"
    )
    first, second = told([guarded, executed], "0-9", Beginning())
    assert "w7, … 12 more]" in first
    assert "w18, w19]" in second


def test_a_run_that_was_never_judged_still_has_events() -> None:
    """Numbers and processes mean something without a completion argument, verdicts do not."""
    assert answer(None, "3").span == (3, 3)
    assert answer(None, "4@4000").process == "4@4000"
    with pytest.raises(UsageError) as caught:
        answer(None, "finality")
    assert "never judged" in str(caught.value.hint)


def flow(host: str | None, ip: str | None, port: int | None, event: int) -> dict[str, object]:
    """Make one flow."""
    told = {"protocol": "tcp", "host": host, "ip": ip, "port": port, "decision": "blocked", "events": [event]}
    return told | {"bytes_out": 0, "bytes_in": 0, "process": None}


@pytest.mark.parametrize(
    ("reference", "numbers"),
    [
        ("203.0.113.5", {1, 2}),
        ("203.0.113.5:443", {1}),
        ("203.0.113.5 port 443", {1}),
        ("203.0.113.5:80", {2}),
        ("api.test", {3}),
        ("api.test:443", {3}),
        ("api.test (203.0.113.7) port 443", {3}),
        ("203.0.113.7:443", {3}),
        ("2001:db8::1", {4}),
        ("[2001:db8::1]:443", {4}),
    ],
)
def test_an_address_is_known_by_all_that_reports_call_it(reference: str, numbers: set[int]) -> None:
    """With and without its port, which tells two flows to one host apart."""
    argument = completion(
        effects={
            "network": [
                flow(None, "203.0.113.5", 443, 1),
                flow(None, "203.0.113.5", 80, 2),
                flow("api.test", "203.0.113.7", 443, 3),
                flow(None, "2001:db8::1", 443, 4),
            ]
        }
    )
    assert answer(argument, reference).numbers == numbers
    with pytest.raises(UsageError):
        answer(argument, "203.0.113.5:8080")
