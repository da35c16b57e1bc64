"""The process tree of a trial, from its transcript."""

from __future__ import annotations

from transcript import INIT, MAIN, Transcript, ordinary, straggler

from supervisor import events as ev
from supervisor.evidence.facts import Process


def by_argv(processes: tuple[Process, ...]) -> dict[bytes, Process]:
    """Index processes by their whole command line."""
    return {b" ".join(process.argv): process for process in processes}


def test_helpers_of_the_box_are_not_listed() -> None:
    """Only CMD's process is the trial's; the init that made it is not, and CMD has no parent."""
    (process,) = ordinary().facts().processes
    assert process.key == MAIN
    assert process.parent is None
    assert process.pid == 2


def test_a_child_of_a_helper_is_a_helper() -> None:
    """What init forks for its closing test is the box's."""
    trial = ordinary()
    child = trial.fork(INIT)
    trial.exit(child)
    assert len(trial.facts().processes) == 1


def test_what_cmds_process_did_before_its_release_is_the_boxs() -> None:
    """The opening test of the box acts in CMD's process; it is no attempt of the trial."""
    trial = Transcript()
    trial.add(ev.TrialHeld, init=INIT, helpers=(), cgroup=7, realtime_offset_ns=0)
    trial.file(ev.FileOpened, "/etc/passwd", reads=False, writes=True, error=13)
    trial.add(ev.TrialReleased)
    assert trial.facts().files == ()


def test_lineage_survives_a_double_fork() -> None:
    """The daemon's parent is the process that really made it, though that is long gone."""
    processes = by_argv(straggler().facts().processes)
    daemon = processes[b"sleep 61.5"]
    between = next(process for process in processes.values() if process.key == daemon.parent)
    assert between.parent in {MAIN, None}
    assert between.exited_ns is not None


def test_a_process_that_only_forked_has_its_creators_argv() -> None:
    """Without an exec the argv is the creator's, at the time of the fork and not later."""
    trial = Transcript()
    trial.begin("first")
    child = trial.fork()
    trial.execute(MAIN, "second")
    grandchild = trial.fork(child)
    argv = {process.key: process.argv for process in trial.facts().processes}
    assert argv[child] == argv[grandchild] == (b"first",)
    assert argv[MAIN] == (b"second",)


def test_alive_at_endpoint_and_outlived() -> None:
    """What existed at CMD's exit was alive; what ran after it outlived it; a later child only outlived."""
    trial = straggler(handling="ended")
    daemon = by_argv(trial.facts().processes)[b"sleep 61.5"]
    assert daemon.alive_at_endpoint
    assert daemon.outlived
    late = Transcript()
    late.begin()
    parent = late.spawn("parent")
    late.exit()
    late.endpoint(parent)
    child = late.spawn("child", parent=parent)
    found = {process.key: process for process in late.facts().processes}
    assert (found[child].alive_at_endpoint, found[child].outlived) == (False, True)
    assert not found[MAIN].outlived


def test_a_long_chain_of_forks_needs_no_deep_stack() -> None:
    """Ten thousand generations resolve their argv."""
    trial = Transcript()
    last = trial.begin("deep")
    for _ in range(10_000):
        last = trial.fork(last)
    assert trial.facts().processes[-1].argv == (b"deep",)


def test_a_process_that_nobody_made_is_shown_as_a_gap() -> None:
    """A process without a fork event is listed, and its lineage is a gap."""
    trial = ordinary()
    trial.write("other", process=ev.ProcessKey(999, 1005 * 1_000_000))
    facts = trial.facts()
    assert len(facts.processes) == 2
    assert "missing-start" in {gap.rule for gap in facts.gaps}


def test_a_missing_exit_in_an_empty_cgroup_is_a_gap() -> None:
    """The cgroup is empty, so the process ended; that nobody saw it is a gap that leaves finality alone."""
    trial = ordinary()
    trial.fork()
    (gap, *_) = [gap for gap in trial.facts().gaps if gap.rule == "missing-exit"]
    assert gap.costs == {"scope", "separation"}
