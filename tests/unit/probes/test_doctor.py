"""Doctor's values and renderings: what an answer means, and what is made of it."""

from __future__ import annotations

import json

import pytest

from probes import doctor_preflight
from probes.doctor import Answer, Examination, Finding, examine, render_text, require_machine, to_json
from probes.doctor_findings import Answered, Question, needs_root, no, untested, yes
from supervisor.errors import MachineError


def question(answered: Answered, **changes: object) -> Question:
    """A question with that answer."""
    base = {"name": "thing", "group": "Things", "asks": "a thing", "hint": "get one", "costs": ("scope",)}
    return Question(probe=lambda: answered, **{**base, **changes})  # type: ignore[arg-type]


def examination(*findings: Finding) -> Examination:
    """An examination with those findings."""
    return Examination(machine="Linux", state_dir="/var/lib/supervise", findings=findings)


def test_a_probe_that_breaks_has_not_answered_no() -> None:
    """An exception nobody thought of is 'could not be tested', with its words."""

    def broken() -> Answered:
        message = "no such call"
        raise OSError(message)

    finding = Question(name="thing", group="Things", asks="a thing", probe=broken).ask()
    assert finding.answer is Answer.UNTESTED
    assert "no such call" in finding.detail


def test_a_hint_is_only_given_when_there_is_something_to_do() -> None:
    """A yes needs no advice; the other two answers carry it."""
    assert question(yes()).ask().hint is None
    assert question(no("gone")).ask().hint == "get one"
    assert question(untested("no tool")).ask().hint == "get one"
    assert "sudo" in str(question(needs_root()).ask().hint)


@pytest.mark.parametrize(("answered", "able"), [(yes(), True), (no("gone"), False), (untested("no rights"), False)])
def test_the_main_job_needs_a_yes_to_every_needed_question(answered: Answered, *, able: bool) -> None:
    """What could not be tested never stands in for a yes."""
    found = examination(question(answered, needed=True).ask())
    assert found.able is able
    assert found.exit_code == (0 if able else 1)


def test_what_is_not_needed_costs_verdicts_but_not_the_job() -> None:
    """A missing optional thing leaves the machine able and names the verdicts that it costs."""
    found = examination(question(no("gone")).ask())
    assert found.able
    assert found.costs == ("scope",)
    assert found.answer("thing") is Answer.NO
    with pytest.raises(KeyError):
        found.answer("other")


def test_the_table_says_the_conclusion_first_and_what_to_do() -> None:
    """The first line names what is lacking, and each lacking thing has its hint and its costs below it."""
    text = render_text(examination(question(no("gone"), needed=True).ask()))
    assert text.splitlines()[0] == "The main job cannot be done here; it lacks: thing."
    assert "-> get one" in text
    assert "costs: scope" in text
    assert "\x1b" not in text
    assert "\x1b[31m" in render_text(examination(question(no("gone")).ask()), colour=True)


def test_this_machine_can_be_examined_and_told_in_json() -> None:
    """Every question gets one of the three answers here, root or not, and JSON carries all of it."""
    told = json.loads(json.dumps(to_json(examine())))
    assert {answer["answer"] for answer in told["answers"]} <= {"yes", "no", "could not be tested"}
    assert {"root", "btf", "witness", "bubblewrap", "cgroup", "overlay", "seccomp"} <= {
        answer["name"] for answer in told["answers"]
    }
    assert isinstance(told["able"], bool)


def test_the_quick_look_names_all_that_is_missing_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """One error names every missing thing, each with its way out, before anything runs."""
    monkeypatch.setattr(doctor_preflight.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor_preflight, "missing_capabilities", lambda: ())
    monkeypatch.setattr(doctor_preflight, "has_program", lambda _: False)
    monkeypatch.setattr(doctor_preflight, "find_cgroup2", lambda: None)
    with pytest.raises(MachineError) as caught:
        require_machine()
    assert "bubblewrap" in caught.value.message
    assert "cgroup v2" in caught.value.message
    assert "apt-get install bubblewrap" in str(caught.value.hint)
    assert caught.value.exit_code == 125


def test_without_root_only_root_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be looked at without root is not called missing."""
    monkeypatch.setattr(doctor_preflight.os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match=r": root$") as caught:
        require_machine()
    assert "sudo" in str(caught.value.hint)
