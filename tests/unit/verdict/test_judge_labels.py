"""Labels: what a grader's runs are worth, what possible states bound, and what the log decides by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcript import ENDPOINT, EVENTUALLY, MAIN, MS, WITHIN, Transcript, ordinary, policy_for, state, straggler

from policies.types import (
    AtEndpoint,
    Claim,
    DecidedBy,
    Expected,
    FilesPolicy,
    GradePolicy,
    OrderRule,
    Period,
    PeriodKind,
    Policy,
    PossibleState,
    Selftest,
)
from supervisor import events as ev
from supervisor.evidence.said import GradeRun
from supervisor.verdict.bounds import label_of
from supervisor.verdict.judge import Judgement, judge

GRADED = GradePolicy(command="check")


def graded(trial: Transcript, policy: Policy) -> Judgement:
    """Judge a transcript."""
    return judge(trial.facts(policy), policy)


def run(trial: Transcript, label: str | None = "success", *, state: str = "settled", **fields: object) -> Transcript:
    """Tell of one run of the grader."""
    number = sum(event.kind == "grade.started" for event in trial.events)
    applied = fields.pop("applied", ())
    trial.add(ev.GradeStarted, process=None, number=number, state=state, digest="sha256:x", applied=applied)
    codes = {"success": 0, "failure": 1, None: 2}
    trial.add(ev.GradeFinished, process=None, number=number, **{"exit_code": codes[label], "signal": None, **fields})
    return trial


def policy(grade: GradePolicy = GRADED, **options: object) -> Policy:
    """Give a policy with a grader."""
    return replace(policy_for(**options), grade=grade)  # type: ignore[arg-type]


def cause(answer: Judgement) -> str:
    """Give the rule for which there is no label."""
    finality = answer.finality
    assert (finality.verdict, finality.label, finality.cause) == ("unresolved", None, "grader")
    return finality.reasons[0].rule


# -- one run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"exit_code": 0}, "success"),
        ({"exit_code": 1}, "failure"),
        ({"exit_code": 0, "passed": True}, "success"),
        ({"exit_code": 0, "passed": False}, "failure"),
        ({"exit_code": 1, "passed": True}, "failure"),
        ({"exit_code": 0, "undecided": True}, None),
        ({"exit_code": 2}, None),
        ({"exit_code": 125}, None),
        ({"exit_code": 126}, None),
        ({"exit_code": 127, "passed": True}, None),
        ({"signal": 9}, None),
        ({}, None),
        ({"exit_code": 0, "problem": "it left processes"}, None),
    ],
)
def test_what_one_run_says(fields: dict[str, object], label: str | None) -> None:
    """0 and 1 are labels, everything else is none, and JSON never makes a success of a failure."""
    found, why = label_of(GradeRun(number=0, state="settled", events=(1,), **fields))  # type: ignore[arg-type]
    assert found == label
    assert bool(why) == (label is None)


@given(
    exit_code=st.integers(0, 255),
    passed=st.sampled_from([None, True, False]),
    undecided=st.booleans(),
    problem=st.sampled_from([None, "x"]),
)
def test_a_success_needs_exit_zero_and_nothing_against_it(
    exit_code: int,
    passed: bool | None,  # noqa: FBT001 - a parameter of the test
    undecided: bool,  # noqa: FBT001 - a parameter of the test
    problem: str | None,
) -> None:
    """Over all that a run may say, a success has exit code 0, no problem, and no ``passed`` that is not true."""
    run = GradeRun(
        number=0, state="settled", events=(), exit_code=exit_code, passed=passed, undecided=undecided, problem=problem
    )
    if label_of(run)[0] == "success":
        assert (exit_code, problem, undecided, passed is False) == (0, None, False, False)


# -- what runs are worth ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("label", "passed"), [("success", True), ("failure", False)])
def test_the_label_is_given_to_a_final_verdict(label: str, passed: bool) -> None:  # noqa: FBT001 - of the test
    """The settled outcome is final, and so is its label."""
    answer = graded(run(ordinary(), label), policy())
    assert (answer.finality.verdict, answer.finality.label, answer.result.passed) == ("final", label, passed)


def test_a_grader_that_was_never_run_or_never_finished_gives_no_label() -> None:
    """What is not in the log did not happen."""
    assert cause(graded(ordinary(), policy())) == "no-label"
    trial = ordinary()
    trial.add(ev.GradeStarted, process=None, number=0, state="settled")
    assert cause(graded(trial, policy())) == "no-label"


def test_repeats_that_differ_are_flaky_and_one_without_label_costs_all() -> None:
    """The same state, another answer."""
    assert cause(graded(run(run(ordinary(), "success"), "failure"), policy())) == "flaky"
    assert cause(graded(run(run(ordinary(), "success"), None), policy())) == "no-label"
    twice = graded(run(run(ordinary(), "success"), "success"), policy())
    assert twice.finality.label == "success"


@pytest.mark.parametrize("said", ["success", "failure", None])
def test_examples_are_believed_only_as_expected(said: str | None) -> None:
    """A grader that says something else of its example says nothing of the outcome."""
    grade = replace(GRADED, selftest=(Selftest(outcome="good", expect=Expected.SUCCESS),))
    trial = run(run(ordinary(), said, state="selftest:0"), "success")
    answer = graded(trial, policy(grade))
    assert answer.finality.label == ("success" if said == "success" else None)
    if said != "success":
        assert cause(answer) == "selftest-failed"
    assert cause(graded(run(ordinary()), policy(grade))) == "selftest-failed"


def test_reference_material_that_was_opened_voids_the_label_and_violates() -> None:
    """A successful open counts; a failed one, one of a private place and one before the release do not."""
    grade = replace(GRADED, reads=("answers/**", "/srv/key"))

    def judged(path: bytes, **fields: object) -> Judgement:
        trial = Transcript()
        trial.begin()
        trial.add(ev.FileOpened, path=path, reads=True, writes=False, **fields)
        trial.exit()
        trial.endpoint()
        trial.settled()
        trial.end()
        return graded(run(trial), policy(grade))

    for path in (b"/home/me/work/answers/a", b"/srv/key"):
        assert cause(judged(path)) == "reference-opened"
        assert [one.rule for one in judged(path).scope.violations] == ["reference-opened"]
        assert judged(path, error=13).finality.label == "success"
    assert judged(b"/home/me/work/other").finality.label == "success"
    assert judged(b"/tmp/srv/key").finality.label == "success"
    masked = policy(GRADED, files=FilesPolicy(read_deny=("/srv",)))
    trial = ordinary()
    trial.add(ev.FileOpened, path=b"/srv", reads=True, writes=False, what=ev.Kind.DIRECTORY)
    assert graded(run(trial), masked).finality.label == "success"


def test_code_of_the_trial_that_the_grader_ran_must_be_declared() -> None:
    """What the trial wrote, or moved the directory of, answers for the trial."""
    trial = run(ordinary(), executed=(b"out",))
    assert cause(graded(trial, policy())) == "ran-trial-code"
    assert graded(trial, policy(replace(GRADED, executes=("o*",)))).finality.label == "success"
    assert graded(run(ordinary(), executed=(b"given",)), policy()).finality.label == "success"


def test_the_graded_state_is_the_claims() -> None:
    """An endpoint claim takes what was said of the endpoint, one about eventually what was said of the end."""
    trial = run(run(straggler(handling="ended"), "success", state="endpoint"), "failure")
    assert graded(trial, policy(period=ENDPOINT)).finality.label == "success"
    assert graded(trial, policy(period=EVENTUALLY)).finality.label == "failure"
    open_still = run(straggler(), "success")
    answer = graded(open_still, policy(period=EVENTUALLY))
    assert (answer.finality.label, answer.finality.observed.label) == (None, "success")
    assert answer.result.passed is None


def test_what_was_graded_later_does_not_stand_for_a_captured_state_that_changed() -> None:
    """Only the settled outcome was graded: good for the endpoint when nothing changed in between, else no label."""
    changed = run(straggler(handling="ended", late_write=True), "success")
    assert cause(graded(changed, policy())) == "no-label"
    assert graded(run(straggler(handling="ended"), "success"), policy()).finality.label == "success"


def test_what_the_grader_looked_at_is_in_the_footprint() -> None:
    """Its opens, the directories above them, and what lies in the directories that it listed."""
    trial = ordinary()
    for name in ("a/b", "c/new", "d"):
        trial.create(name)
        trial.found(name, None, state())
    run(trial, footprint=(b"a/b", b"none"), listed=(b"c",))
    policied = policy()
    scope = {history.path: history.in_scope for history in trial.facts(policied).files}
    assert {path: scope[path] for path in (b"a/b", b"c/new", b"d")} == {b"a/b": True, b"c/new": True, b"d": False}
    everything = run(ordinary(), footprint=(b"**",))
    assert all(history.in_scope for history in everything.facts(policied).files)


PRODUCT = list(
    product(
        ["success", "failure", None, "flaky", "selftest", "reference", "code"],
        ["ended", "cut", "cancel"],
        [True, False],
        list(PeriodKind),
        list(AtEndpoint),
    )
)


@pytest.mark.parametrize(("said", "handling", "snapshot", "period", "at_endpoint"), PRODUCT)
def test_a_label_over_the_full_product(
    said: str | None,
    handling: str,
    snapshot: bool,  # noqa: FBT001 - a parameter of the test
    period: PeriodKind,
    at_endpoint: AtEndpoint,
) -> None:
    """The label is there exactly when the grader gave one and the outcome is final; what was seen is always kept."""
    trial = straggler(handling=handling, snapshot=snapshot)
    grade = GRADED
    if said == "selftest":
        grade = replace(grade, selftest=(Selftest(outcome="x", expect=Expected.FAILURE),))
        run(trial, "success", state="selftest:0")
    if said == "reference":
        grade = replace(grade, reads=("/srv/key",))
        trial.add(ev.FileOpened, path=b"/srv/key", reads=True, writes=False)
    label = said if said in {"success", "failure", None} else "success"
    fields = {"executed": (b"out",)} if said == "code" else {}
    graded_state = "endpoint" if snapshot and period is ENDPOINT else "settled"
    run(trial, label, state=graded_state, **fields)
    if said == "flaky":
        run(trial, "failure", state=graded_state)
    options = {"period": period, "at_endpoint": at_endpoint}
    bare = judge(trial.facts(policy_for(**options)), policy_for(**options))  # type: ignore[arg-type]
    answer = graded(trial, policy(grade, **options))
    usable = said in {"success", "failure"}
    assert (answer.finality.verdict == "final") == (usable and bare.finality.verdict == "final")
    assert answer.finality.label == (label if answer.finality.verdict == "final" else None)
    assert answer.finality.observed.label == (label if usable else None)
    assert (answer.finality.cause == "grader") == (not usable)


# -- bounds ----------------------------------------------------------------------------------------------------------


def contacted() -> Transcript:
    """Tell of a trial that asked a service for something."""
    trial = ordinary()
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"/srv/queue.sock", outside=True)
    return trial


STATES = (
    PossibleState(effect="service:queue", reason="not applied"),
    PossibleState(effect="service:queue", reason="applied", script="echo 2 > out"),
)


def bounded(trial: Transcript, *labels: str | None, settled: str = "success") -> Transcript:
    """Tell of the outcome's label, and of that of each possible state."""
    run(trial, settled)
    for number, label in enumerate(labels):
        run(trial, label, state=f"bound:{number}", applied=(number,))
    return trial


def test_one_label_over_all_possible_states_is_final() -> None:
    """The service may still act, and whatever it does changes no label."""
    policied = policy(replace(GRADED, states=STATES), period=EVENTUALLY)
    answer = graded(bounded(contacted(), "success", "success"), policied)
    assert (answer.finality.verdict, answer.finality.label) == ("final", "success")
    assert any(reason.rule == "bounded" and reason.basis == "declared" for reason in answer.finality.reasons)
    assert [effect.handling for effect in answer.open_effects if effect.route == "service"] == ["bounded"]


@pytest.mark.parametrize(
    ("labels", "settled"),
    [(("success", "failure"), "success"), (("success",), "success"), (("success", None), "success"), ((), "success"),
     (("failure", "failure"), "success")],
)  # fmt: skip
def test_states_that_differ_or_could_not_be_made_bound_nothing(labels: tuple[str | None, ...], settled: str) -> None:
    """Also when all states agree with each other and not with what was seen."""
    policied = policy(replace(GRADED, states=STATES), period=EVENTUALLY)
    answer = graded(bounded(contacted(), *labels, settled=settled), policied)
    assert answer.finality.verdict == "unresolved"
    assert not [effect for effect in answer.open_effects if effect.handling == "bounded"]
    if labels == ("success", "failure"):
        text = next(reason.text for reason in answer.finality.reasons if reason.rule == "states-differ")
        assert "not applied: success" in text
        assert "applied: failure" in text


def test_an_effect_that_was_not_declared_is_not_bounded() -> None:
    """Another service is another effect."""
    other = (replace(STATES[0], effect="service:mail"), replace(STATES[1], effect="service:mail"))
    policied = policy(replace(GRADED, states=other), period=EVENTUALLY)
    assert graded(bounded(contacted(), "success", "success"), policied).finality.verdict == "unresolved"


@pytest.mark.parametrize(("write", "verdict"), [(None, "unresolved"), (("**",), "unresolved"), (("log",), "final")])
def test_a_live_process_is_bounded_only_where_its_writes_are_restricted(
    write: tuple[str, ...] | None, verdict: str
) -> None:
    """No list of states is all that a free writer could do."""
    states = (PossibleState(effect="process", reason="it ends as it is"),)
    policied = policy(replace(GRADED, states=states), period=EVENTUALLY, files=FilesPolicy(write=write))
    assert graded(bounded(straggler(), "success"), policied).finality.verdict == verdict


# -- what the log decides --------------------------------------------------------------------------------------------


def deciding(*, event: str | None = None, order: tuple[OrderRule, ...] = (), period: PeriodKind = ENDPOINT) -> Policy:
    """Give a policy whose claim the log decides."""
    decided_by = DecidedBy.EVENT if event else DecidedBy.HISTORY
    within_s = 10.0 if period is WITHIN else None
    claim = Claim(outcome="out", period=Period(kind=period, within_s=within_s), decided_by=decided_by, event=event)
    return Policy(claim=claim, order=order)


@pytest.mark.parametrize("period", list(PeriodKind))
def test_a_witnessed_event_decides_whatever_else_is_open(period: PeriodKind) -> None:
    """A straggler, a service: the event came, and nothing takes it back."""
    trial = straggler()
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"/srv/x.sock", outside=True)
    answer = graded(trial, deciding(event="file.opened path=out created=true", period=period))
    assert (answer.finality.verdict, answer.finality.label) == ("final", "success")
    assert answer.finality.reasons[0].rule == "decided"
    assert answer.finality.reasons[0].events
    assert judge(trial.facts(deciding(event="file.opened path=out")), deciding(event="file.opened path=out"),
                 sealed=False).finality.verdict == "unresolved"  # fmt: skip


def test_an_event_that_did_not_come_is_a_failure_only_when_it_could_not_have_come_unseen() -> None:
    """By the endpoint it is known at once, eventually only when nothing is open, and never when events were lost."""
    absent = "file.written path=never"
    at_once = graded(straggler(), deciding(event=absent))
    assert (at_once.finality.verdict, at_once.finality.label) == ("final", "failure")
    assert graded(straggler(), deciding(event=absent, period=EVENTUALLY)).finality.verdict == "unresolved"
    assert graded(ordinary(), deciding(event=absent, period=EVENTUALLY)).finality.label == "failure"
    lossy = ordinary()
    lossy.add(ev.EventsLost, process=None, count=1, hook="syscall", first_ns=1, last_ns=2)
    answer = graded(lossy, deciding(event=absent))
    assert (answer.finality.verdict, answer.finality.observed.label) == ("unresolved", "failure")


def asked_late(attempted_ms: int | None) -> Transcript:
    """Tell, after the endpoint, of a connection that was refused; it was asked for in ms after the endpoint."""
    trial = Transcript()
    trial.begin()
    trial.now_ns += 100 * MS
    trial.exit()
    attempted_ns = None if attempted_ms is None else trial.now_ns + attempted_ms * MS
    trial.endpoint()
    trial.now_ns += 20 * MS
    trial.add(
        ev.ConnectionBlocked, origin=ev.Origin.GATEWAY, transport="tcp", ip="203.0.113.7", port=443, connection=1,
        attempted_ns=attempted_ns,
    )  # fmt: skip
    trial.settled()
    trial.end()
    return trial


@pytest.mark.parametrize(
    ("attempted_ms", "verdict", "label", "by_order"),
    [(-50, "final", "success", "failure"), (2, "final", "failure", "success"), (None, "unresolved", None, None)],
)
def test_what_was_done_by_the_endpoint_decides_though_it_is_told_later(
    attempted_ms: int | None, verdict: str, label: str | None, by_order: str | None
) -> None:
    """An attempt counts from the kernel's time of it; where that is not known it may have been within the period."""
    answer = graded(asked_late(attempted_ms), deciding(event="connection.blocked ip=203.0.113.7"))
    assert (answer.finality.verdict, answer.finality.label) == (verdict, label)
    rule = (OrderRule(first="file.opened path=grant", then="connection.blocked ip=203.0.113.7"),)
    answer = graded(asked_late(attempted_ms), deciding(order=rule))
    assert (answer.finality.verdict, answer.finality.label) == (verdict, by_order)


def test_what_the_trial_says_of_itself_decides_nothing() -> None:
    """A note is no trusted event."""
    trial = ordinary()
    trial.add(ev.NoteReceived, origin=ev.Origin.TRIAL, text="done")
    assert graded(trial, deciding(event="note.received text=done")).finality.label == "failure"


ORDER = (OrderRule(first="file.opened path=grant", then="file.written path=out"),)


@pytest.mark.parametrize(("granted", "label"), [("before", "success"), ("after", "failure"), ("never", "failure")])
def test_an_order_is_decided_by_the_clock(granted: str, label: str) -> None:
    """Every write must come after the authorisation was read."""
    trial = Transcript()
    trial.begin()
    grant = {"path": b"/home/me/work/grant", "reads": True, "writes": False}
    if granted == "before":
        trial.add(ev.FileOpened, **grant)
    trial.create("out")
    trial.write("out")
    if granted == "after":
        trial.add(ev.FileOpened, **grant)
    trial.found("out", None, state())
    trial.exit()
    trial.endpoint()
    trial.settled()
    trial.end()
    answer = graded(trial, deciding(order=ORDER))
    assert (answer.finality.verdict, answer.finality.label) == ("final", label)
    rules = [violation.rule for violation in answer.scope.violations]
    assert rules == ([] if label == "success" else ["out-of-order"])


def test_an_order_that_is_broken_later_counts_for_the_periods_that_cover_it() -> None:
    """A late write breaks the order eventually, and not at the endpoint."""
    trial = straggler(handling="ended", late_write=True)
    rule = (OrderRule(first="file.opened path=grant", then="file.written path=out"),)
    early = [event for event in trial.events if isinstance(event, ev.FileWritten) and event.process == MAIN]
    for event in early:
        trial.events.remove(event)
    trial.events = [replace_number(event, n) for n, event in enumerate(trial.events)]
    assert graded(trial, deciding(order=rule)).finality.label == "success"
    assert graded(trial, deciding(order=rule, period=EVENTUALLY)).finality.label == "failure"


def replace_number(event: ev.Event, n: int) -> ev.Event:
    """Give the same event another number."""
    import msgspec  # noqa: PLC0415 - only here

    return msgspec.structs.replace(event, n=n)
