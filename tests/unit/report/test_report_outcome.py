"""What the report tells beside the verdicts: the outcome, the stage, what never ran, and what is no change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from completions import completion, file, open_effect, process
from supervisor.report.safe import trim
from supervisor.report.summary import summary, unasked_for
from supervisor.report.text import render_text
from supervisor.verdict.completion import NEVER, Completion

RUN = "20261130-080642-k3f9"
OBSERVED: dict[str, Any] = {"label": None, "at": None, "digest": None}


def staged(state: str, **changes: Any) -> Completion:
    """Make an argument whose stage came to an end."""
    return completion(stage={"state": state, "changes": 4} | changes)


def observed(**changes: Any) -> Completion:
    """Make an argument with something observed of its outcome."""
    return completion(finality={"observed": OBSERVED | changes})


def told(made: Completion) -> tuple[str, str]:
    """Give the report and the summary."""
    return render_text(made), "\n".join(summary(made))


def test_a_trial_that_we_ended_says_so() -> None:
    """Nothing else of a summary would tell it; and what is not final or not clean needs no warning about that."""
    short = told(completion(endpoint={"reason": "timeout", "exit_code": None, "signal": 15}))[1]
    assert "supervise: ended by us: timeout, signal 15" in short
    assert "ended by us" not in told(completion())[1]
    assert "do not mean safe" in told(completion())[1]
    assert "do not mean safe" not in told(completion(scope={"verdict": "unresolved"}))[1]


def test_the_gravest_violation_is_told_and_the_others_are_counted() -> None:
    """A decoy that left comes before the look-up that came before it."""
    found = [{"rule": rule, "text": rule, "events": [1]} for rule in ("forbidden-lookup", "leaked-canary", "x")]
    short = told(completion(scope={"verdict": "violated", "violations": found}))[1]
    assert "supervise: scope: leaked-canary [1]; and 2 more" in short


def test_applied_changes_are_counted() -> None:
    """Both texts say so, the summary without a line of its own."""
    report, short = told(staged("applied"))
    assert "changes     4 changes applied\n" in report
    assert "(4 changes applied)" in short


def test_what_was_left_out_of_the_commit_is_named() -> None:
    """A change that is not allowed stays in the stage, and both texts say which."""
    for text in told(staged("applied", left_out=["b.txt"])):
        assert "4 changes applied; not allowed, so left out: b.txt" in text


def test_a_kept_stage_says_why_and_what_can_be_done() -> None:
    """The commands stand there with the run's id."""
    for text in told(staged("kept", why="the policy says never")):
        assert "4 changes kept in the stage, not applied: the policy says never" in text
        assert f"`supervise commit {RUN}` applies them, `supervise discard {RUN}` drops them" in text


def test_a_kept_stage_without_changes_asks_for_nothing() -> None:
    """There is nothing to decide."""
    report, short = told(staged("kept", changes=0))
    assert "changes     nothing was changed" in report
    assert "supervise commit" not in short


def test_a_conflict_says_what_to_do() -> None:
    """The host's version was left alone; committing again helps only by force."""
    for text in told(staged("failed", why="changed on the host meanwhile: same", conflicts=["same"])):
        assert "not all of 4 changes applied: changed on the host meanwhile: same" in text
        assert f"`supervise discard {RUN}` keeps the host's" in text
        assert f"`supervise commit --force {RUN}` the trial's" in text
        assert f"supervise commit {RUN}" not in text


def test_an_interrupted_commit_can_go_on() -> None:
    """No path stands in its way."""
    for text in told(staged("failed", why="no space left on device")):
        assert f"`supervise commit {RUN}` goes on with it" in text


def test_an_outcome_that_does_not_exist_is_told_near_the_top() -> None:
    """A mistyped name shows in the summary and in the first lines of the report."""
    state = {"path": "nothing.md", "as_of": "end", "exists": False, "existed_before": False}
    report, short = told(observed(state=state))
    assert "outcome     nothing.md: does not exist" in report.splitlines()[4]
    assert "outcome nothing.md: does not exist" in short


def test_the_outcome_is_told_with_kind_size_and_digest() -> None:
    """What was judged can be compared with what is there."""
    state = {"path": "a", "as_of": "captured", "exists": True, "existed_before": None}
    state |= {"kind": "file", "size_bytes": 3, "digest": "sha256:00"}
    made = observed(state=state)
    assert "outcome     a: file, 3 bytes, sha256:00, at the endpoint" in told(made)[0]
    later = msgspec.structs.replace(made, claim=msgspec.structs.replace(made.claim, period="within 2s"))
    assert "outcome     a: file, 3 bytes, sha256:00, as captured when the period ended" in told(later)[0]
    end = observed(state=state | {"as_of": "end"})
    assert "outcome     a: file, 3 bytes, sha256:00, at the end\n" in told(end)[0]


def test_an_outcome_that_changed_after_its_capture_is_told_with_where_the_captured_one_is() -> None:
    """What is applied or staged is then not what the verdict is about; one that was put back is only told."""
    kept = "; the captured state is kept in snapshot/upper of the run"
    changed = {"changed_since": ["res.txt"], "kept_in": "snapshot/upper"}
    for text in told(observed(**changed, differs=["res.txt"])):
        assert f"changed after it was captured: res.txt{kept}, and is what the verdict is about, not what" in text
    for text in told(observed(**changed)):
        assert f"changed after it was captured, and put back: res.txt{kept}" in text


def test_writes_that_were_held_back_say_so_and_what_can_be_done() -> None:
    """Even when nothing would change any more, and to a quiet caller; those that nobody wanted applied need no word."""
    about = {"label": None, "at": None, "digest": None, "changed_since": ["out"], "differs": ["out"]}
    for changes in (1, 0):
        stage = {"state": "kept", "changes": changes, "why": "the verdict is about another state"}
        made = completion(stage=stage, finality={"observed": about})
        for text in (*told(made), "\n".join(unasked_for(made))):
            assert "kept in the stage, not applied: the verdict is about another state" in text
            assert f"`supervise diff {RUN}` shows them" in text
            assert "--at-endpoint cancel" in text
        asked = completion(stage=stage | {"why": NEVER}, finality={"observed": about})
        assert not list(unasked_for(asked))


def test_a_command_that_never_ran_is_told() -> None:
    """The exit code alone could be the command's own."""
    for text in told(completion(endpoint={"executed": False, "exec_error": "ENOENT", "exit_code": 127})):
        assert "CMD was never executed: not found (ENOENT)" in text


def test_an_outcome_that_nobody_graded_is_called_so() -> None:
    """Whether a grader was declared is not what a reader asks."""
    report, _ = told(completion(result={"because": ["finality is final, and nothing graded the outcome"]}))
    assert "result      not graded\n" in report


@pytest.mark.parametrize(("error", "shown"), [(13, True), (30, True), (28, True), (17, False), (2, False)])
def test_only_refusals_and_want_of_room_are_told(error: int, shown: bool) -> None:  # noqa: FBT001  (a parameter)
    """A directory that was there already is nobody's refusal."""
    attempt = {"kind": "created", "errno": error, "process": None, "event": 5}
    text, _ = told(completion(effects={"files": [file("/opt", history=[], attempts=[attempt], allowed=False)]}))
    assert ("/opt" in text) is shown


def test_both_names_of_a_rename_are_told() -> None:
    """At the old name where it went, at the new one where it came from."""
    gone = file("same", net="renamed", history=["renamed"], renamed_to="same2", before="sha256:1")
    here = file("same2", net="renamed", history=["renamed"], renamed_from="same", after="sha256:1")
    text, _ = told(completion(effects={"files": [gone, here]}))
    assert "renamed: same, to same2" in text
    assert "renamed: same2, from same" in text


def test_inherited_descriptors_are_no_changed_files() -> None:
    """Standard output is listed by itself and not counted."""
    report, short = told(completion(effects={"files": [file("/srv/log", net=None, reachable=False)]}))
    assert "private places and inherited descriptors (1)\n  modified: /srv/log, inherited [41]" in report
    assert "0 changed files" in short


def test_an_effect_that_does_not_bear_on_the_claim_says_so() -> None:
    """Its handling is told in words, not as what it could have done."""
    bearing = "does not affect the claim: the outcome was captured at the endpoint"
    report, _ = told(completion(open_effects=[open_effect("o1", bearing=bearing)]))
    assert f"pending, observed; {bearing} [88]" in report
    assert "could affect" not in report


def test_what_is_assumed_is_listed_once() -> None:
    """A route that nobody witnesses is an assumption; only one without a note stands by itself."""
    coverage = [{"route": name, "witnesses": [], "complete": False, "gaps": []} for name in ("caller", "clock")]
    separation = {"assumptions": ["caller: what it does is not witnessed"]}
    report, _ = told(completion(coverage=coverage, separation=separation))
    assert "witnessed by nobody: clock\n" in report
    assert report.count("caller") == 1


def test_long_sentences_end_between_words() -> None:
    """No name is cut in its middle."""
    assert trim("x: m00/f1000, m00/f1001", 18) == "x: m00/f1000 …"
    assert trim("short", 18) == "short"
    assert trim("a" * 30, 10) == "a" * 9 + " …"


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "kept", "why": "the policy applies a final outcome only, and this one is unresolved"},
        {"state": "failed", "why": "changed on the host meanwhile: f", "conflicts": ["f"]},
        {"state": "discarded", "why": "the validator did not accept it (exit code 1)"},
        {"state": "applied", "left_out": ["f"]},
    ],
)
def test_even_a_quiet_caller_is_told_what_was_not_applied(changes: dict[str, Any]) -> None:
    """The exit code is the command's: without this line nothing would say that the files are not there."""
    assert any(line.startswith("supervise: changes: ") for line in unasked_for(staged(**changes)))


def test_a_quiet_caller_is_not_told_what_was_asked_for() -> None:
    """What was applied, and what was to be kept, needs no word."""
    assert not [*unasked_for(staged("applied")), *unasked_for(completion())]
    assert not [*unasked_for(staged("kept", why="the policy says never"))]


def test_a_grader_that_says_failure_is_quoted() -> None:
    """A grader that crashed says failure too: its last words tell the two apart, and act on no terminal."""
    crashed = "Traceback\n" + "\n".join(f"line {n}" for n in range(9)) + "\nKeyError: \x1b[2J\n"
    said = {"exit_code": 1, "signal": None, "output": crashed, "events": [70, 71]}
    finality = {"label": "failure", "observed": {**OBSERVED, "label": "failure"}, "grader": said}
    report = render_text(completion(finality=finality, result={"passed": False, "because": []}))
    assert "grader      exit code 1; it wrote [70, 71]" in report
    assert "            KeyError: \\x1b[2J" in report
    assert "line 3" not in report
    assert "line 4" in report


def test_a_validator_that_refused_is_quoted() -> None:
    """Its words say why."""
    seen = {"exit_code": 1, "problem": None, "said": "no: too large", "released": 0, "discarded": 0, "events": [70]}
    assert "            no: too large" in render_text(completion(validation={"accepted": False, **seen}))
    assert "too large" not in render_text(completion(validation={"accepted": True, **seen}))


def test_the_summary_says_how_many_we_killed() -> None:
    """Who outlived the endpoint and died of our SIGKILL, and whether that was declared; not who ended by itself."""
    left = [process(2, outlived=True, signal=9), process(3, outlived=True, signal=9), process(4, outlived=True)]

    def seen(rule: str, processes: list[dict[str, Any]]) -> str:
        reasons = [{"rule": rule, "text": "", "events": []}]
        return "\n".join(summary(completion(finality={"reasons": reasons}, effects={"processes": processes})))

    assert "we killed 2 processes that were left, when following ended" in seen("alive-when-following-ended", left)
    assert "we killed 1 process that was left, as declared" in seen("cancelled", left[:1])
    assert "we killed" not in seen("cancelled", left[2:]) + seen("ended-while-followed", left)


def test_a_private_write_that_no_scope_counts_was_discarded() -> None:
    """Where nothing was declared a write elsewhere violates nothing; where it does, or in the workspace, it is said."""
    elsewhere = file("/etc/foo", allowed=False, history=["created"], net="created", events=[41])
    effects = {"files": [elsewhere, file("in", allowed=False, history=["created"], net="created", events=[42])]}
    clean = render_text(completion(effects=effects))
    assert "created: /etc/foo, discarded [41]" in clean
    assert "created: in, not allowed [42]" in clean
    violation = {"rule": "write-outside-scope", "text": "/etc/foo was created", "events": [41]}
    violated = render_text(completion(effects=effects, scope={"verdict": "violated", "violations": [violation]}))
    assert "created: /etc/foo, not allowed [41]" in violated


def test_one_is_not_many() -> None:
    """What is counted is named as often as it was."""
    used = {"tool_calls": 1, "failed": 0, "retries": 1, "refused": 0, "claimed_tool_calls": 1, "claimed_tokens": 1}
    text = render_text(completion(usage=used | {"unanswered": [], "reached": None, "events": []}))
    assert "1 tool call (0 failed, 1 retry, 0 refused); it says of itself: 1 tool call, 1 token" in text
