"""Files without a name, or without one any more: what their descriptors change, and what no rename takes along."""

from __future__ import annotations

from transcript import Transcript, state

from supervisor import events as ev
from supervisor.evidence.file_facts import FileHistory

TMPFILE = 0o20200002
DIRECTORY = state(kind=ev.Kind.DIRECTORY)


def begun() -> Transcript:
    """Begin a trial with a directory ``d`` that it renames to ``e`` later."""
    trial = Transcript()
    trial.begin()
    trial.found("d", DIRECTORY, None)
    trial.found("e", None, DIRECTORY)
    return trial


def through(trial: Transcript, name: str, process: ev.ProcessKey | None = None) -> None:
    """Write through a descriptor whose file is told by a name that it does not have."""
    actor = {} if process is None else {"process": process}
    written = {"count": 1, "size_bytes": 1, "last_ns": trial.now_ns, "inode": 9, "device": 1, "unlinked": True}
    trial.file(ev.FileWritten, name, **written, **actor)


def temporary(trial: Transcript) -> None:
    """Open a file without a name in ``d``."""
    fields = {"flags": TMPFILE, "inode": 9, "device": 1, "unlinked": True}
    trial.file(ev.FileOpened, "d/#9", reads=True, writes=True, created=True, **fields)


def told(trial: Transcript) -> dict[str, FileHistory]:
    """Give the histories of files, and see that nothing is unexplained."""
    facts = trial.facts()
    assert [gap for one in facts.coverage for gap in one.gaps if gap.route == "file"] == []
    return {history.path.decode(): history for history in facts.files}


def test_a_file_without_a_name_does_not_move_with_its_directory() -> None:
    """It is in none: nothing of it can be missing afterwards."""
    trial = begun()
    temporary(trial)
    through(trial, "d/#9")
    totals = {"count": 2, "size_bytes": 2, "last_ns": trial.now_ns, "inode": 9, "device": 1, "totals": True}
    trial.add(ev.FileWritten, path=b"", **totals)
    trial.rename("d", "e")
    through(trial, "e/#9")
    assert told(trial).keys() == {"d", "e"}


def test_what_is_written_after_its_directory_moved_changes_the_name_that_it_got() -> None:
    """The kernel tells the descriptor below the directory's new name; the file is the one that was linked."""
    trial = begun()
    temporary(trial)
    trial.rename("d", "c")
    trial.found("c", None, None)
    trial.file(ev.FileLinked, "c/#9", new_path="n", inode=9, device=1, unlinked=True)
    trial.rename("c", "e")
    trial.found("n", None, state("2"))
    child = trial.fork()
    through(trial, "e/#9", process=child)
    history = told(trial)["n"]
    assert [change.kind for change in history.changes] == ["linked", "modified"]
    assert child in history.writers


def test_a_removed_file_does_not_move_with_its_directory() -> None:
    """Its descriptor is told below each name that the directory has, where nothing lies."""
    trial = begun()
    trial.found("f", None, DIRECTORY)
    trial.found("e", None, None)
    trial.found("d/x", state("1"), None)
    trial.delete("d/x")
    trial.rename("d", "e")
    through(trial, "e/x")
    trial.rename("e", "f")
    assert told(trial)["d/x"].net == "deleted"


def test_a_file_that_has_its_name_moves_with_its_directory() -> None:
    """What was written there is at the new name."""
    trial = begun()
    trial.found("d/x", state("1"), None)
    trial.found("e/x", None, state("2"))
    trial.write("d/x", inode=9, device=1)
    trial.rename("d", "e")
    assert told(trial)["e/x"].net == "renamed"
