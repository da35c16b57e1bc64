"""What limits did, from a trial's transcript: whose death is put down to them, and whose is not."""

from __future__ import annotations

from transcript import MAIN, Transcript, policy_for

from supervisor import events as ev
from supervisor.evidence.facts import LimitMet
from supervisor.verdict.judge import judge

MEMORY = {"process": None, "resource": "memory", "limit": 100_000_000, "effect": "killed", "times": 1}


def met(trial: Transcript) -> tuple[LimitMet, ...]:
    """End the trial with one kill counted, and give the limits that were met."""
    trial.end()
    trial.add(ev.LimitReached, **MEMORY)
    return trial.facts().limits


def finished() -> tuple[Transcript, ev.ProcessKey]:
    """Tell of CMD with one child, up to the child's end."""
    trial = Transcript()
    trial.begin("sh")
    return trial, trial.spawn("eat")


def finish(trial: Transcript) -> None:
    """End CMD by itself."""
    trial.exit()
    trial.endpoint()
    trial.settled()


def test_a_death_that_nobody_caused_is_the_limits() -> None:
    """The kernel counted a kill, and one process ended by SIGKILL without a sender."""
    trial, child = finished()
    trial.exit(child, signal=9)
    finish(trial)
    (limit,) = met(trial)
    assert limit.processes == (child,)
    assert (limit.effect, limit.times, limit.limit) == ("killed", 1, 100_000_000)
    assert len(limit.events) == 2


def test_a_death_that_a_process_of_the_trial_caused_is_not() -> None:
    """The signal was seen being sent."""
    trial, child = finished()
    trial.add(ev.SignalSent, process=MAIN, target=child, signal=9, inside=True)
    trial.exit(child, signal=9)
    finish(trial)
    assert met(trial)[0].processes == ()


def test_a_refused_signal_explains_nothing() -> None:
    """It did not arrive."""
    trial, child = finished()
    trial.add(ev.SignalSent, process=MAIN, target=child, signal=9, inside=True, error=1)
    trial.exit(child, signal=9)
    finish(trial)
    assert met(trial)[0].processes == (child,)


def test_what_we_killed_is_not_the_limits() -> None:
    """The straggler that was killed after the settling is ours."""
    trial, child = finished()
    trial.exit()
    trial.endpoint(child)
    trial.settled(child)
    trial.kill(child)
    assert met(trial)[0].processes == ()


def test_a_timeout_explains_the_deaths_after_it() -> None:
    """CMD that was killed because its time was up did not run out of memory."""
    trial, child = finished()
    trial.endpoint(MAIN, child, reason="timeout")
    trial.exit(child, signal=9)
    trial.exit(signal=9)
    trial.settled()
    assert met(trial)[0].processes == ()


def test_refusals_name_nobody() -> None:
    """A refused fork ends no process, whoever may have been killed meanwhile."""
    trial, child = finished()
    trial.exit(child, signal=9)
    finish(trial)
    trial.end()
    trial.add(ev.LimitReached, process=None, resource="pids", limit=5, effect="refused", times=7)
    (limit,) = trial.facts().limits
    assert (limit.processes, limit.times) == ((), 7)


def test_a_limit_that_was_met_changes_no_verdict() -> None:
    """It is part of the task: the same trial without it is judged the same."""
    trial, child = finished()
    trial.exit(child, signal=9)
    finish(trial)
    trial.end()
    policy = policy_for(outcome=None)
    before = judge(trial.facts(policy), policy)
    trial.add(ev.LimitReached, **MEMORY)
    after = judge(trial.facts(policy), policy)
    assert (before.finality.verdict, before.scope.verdict) == (after.finality.verdict, after.scope.verdict)
    assert after.finality.verdict == "final"
