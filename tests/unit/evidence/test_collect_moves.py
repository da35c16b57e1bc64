"""What a renamed directory brings to a name of which something else was known."""

from __future__ import annotations

from transcript import Transcript, absolute, state

from supervisor import events as ev
from supervisor.evidence.file_facts import FileHistory, SharedNames

DIRECTORY = state(kind=ev.Kind.DIRECTORY)


def begun(**directories: tuple[bool, bool]) -> Transcript:
    """Begin a trial; of each directory it is said whether it was there before, and is after."""
    trial = Transcript()
    trial.begin()
    for name, (before, after) in directories.items():
        trial.found(name, DIRECTORY if before else None, DIRECTORY if after else None)
    return trial


def told(trial: Transcript) -> dict[str, FileHistory]:
    """Give the histories, and see that nothing is unexplained."""
    facts = trial.facts()
    assert [gap for one in facts.coverage for gap in one.gaps if gap.route == "file"] == []
    return {history.path.decode(): history for history in facts.files}


def kinds(history: FileHistory) -> list[str]:
    """Give the words of a history."""
    return [change.kind.value for change in history.changes]


def test_what_was_moved_away_is_told_though_something_else_took_its_place() -> None:
    """``mv cur old; mv new cur; echo >> old/x``: the file in ``old`` is the one that ``cur`` had."""
    trial = begun(cur=(True, True), new=(True, False), old=(False, True))
    trial.create("new/x")
    trial.rename("cur", "old")
    trial.rename("new", "cur")
    trial.write("old/x")
    trial.found("cur/x", state("1"), state("2"))
    trial.found("old/x", None, state("3"))
    histories = told(trial)
    assert kinds(histories["old/x"]) == ["renamed", "modified"]
    assert (histories["old/x"].net, histories["old/x"].renamed_from) == ("renamed", b"cur/x")
    assert kinds(histories["cur/x"]) == ["renamed", "renamed"]
    assert (histories["cur/x"].renamed_from, histories["cur/x"].renamed_to) == (b"new/x", b"old/x")


def test_what_comes_where_something_was_removed_is_there_again() -> None:
    """``rm -r d; mv o d; echo > d/x``: it is not missing, and it came from ``o``."""
    trial = begun(d=(True, True), o=(True, False))
    trial.delete("d/x")
    trial.rename("o", "d")
    trial.write("d/x")
    trial.found("o/x", state("1"), None)
    trial.found("d/x", state("1"), state("2"))
    histories = told(trial)
    assert kinds(histories["d/x"]) == ["deleted", "renamed", "modified"]
    assert histories["o/x"].net == "renamed"


def test_what_was_removed_after_the_rename_was_not_brought_again() -> None:
    """The keeping side: what is made there afterwards is new, and comes from nowhere."""
    trial = begun(d=(False, True), o=(True, False))
    trial.rename("o", "d")
    trial.delete("d/x")
    trial.create("d/x")
    trial.write("d/x")
    trial.found("o/x", state("1"), None)
    trial.found("d/x", None, state("2"))
    assert kinds(told(trial)["d/x"]) == ["renamed", "deleted", "created", "modified"]


def test_a_name_that_changes_places_in_a_renamed_directory_shares_its_file_afterwards() -> None:
    """What one name of a file was exchanged with came with its directory; the other name changes with the new one."""
    trial = begun(d=(True, False), e=(False, True))
    trial.shared = SharedNames(before=((absolute("one"), absolute("two")),))
    trial.rename("d", "e")
    trial.rename("one", "e/x", exchange=True)
    trial.write("e/x")
    trial.found("d/x", state("1"), None)
    trial.found("one", state("2"), state("1"))
    trial.found("two", state("2"), state("3"))
    trial.found("e/x", None, state("3"))
    assert kinds(told(trial)["two"]) == ["modified"]
