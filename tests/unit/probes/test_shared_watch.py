"""The watch of shared places: what inotify shows of them, whoever changes them."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import probes.shared
from probes.shared import PlaceWatch, Seen, find_held


def seen_of(place: Path, act: Callable[[], object]) -> Seen:
    """Watch a place while something happens in it."""
    with PlaceWatch((bytes(place),)) as watch:
        act()
        return watch.finish()


def found(seen: Seen, place: Path) -> set[tuple[str, str]]:
    """Give what was seen: name below the place, and change."""
    return {(os.fsdecode(os.path.relpath(one.path, bytes(place))), one.change) for one in seen.sightings}


def test_a_directory_is_deleted_when_its_name_is_gone(tmp_path: Path) -> None:
    """Who still has it open does not delete it once more by closing it."""
    (tmp_path / "d").mkdir()
    held = os.open(tmp_path / "d", os.O_RDONLY)
    with PlaceWatch((bytes(tmp_path),)) as watch:
        (tmp_path / "d").rmdir()
        time.sleep(0.3)
        os.close(held)
        seen = watch.finish()
    assert [(one.path, one.change) for one in seen.sightings] == [(bytes(tmp_path / "d"), "deleted")]


def test_every_sort_of_change_is_seen_with_its_path(tmp_path: Path) -> None:
    """Files and directories that come, change, move and go, also in directories that were there before."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("old", "gone", "mode", "deep/er/f"):
        (tmp_path / name).write_text("1")

    def act() -> None:
        (tmp_path / "new").write_text("1")
        (tmp_path / "deep/er/f").write_text("2")
        (tmp_path / "gone").unlink()
        (tmp_path / "mode").chmod(0o600)
        (tmp_path / "old").rename(tmp_path / "deep" / "moved")

    seen = seen_of(tmp_path, act)
    assert found(seen, tmp_path) >= {
        ("new", "created"),
        ("new", "modified"),
        ("deep/er/f", "modified"),
        ("gone", "deleted"),
        ("mode", "attributes"),
        ("old", "moved"),
        ("deep/moved", "moved"),
    }
    assert seen.holes == ()
    assert all(one.since_ns <= one.seen_ns for one in seen.sightings)


def test_what_was_open_for_writing_is_seen_when_it_is_closed(tmp_path: Path) -> None:
    """Also when nothing was written: stores into a mapping tell nothing themselves. Only a workspace needs it."""
    (tmp_path / "f").write_text("1")

    def act() -> None:
        with (tmp_path / "f").open("r+b"):
            pass

    assert seen_of(tmp_path, act).sightings == ()
    with PlaceWatch((bytes(tmp_path),), closing=True) as watch:
        act()
        assert found(watch.finish(), tmp_path) == {("f", "closed")}


def test_what_happens_between_the_beginning_and_the_reading_is_seen(tmp_path: Path) -> None:
    """It waits in the kernel; the directory of our runs is left out."""
    (tmp_path / "runs").mkdir()
    watch = PlaceWatch((bytes(tmp_path),), hidden=bytes(tmp_path / "runs"))
    watch.begin()
    (tmp_path / "early").mkdir()
    (tmp_path / "runs" / "log").write_text("1")
    with watch:
        seen = watch.finish()
    assert found(seen, tmp_path) == {("early", "created")}
    unused = PlaceWatch((bytes(tmp_path),))
    unused.begin()
    assert unused.finish() == Seen(sightings=(), holes=())


def test_who_can_still_write_a_file_holds_it(tmp_path: Path) -> None:
    """By a descriptor, or by a mapping alone; not who reads it, and not what is gone or no file."""
    paths = {name: tmp_path / name for name in ("written", "mapped", "read", "free")}
    for path in paths.values():
        path.write_bytes(b"1" * 4096)
    os.mkfifo(tmp_path / "fifo")
    asked = [bytes(path) for path in (*paths.values(), tmp_path / "gone", tmp_path / "fifo", tmp_path)]
    with paths["written"].open("r+b"), paths["read"].open("rb"):
        with paths["mapped"].open("r+b") as file:
            page = mmap.mmap(file.fileno(), 4096)
        with page:
            held = list(find_held(asked))
    assert held == [(bytes(paths["written"]), ""), (bytes(paths["mapped"]), "")]
    assert list(find_held(asked)) == []


def test_reading_is_no_change(tmp_path: Path) -> None:
    """Whoever only looks is not seen."""
    (tmp_path / "f").write_text("1")
    assert seen_of(tmp_path, lambda: [(tmp_path / "f").read_text(), list(tmp_path.iterdir())]).sightings == ()


def test_directories_that_come_later_are_watched_too(tmp_path: Path) -> None:
    """What is in a new directory already, and what comes into it."""

    def act() -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "b" / "f").write_text("1")

    assert found(seen_of(tmp_path, act), tmp_path) >= {("a", "created"), ("a/b", "created"), ("a/b/f", "created")}


def test_a_directory_that_was_renamed_is_told_by_its_new_name(tmp_path: Path) -> None:
    """What happens in it afterwards has the path of then."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "f").write_text("1")
    with PlaceWatch((bytes(tmp_path),)) as watch:
        (tmp_path / "one").rename(tmp_path / "two")
        for _ in range(200):
            (tmp_path / "two" / "f").write_text("2")
            if ("two/f", "modified") in found(Seen(sightings=tuple(watch._sightings), holes=()), tmp_path):
                break
            probes.shared.time.sleep(0.02)
        seen = watch.finish()
    assert ("two/f", "modified") in found(seen, tmp_path)


def test_a_directory_that_left_its_place_is_no_longer_of_it(tmp_path: Path) -> None:
    """What happens to it elsewhere is nobody's change of the place."""
    place, outside = tmp_path / "place", tmp_path / "outside"
    (place / "d").mkdir(parents=True)
    with PlaceWatch((bytes(place),)) as watch:
        (place / "d").rename(outside)
        while not watch._sightings:
            probes.shared.time.sleep(0.01)
        probes.shared.time.sleep(0.2)
        (outside / "f").write_text("1")
        seen = watch.finish()
    assert {change for _, change in found(seen, place)} == {"moved"}


def test_a_file_can_be_a_place(tmp_path: Path) -> None:
    """Its own changes are seen, and no neighbour's."""
    place = tmp_path / "db"
    place.write_text("1")

    def act() -> None:
        place.write_text("2")
        (tmp_path / "other").write_text("1")

    seen = seen_of(place, act)
    assert {one.path for one in seen.sightings} == {bytes(place)}
    assert "modified" in {one.change for one in seen.sightings}


def test_names_are_bytes(tmp_path: Path) -> None:
    """A name that is no UTF-8 is told as it is."""
    seen = seen_of(tmp_path, lambda: os.close(os.open(bytes(tmp_path) + b"/\xff\n", os.O_CREAT | os.O_WRONLY)))
    assert bytes(tmp_path) + b"/\xff\n" in {one.path for one in seen.sightings}


def test_what_cannot_be_watched_is_a_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More directories than are watched, and more changes than are kept, are said."""
    for name in "abc":
        (tmp_path / name).mkdir()
    monkeypatch.setattr(probes.shared, "MOST_DIRECTORIES", 2)
    assert "more than 2 directories" in seen_of(tmp_path, lambda: None).holes[0].why
    monkeypatch.setattr(probes.shared, "MOST_DIRECTORIES", 100)
    monkeypatch.setattr(probes.shared, "MOST_SIGHTINGS", 1)
    seen = seen_of(tmp_path, lambda: [(tmp_path / name).rmdir() for name in "abc"])
    assert [hole.why for hole in seen.holes] == ["there were more than 1 changes"]
    assert len(seen.sightings) == 1


def test_a_queue_that_ran_over_is_a_hole(tmp_path: Path) -> None:
    """The kernel says that it dropped events; nothing is taken for seen then."""
    watch = PlaceWatch((bytes(tmp_path),))
    with watch:
        import inotify_simple  # noqa: PLC0415 - as the watch imports it

        event = inotify_simple.Event(wd=-1, mask=int(inotify_simple.flags.Q_OVERFLOW), cookie=0, name="")
        watch._take(event, 5)
        seen = watch.finish()
    assert "ran over" in seen.holes[0].why
