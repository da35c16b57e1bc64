"""Triggers that a trial leaves: every row of the table, and the effects that are listed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transcript import (
    ENDPOINT,
    EVENTUALLY,
    OFFSET_NS,
    WITHIN,
    WORK,
    Transcript,
    ordinary,
    policy_for,
    state,
    without_commit,
)

from policies.triggers import triggers
from policies.types import FilesMode, FilesPolicy, PeriodKind, Policy
from supervisor import events as ev
from supervisor.conclude.schedules import read_from_s
from supervisor.evidence.schedules import find_schedules
from supervisor.verdict.judge import Judgement, judge
from supervisor.verdict.runs.indexing import index_run

CRONTAB = b"/var/spool/cron/crontabs/root"
TIMER = b".config/systemd/user/x.timer"


def leaving(
    when: str, *, kept: bool = True, path: bytes = b".config/x", next_ns: int | None = None, gone: bool = False
) -> Transcript:
    """Tell of an ordinary trial in which a trigger was found at the end, or was there before it."""
    trial = ordinary()
    told = {"path": path, "what": "job", "when": when, "route": "schedule", "kept": kept, "next_ns": next_ns}
    trial.add(ev.ScheduleFound, process=None, gone=gone, **told)
    return trial


def judged(trial: Transcript, policy: Policy) -> Judgement:
    """Judge a transcript."""
    return judge(trial.facts(policy), policy)


@pytest.mark.parametrize(
    ("period", "verdict"), [(ENDPOINT, "final"), (WITHIN, "unresolved"), (EVENTUALLY, "unresolved")]
)
def test_an_autonomous_schedule_that_stays_leaves_the_future_open(period: PeriodKind, verdict: str) -> None:
    """Nobody knows what it will do; the endpoint was before it."""
    answer = judged(leaving("autonomous"), policy_for(period=period))
    (effect,) = [one for one in answer.open_effects if one.route == "schedule"]
    assert (effect.status, effect.could_affect, effect.handling) == ("pending", ("outcome", "runs"), "unresolved")
    assert answer.separation.verdict == "unresolved"
    assert answer.finality.verdict == verdict


@pytest.mark.parametrize(("when", "acts"), [("autonomous", 1), ("dormant", 0)])
def test_only_what_starts_by_itself_acts_on_runs_that_do_not_read_it(when: str, acts: int) -> None:
    """A hook is met as any other file, by the run that reads it; a schedule by whoever lives on."""
    trial, policy = leaving(when), policy_for()
    facts = trial.facts(policy)
    assert len(index_run(facts, policy, judge(facts, policy), run="r", workspace=WORK).later) == acts


@pytest.mark.parametrize(("after_s", "verdict"), [(9, "unresolved"), (11, "final")])
def test_a_schedule_that_fires_after_the_period_does_not_touch_it(after_s: int, verdict: str) -> None:
    """Within 10 s: one that is known to fire only afterwards is no matter; eventually it is."""
    trial = ordinary()
    endpoint_ns = next(event.time_ns for event in trial.events if isinstance(event, ev.ProcessExited))
    next_ns = endpoint_ns + OFFSET_NS + after_s * 1_000_000_000
    trial = leaving("autonomous", next_ns=next_ns)
    assert judged(trial, policy_for(period=EVENTUALLY)).finality.verdict == "unresolved"
    assert judged(trial, policy_for(period=WITHIN, within_s=10.0)).finality.verdict == verdict


@pytest.mark.parametrize("period", list(PeriodKind))
def test_a_dormant_trigger_is_for_other_runs(period: PeriodKind) -> None:
    """It changes nothing by itself: final, and it could affect runs."""
    answer = judged(leaving("dormant"), policy_for(period=period))
    (effect,) = [one for one in answer.open_effects if one.route == "schedule"]
    assert (effect.status, effect.could_affect) == ("persistent", ("runs",))
    assert answer.finality.verdict == "final"


@pytest.mark.parametrize("period", list(PeriodKind))
def test_a_schedule_on_a_discarded_path_is_isolated(period: PeriodKind) -> None:
    """It was written to the trial's own layer: final, with both proofs, and no route to other runs."""
    trial = leaving("autonomous", kept=False, path=CRONTAB)
    answer = judged(trial, without_commit(policy_for(period=period)))
    (effect,) = [one for one in answer.open_effects if one.route == "schedule"]
    assert effect.handling == "isolated"
    assert effect.proof.prevented
    assert effect.proof.checked
    assert answer.separation.verdict == "separate"
    assert answer.finality.verdict == "final"


def test_a_schedule_that_stays_staged_is_isolated_until_it_is_committed() -> None:
    """Without a commit nothing of the host reads it; the commit that was made counts, not the one that was planned."""
    trial = leaving("autonomous")
    policy = policy_for(period=EVENTUALLY)
    assert judged(trial, without_commit(policy)).finality.verdict == "final"
    trial.add(ev.StageCommitted, process=None, state="kept", entries=0)
    assert judged(trial, policy).finality.verdict == "final"


def test_in_direct_mode_a_schedule_stays() -> None:
    """It was written in place."""
    policy = policy_for(period=EVENTUALLY, files=FilesPolicy(mode=FilesMode.DIRECT))
    answer = judged(leaving("autonomous"), policy)
    assert "schedule-persists" in {reason.rule for reason in answer.finality.reasons}


@pytest.mark.parametrize(
    ("period", "verdict"), [(ENDPOINT, "final"), (WITHIN, "unresolved"), (EVENTUALLY, "unresolved")]
)
def test_a_schedule_that_was_taken_away_again_may_have_been_started(period: PeriodKind, verdict: str) -> None:
    """It was read at once: that it is gone says nothing of what it started, whatever becomes of the stage."""
    trial = leaving("autonomous", path=CRONTAB, gone=True)
    trial.add(ev.StageCommitted, process=None, state="kept", entries=0)
    answer = judged(trial, policy_for(period=period))
    (effect,) = [one for one in answer.open_effects if one.route == "schedule"]
    assert (answer.finality.verdict, effect.status, effect.handling) == (verdict, "unknown", "unresolved")


@pytest.mark.parametrize(("direct", "listed"), [(True, [(TIMER, True)]), (False, [])])
def test_what_was_there_for_a_while_is_a_trigger_where_it_is_read_at_once(
    *, direct: bool, listed: list[tuple[bytes, bool]]
) -> None:
    """A timer that the trial took away again; a hook waits for somebody, and a staged file is read by nobody."""
    trial = ordinary()
    for name in (TIMER, ".git/hooks/pre-push"):
        trial.create(name)
        trial.write(name)
        trial.found(name, None, None)
    shown = find_schedules(trial.facts(), WORK, triggers().find, direct=direct)
    assert [(one.history.path, one.gone) for one in shown] == listed


@pytest.mark.parametrize(("direct", "begins"), [(True, "release"), (False, "now")])
def test_what_is_read_at_once_is_due_from_the_beginning(*, direct: bool, begins: str) -> None:
    """It may have fired before the endpoint, and what it started may go on; what is staged is read once it is there."""
    trial = ordinary()
    trial.create(TIMER)
    trial.found(TIMER, None, state("*"))
    facts = trial.facts()
    (one,) = find_schedules(facts, WORK, triggers().find, direct=direct)
    line = facts.timeline
    assert line.released_ns is not None
    expected = {"release": (line.released_ns + line.realtime_offset_ns) / 1e9, "now": 7e9}[begins]
    assert read_from_s(one, line, 7e9) == pytest.approx(expected)


def found(trial: Transcript) -> list[tuple[bytes, str, bool]]:
    """Look for triggers in a transcript."""
    facts = trial.facts()
    return [(one.history.path, one.trigger.what, one.kept) for one in find_schedules(facts, WORK, triggers().find)]


def test_triggers_are_found_among_the_files_that_are_there_at_the_end() -> None:
    """One outside the workspace is not kept; one that was removed again, or a directory, is none."""
    trial = ordinary()
    for name in (CRONTAB, ".git/hooks/pre-push", ".bashrc", ".profile"):
        trial.create(name)
        trial.write(name)
    trial.found(CRONTAB, None, state("*"))
    trial.found(".git/hooks/pre-push", None, state("h", mode=0o755))
    trial.found(".bashrc", None, state("d", kind=ev.Kind.DIRECTORY))
    trial.found(".profile", None, None)
    assert found(trial) == [
        (b".git/hooks/pre-push", "git hook", True),
        (CRONTAB, "crontab of a user", False),
    ]


def test_a_file_whose_end_is_not_known_may_be_a_trigger() -> None:
    """What cannot be read is taken for what it may be."""
    trial = ordinary()
    trial.create(".git/hooks/pre-push")
    unread = replace(state("x"), problem="cannot be read")
    trial.found(".git/hooks/pre-push", None, unread)
    assert [what for _, what, _ in found(trial)] == ["git hook"]


def test_a_fifo_that_stays_is_a_place_to_meet() -> None:
    """It is no content: a route of its own to other runs."""
    trial = ordinary()
    trial.file(ev.FileCreated, "pipe", what=ev.Kind.FIFO)
    trial.found("pipe", None, state("", kind=ev.Kind.FIFO))
    routes = {one.route for one in judged(trial, policy_for()).open_effects}
    assert routes == {"ipc", "file"}


@pytest.mark.parametrize(
    ("path", "route"), [(b"/run/docker.sock", "container"), (b"/run/dbus/system_bus_socket", "schedule")]
)
def test_whoever_starts_things_when_asked_is_told_by_its_route(path: bytes, route: str) -> None:
    """A container or a unit that was asked for lives outside the box."""
    trial = ordinary()
    trial.add(ev.ConnectionAttempted, transport="unix", path=path, outside=True)
    answer = judged(trial, policy_for(period=EVENTUALLY))
    assert [one.route for one in answer.open_effects if "outcome" in one.could_affect] == [route]
    assert answer.finality.verdict == "unresolved"
