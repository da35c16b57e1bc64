"""The straight line: policy → launch (hold) → probes attach → release → log → evidence → verdict → report.

In: a `RunRequest`. Out: an `Outcome` whose run directory is sealed. Whatever happens on the way, the stack undoes it
backwards: nothing of the trial stays alive and nothing of ours stays on the machine but the run's directory; not even
that of a trial that was refused before its release, of which there is nothing to judge.
"""

from __future__ import annotations

from contextlib import ExitStack

from probes.doctor_preflight import require_machine
from supervisor.grade.graders import grade, show_examples
from supervisor.log.room import fullness_told
from supervisor.prepare.preparing import prepare, prepare_writes
from supervisor.request import Outcome, RunRequest, named_by_caller
from supervisor.signals import Signals
from supervisor.trial.following import follow
from supervisor.trial.trial import hold_trial
from supervisor.trial.watching import watch_workspace, watched


def run(request: RunRequest) -> Outcome:
    """Run one trial from its policy to its sealed completion argument.

    Raises:
        MachineError: the machine cannot witness or cannot isolate it.
        LaunchError: the box could not be built, or failed its test; CMD was not started.
        LogError: the log could not be written to its end; the run is left unsealed. `LogFullError` for want of room.
    """
    require_machine()
    with ExitStack() as stack:
        stack.enter_context(named_by_caller(request.place_of))
        signals = stack.enter_context(Signals())
        unstarted = stack.enter_context(ExitStack())
        prepared = prepare(request, unstarted)
        stack.enter_context(fullness_told(prepared.run.path))
        writers = stack.enter_context(watch_workspace(prepared))
        stage = prepare_writes(prepared)
        stack.callback(stage.close)
        trial = stack.enter_context(hold_trial(prepared))
        stack.enter_context(watched(trial, writers))
        if prepared.terminal is not None and trial.box.pty_master is not None:
            prepared.terminal.attach(trial.box.pty_master)
            stack.callback(prepared.terminal.close)
        grader = show_examples(trial, signals)
        trial.release(on_registered=unstarted.pop_all)
        follow(trial, stage, signals)
        grade(trial, stage, grader)
        from supervisor.conclude.concluding import conclude  # noqa: PLC0415 - imported while the box was being built

        return conclude(trial, stage, signals)
