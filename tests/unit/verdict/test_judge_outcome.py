"""What a completion argument tells of the outcome, the stage and CMD beside the verdicts."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from transcript import WITHIN, WORK, Transcript, ordinary, policy_for, state, straggler

from policies.types import Claim, Commit, DecidedBy, FilesMode, FilesPolicy, Period, PeriodKind, Policy
from supervisor import events as ev
from supervisor.evidence.file_facts import Observed
from supervisor.verdict.argue import argue
from supervisor.verdict.captures import withheld
from supervisor.verdict.completion import (
    Completion,
    LogFigures,
    StageSeen,
    all_applied,
    from_json,
    json_parts,
    to_json,
)
from supervisor.verdict.judge import Judgement, judge
from supervisor.verdict.situation import read_situation


def judged(trial: Transcript, policy: Policy | None = None) -> Judgement:
    """Judge a transcript."""
    policy = policy or policy_for()
    return judge(trial.facts(policy), policy)


def argued(trial: Transcript, policy: Policy | None = None) -> Completion:
    """Judge a transcript and put its argument together."""
    policy = policy or policy_for()
    facts = trial.facts(policy)
    figures = LogFigures(frames=1, events=9, lost=0, root="sha256:r", sealed=True)
    judgement = judge(facts, policy)
    return argue(facts, policy, judgement, run="r", command=(b"sh",), log=figures, policy_digest="sha256:p")


def test_an_outcome_that_changed_after_its_capture_says_so_and_stays_final() -> None:
    """The claim is about the captured state; the reason names the file and where that state is kept."""
    answer = judged(straggler(late_write=True))
    assert answer.finality.verdict == "final"
    (reason,) = [reason for reason in answer.finality.reasons if reason.rule == "changed-since-captured"]
    assert "out" in reason.text
    assert "snapshot/upper" in reason.text
    assert reason.events
    observed = answer.finality.observed
    assert (observed.changed_since, observed.kept_in) == (("out",), "snapshot/upper")
    assert observed.state is not None
    assert observed.state.as_of == "end"


@pytest.mark.parametrize("again", [True, False])
def test_an_outcome_that_was_compared_is_told_as_captured(again: bool) -> None:  # noqa: FBT001
    """The digest is that of what was judged; only what is not so again differs from it, and is not applied."""
    trial = straggler(late_write=True)
    then = {"captured": "file", "size_bytes": 3, "digest": "sha256:then", "again": again}
    trial.add(ev.CaptureCompared, process=None, path=b"out", kept_in="snapshot/upper", **then)
    made = argued(trial)
    observed = made.finality.observed
    assert (observed.changed_since, observed.differs) == (("out",), () if again else ("out",))
    assert observed.state is not None
    assert (observed.state.as_of, observed.state.digest, observed.state.size_bytes) == ("captured", "sha256:then", 3)
    assert [file.captured for file in made.effects.files if file.path == "out"] == ["sha256:then"]
    assert all_applied(msgspec.structs.replace(made, stage=StageSeen(state="applied", changes=1))) is again


@pytest.mark.parametrize(("captured", "exists"), [("nothing", False), ("unknown", True)])
def test_an_outcome_that_was_not_there_when_it_was_captured_is_told_so(captured: str, exists: bool) -> None:  # noqa: FBT001
    """What came later is not the outcome; where the capture could not be read, it is the end that is told."""
    trial = straggler(late_write=True)
    trial.add(ev.CaptureCompared, process=None, path=b"out", kept_in="snapshot/upper", captured=captured)
    state = judged(trial).finality.observed.state
    assert state is not None
    assert (state.exists, state.as_of) == (exists, "end" if exists else "captured")


def test_what_was_in_another_capture_says_nothing_of_this_one() -> None:
    """A claim within a time rests on the capture at its end."""
    trial = straggler(late_write=True)
    trial.add(
        ev.CaptureCompared, process=None, path=b"out", kept_in="snapshot-within/upper", captured="file", again=True
    )
    assert judged(trial).finality.observed.differs == ("out",)


def withheld_by(trial: Transcript, claim: Claim, commit: Commit = Commit.ALWAYS) -> str | None:
    """Ask whether a stage is held back."""
    policy = replace(policy_for(), claim=claim, files=FilesPolicy(commit=commit))
    return withheld(read_situation(trial.facts(policy), policy, sealed=True))


def test_only_a_claim_that_names_something_holds_its_stage_back() -> None:
    """Or one of which nothing but a final outcome is wanted; not one that events decide, or that is about the end."""
    changed, named, by_event = straggler(late_write=True), Claim(outcome="out"), DecidedBy.EVENT
    assert withheld_by(changed, named) == "the verdict is about another state: changed after the endpoint: out"
    assert withheld_by(changed, Claim(scope=("out",))) is not None
    assert withheld_by(changed, Claim(), Commit.FINAL) is not None
    assert withheld_by(changed, Claim()) is None
    assert withheld_by(straggler(), named) is None
    assert withheld_by(changed, replace(named, decided_by=by_event, event="file.opened path=x")) is None
    assert withheld_by(changed, replace(named, period=Period(kind=PeriodKind.EVENTUALLY))) is None


def test_an_outcome_that_stayed_as_captured_needs_no_such_word() -> None:
    """Its state at the end is the captured one."""
    answer = judged(straggler())
    assert not [reason for reason in answer.finality.reasons if reason.rule == "changed-since-captured"]
    assert answer.finality.observed.state is not None
    assert answer.finality.observed.state.as_of == "captured"


def test_reasons_say_between_which_moments_nothing_was_written() -> None:
    """Since the endpoint would say too much: the trial goes on after the capture."""
    texts = [reason.text for reason in judged(straggler(late_write=True)).finality.reasons]
    assert any("unwritten between the endpoint and the freeze" in text for text in texts)


def test_no_reason_calls_the_deadline_by_a_letter() -> None:
    """It is told in seconds."""
    policy = policy_for(period=WITHIN, within_s=1.0)
    texts = [
        r.text for r in judged(straggler(handling="ended", lasts_ms=2000, late_snapshot=True), policy).finality.reasons
    ]
    assert any("1 s after the endpoint" in text for text in texts)


def test_the_outcome_is_told_whether_it_exists() -> None:
    """A name that was mistyped never existed; one that was written has a digest."""
    found = judged(ordinary()).finality.observed.state
    assert found is not None
    assert (found.path, found.exists, found.existed_before, found.digest) == ("out", True, False, "sha256:hi")
    missing = judged(ordinary(), policy_for(outcome="nothing.md")).finality.observed.state
    assert missing is not None
    assert (missing.exists, missing.existed_before) == (False, False)


@pytest.mark.parametrize("outcome", [None, "the note is written", "*.md"])
def test_an_outcome_that_is_no_path_has_no_state(outcome: str | None) -> None:
    """Words, and globs, name no single file."""
    assert judged(ordinary(), policy_for(outcome=outcome)).finality.observed.state is None


def test_an_outcome_outside_of_the_workspace_is_looked_at_where_it_is() -> None:
    """Absolute, or by a way up."""
    trial = ordinary()
    trial.disk[b"/etc/x"] = Observed(before=state(), after=state())
    for outcome in ("/etc/x", "../../../etc/x"):
        found = judged(trial, policy_for(outcome=outcome)).finality.observed.state
        assert found is not None
        assert (found.path, found.exists) == ("/etc/x", True)


def committed(state_: str, **fields: object) -> Transcript:
    """Tell of a trial and of what became of its stage."""
    trial = ordinary()
    trial.add(ev.StageCommitted, process=None, state=state_, entries=2, **fields)
    return trial


def test_the_argument_tells_what_became_of_the_stage() -> None:
    """Applied, with what was left out; failed, with what stood against it; kept, with why."""
    applied = argued(committed("applied", left_out=(b"b.txt",))).stage
    assert applied is not None
    assert (applied.state, applied.changes, applied.left_out) == ("applied", 1, ("b.txt",))
    failed = argued(committed("failed", error="changed on the host meanwhile: out", conflicts=(b"out",))).stage
    assert failed is not None
    assert (failed.why, failed.conflicts) == ("changed on the host meanwhile: out", ("out",))
    kept = argued(committed("kept"), replace(policy_for(), files=FilesPolicy(commit=Commit.NEVER))).stage
    assert kept is not None
    assert kept.why == "the policy says never"
    withheld = argued(straggler(gap_write=True), replace(policy_for(), files=FilesPolicy(commit=Commit.FINAL))).stage
    assert withheld is not None
    assert withheld.state == "unknown"


def test_a_commit_that_waits_for_a_final_outcome_says_which_one_it_got() -> None:
    """Kept, because this one is unresolved."""
    trial = straggler(gap_write=True)
    trial.add(ev.StageCommitted, process=None, state="kept", entries=0)
    stage = argued(trial, replace(policy_for(), files=FilesPolicy(commit=Commit.FINAL))).stage
    assert stage is not None
    assert stage.why == "the policy applies a final outcome only, and this one is unresolved"


def test_separation_says_what_would_make_it_good() -> None:
    """Committed changes cost counting, not the label, and there is an option."""
    (reason,) = judged(ordinary()).separation.reasons
    assert "--commit never" in reason.text
    what = "changes that stay in the workspace, which a later run can meet"
    assert reason.text.startswith(f"{what}; about counting runs, not about this one's label: ")


def test_in_place_writes_are_told_what_else_to_do() -> None:
    """Nothing is committed there: what would help is a stage."""
    direct = replace(policy_for(), files=FilesPolicy(mode=FilesMode.DIRECT))
    assert any(
        "staged and with `--commit never`" in reason.text for reason in judged(ordinary(), direct).separation.reasons
    )


def test_what_the_host_stood_against_does_not_stay() -> None:
    """It never reached the workspace, so no other run meets it."""
    answer = judged(committed("failed", error="changed on the host meanwhile: out", conflicts=(b"out",)))
    assert not [effect for effect in answer.open_effects if effect.route == "file"]


def test_open_effects_say_what_follows_for_the_claim() -> None:
    """Captured at the endpoint: nothing. Killed by us under a claim about later: it stays open."""
    (captured, *_) = judged(straggler()).open_effects
    assert captured.bearing == "does not affect the claim: the outcome was captured at the endpoint"
    policy = policy_for(period=WITHIN, within_s=1.0)
    assert "keeps the claim open" in str(judged(straggler(), policy).open_effects[0].bearing)


def test_a_pid_that_was_given_twice_is_told_with_its_id() -> None:
    """Else two processes would have one name."""
    trial = Transcript()
    trial.begin()
    first = trial.spawn("sleep", "1")
    second = ev.ProcessKey(first.pid + 5000, trial.now_ns)
    trial.add(ev.ProcessStarted, process=second, parent=(first), pid_inside=first.pid - 100)
    trial.execute(second, "sleep", "1")
    trial.exit()
    trial.endpoint(first, second)
    trial.snapshot()
    trial.settled(first, second)
    trial.kill(first, second)
    trial.end()
    names = {effect.what for effect in judged(trial).open_effects}
    assert names == {f"sleep 1 (pid {first.pid - 100}, {key})" for key in (first, second)}


def test_lists_of_files_end_at_a_name() -> None:
    """What does not fit is counted."""
    trial = ordinary()
    for number in range(40):
        trial.create(f"some/long/directory/f{number}")
        trial.found(f"some/long/directory/f{number}", None, state())
    what = judged(trial).open_effects[0].what
    assert what.endswith("more")
    assert all(
        part.startswith("some/long/directory/f") for part in what.split(": ")[1].split(" and ")[0].split(", ")[1:]
    )


def test_a_long_argument_is_written_in_parts_that_read_back() -> None:
    """In parts it is the same document as in one piece."""
    trial = ordinary()
    for number in range(6000):
        trial.create(f"f{number}")
        trial.found(f"f{number}", None, state())
    made = argued(trial)
    parts = list(json_parts(made))
    assert len(parts) > 10
    assert b"".join(parts) == to_json(made)
    assert from_json(to_json(made)) == made
    assert list(json.loads(to_json(made)))[:2] == ["schema", "run"]


def test_an_outcome_told_by_a_claim_alone_is_looked_at_once_judged() -> None:
    """The workspace is where a relative name begins."""
    assert judged(
        ordinary(), replace(policy_for(), claim=Claim(outcome=f"{WORK.decode()}/out"))
    ).finality.observed.state


def test_a_reason_for_final_says_first_what_makes_it_final() -> None:
    """That somebody was still alive, and killed, is no reason for it; where nothing closes that it comes first."""
    reasons = [one.text for one in judged(straggler()).finality.reasons]
    (closed,) = [text for text in reasons if "when following ended" in text]
    assert closed.startswith(
        "the outcome was captured frozen, unwritten between the endpoint and the freeze, although "
    )
    eventually = replace(policy_for(), claim=Claim(outcome="out", period=Period(kind=PeriodKind.EVENTUALLY)))
    (left,) = [r.text for r in judged(straggler(), eventually).finality.reasons if "when following ended" in r.text]
    assert "although" not in left
