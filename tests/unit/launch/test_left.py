"""Names that runs left: what the next trial is watched for."""

from __future__ import annotations

from pathlib import Path

from supervisor.launch.runs.left import MOST_NAMES, NAME, names_left, note_left


def test_names_are_given_back_the_latest_first(tmp_path: Path) -> None:
    """Whatever bytes they have; of what lies in a directory that was made too, only the directory."""
    assert names_left(tmp_path) == ()
    note_left(tmp_path, [b"/w/out", b"/w/out/a", b"/w/out/b", b"/v/n\n\xff"])
    note_left(tmp_path, [b"/w/later"])
    note_left(tmp_path, [])
    assert names_left(tmp_path) == (b"later", b"out", b"n\n\xff")


def test_of_very_many_the_latest_are_kept(tmp_path: Path) -> None:
    """Each is an entry of a map; a line that the end of what is read cuts is a name of nothing."""
    note_left(tmp_path, [b"/w/%05d" % number for number in range(20_000)])
    names = names_left(tmp_path)
    assert len(names) == MOST_NAMES
    assert names[0] == b"19999"
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
