"""Finality, row by row of its table, and the laws over the full product of situations."""

from __future__ import annotations

from itertools import product

import pytest
from transcript import ENDPOINT, EVENTUALLY, MAIN, WITHIN, Transcript, ordinary, policy_for, state, straggler

from policies.types import AtEndpoint, LimitRole, PeriodKind
from supervisor import events as ev
from supervisor.verdict.judge import Grade, Judgement, judge


def verdict(trial: Transcript, **options: object) -> str:
    """Judge a transcript under a policy and give its finality."""
    return judged(trial, **options).finality.verdict


def judged(trial: Transcript, *, sealed: bool = True, grade: Grade | None = None, **options: object) -> Judgement:
    """Judge a transcript under a policy."""
    policy = policy_for(**options)  # type: ignore[arg-type]
    return judge(trial.facts(policy), policy, sealed=sealed, grade=grade)


@pytest.mark.parametrize("period", list(PeriodKind))
def test_a_trial_that_leaves_nothing_is_final(period: PeriodKind) -> None:
    """Nothing alive, the cgroup empty, the log sealed: final for every period, without open process effects."""
    answer = judged(ordinary(), period=period)
    assert answer.finality.verdict == "final"
    assert answer.finality.label is None
    assert not [effect for effect in answer.open_effects if effect.route == "process"]


@pytest.mark.parametrize("period", list(PeriodKind))
def test_an_unsealed_log_is_never_final(period: PeriodKind) -> None:
    """Without a seal every period is unresolved."""
    assert verdict(ordinary(), period=period, sealed=False) == "unresolved"


def test_a_live_writer_under_a_good_snapshot_is_final_at_the_endpoint_only() -> None:
    """The snapshot decides the endpoint; what comes later is open, and the reason names the process."""
    assert verdict(straggler()) == "final"
    answer = judged(straggler(), period=EVENTUALLY)
    assert answer.finality.verdict == "unresolved"
    assert answer.finality.label is None
    assert any("sleep 61.5" in reason.text and reason.events for reason in answer.finality.reasons)
    (effect,) = [effect for effect in answer.open_effects if effect.route == "process"]
    assert "61.5" in effect.what
    assert "outcome" in effect.could_affect
    assert effect.events


def test_a_write_between_the_endpoint_and_the_freeze_spoils_the_snapshot() -> None:
    """The snapshot then shows a later state than the claim is about."""
    assert verdict(straggler(gap_write=True)) == "unresolved"


def test_without_a_snapshot_a_live_writer_leaves_the_endpoint_open() -> None:
    """Even when it ended by itself soon after."""
    assert verdict(straggler(snapshot=False)) == "unresolved"
    assert verdict(straggler(snapshot=False, handling="ended")) == "unresolved"


def test_a_writer_that_ends_within_settle_is_followed_to_the_settled_outcome() -> None:
    """Eventually and within D it is final; after D it is final only by a snapshot taken at D."""
    ended = {"handling": "ended", "late_write": True}
    assert verdict(straggler(**ended), period=EVENTUALLY) == "final"
    assert verdict(straggler(**ended), period=WITHIN) == "final"
    late = {**ended, "lasts_ms": 2000}
    assert verdict(straggler(**late), period=WITHIN, within_s=1.0) == "unresolved"
    assert verdict(straggler(**late, late_snapshot=True), period=WITHIN, within_s=1.0) == "final"


def test_a_cancellation_needs_both_proofs_and_must_have_been_declared() -> None:
    """Killed and seen empty as declared: final, intervened. Not declared, or not seen empty: unresolved."""
    cancel = {"at_endpoint": AtEndpoint.CANCEL, "period": EVENTUALLY}
    answer = judged(straggler(handling="cancel"), **cancel)
    assert answer.finality.verdict == "final"
    assert answer.finality.intervened
    (effect,) = [effect for effect in answer.open_effects if effect.route == "process"]
    assert effect.handling == "cancelled"
    assert effect.proof.prevented
    assert effect.proof.checked
    assert verdict(straggler(handling="cancel"), period=EVENTUALLY) == "unresolved"
    unchecked = judged(straggler(handling="cancel", pids_left=1), **cancel)
    assert unchecked.finality.verdict == "unresolved"
    assert {effect.handling for effect in unchecked.open_effects if effect.route == "process"} == {"unresolved"}


def test_a_freeze_is_not_a_cancel() -> None:
    """Frozen at the endpoint decides the endpoint only."""
    freeze = AtEndpoint.FREEZE
    assert verdict(straggler(), at_endpoint=freeze) == "final"
    assert verdict(straggler(), at_endpoint=freeze, period=EVENTUALLY) == "unresolved"
    assert verdict(straggler(), at_endpoint=freeze, period=WITHIN) == "unresolved"


def limited(*, settled: bool = True) -> Transcript:
    """Tell of a time-out that found CMD alive and ended it."""
    trial = Transcript()
    trial.begin("sleep", "63.5")
    trial.endpoint(MAIN, reason="timeout")
    trial.snapshot()
    if settled:
        trial.exit(MAIN, signal=15)
        trial.settled()
    else:
        trial.settled(MAIN)
        trial.kill(MAIN)
    trial.end()
    return trial


def test_a_task_limit_that_ends_cmd_is_part_of_what_is_measured() -> None:
    """CMD's end at the limit is final eventually; as an observation limit it leaves a live descendant."""
    assert verdict(limited(), period=EVENTUALLY) == "final"
    assert verdict(limited(settled=False), period=EVENTUALLY, role=LimitRole.OBSERVATION) == "unresolved"
    assert verdict(limited(settled=False), period=ENDPOINT, role=LimitRole.OBSERVATION) == "final"


def test_a_descriptor_that_left_the_box_is_never_final() -> None:
    """An empty cgroup with a living writer: every period is open."""
    trial = ordinary()
    trial.add(ev.DescriptorPassed, received=False, outside=True, path=b"/srv/x.sock")
    for period in PeriodKind:
        assert verdict(trial, period=period) == "unresolved"


def test_a_service_reached_outside_leaves_later_outcomes_open() -> None:
    """The files of the endpoint are known; what the service still does is not."""
    trial = ordinary()
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"/srv/x.sock", outside=True)
    answer = judged(trial, period=EVENTUALLY)
    assert answer.finality.verdict == "unresolved"
    assert next(effect.route for effect in answer.open_effects if "runs" in effect.could_affect) == "service"
    assert answer.separation.verdict == "unresolved"
    assert verdict(trial) == "final"


def test_a_failed_contact_leaves_nothing_open() -> None:
    """A refused connection outside is a violation and no open effect."""
    trial = ordinary()
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"/srv/x.sock", outside=True, error=13)
    answer = judged(trial, period=EVENTUALLY)
    assert (answer.finality.verdict, answer.scope.verdict) == ("final", "violated")


def test_lost_file_events_cost_scope_and_separation_but_not_finality() -> None:
    """The independent account of the end stays good."""
    trial = ordinary()
    trial.add(ev.EventsLost, process=None, count=5, hook="syscall", first_ns=1, last_ns=2)
    answer = judged(trial, period=EVENTUALLY)
    assert answer.finality.verdict == "final"
    assert (answer.scope.verdict, answer.separation.verdict) == ("unresolved", "unresolved")


def test_a_loss_where_processes_leave_costs_finality() -> None:
    """Who left during the loss could still write."""
    trial = ordinary()
    trial.add(ev.EventsLost, process=None, count=1, hook="cgroup", first_ns=1, last_ns=2)
    assert verdict(trial) == "unresolved"


def test_a_loss_between_endpoint_and_freeze_spoils_the_snapshot() -> None:
    """A write could be among what was lost there."""
    trial = straggler()
    endpoint = next(event for event in trial.events if event.kind == "trial.endpoint")
    trial.add(
        ev.EventsLost, process=None, count=1, hook="syscall", first_ns=endpoint.time_ns, last_ns=endpoint.time_ns + 1
    )
    assert verdict(trial) == "unresolved"


def test_a_failed_commit_is_not_final() -> None:
    """The claim is about the host's file, and that is not what was staged."""
    trial = ordinary()
    trial.add(ev.StageCommitted, process=None, state="failed", entries=0, error="conflict: out")
    assert verdict(trial) == "unresolved"


@pytest.mark.parametrize(("label", "passed"), [("success", True), ("failure", False)])
def test_the_label_is_the_graders_once_final(label: str, passed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A final verdict carries the label; an open one keeps it under ``observed`` only."""
    grade = Grade(label=label, at_ns=5)
    final = judged(ordinary(), grade=grade)
    assert (final.finality.label, final.result.passed) == (label, passed)
    still_open = judged(straggler(), period=EVENTUALLY, grade=grade)
    assert (still_open.finality.label, still_open.finality.observed.label) == (None, label)
    assert still_open.result.passed is None


def test_a_grader_without_a_label_leaves_it_unresolved() -> None:
    """The cause is the grader, and it says so."""
    answer = judged(ordinary(), grade=Grade(label=None, at_ns=5, cause="exit 127"))
    assert (answer.finality.verdict, answer.finality.cause) == ("unresolved", "grader")


SITUATIONS = list(
    product(
        ["ended", "cut", "cancel", "unseen"],
        [True, False],
        [True, False],
        [True, False],
        [0, 1],
        list(PeriodKind),
        list(AtEndpoint),
    )
)


def may_be_final(
    handling: str,
    *,
    snapshot: bool,
    gap_write: bool,
    late_snapshot: bool,
    pids_left: int,
    period: PeriodKind,
    at_endpoint: AtEndpoint,
) -> bool:
    """Say by the laws alone whether final can be right; the daemon may write at any moment while it is alive."""
    if period is ENDPOINT:
        return (snapshot or late_snapshot) and not gap_write
    if handling == "unseen" or pids_left:
        return False
    if handling == "ended":
        return True
    return handling == "cancel" and at_endpoint is AtEndpoint.CANCEL


@pytest.mark.parametrize(
    ("handling", "snapshot", "gap_write", "late_snapshot", "pids_left", "period", "at_endpoint"), SITUATIONS
)
def test_no_wrong_final_over_the_full_product(
    handling: str,
    snapshot: bool,  # noqa: FBT001 - a parameter of the test
    gap_write: bool,  # noqa: FBT001 - a parameter of the test
    late_snapshot: bool,  # noqa: FBT001 - a parameter of the test
    pids_left: int,
    period: PeriodKind,
    at_endpoint: AtEndpoint,
) -> None:
    """Final exactly where the laws allow it: never a wrong final, and no final withheld without need."""
    trial = straggler(
        handling=handling, snapshot=snapshot, gap_write=gap_write, late_snapshot=late_snapshot, pids_left=pids_left
    )
    answer = verdict(trial, period=period, at_endpoint=at_endpoint)
    right = may_be_final(
        handling,
        snapshot=snapshot,
        gap_write=gap_write,
        late_snapshot=late_snapshot,
        pids_left=pids_left,
        period=period,
        at_endpoint=at_endpoint,
    )
    assert answer == ("final" if right else "unresolved")


def steady_writer(*, in_gap: bool) -> Transcript:
    """Tell of a daemon that keeps a file open: it writes before the endpoint, maybe in the gap, and after the thaw."""
    trial = Transcript()
    trial.begin()
    daemon = trial.spawn("logger")
    log = {"process": daemon, "device": 1, "inode": 5}
    trial.create("out", **log)
    trial.write("out", **log)
    trial.found("out", None, state())
    before_ns = trial.now_ns
    trial.exit()
    trial.endpoint(daemon)
    trial.add(ev.TrialFrozen, process=None)
    told_ns = trial.now_ns - 5 if in_gap else before_ns
    trial.add(ev.FileWritten, path=b"", count=2, size_bytes=2, last_ns=told_ns, totals=True, **log)
    trial.add(ev.TrialSnapshotted, process=None, digest="sha256:snap", files=1, size_bytes=1)
    trial.add(ev.TrialThawed, process=None)
    trial.file(ev.FileWritten, "out", count=1, size_bytes=1, last_ns=trial.now_ns, **log)
    trial.now_ns += 100
    trial.add(ev.FileWritten, path=b"", count=9, size_bytes=9, last_ns=trial.now_ns, totals=True, **log)
    trial.exit(daemon)
    trial.settled()
    trial.end()
    return trial


def test_totals_of_a_writer_that_goes_on_spoil_only_what_they_may_cover() -> None:
    """Totals after the thaw begin at the thaw; totals whose last write lies in the gap spoil the snapshot."""
    quiet = steady_writer(in_gap=False)
    frozen_ns = next(event.time_ns for event in quiet.events if event.kind == "trial.frozen")
    assert all(start > frozen_ns for file in quiet.facts().files for start, _ in file.written_after)
    assert verdict(quiet) == "final"
    assert verdict(steady_writer(in_gap=True)) == "unresolved"
