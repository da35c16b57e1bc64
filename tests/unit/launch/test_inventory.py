"""The inventory of a workspace: what it knows is what was there, and what it does not know it says."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.events import Kind
from supervisor.evidence.file_facts import FileState
from supervisor.launch.disk import inventory, recording
from supervisor.launch.disk.inventory import Bounds, Inventory, reduce_inventory
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.recording import take_inventory
from supervisor.launch.disk.tree import Tree
from supervisor.launch.stage.linked import find_recorded


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Make a tree of every kind of entry."""
    top = tmp_path / "work"
    (top / "d/e").mkdir(parents=True)
    (top / "small").write_bytes(b"small")
    (top / "empty").write_bytes(b"")
    (top / "d/e/big").write_bytes(b"b" * 100_000)
    (top / "link").symlink_to("/nowhere")
    os.link(top / "small", top / "d/other")
    os.mkfifo(top / "pipe")
    (top / "small").chmod(0o4711)
    os.setxattr(top / "d", "user.note", b"kept")
    return top


@contextmanager
def taken(work: Path, *, hidden: bytes = b"", bounds: Bounds | None = None) -> Iterator[Inventory]:
    """Take an inventory and open it."""
    store = work.parent / "before"
    take_inventory((bytes(work),), store, bounds or Bounds(copied_bytes=None), hidden=hidden)
    found = Inventory(store)
    try:
        yield found
    finally:
        found.close()


def state_now(work: Path, name: str) -> FileState | None:
    """Read a state from disk."""
    with Tree(work) as tree:
        return Observer().state(tree, os.fsencode(name))


NAMES = ["small", "empty", "d", "d/e", "d/e/big", "d/other", "link", "pipe", "", "absent", "d/absent", "small/absent"]


@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_what_was_on_disk(work: Path, name: str) -> None:
    """Kind, owner, mode, attributes and digest agree with a look at the same moment, also for what is not there."""
    with taken(work) as found:
        before = found.state(bytes(work / name) if name else bytes(work))
        assert before == state_now(work, name)
        assert (before is None) == ("absent" in name)


def test_what_happens_afterwards_changes_nothing(work: Path) -> None:
    """The content is a copy, not another name of the file."""
    was = state_now(work, "small")
    with taken(work) as found:
        (work / "small").write_text("rewritten")
        (work / "d/e/big").unlink()
        assert found.state(bytes(work / "small")) == was
        big = found.state(bytes(work / "d/e/big"))
        assert big is not None
        assert big.digest == f"sha256:{hashlib.sha256(b'b' * 100_000).hexdigest()}"


def test_the_smallest_files_fit_first(work: Path) -> None:
    """What is beyond the limit is there, with its size and mode, and says why its content is not known."""
    with taken(work, bounds=Bounds(copied_bytes=50_000)) as found:
        big, small = found.state(bytes(work / "d/e/big")), found.state(bytes(work / "small"))
        assert big is not None
        assert (big.kind, big.digest, big.size_bytes, big.problem) == (Kind.FILE, None, 100_000, recording.TOO_LARGE)
        assert small is not None
        assert small.problem is None
        assert found.state(bytes(work / "new")) is None


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 200))
def test_what_is_copied_keeps_to_the_limit(sizes: list[int], limit: int) -> None:
    """All files up to one size, and never more than the limit together."""
    entries = [
        inventory.Recorded(
            path=b"", device=1, inode=n, mode=0o100644, uid=0, gid=0, size_bytes=size, mtime_ns=0, ctime_ns=0
        )
        for n, size in enumerate(sizes)
    ]
    largest = recording.largest_copied(entries, limit)
    assert sum(size for size in sizes if size <= largest) <= limit
    beyond = [size for size in sizes if size > largest]
    assert not beyond or sum(size for size in sizes if size <= min(beyond)) > limit


def test_a_bound_of_entries_leaves_directories_unlisted(work: Path) -> None:
    """In them nobody knows what was there; elsewhere it is known as before."""
    with taken(work, bounds=Bounds(copied_bytes=None, entries=4)) as found:
        below = found.state(bytes(work / "d/e/big"))
        assert below is not None
        assert below.problem == inventory.UNLISTED
        assert found.state(bytes(work / "d/made")) is not None
        assert found.state(bytes(work / "made")) is None


def test_no_time_means_no_content(work: Path) -> None:
    """What was not reached in time is not known."""
    with taken(work, bounds=Bounds(copied_bytes=None, most_s=-1.0)) as found:
        top = found.state(bytes(work))
        assert top is not None
        assert top.kind is Kind.DIRECTORY
        made = found.state(bytes(work / "small"))
        assert made is not None
        assert made.problem == inventory.UNLISTED


def test_a_file_in_motion_is_not_recorded(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who writes while it is copied leaves a content that never was."""
    copy = recording._Pack._copy

    def interrupted(pack: recording._Pack, source: int, size: int) -> int:
        done = copy(pack, source, size)
        (work / "small").write_text("other")
        return done

    monkeypatch.setattr(recording._Pack, "_copy", interrupted)
    with taken(work) as found:
        small = found.state(bytes(work / "small"))
        assert small is not None
        assert (small.digest, small.problem) == (None, recording.IN_MOTION)


def test_the_directory_of_our_runs_is_left_out(work: Path) -> None:
    """No trial sees it, and it changes all the time."""
    with taken(work, hidden=bytes(work / "d")) as found:
        assert bytes(work / "d/e/big") not in found.entries
        assert bytes(work / "small") in found.entries


def test_reduced_it_knows_what_changed(work: Path) -> None:
    """Content and states of what changed stay, of what was made it is known that it was not there, the rest is gone."""
    changed = [bytes(work / name) for name in ("d/other", "small", "d/e/big", "empty", "made")]
    with taken(work):
        reduce_inventory(work.parent / "before", changed)
    found = Inventory(work.parent / "before")
    try:
        for name in ("d/other", "small", "d/e/big", "empty"):
            assert found.state(bytes(work / name)) == state_now(work, name)
        assert found.changed == set(changed)
        assert found.state(bytes(work / "made")) is None
        assert found.state(bytes(work / "link")) is not None
    finally:
        found.close()
    assert (work.parent / "before/content").stat().st_size == 100_005


def test_names_outside_of_what_was_recorded_are_known_to_be_there(work: Path, tmp_path: Path) -> None:
    """A file whose names were all recorded has none elsewhere."""
    for name in ("one", "two", "half"):
        (work / name).write_bytes(b"x")
    (work / "d/one").hardlink_to(work / "one")
    (tmp_path / "outside").hardlink_to(work / "half")
    found = find_recorded(inventory.walk([os.fsencode(work)], None))
    assert {os.fsencode(work / name) for name in ("one", "d/one")} in [set(names) for names in found.before]
    assert found.elsewhere == (os.fsencode(work / "half"),)
