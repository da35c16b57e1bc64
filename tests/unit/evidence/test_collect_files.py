"""File histories of a trial, from its transcript and what is found on disk."""

from __future__ import annotations

import hashlib

import pytest
from transcript import MAIN, MS, WORK, Transcript, absolute, ordinary, policy_for, state

from policies.types import FilesPolicy
from supervisor import events as ev
from supervisor.evidence.file_facts import FileHistory, FileState, SharedNames


def begun() -> Transcript:
    """Tell of a trial that has begun."""
    trial = Transcript()
    trial.begin()
    return trial


def history(trial: Transcript, name: bytes) -> FileHistory:
    """Give the history of one path."""
    return next(file for file in trial.facts().files if file.path == name)


def kinds(file: FileHistory) -> list[str]:
    """Give the words of a history."""
    return [change.kind.value for change in file.changes]


def test_a_change_that_was_put_back_is_reported_as_such() -> None:
    """Two modifications, the end equals the start: unchanged and restored, with writer and events."""
    trial = begun()
    trial.found("a.txt", state("original"), state("original"))
    for _ in range(2):
        trial.write("a.txt")
    file = history(trial, b"a.txt")
    assert (file.net, file.restored, kinds(file)) == ("unchanged", True, ["modified", "modified"])
    assert file.writers == (MAIN,)
    assert file.events


def test_opening_for_writing_without_effect_is_no_change() -> None:
    """The file is not in the list at all."""
    trial = begun()
    trial.file(ev.FileOpened, "a", reads=True, writes=True)
    assert trial.facts().files == ()


@pytest.mark.parametrize(("content", "expected"), [("full", ["modified"]), ("", [])])
def test_truncating_by_open_changes_only_what_had_content(content: str, expected: list[str]) -> None:
    """O_TRUNC of an empty file has no effect."""
    trial = begun()
    trial.found("a", state(content), state(""))
    trial.file(ev.FileOpened, "a", reads=False, writes=True, truncates=True)
    assert [kind for file in trial.facts().files for kind in kinds(file)] == expected


def test_totals_belong_to_the_write_that_they_count_again() -> None:
    """One change whose last time is the one of the totals."""
    trial = begun()
    trial.found("a", state("x"), state("y"))
    trial.write("a", device=1, inode=5)
    trial.write("b", device=1, inode=6)
    last_ns = trial.now_ns + 5 * MS
    trial.now_ns += 10 * MS
    trial.add(ev.FileWritten, path=b"", count=9, size_bytes=9, last_ns=last_ns, totals=True, device=1, inode=5)
    (change,) = history(trial, b"a").changes
    assert change.at_ns == last_ns


def test_a_file_that_came_and_went_is_in_the_history() -> None:
    """Nothing before, nothing after: restored."""
    trial = begun()
    trial.create("scratch")
    trial.delete("scratch")
    file = history(trial, b"scratch")
    assert (file.net, file.restored, kinds(file)) == ("unchanged", True, ["created", "deleted"])


def test_renaming_away_and_back_is_restored_at_both_names() -> None:
    """Both paths carry two renames."""
    trial = begun()
    trial.found("a", state(), state())
    trial.rename("a", "b")
    trial.rename("b", "a")
    for name in (b"a", b"b"):
        file = history(trial, name)
        assert (file.net, file.restored, kinds(file)) == ("unchanged", True, ["renamed", "renamed"])


def test_net_tells_a_renamed_file_from_a_new_one() -> None:
    """A name that got a file from before is renamed; one that got a file of the trial is created."""
    trial = begun()
    trial.found("old", state("o"), None)
    trial.found("moved", None, state("o"))
    trial.rename("old", "moved")
    trial.create("tmp")
    trial.rename("tmp", "new")
    trial.found("new", None, state("n"))
    nets = {file.path: file.net for file in trial.facts().files}
    assert nets == {b"old": "renamed", b"moved": "renamed", b"tmp": "unchanged", b"new": "created"}
    assert not [gap for gap in trial.facts().gaps if gap.route == "file"]


def test_renaming_a_directory_renames_what_is_known_below_it() -> None:
    """A child that was made before the rename moves along, one that was deleted does not."""
    trial = begun()
    trial.file(ev.FileCreated, "d", what=ev.Kind.DIRECTORY)
    trial.create("d/kept")
    trial.create("d/gone")
    trial.delete("d/gone")
    trial.rename("d", "e")
    trial.found("e", None, state(kind=ev.Kind.DIRECTORY))
    trial.found("e/kept", None, state())
    files = {file.path: kinds(file) for file in trial.facts().files}
    assert files[b"d/kept"] == ["created", "renamed"]
    assert files[b"e/kept"] == ["renamed"]
    assert b"e/gone" not in files
    assert not [gap for gap in trial.facts().gaps if gap.route == "file"]


def test_a_writable_mapping_leaves_restored_open() -> None:
    """What was stored through it was not seen."""
    trial = begun()
    trial.found("m", state(), state())
    trial.file(ev.FileMapped, "m", size_bytes=4096)
    file = history(trial, b"m")
    assert (file.net, file.restored, kinds(file)) == ("unchanged", None, ["mapped"])


def test_modes_count_and_times_do_not() -> None:
    """A mode that stays changed is a modification; times alone leave restored open."""
    trial = begun()
    trial.found("mode", state(), state(mode=0o600))
    trial.file(ev.FileChanged, "mode", attribute="mode", value=0o600)
    trial.found("times", state(), state())
    trial.file(ev.FileChanged, "times", attribute="times")
    assert (history(trial, b"mode").net, history(trial, b"mode").restored) == ("modified", False)
    assert (history(trial, b"times").net, history(trial, b"times").restored) == ("unchanged", None)


def test_a_refused_attempt_is_kept_with_its_errno() -> None:
    """It is no change, and has no net effect."""
    trial = begun()
    trial.found("/etc/passwd", state(), state())
    trial.file(ev.FileOpened, "/etc/passwd", reads=False, writes=True, error=13)
    file = history(trial, b"/etc/passwd")
    assert [attempt.error for attempt in file.attempts] == [13]
    assert (file.changes, file.net) == ((), "unchanged")


def test_private_places_are_allowed_and_expect_no_final_state() -> None:
    """What lies in /tmp, /dev or /run is the box's own and gone with it."""
    trial = begun()
    for name in ("/tmp/x", "/dev/shm/y", "/run/z"):
        trial.create(name)
    files = trial.facts().files
    assert all(file.private and file.allowed and file.net is None for file in files)
    assert len(files) == 3


def test_a_write_through_a_descriptor_that_was_given_is_not_the_trials_choice() -> None:
    """Standard output may be any file of the host: it is listed, and violates nothing."""
    trial = begun()
    trial.file(ev.FileWritten, "/srv/log", count=1, size_bytes=1, last_ns=trial.now_ns, reachable=False)
    file = history(trial, b"/srv/log")
    assert (file.reachable, file.allowed) == (False, True)


def test_a_very_hot_file_keeps_the_first_and_the_last_changes() -> None:
    """The count says how many there were."""
    trial = begun()
    trial.found("hot", state("a"), state("b"))
    for _ in range(3000):
        trial.write("hot")
    file = history(trial, b"hot")
    assert file.changes_total == 3000
    assert len(file.changes) < 1100
    assert file.changes[-1].event == max(event.n for event in trial.events)


def test_parents_of_an_allowed_path_may_be_made() -> None:
    """Making notes/ is allowed where notes/recovery.md is; changing its mode is not."""
    trial = begun()
    trial.file(ev.FileCreated, "notes", what=ev.Kind.DIRECTORY)
    trial.file(ev.FileCreated, "other", what=ev.Kind.DIRECTORY)
    policy = policy_for(files=FilesPolicy(write=("notes/recovery.md",)))
    allowed = {file.path: file.allowed for file in trial.facts(policy).files}
    assert allowed == {b"notes": True, b"other": False}
    trial.file(ev.FileChanged, "notes", attribute="mode", value=0o777)
    assert not next(file for file in trial.facts(policy).files if file.path == b"notes").allowed


def file_gaps(trial: Transcript) -> list[str]:
    """Give the rules of the gaps on the file route."""
    return [gap.rule for gap in trial.facts().gaps if gap.route == "file"]


def test_an_ordinary_trial_reconciles() -> None:
    """Everything that changed is explained and everything predicted is there."""
    assert file_gaps(ordinary()) == []


def test_a_change_on_disk_without_an_event_is_a_gap() -> None:
    """It costs finality because it lies in the footprint, else only scope and separation."""
    trial = ordinary()
    trial.found("out2", None, state())
    (gap,) = [gap for gap in trial.facts().gaps if gap.route == "file"]
    assert (gap.rule, gap.costs) == ("unexplained-change", {"scope", "separation"})
    (gap,) = [gap for gap in trial.facts(policy_for(outcome=".")).gaps if gap.route == "file"]
    assert gap.costs == {"scope", "separation", "finality"}


def test_a_predicted_file_that_is_not_there_is_a_gap() -> None:
    """It was created and never deleted, as far as the events go."""
    trial = ordinary()
    trial.create("lost")
    assert file_gaps(trial) == ["unexplained-change"]


def test_an_unverified_name_must_be_confirmed_by_the_disk() -> None:
    """A deletion that names another file than it deleted does not fit the disk."""
    trial = ordinary()
    trial.found("told", state(), state())
    trial.delete("told", verified=False)
    assert file_gaps(trial) == ["unconfirmed-name"]
    trial.found("told", state(), None)
    assert file_gaps(trial) == []


def test_a_parent_that_was_only_copied_up_needs_no_event() -> None:
    """It is in the stage and unchanged."""
    trial = ordinary()
    trial.found("d", state(kind=ev.Kind.DIRECTORY), state(kind=ev.Kind.DIRECTORY))
    trial.stage.append(b"/home/me/work/d")
    assert file_gaps(trial) == []


def test_content_that_changed_under_attribute_events_only_is_a_gap() -> None:
    """A chmod does not change content."""
    trial = ordinary()
    trial.found("a", state("x"), state("y", mode=0o600))
    trial.file(ev.FileChanged, "a", attribute="mode", value=0o600)
    assert file_gaps(trial) == ["unexplained-change"]


def brought(*, there: bool, moves: tuple[tuple[str, str], ...] = (("d", "e"),)) -> Transcript:
    """Tell of a file that is written for the first time after a directory brought it."""
    trial = begun()
    for old, new in moves:
        trial.rename(old, new)
    directory = state(kind=ev.Kind.DIRECTORY)
    trial.found(moves[0][0], directory, None)
    trial.found(moves[-1][1], None, directory)
    first, last = f"{moves[0][0]}/y", f"{moves[-1][1]}/y"
    trial.found(first, state("1") if there else None, None)
    trial.found(last, None, state("2"))
    trial.write(last)
    return trial


@pytest.mark.parametrize("moves", [(("d", "e"),), (("d", "e"), ("e", "f")), (("d", "e"), ("e", "d2"), ("d2", "g"))])
def test_what_is_touched_only_after_its_directory_was_renamed_has_a_past(moves: tuple[tuple[str, str], ...]) -> None:
    """The old name is told as renamed, the new one as what came from there, and nothing is unexplained."""
    trial = brought(there=True, moves=moves)
    new = history(trial, f"{moves[-1][1]}/y".encode())
    assert (new.net, kinds(new)) == ("renamed", ["renamed", "modified"])
    assert history(trial, f"{moves[0][0]}/y".encode()).net == "renamed"
    assert file_gaps(trial) == []


def test_a_failed_attempt_before_the_rename_takes_no_past_away() -> None:
    """``rename(x, d/y)`` fails since ``d/y`` is there; it comes along all the same."""
    trial = begun()
    trial.rename("x", "d/y", error=17)
    trial.rename("d", "e")
    directory = state(kind=ev.Kind.DIRECTORY)
    for name, before, after in (("d", directory, None), ("e", None, directory), ("d/y", state("1"), None)):
        trial.found(name, before, after)
    trial.found("e/y", None, state("2"))
    trial.write("e/y")
    assert kinds(history(trial, b"e/y")) == ["renamed", "modified"]
    assert file_gaps(trial) == []


def test_a_renamed_directory_brings_nothing_that_was_not_there() -> None:
    """A file that nobody made, and that lay nowhere before, is still a gap."""
    assert file_gaps(brought(there=False)) == ["unexplained-change"]


def test_what_was_made_in_a_renamed_directory_has_no_past() -> None:
    """It came after the rename."""
    trial = begun()
    trial.rename("d", "e")
    trial.found("e/y", None, state("2"))
    trial.create("e/y")
    trial.write("e/y")
    assert (history(trial, b"e/y").net, kinds(history(trial, b"e/y"))) == ("created", ["created", "modified"])
    assert all(file.path != b"d/y" for file in trial.facts().files)


def test_what_lies_in_a_renamed_directory_came_along() -> None:
    """Children that nobody touched are at the new name what they were at the old one."""
    trial = ordinary()
    trial.rename("d", "e")
    directory = state(kind=ev.Kind.DIRECTORY)
    trial.found("d", directory, None)
    trial.found("e", None, directory)
    trial.found("d/x", state("x"), None)
    trial.found("e/x", None, state("x"))
    assert file_gaps(trial) == []
    trial.found("e/x", None, state("forged"))
    assert file_gaps(trial) == ["unexplained-change"]


def test_the_other_name_of_a_hard_link_is_explained() -> None:
    """Both names go from and to the same states, and events tell of one."""
    trial = ordinary()
    trial.found("one", state("a"), state("b"))
    trial.found("two", state("a"), state("b"))
    trial.write("one")
    assert file_gaps(trial) == []


def linked(text: bytes) -> Transcript:
    """Tell of ``rm link/x; mkdir link/d`` where ``link`` is a symlink of before, whose text is given."""
    trial = ordinary()
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    link = FileState(kind=ev.Kind.SYMLINK, digest=digest, mode=0o777, uid=0, gid=0, size_bytes=len(text))
    trial.found("link", link, link)
    trial.found("real/x", state(), None)
    trial.found("real/d", None, state(kind=ev.Kind.DIRECTORY))
    trial.delete("link/x")
    trial.file(ev.FileCreated, "link/d", what=ev.Kind.DIRECTORY)
    return trial


def test_a_name_through_a_symlink_explains_what_changed_behind_it() -> None:
    """The text of the symlink must lead to where the change was found, else it explains nothing."""
    assert file_gaps(linked(b"real")) == []
    assert file_gaps(linked(b"/home/me/work/real")) == []
    assert file_gaps(linked(b"other")) == ["unexplained-change", "unexplained-change"]


def test_two_calls_that_overlapped_are_no_gap() -> None:
    """A create and a delete by two processes, a millisecond apart: either may have been last."""
    trial = ordinary()
    trial.create("lock", process=trial.fork())
    trial.delete("lock", process=trial.fork())
    trial.found("lock", None, state())
    assert file_gaps(trial) == []


def swapped(*renames: tuple[str, str, bool]) -> Transcript:
    """Tell of two directories whose files nobody touched, and that changed places."""
    trial = begun()
    for name, new, exchange in renames:
        trial.rename(name, new, exchange=exchange)
    for place in ("one", "two", "three"):
        trial.found(place, state(kind=ev.Kind.DIRECTORY), state(kind=ev.Kind.DIRECTORY))
    trial.found("one/both", state("1"), state("2"))
    trial.found("two/both", state("2"), state("1"))
    trial.found("one/a", state("a"), None)
    trial.found("two/a", None, state("a"))
    return trial


@pytest.mark.parametrize(
    "renames",
    [
        [("one", "two", True)],
        [("one", "tmp", False), ("two", "one", False), ("tmp", "two", False)],
        [("one", "three", True), ("three", "two", True), ("one", "three", True)],
    ],
    ids=["at-once", "by-hand", "through-a-third"],
)
def test_directories_that_change_places_take_their_files_along(renames: list[tuple[str, str, bool]]) -> None:
    """What is below them has no event of its own, and needs none."""
    assert file_gaps(swapped(*renames)) == []


@pytest.mark.parametrize("touched", [("one/both",), ("two/both",), ("one/both", "two/both")])
def test_directories_change_places_with_files_that_were_touched(touched: tuple[str, ...]) -> None:
    """What has a name on both sides has it afterwards, whichever of them something had happened to."""
    trial = begun()
    for name in touched:
        trial.write(name)
    trial.rename("one", "two", exchange=True)
    for place in ("one", "two"):
        trial.found(place, state(kind=ev.Kind.DIRECTORY), state(kind=ev.Kind.DIRECTORY))
        content = state("new" if f"{place}/both" in touched else place)
        trial.found(f"{'two' if place == 'one' else 'one'}/both", state("two" if place == "one" else "one"), content)
    assert file_gaps(trial) == []
    nets = {name: history(trial, name.encode()).net for name in touched}
    assert set(nets.values()) == {"modified"}


def test_a_directory_in_the_place_of_another_is_not_unchanged() -> None:
    """Both look the same from outside, and what another run would find in them is not."""
    trial = swapped(("one", "two", True))
    assert [history(trial, name).net for name in (b"one", b"two")] == ["renamed", "renamed"]


def test_a_swap_does_not_explain_other_content() -> None:
    """What came along is what was there before, and nothing else."""
    trial = swapped(("one", "two", True))
    trial.found("two/both", state("2"), state("neither"))
    assert file_gaps(trial) == ["unexplained-change"]


def test_a_failed_attempt_shows_no_file_that_a_rename_could_move() -> None:
    """``rm file/below`` fails, and renaming the file then does not bring a name below it along."""
    trial = begun()
    trial.found("file", state("x"), None)
    trial.found("moved", None, state("x"))
    trial.delete("file/below", error=20)
    trial.rename("file", "moved")
    assert file_gaps(trial) == []


@pytest.mark.parametrize("tell", [None, ev.FileOpened, ev.FileChanged], ids=["nothing", "opened", "other-attributes"])
def test_a_write_that_nobody_saw_shows_in_the_modification_time(tell: type[ev.Event] | None) -> None:
    """Content put back through a descriptor that was swapped under the witness looks untouched, but for its time."""
    trial = begun()
    trial.found("a", state(modified_ns=1), state(modified_ns=2))
    trial.stage.append(WORK + b"/a")
    if tell is ev.FileOpened:
        trial.file(tell, "a", reads=True, writes=True)
    elif tell is not None:
        trial.file(tell, "a", attribute="mode", value=0o644)
    assert file_gaps(trial) == ["unexplained-change"]


def test_times_that_were_seen_to_move_are_explained() -> None:
    """Written and put back, its times set, or written under its other name: each has its event."""
    trial = begun()
    for name in ("written", "touched", "other-name"):
        trial.found(name, state(modified_ns=1), state(modified_ns=2))
        trial.stage.append(WORK + b"/" + name.encode())
    trial.write("written")
    trial.file(ev.FileChanged, "touched", attribute="times", value=0)
    assert file_gaps(trial) == []


@pytest.mark.parametrize(("name", "gaps"), [("known", ["names-elsewhere"]), ("alone", [])])
def test_a_file_with_names_nobody_knows_is_changed_there_too(name: str, gaps: list[str]) -> None:
    """By whatever name it is written: it was renamed, linked, and its first name went."""
    trial = begun()
    trial.shared = SharedNames(elsewhere=(absolute("known"),))
    trial.rename(name, "moved")
    trial.file(ev.FileLinked, "moved", new_path=absolute("linked"))
    trial.delete("moved")
    trial.write("linked")
    trial.found(name, state("1"), None)
    trial.found("linked", None, state("2"))
    assert file_gaps(trial) == gaps


@pytest.mark.parametrize(("name", "allowed"), [("/proc/self/fd/new", False), ("/var/out/new", True)])
def test_a_name_made_in_proc_is_no_name_that_was_allowed(name: str, *, allowed: bool) -> None:
    """It leads through a descriptor to a place that nobody knows."""
    trial = begun()
    trial.file(ev.FileCreated, name, what=ev.Kind.DIRECTORY)
    trial.delete(name)
    (file,) = trial.facts(policy_for(files=FilesPolicy(write=("/proc", "/var")))).files
    assert file.allowed is allowed
