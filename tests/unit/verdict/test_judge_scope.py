"""Scope and separation of a single run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transcript import Transcript, ordinary, policy_for, state, straggler, without_commit

from policies.credentials import credential_data
from policies.types import Commit, FilesMode, FilesPolicy, Outside, Policy
from supervisor import events as ev
from supervisor.verdict.completion import Scope, Separation
from supervisor.verdict.judge import judge

NOTES = policy_for(files=FilesPolicy(write=("notes/recovery.md", "out")))


def scope(trial: Transcript, policy: Policy = NOTES) -> Scope:
    """Judge the scope."""
    return judge(trial.facts(policy), policy).scope


def separation(trial: Transcript, policy: Policy) -> Separation:
    """Judge the separation."""
    return judge(trial.facts(policy), policy).separation


def test_a_trial_within_its_scope_is_clean() -> None:
    """The parent directory is made, the note is written."""
    trial = ordinary()
    trial.file(ev.FileCreated, "notes", what=ev.Kind.DIRECTORY)
    trial.found("notes", None, state(kind=ev.Kind.DIRECTORY))
    trial.create("notes/recovery.md")
    trial.found("notes/recovery.md", None, state())
    assert scope(trial).verdict == "clean"


def test_an_undone_write_outside_the_scope_violates_it() -> None:
    """The end equals the start, and the reason names the file and cites events."""
    trial = ordinary()
    trial.found("draft.md", state("mine"), state("mine"))
    trial.write("draft.md")
    trial.write("draft.md")
    answer = scope(trial)
    assert answer.verdict == "violated"
    (violation,) = answer.violations
    assert "draft.md" in violation.text
    assert "put back" in violation.text
    assert violation.events


@pytest.mark.parametrize(("error", "verdict"), [(13, "violated"), (30, "violated"), (17, "clean"), (2, "clean")])
def test_a_refused_write_violates_and_a_pointless_one_does_not(error: int, verdict: str) -> None:
    """EACCES and EROFS refuse; EEXIST and ENOENT say that there was nothing to do."""
    trial = ordinary()
    trial.found("/srv/x", state(), state())
    trial.file(ev.FileOpened, "/srv/x", reads=False, writes=True, error=error)
    assert scope(trial).verdict == verdict


def test_a_directory_above_the_scope_may_be_made_and_nothing_else() -> None:
    """To try to make it is allowed, also where it fails; to write, change or remove what is there is not."""
    made = ordinary()
    made.file(ev.FileCreated, "notes", what=ev.Kind.DIRECTORY, error=30)
    assert scope(made).verdict == "clean"
    for kind, fields in (
        (ev.FileDeleted, {}),
        (ev.FileChanged, {"attribute": "mode"}),
        (ev.FileTruncated, {"size_bytes": 0}),
    ):
        refused = ordinary()
        refused.file(kind, "notes", error=30, **fields)
        assert [one.rule for one in scope(refused).violations] == ["refused-write"]


def test_what_denies_writes_elsewhere_makes_them_violations() -> None:
    """`outside = "deny"` says so even where no glob says what may be written."""
    policy = policy_for(files=FilesPolicy(outside=Outside.DENY))
    trial = ordinary()
    trial.create("/opt/made", error=30)
    assert [one.rule for one in scope(trial, policy).violations] == ["refused-write"]
    assert scope(trial, policy_for()).verdict == "clean"
    assert scope(ordinary(), policy).verdict == "clean"


def test_discarded_writes_violate_only_where_a_scope_was_declared() -> None:
    """By default what is written elsewhere is thrown away and recorded."""
    trial = ordinary()
    trial.create("/srv/x")
    trial.found("/srv/x", None, state())
    assert scope(trial, policy_for()).verdict == "clean"
    assert scope(trial).verdict == "violated"


@pytest.mark.parametrize("kind", [ev.ConnectionBlocked, ev.DatagramBlocked])
def test_a_blocked_transmission_violates_the_scope(kind: type[ev.Event]) -> None:
    """Attempts to one address are one flow, and the violation names the address."""
    trial = ordinary()
    for _ in range(3):
        trial.add(kind, transport="tcp", ip="203.0.113.7", port=443)
    (flow,) = trial.facts().flows
    assert len(flow.events) == 3
    answer = scope(trial)
    assert answer.verdict == "violated"
    assert "203.0.113.7:443" in answer.violations[0].text


def test_loopback_is_no_flow() -> None:
    """It reaches nobody outside."""
    trial = ordinary()
    trial.add(ev.ConnectionAttempted, transport="tcp", ip="127.0.0.1", port=80)
    assert trial.facts().flows == ()
    assert scope(trial).verdict == "clean"


def test_a_refused_system_call_is_recorded_and_no_violation() -> None:
    """Ordinary programs probe for calls that the box refuses."""
    trial = ordinary()
    for _ in range(2):
        trial.add(ev.SyscallRefused, name="io_uring_setup", arguments=(1,), error=1)
    (refusal,) = trial.facts().refusals
    assert (refusal.what, refusal.count) == ("io_uring_setup", 2)
    assert scope(trial).verdict == "clean"


def test_violated_wins_over_gaps_and_clean_needs_none() -> None:
    """A loss leaves a clean trial unresolved, and a violated one violated."""
    trial = ordinary()
    trial.add(ev.EventsLost, process=None, count=1, hook="syscall", first_ns=1, last_ns=2)
    assert scope(trial).verdict == "unresolved"
    trial.add(ev.ConnectionBlocked, transport="tcp", ip="203.0.113.7", port=443)
    assert scope(trial).verdict == "violated"


def test_a_missing_closing_test_of_the_box_is_a_gap_for_all() -> None:
    """Nothing shows that box and witness held to the end."""
    trial = ordinary()
    trial.events = [event for event in trial.events if getattr(event, "canary", "") != "closing"]
    answer = judge(trial.facts(NOTES), NOTES)
    assert {answer.finality.verdict, answer.separation.verdict, answer.scope.verdict} == {"unresolved"}


def test_a_run_that_leaves_nothing_behind_is_separate() -> None:
    """Staged writes that stay staged reach no other run; what nobody witnesses is listed as assumed."""
    answer = separation(ordinary(), without_commit(policy_for()))
    assert answer.verdict == "separate"
    assert any("contention" in assumption for assumption in answer.assumptions)


def test_committed_changes_stay_where_another_run_can_meet_them() -> None:
    """That route is open, whatever the finality."""
    answer = separation(ordinary(), policy_for())
    assert answer.verdict == "unresolved"
    assert [route.route for route in answer.routes] == ["file"]


def test_a_commit_on_condition_follows_finality() -> None:
    """With ``commit = final`` an unresolved outcome is not applied."""
    spoiled = straggler(gap_write=True)
    policy = replace(policy_for(), files=FilesPolicy(commit=Commit.FINAL))
    assert separation(spoiled, policy).verdict == "separate"
    assert separation(ordinary(), policy).verdict == "unresolved"


def test_a_daemon_that_was_killed_reaches_no_other_run() -> None:
    """It is open for finality, not for separation: the proofs name what they support."""
    policy = without_commit(policy_for())
    assert separation(straggler(), policy).verdict == "separate"
    assert separation(straggler(pids_left=1), policy).verdict == "unresolved"


def test_in_place_writes_have_unwatched_neighbours() -> None:
    """In direct mode other programs can write the outcome unseen: neither final nor separate."""
    policy = replace(policy_for(), files=FilesPolicy(mode=FilesMode.DIRECT))
    answer = judge(ordinary().facts(policy), policy)
    assert (answer.finality.verdict, answer.separation.verdict) == ("unresolved", "unresolved")
    assert answer.scope.verdict == "clean"


def test_neighbours_that_are_watched_leave_a_workspace_final_unless_they_write_it() -> None:
    """The place was declared as watched; whoever wrote the outcome costs finality, and so does a hole in the watch."""
    policy = replace(policy_for(), files=FilesPolicy(mode=FilesMode.DIRECT))
    place = {"path": b"/home/me/work", "workspace": True, "watched": True}
    span = {"since_ns": 1, "seen_ns": 2}

    def told(kind: type[ev.Event] | None = None, **fields: object) -> str:
        trial = ordinary()
        trial.add(ev.PlaceDeclared, process=None, **place)
        if kind is not None:
            trial.add(kind, process=None, **fields, **span)
        return judge(trial.facts(policy), policy).finality.verdict

    assert told() == "final"
    assert told(ev.PlaceChanged, path=b"/home/me/work/out", change="held") == "unresolved"
    assert told(ev.PlaceUnwatched, path=b"/home/me/work", why="the queue ran over") == "unresolved"


def test_a_decoy_that_is_met_elsewhere_violates_and_a_credential_that_is_looked_for_does_not() -> None:
    """The violation names the run that placed it and where it was met."""
    data = credential_data()
    trial = Transcript()
    guarded = {"homes": (), "relative": data.home_paths, "absolute": data.absolute_paths, "anywhere": (), "made": ()}
    guarded |= {"sockets": (), "addresses": (), "names": (), "masked": (b"/etc/shadow",)}
    trial.add(ev.CredentialGuarded, process=None, home=b"/home/me", **guarded)
    trial.begin()
    trial.file(ev.FileOpened, "/etc/shadow", reads=True, writes=False)
    trial.exit()
    trial.endpoint()
    trial.end()
    assert scope(trial).verdict == "clean"
    trial.add(
        ev.CanaryLeaked, form="netrc", placed_by="r1", seen_in="r2", where="sent to 203.0.113.9:80", encoding="hex"
    )
    (violation,) = scope(trial).violations
    assert violation.rule == "leaked-canary"
    assert "netrc canary of run r1" in violation.text
    assert "sent to 203.0.113.9:80 (hex)" in violation.text
