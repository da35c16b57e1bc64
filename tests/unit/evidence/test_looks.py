"""How a trial met shared places and hidden ones, from its events alone."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from transcript import ENDPOINT, EVENTUALLY, MAIN, MS, WORK, Transcript, policy_for, state

from policies.types import FilesMode, FilesPolicy, PeriodKind, Policy, SharedPlace
from supervisor import events as ev
from supervisor.events.files import READ_WINDOW_NS
from supervisor.evidence.collect import collect
from supervisor.evidence.facts import Facts, Touch
from supervisor.verdict.judge import judge

SHARED = b"/srv/shared"
HIDDEN = b"/srv/answers"
DEVICE, ELSEWHERE = 8 << 20 | 1, 8 << 20 | 2
FILES = FilesPolicy(shared=(SharedPlace(path="/srv/shared", reset="made again"),), read_deny=("/srv/answers",))


def begun(*, devices: Sequence[int] = (DEVICE,)) -> Transcript:
    """Begin a trial that shares one place and has another one hidden."""
    trial = Transcript()
    trial.add(
        ev.PlaceDeclared, process=None, path=SHARED, names=(b"/data", b"/mnt/alias"), devices=tuple(devices), total=2
    )
    trial.add(ev.PlaceDeclared, process=None, path=HIDDEN, hidden=True, total=2)
    trial.begin()
    return trial


def told(trial: Transcript, *, host: Mapping[bytes, bytes] | None = None, policy: Policy | None = None) -> Facts:
    """End the trial, and collect."""
    if not any(isinstance(event, ev.ProcessExited) and event.process == MAIN for event in trial.events):
        trial.exit()
    trial.endpoint()
    trial.settled()
    trial.end()
    links = host or {}
    return collect(
        trial.events,
        policy=policy or policy_for(files=FILES),
        workspace=WORK,
        observe=trial.observe,
        changed=lambda: list(trial.stage),
        links=lambda paths: {path: links[path] for path in paths if path in links},
    )


def words(facts: Facts) -> set[tuple[bytes, str]]:
    """Give what was touched and how."""
    return {(touch.path, touch.how) for touch in facts.touches}


def look(trial: Transcript, path: bytes, **fields: object) -> None:
    """Look a name up."""
    fields = {"how": "stat", **fields}
    trial.file(ev.FileLookedUp, path, **fields)


@pytest.mark.parametrize(
    ("kind", "fields", "how"),
    [
        (ev.FileOpened, {"reads": True, "writes": False, "inode": 1}, {"read"}),
        (ev.FileOpened, {"reads": False, "writes": False, "inode": 1}, {"looked"}),
        (ev.FileOpened, {"reads": True, "writes": True, "created": True, "inode": 1}, {"changed"}),
        (ev.FileOpened, {"reads": True, "writes": True, "truncates": True, "inode": 1}, {"changed", "read"}),
        (ev.FileOpened, {"reads": True, "writes": False, "error": errno.ENOENT}, {"looked"}),
        (ev.FileRead, {"how": "pread64", "inode": 1}, {"read"}),
        (ev.FileRead, {"how": "mmap", "inode": 1}, {"mapped"}),
        (ev.FileListed, {"inode": 1}, {"listed"}),
        (ev.FileLookedUp, {"how": "access"}, {"looked"}),
        (ev.FileWritten, {"count": 1, "size_bytes": 1, "last_ns": 1, "inode": 1}, {"changed"}),
        (ev.FileMapped, {"size_bytes": 1, "inode": 1}, {"changed", "mapped"}),
        (ev.FileDeleted, {}, {"changed"}),
        (ev.FileDeleted, {"error": errno.EACCES}, {"looked"}),
        (ev.FileDeleted, {"what": ev.Kind.DIRECTORY}, {"changed", "looked"}),
        (ev.FileCreated, {"what": ev.Kind.DIRECTORY}, {"changed"}),
        (ev.FileTruncated, {"size_bytes": 0}, {"changed"}),
        (ev.FileChanged, {"attribute": "mode"}, {"changed"}),
    ],
)
def test_every_contact_is_a_touch_of_its_sort(kind: type[ev.Event], fields: dict[str, object], how: set[str]) -> None:
    """Reads, listings, look-ups, mappings and changes, also those that failed."""
    trial = begun()
    trial.file(kind, SHARED + b"/f", **fields)
    facts = told(trial)
    assert {touch.how for touch in facts.touches} == how
    assert {touch.path for touch in facts.touches} == {SHARED + b"/f"}
    assert {touch.error for touch in facts.touches} == {fields.get("error")}
    assert all(touch.process == MAIN and touch.events for touch in facts.touches)


def test_programs_and_sockets_there_are_touches_too() -> None:
    """To execute a program of a shared place is to read it; to knock at a socket is to look it up."""
    trial = begun()
    trial.add(ev.ProcessExecuted, exe=SHARED + b"/tool", argv=(b"tool",))
    trial.add(ev.ProcessExecFailed, path=SHARED + b"/no", error=errno.ENOENT)
    trial.add(ev.ConnectionAttempted, transport="unix", path=SHARED + b"/s", error=errno.ENOENT)
    facts = told(trial)
    assert words(facts) == {(SHARED + b"/tool", "executed"), (SHARED + b"/no", "looked"), (SHARED + b"/s", "looked")}


def test_both_names_of_a_rename_are_changed() -> None:
    """What leaves a place and what comes into it changed it, and what was replaced was looked at."""
    trial = begun()
    trial.rename(SHARED + b"/a", SHARED + b"/b")
    trial.rename("in", SHARED + b"/c")
    changed = {(SHARED + name, "changed") for name in (b"/a", b"/b", b"/c")}
    assert words(told(trial)) == changed | {(SHARED + name, "looked") for name in (b"/b", b"/c")}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ev.FileLinked, {"symbolic": False, "error": errno.EEXIST}),
        (ev.FileLinked, {"symbolic": True, "error": errno.EEXIST}),
        (ev.FileRenamed, {"error": errno.EEXIST}),
        (ev.FileRenamed, {"error": errno.EISDIR}),
    ],
)
def test_a_call_that_failed_met_its_second_name_too(kind: type[ev.Event], fields: dict[str, object]) -> None:
    """That something is there already is why the call fails, whatever its first name is."""
    trial = begun()
    trial.file(kind, b"/etc/passwd", new_path=SHARED + b"/b", **fields)
    assert words(told(trial)) == {(SHARED + b"/b", "looked")}


def test_a_symlink_that_could_not_be_made_met_nothing_of_its_target() -> None:
    """The target is only a text."""
    trial = begun()
    trial.file(ev.FileLinked, SHARED + b"/a", new_path=b"/elsewhere/b", symbolic=True, error=errno.EEXIST)
    assert words(told(trial)) == set()


@pytest.mark.parametrize("error", [errno.ENOTEMPTY, errno.EEXIST])
def test_that_a_directory_is_not_empty_is_a_look_at_what_is_in_it(error: int) -> None:
    """Neither removing nor replacing it fails like that unless something is there: no look-up that found nothing."""
    trial = begun()
    trial.file(ev.FileDeleted, SHARED + b"/d", what=ev.Kind.DIRECTORY, error=error)
    trial.file(ev.FileRenamed, "d", new_path=SHARED + b"/e", error=error)
    touches = told(trial).touches
    assert {(touch.path, touch.how, touch.error) for touch in touches} == {
        (SHARED + name, "looked", None) for name in (b"/d", b"/e")
    }


def test_nothing_is_touched_elsewhere() -> None:
    """A neighbour whose name begins alike, and the workspace, are not the place."""
    trial = begun()
    trial.write("f", inode=5)
    trial.write(SHARED + b"ness/f", inode=6)
    look(trial, b"/srv")
    facts = told(trial)
    assert facts.touches == ()
    assert "unverified-look-ups" not in {gap.rule for gap in facts.gaps}


def test_the_boxs_own_doings_are_no_touches() -> None:
    """Whoever builds the box touches the place to mount it."""
    trial = begun()
    trial.file(ev.FileOpened, SHARED, reads=True, writes=False, inode=1, process=ev.ProcessKey(100, 10))
    assert told(trial).touches == ()


def test_a_place_has_one_name_whatever_leads_to_it() -> None:
    """The name it was declared by, another mount of it, a link of the host, and one that the trial made."""
    trial = begun()
    trial.file(ev.FileOpened, b"/mnt/alias/a", reads=True, writes=False, inode=1)
    look(trial, b"/data/b", error=errno.ENOENT)
    look(trial, b"/home/me/link/c", error=errno.ENOENT)
    trial.file(ev.FileLinked, SHARED, new_path="own", symbolic=True)
    look(trial, WORK + b"/own/d", error=errno.ENOENT)
    facts = told(trial, host={b"/home/me/link": b"/srv/shared"})
    assert {path for path, how in words(facts)} == {SHARED + b"/" + name for name in (b"a", b"b", b"c", b"d")}


def test_a_link_is_made_and_removed_without_touching_what_it_names() -> None:
    """Only names on the way are followed by unlink and its like; lstat looks at the link itself."""
    trial = begun()
    trial.file(ev.FileLinked, SHARED, new_path="own", symbolic=True)
    look(trial, WORK + b"/own", how="lstat")
    trial.delete("own")
    assert told(trial).touches == ()


def test_device_and_inode_decide_where_the_kernel_gave_them() -> None:
    """Whatever the name: another device is elsewhere, an inode that was met in the place is that file."""
    trial = begun()
    trial.file(ev.FileOpened, SHARED + b"/f", reads=True, writes=False, device=DEVICE, inode=7)
    look(trial, b"/proc/self/fd/3", device=DEVICE, inode=7)
    trial.file(ev.FileLinked, SHARED, new_path="own", symbolic=True)
    look(trial, WORK + b"/own/g", device=ELSEWHERE, inode=9)
    facts = told(trial)
    assert words(facts) == {(SHARED + b"/f", "read"), (SHARED + b"/f", "looked")}


def test_a_mapping_and_a_watch_last_as_long_as_their_process() -> None:
    """What is mapped is read without a call; the last contact is the end of the process that mapped it."""
    trial = begun()
    child = trial.fork()
    trial.file(ev.FileRead, SHARED + b"/f", how="mmap", inode=1, process=child)
    look(trial, SHARED, how="inotify_add_watch", process=child)
    trial.now_ns += 500 * MS
    trial.exit(child)
    end_ns = trial.now_ns
    facts = told(trial)
    assert {touch.last_ns for touch in facts.touches} == {end_ns}


def test_a_fifo_is_read_and_written_as_long_as_its_process_lasts() -> None:
    """What goes through it changes no file, and reaches whoever has the other end."""
    trial = begun()
    child = trial.fork()
    trial.file(ev.FileOpened, SHARED + b"/p", reads=True, writes=True, inode=1, what=ev.Kind.FIFO, process=child)
    trial.now_ns += 500 * MS
    trial.exit(child)
    end_ns = trial.now_ns
    facts = told(trial)
    assert words(facts) == {(SHARED + b"/p", "changed"), (SHARED + b"/p", "read")}
    assert min(touch.last_ns for touch in facts.touches) >= end_ns


def test_a_read_may_be_as_late_as_the_next_one_would_be_told() -> None:
    """The witness leaves out reads that follow quickly: the last contact is that much later."""
    trial = begun()
    event = trial.file(ev.FileRead, SHARED + b"/f", how="read", inode=1)
    (touch,) = told(trial).touches
    assert (touch.first_ns, touch.last_ns) == (event.time_ns, event.time_ns + READ_WINDOW_NS)


def test_totals_move_the_last_write_of_the_file_that_they_count() -> None:
    """What is written after the first write is told at the close, without a path."""
    trial = begun()
    trial.write(SHARED + b"/f", device=DEVICE, inode=4)
    last_ns = trial.now_ns + 300 * MS
    trial.add(ev.FileWritten, path=b"", device=DEVICE, inode=4, count=9, size_bytes=9, last_ns=last_ns, totals=True)
    changed = [touch for touch in told(trial).touches if touch.how == "changed"]
    assert [touch.last_ns for touch in changed] == [last_ns]


def test_many_contacts_of_one_sort_are_one_touch() -> None:
    """First, last, and the numbers of both."""
    trial = begun()
    for _ in range(5):
        look(trial, SHARED + b"/f")
    (touch,) = told(trial).touches
    assert isinstance(touch, Touch)
    assert len(touch.events) == 5
    assert touch.last_ns > touch.first_ns


def test_look_ups_that_could_be_lies_leave_separation_open_unless_a_touch_was_seen() -> None:
    """A thread can change the name after the call: that no touch is told then shows nothing."""
    trial = begun()
    look(trial, b"/etc/passwd", verified=False)
    facts = told(trial)
    (gap,) = [gap for gap in facts.gaps if gap.rule == "unverified-look-ups"]
    assert gap.costs == {"separation"}
    assert gap.events
    touched = begun()
    look(touched, b"/etc/passwd", verified=False)
    look(touched, SHARED + b"/f")
    assert "unverified-look-ups" not in {gap.rule for gap in told(touched).gaps}


def test_a_name_through_another_process_is_not_known() -> None:
    """Where /proc/PID/cwd led nobody can tell afterwards."""
    trial = begun()
    look(trial, b"/proc/17/cwd/f", error=errno.ENOENT)
    assert "unverified-look-ups" in {gap.rule for gap in told(trial).gaps}


def test_a_workspace_that_is_written_in_place_is_touched_like_a_shared_one() -> None:
    """In direct mode others can meet what is done to the workspace; it is no declared place, so scope is as ever."""
    trial = Transcript()
    trial.add(ev.PlaceDeclared, process=None, path=WORK, workspace=True)
    trial.begin()
    trial.file(ev.FileOpened, "in", reads=True, writes=False, inode=1)
    facts = told(trial, policy=policy_for(files=FilesPolicy(mode=FilesMode.DIRECT)))
    assert words(facts) == {(WORK + b"/in", "read")}


def test_hidden_places_are_tried_not_touched() -> None:
    """Every attempt is a violation, and none of them is a contact with others."""
    trial = begun()
    trial.file(ev.FileOpened, HIDDEN + b"/key", reads=True, writes=False, error=errno.EACCES)
    look(trial, HIDDEN)
    trial.file(ev.FileListed, HIDDEN, inode=3)
    facts = told(trial)
    assert {(tried.path, tried.how, tried.error) for tried in facts.denied} == {
        (HIDDEN + b"/key", "looked", errno.EACCES),
        (HIDDEN, "looked", None),
        (HIDDEN, "listed", None),
    }
    assert facts.touches == ()
    scope = judge(facts, policy_for(files=FILES)).scope
    assert scope.verdict == "violated"
    assert {violation.rule for violation in scope.violations} == {"read-denied"}
    assert "EACCES" in scope.violations[0].text


LINK = {WORK + b"/d/link": HIDDEN}


@pytest.mark.parametrize(
    ("kind", "name", "new", "fields", "seen"),
    [
        (ev.FileRenamed, "d", "e", {}, "e/link/f"),
        (ev.FileRenamed, "other", "d", {"exchange": True}, "other/link/f"),
        (ev.FileLinked, "d/link", "hard", {}, "hard/f"),
    ],
)
def test_a_link_to_a_hidden_place_leads_there_by_every_name(
    kind: type[ev.Event], name: str, new: str, fields: dict[str, object], seen: str
) -> None:
    """What was opened by it is an attempt, though the host has no link of that name."""
    trial = begun()
    trial.file(kind, name, new_path=new, **fields)
    trial.file(ev.FileOpened, seen, reads=True, writes=False, error=errno.EACCES)
    assert [look.path for look in told(trial, host=LINK).denied] == [HIDDEN + b"/f"]


def test_the_kernels_answer_says_whether_a_hidden_place_was_met() -> None:
    """``lstat`` of a link that leads there is no attempt; ``stat`` is one, by the device of what hides the place."""
    trial = Transcript()
    trial.add(ev.PlaceDeclared, process=None, path=HIDDEN, hidden=True, devices=(DEVICE,), total=1)
    trial.begin()
    for device in (ELSEWHERE, DEVICE):
        look(trial, WORK + b"/d/link", device=device, inode=5)
    (denied,) = told(trial, host=LINK).denied
    assert len(denied.events) == 1


@pytest.mark.parametrize(
    ("path", "fields"), [(b"allowed", {"verified": False}), (b"/proc/7/cwd/f", {}), (b"/proc/self/fd/9/f", {})]
)
def test_a_refusal_that_may_have_been_a_hidden_places_leaves_scope_open(path: bytes, fields: dict[str, object]) -> None:
    """Its name could have been another one, or does not say where it led: nobody knows that it was no attempt."""
    trial = begun()
    trial.file(ev.FileOpened, path, reads=True, writes=False, error=errno.EACCES, **fields)
    facts = told(trial, policy=policy_for(files=replace(FILES, shared=())))
    assert [gap.rule for one in facts.coverage for gap in one.gaps if "scope" in gap.costs] == ["unverified-refusals"]


@pytest.mark.parametrize(
    "fields", [{"verified": True, "error": errno.EACCES}, {"verified": False, "error": errno.ENOENT}]
)
def test_a_refusal_elsewhere_and_what_was_not_there_leave_scope_closed(fields: dict[str, object]) -> None:
    """The keeping side: a name that is believed was refused by something else, and hidden places do not look absent."""
    trial = begun()
    trial.file(ev.FileOpened, "allowed", reads=True, writes=False, **fields)
    facts = told(trial)
    assert not [gap for one in facts.coverage for gap in one.gaps if "scope" in gap.costs]


def test_a_trial_that_looks_elsewhere_is_clean() -> None:
    """The keeping twin."""
    trial = begun()
    look(trial, b"/srv/answersheet")
    facts = told(trial)
    assert facts.denied == ()
    assert judge(facts, policy_for(files=FILES)).scope.verdict == "clean"


def test_a_change_of_a_shared_place_is_allowed_and_stays() -> None:
    """Declared places may be written; what was changed there persists, with the reset that was declared."""
    trial = begun()
    trial.create(SHARED + b"/f", inode=3)
    trial.found(SHARED + b"/f", None, state("1"))
    policy = policy_for(files=replace(FILES, write=("notes/**",)))
    facts = told(trial, policy=policy)
    judged = judge(facts, policy)
    (history,) = [one for one in facts.files if one.path == SHARED + b"/f"]
    assert (history.shared, history.allowed, history.private) == (True, True, False)
    assert judged.scope.verdict == "clean"
    (effect,) = [one for one in judged.open_effects if one.route == "file"]
    assert (effect.status, effect.could_affect) == ("persistent", ("runs",))
    assert "made again" in effect.bearing
    assert judged.separation.verdict == "unresolved"


def test_a_change_that_was_put_back_was_there_for_others_all_the_same() -> None:
    """In a stage it would be nothing; in a shared place somebody may have met it."""
    trial = begun()
    trial.write(SHARED + b"/f", inode=3)
    trial.found(SHARED + b"/f", state("1"), state("1"))
    facts = told(trial)
    (history,) = [one for one in facts.files if one.path == SHARED + b"/f"]
    assert history.restored
    assert [one.what for one in judge(facts, policy_for(files=FILES)).open_effects if one.route == "file"]


def foreign(trial: Transcript, path: bytes) -> None:
    """Have somebody else change a path."""
    trial.add(
        ev.PlaceChanged, process=None, origin=ev.Origin.SERVICE, path=path, change="modified", since_ns=1, seen_ns=2
    )


def test_what_others_changed_is_told_apart_and_costs_what_it_can_matter_to() -> None:
    """A file that the trial met costs separation; one that the claim is about finality; another one nothing."""
    trial = begun()
    trial.file(ev.FileOpened, SHARED + b"/met", reads=True, writes=False, inode=1)
    for name in (b"/met", b"/claimed", b"/other"):
        foreign(trial, SHARED + name)
    facts = told(trial, policy=policy_for(outcome="/srv/shared/claimed", files=FILES))
    assert {change.path for change in facts.foreign} == {SHARED + name for name in (b"/met", b"/claimed", b"/other")}
    costs = {gap.text.split(":")[0]: gap.costs for gap in facts.gaps if gap.rule == "foreign-writer"}
    assert costs == {"/srv/shared/met": {"separation"}, "/srv/shared/claimed": {"finality"}}


def test_a_watch_that_lost_something_is_a_gap() -> None:
    """What may have gone unseen is said."""
    trial = begun()
    trial.add(ev.PlaceUnwatched, process=None, path=SHARED, why="the queue ran over", since_ns=1, seen_ns=2)
    (gap,) = [gap for gap in told(trial).gaps if gap.rule == "unwatched-place"]
    assert "the queue ran over" in gap.text
    assert gap.costs == {"separation", "finality"}


def test_the_order_of_delivery_makes_no_difference() -> None:
    """Places that are told after the contacts give the same touches."""
    trial = begun()
    trial.file(ev.FileOpened, SHARED + b"/f", reads=True, writes=False, inode=1)
    look(trial, HIDDEN)
    facts = told(trial)
    turned = collect(
        list(reversed(trial.events)),
        policy=policy_for(files=FILES),
        workspace=WORK,
        observe=trial.observe,
        changed=lambda: list(trial.stage),
    )
    assert (turned.touches, turned.denied) == (facts.touches, facts.denied)


@pytest.mark.parametrize(("period", "final"), [(ENDPOINT, False), (EVENTUALLY, True)])
def test_an_outcome_in_a_shared_place_that_changed_after_the_endpoint_was_not_captured(
    period: PeriodKind, *, final: bool
) -> None:
    """A snapshot holds what is staged only; what is claimed of the end does not need one."""
    trial = begun()
    daemon = trial.fork()
    trial.create(SHARED + b"/f", inode=3)
    trial.exit()
    trial.endpoint(daemon)
    trial.snapshot()
    trial.write(SHARED + b"/f", inode=3, process=daemon)
    trial.exit(daemon)
    trial.settled()
    trial.end()
    trial.found(SHARED + b"/f", None, state("1"))
    trial.stage.clear()
    policy = policy_for(outcome="/srv/shared/f", files=FILES, period=period)
    facts = trial.facts(policy)
    assert ("uncaptured-place" in {gap.rule for gap in facts.gaps}) is not final
    assert (judge(facts, policy).finality.verdict == "final") is final
