"""What the events cannot show: names from shared memory, cut paths, counters, processes that only the cgroup named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transcript import MAIN, MS, WORK, Transcript, ordinary, policy_for, state

from policies.types import FilesMode, FilesPolicy, Policy
from supervisor import events as ev
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import FileHistory, FileState, Observed
from supervisor.verdict.judge import judge

NARROW = policy_for(files=FilesPolicy(write=("ok", "out")))
DIRECT = replace(policy_for(), files=FilesPolicy(mode=FilesMode.DIRECT))
UNRECORDED = FileState(
    kind=ev.Kind.UNKNOWN, digest=None, mode=0, uid=0, gid=0, size_bytes=0, problem="was not recorded before the trial"
)


def rules(trial: Transcript, policy: Policy = NARROW) -> set[str]:
    """Give the rules of all gaps."""
    return {gap.rule for gap in trial.facts(policy).gaps}


def verdicts(trial: Transcript, policy: Policy = NARROW) -> tuple[str, str, str]:
    """Give finality, separation and scope."""
    answer = judge(trial.facts(policy), policy)
    return answer.finality.verdict, answer.separation.verdict, answer.scope.verdict


def history(facts: Facts, name: bytes) -> FileHistory:
    """Give the history of one path."""
    return next(file for file in facts.files if file.path == name)


def told_there_and_back(*, verified: bool) -> Transcript:
    """Tell of a rename and its undoing, at a name that may be written; the disk shows nothing of it."""
    trial = ordinary()
    trial.found("ok", state(), state())
    trial.rename("ok", "out2", verified=verified)
    trial.rename("out2", "ok", verified=verified)
    return trial


def test_an_undone_change_under_a_doubtful_name_leaves_the_scope_open() -> None:
    """Another name may have been meant: nothing on disk tells. A name that nobody could change is believed."""
    policy = policy_for(files=FilesPolicy(write=("ok", "out", "out2")))
    assert "unconfirmed-names" in rules(told_there_and_back(verified=False), policy)
    assert verdicts(told_there_and_back(verified=False), policy)[2] == "unresolved"
    assert verdicts(told_there_and_back(verified=True), policy)[2] == "clean"


def test_doubtful_names_do_not_matter_where_nothing_is_forbidden() -> None:
    """Without a declared scope no name could be a violation."""
    assert verdicts(told_there_and_back(verified=False), policy_for())[2] == "clean"


def test_a_doubtful_name_that_the_disk_confirms_is_believed() -> None:
    """A temporary file that the kernel saw being made is gone, and what replaced its target has another content."""
    trial = ordinary()
    trial.create("ok")
    trial.rename("ok", "out", verified=False)
    trial.found("out", state("old"), state("new"))
    assert "unconfirmed-names" not in rules(ordinary_again(trial))


def doubts(*steps: tuple[type[ev.Event], dict[str, object]], before: FileState | None, after: FileState | None) -> bool:
    """Tell whether anything is unconfirmed of ``ok``, of which these are the changes."""
    trial = ordinary()
    for kind, fields in steps:
        trial.file(kind, "ok", **fields)
    trial.found("ok", before, after)
    policy = policy_for(files=FilesPolicy(write=("ok", "out")))
    return "unconfirmed-names" in [gap.rule for gap in trial.facts(policy).gaps]


MADE: dict[str, object] = {"what": ev.Kind.DIRECTORY}
MODE: dict[str, object] = {"attribute": "mode"}
DOUBTED: dict[str, object] = {"verified": False}
DIRECTORY = state(kind=ev.Kind.DIRECTORY)


def test_one_misfit_confirms_one_change() -> None:
    """A directory that is there confirms that it was made, and says nothing of a mode that was set under its name."""
    assert not doubts((ev.FileCreated, MADE | DOUBTED), before=None, after=DIRECTORY)
    assert doubts(
        (ev.FileCreated, MADE | DOUBTED), (ev.FileChanged, MODE | DOUBTED), before=None, after=DIRECTORY
    )  # fmt: skip
    assert doubts((ev.FileCreated, MADE | DOUBTED), (ev.FileDeleted, DOUBTED), before=None, after=None)


def test_one_changed_mode_confirms_one_call() -> None:
    """Of two calls that set it, the other one may have been elsewhere."""
    one, two = state(), state(mode=0o600)
    assert not doubts((ev.FileChanged, MODE | DOUBTED), before=one, after=two)
    assert doubts((ev.FileChanged, MODE | DOUBTED), (ev.FileChanged, MODE | DOUBTED), before=one, after=two)


def test_a_later_call_that_needs_the_name_confirms_it() -> None:
    """What was made by a name that could have been changed was removed, or made anew, by one that could not."""
    assert not doubts((ev.FileCreated, MADE | DOUBTED), (ev.FileDeleted, {}), before=None, after=None)
    assert not doubts((ev.FileCreated, MADE | DOUBTED), (ev.FileChanged, MODE), before=None, after=DIRECTORY)
    assert not doubts(
        (ev.FileDeleted, DOUBTED), (ev.FileCreated, MADE), before=DIRECTORY, after=DIRECTORY
    )  # fmt: skip


def copied(*, opened: str | None = None, below: str | None = None) -> list[str]:
    """Tell of a file and a directory that lie in the stage as they were, and what is said of it."""
    trial = ordinary()
    trial.found("other", DIRECTORY, DIRECTORY)
    trial.found("other/file", state(), state())
    trial.stage += [WORK + b"/other", WORK + b"/other/file"]
    if opened:
        trial.file(ev.FileOpened, opened, reads=True, writes=True)
    if below:
        trial.create(below)
        trial.delete(below)
    policy = policy_for(files=FilesPolicy(write=("out",)))
    return [gap.text.split(":")[0] for gap in trial.facts(policy).gaps if gap.rule == "unexplained-copy"]


def test_a_copy_in_the_stage_has_a_reason() -> None:
    """Nothing is copied but what is opened for writing, or changed, and what lies above that."""
    assert copied() == ["other", "other/file"]
    assert copied(opened="other/file") == []
    assert copied(below="other/new") == ["other/file"]


def test_a_copy_of_what_may_be_written_needs_none() -> None:
    """Only where writing would be a violation the reason matters."""
    trial = ordinary()
    trial.found("other", state(), state())
    trial.stage.append(WORK + b"/other")
    assert "unexplained-copy" not in [gap.rule for gap in trial.facts().gaps]


def ordinary_again(trial: Transcript) -> Transcript:
    """Leave out the file that `ordinary` made, so that ``out`` was there before."""
    trial.events = [event for event in trial.events if getattr(event, "path", b"") != b"/home/me/work/out"]
    return trial


def test_names_are_doubtful_once_a_process_reached_into_another() -> None:
    """A debugger can change the argument between the call and its record; one that only reads cannot."""
    policy = policy_for(files=FilesPolicy(write=("ok", "out", "out2")))
    for how, expected in (("ptrace", "unresolved"), ("process_vm_writev", "unresolved"), ("process_vm_readv", "clean")):
        trial = ordinary()
        trial.found("ok", state(), state())
        trial.add(ev.ProcessReached, target_inside=2, how=how)
        trial.rename("ok", "out2")
        trial.rename("out2", "ok")
        assert verdicts(trial, policy)[2] == expected, how
    failed = ordinary()
    failed.add(ev.ProcessReached, target_inside=3, how="ptrace", error=1)
    failed.rename("ok", "out2")
    failed.rename("out2", "ok")
    failed.found("ok", state(), state())
    assert verdicts(failed, policy)[2] == "clean"


def test_only_who_was_reached_and_its_descendants_are_doubtful() -> None:
    """A debugger of one program says nothing of another; one whose target nobody knows says something of all."""
    policy = policy_for(files=FilesPolicy(write=("ok", "out", "out2")))
    for target, actor, expected in (
        ("self", "self", "unresolved"),
        ("self", "child", "unresolved"),
        ("self", "other", "clean"),
        ("nobody", "other", "unresolved"),
    ):
        trial = Transcript()
        trial.begin()
        actors = {"self": trial.spawn("tool"), "other": trial.spawn("tool")}
        pids = {"self": actors["self"].pid - 100, "nobody": 9999}
        trial.add(ev.ProcessReached, target_inside=pids[target], how="ptrace")
        actors["child"] = trial.fork(actors["self"])
        trial.found("ok", state(), state())
        trial.rename("ok", "out2", process=actors[actor])
        trial.rename("out2", "ok", process=actors[actor])
        for process in (*actors.values(), MAIN):
            trial.exit(process)
        trial.endpoint()
        trial.settled()
        trial.end()
        assert verdicts(trial, policy)[2] == expected, (target, actor)


def test_a_change_at_a_path_that_is_not_whole_costs_everything() -> None:
    """It may have been of the outcome; a failed attempt changed nothing."""
    trial = ordinary()
    trial.file(ev.FileDeleted, "ok", path_truncated=True, error=2)
    assert "path-not-whole" not in rules(trial)
    trial.file(ev.FileWritten, "ok", count=1, size_bytes=1, last_ns=1, path_truncated=True)
    assert "path-not-whole" in rules(trial)
    assert verdicts(trial) == ("unresolved", "unresolved", "unresolved")


def without(trial: Transcript, kind: str) -> Transcript:
    """Leave out events of one kind."""
    trial.events = [event for event in trial.events if event.kind != kind]
    return trial


def test_packets_that_no_event_tells_of_cost_everything() -> None:
    """The counter of what left does not depend on the events."""
    trial = without(ordinary(), "trial.counted")
    assert "missing-counters" in rules(trial)
    assert verdicts(trial)[2] == "unresolved"
    trial.add(ev.TrialCounted, process=None, egress_packets=3, egress_bytes=180)
    assert "unexplained-egress" in rules(trial)
    assert verdicts(trial) == ("unresolved", "unresolved", "unresolved")


def test_a_process_that_only_the_cgroup_named_counts() -> None:
    """Its fork was lost; it was alive at the endpoint, so the state then is not known."""
    stranger = ev.ProcessKey(900, 7 * MS)
    trial = ordinary()
    trial.events = [
        ev.TrialEndpoint(n=e.n, time_ns=e.time_ns, reason="exit", alive=(stranger,))
        if e.kind == "trial.endpoint"
        else e
        for e in trial.events
    ]
    facts = trial.facts()
    assert any(process.key == stranger and process.outlived for process in facts.processes)
    assert verdicts(trial, policy_for())[0] == "unresolved"


def test_a_process_of_which_the_start_was_not_known_stands_for_the_one_that_events_know() -> None:
    """It had ended between the list and the question who it was."""
    trial = Transcript()
    trial.begin()
    child = trial.fork()
    trial.exit(child)
    trial.exit()
    trial.endpoint(ev.ProcessKey(child.pid, 0))
    trial.end()
    assert {process.key for process in trial.facts().processes} == {MAIN, child}


def test_a_loss_without_a_time_may_have_been_at_any() -> None:
    """A program that was skipped left no time behind: the capture is not trusted."""
    trial = Transcript()
    trial.begin()
    daemon = trial.spawn("sleep", "9")
    trial.exit()
    trial.endpoint(daemon)
    trial.snapshot()
    trial.settled(daemon)
    trial.kill(daemon)
    trial.end()
    assert verdicts(trial, policy_for())[0] == "final"
    trial.add(ev.EventsLost, process=None, count=1, hook="recursion", first_ns=0, last_ns=0)
    assert verdicts(trial, policy_for())[0] == "unresolved"


def test_a_trial_that_was_never_seen_empty_is_not_clean() -> None:
    """What is alive when the log is closed can still do anything."""
    assert verdicts(without(ordinary(), "trial.emptied"))[2] == "unresolved"


def test_a_trial_that_was_never_released_has_no_verdict() -> None:
    """Nothing in the log is then CMD's doing."""
    assert verdicts(without(ordinary(), "trial.released")) == ("unresolved", "unresolved", "unresolved")


def test_nothing_is_said_of_a_difference_to_what_nobody_recorded() -> None:
    """In place, a file of which nobody recorded the beginning has open net and restored, and that is the only gap."""
    trial = ordinary()
    trial.write("a")
    trial.disk[b"/home/me/work/a"] = Observed(before=UNRECORDED, after=state())
    facts = trial.facts(DIRECT)
    assert (history(facts, b"a").net, history(facts, b"a").restored) == (None, None)
    assert {gap.rule for gap in facts.gaps} == {"unwatched-writers", "unknown-before"}


def test_a_file_that_the_kernel_saw_being_made_was_not_there_before() -> None:
    """In place too: its net effect is known."""
    trial = ordinary()
    trial.disk[b"/home/me/work/out"] = Observed(before=UNRECORDED, after=state())
    assert history(trial.facts(DIRECT), b"out").net == "created"


def test_a_deletion_of_what_nobody_recorded_is_explained() -> None:
    """Events say that it is gone, and it is; only what it was is not known."""
    trial = ordinary()
    trial.delete("old")
    trial.disk[b"/home/me/work/old"] = Observed(before=UNRECORDED, after=None)
    facts = trial.facts(DIRECT)
    assert history(facts, b"old").net is None
    assert {gap.rule for gap in facts.gaps} == {"unwatched-writers", "unknown-before"}


def never_executed(*errors: int) -> Transcript:
    """Tell of a CMD that could not be executed, and of our message on a redirected stderr."""
    trial = Transcript()
    trial.begin()
    trial.events = [event for event in trial.events if event.kind != "process.executed"]
    for error in errors:
        trial.add(ev.ProcessExecFailed, path=b"/usr/bin/nonesuch", error=error)
    trial.file(ev.FileWritten, "err.log", count=1, size_bytes=30, last_ns=trial.now_ns, reachable=False)
    trial.exit(code=127)
    trial.endpoint()
    trial.settled()
    trial.end()
    return trial


@pytest.mark.parametrize(("errors", "error"), [((2, 2), 2), ((2, 13, 2), 13), ((), None)])
def test_a_command_that_was_never_executed_did_nothing(errors: tuple[int, ...], error: int | None) -> None:
    """It is known why, our own message is no change of the trial's, and the verdicts are good: nothing ran."""
    trial = never_executed(*errors)
    facts = trial.facts()
    assert (facts.executed, facts.exec_error) == (False, error)
    assert facts.files == ()
    assert verdicts(trial, policy_for())[0] == "final"
    reasons = judge(facts, policy_for()).finality.reasons
    assert any(reason.rule == "never-executed" for reason in reasons)


def test_a_command_that_could_not_be_found_first_but_ran_was_executed() -> None:
    """A search along PATH fails before it finds."""
    trial = Transcript()
    trial.begin()
    trial.add(ev.ProcessExecFailed, path=b"/bin/sh", error=2)
    assert trial.facts().executed is True


def test_whether_a_command_was_executed_is_open_when_such_events_were_lost() -> None:
    """Its writes count as its own then."""
    trial = never_executed(2)
    trial.add(ev.EventsLost, process=None, count=1, hook="exec", first_ns=1, last_ns=2)
    assert trial.facts().executed is None
    assert len(trial.facts().files) == 1


@pytest.mark.parametrize("path", [b"/home/me/work/out", b"/me/work/out", b"/work/out"])
def test_a_descriptor_of_the_outcome_is_of_the_outcome(path: bytes) -> None:
    """Its path begins at its own mount. Whoever lives on can write it, and no capture holds it."""
    trial = Transcript()
    trial.begin()
    daemon = trial.spawn("logger")
    trial.exit()
    trial.endpoint(daemon)
    trial.snapshot()
    trial.file(ev.FileWritten, path, process=daemon, count=1, size_bytes=1, last_ns=trial.now_ns, reachable=False)
    trial.settled(daemon)
    trial.kill(daemon)
    trial.end()
    assert verdicts(trial, policy_for())[0] == "unresolved"
    assert verdicts(trial, policy_for(outcome="other"))[0] == "final"


def test_both_names_of_a_rename_are_kept() -> None:
    """The old one knows where it went, the new one where it came from."""
    trial = ordinary()
    trial.rename("a", "b")
    trial.found("a", state(), None)
    trial.found("b", None, state())
    facts = trial.facts()
    assert (history(facts, b"a").renamed_to, history(facts, b"b").renamed_from) == (b"b", b"a")
