"""What the stage says about a trial, compared with what the kernel's overlay shows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from overlay_operations import describe
from staged_trial import Trial

from supervisor.events import Kind
from supervisor.evidence.file_facts import FileState
from supervisor.launch.stage.merged import Merged

pytestmark = pytest.mark.kernel("overlay")

MODE, UID, GID, SIZE, CONTENT = range(5)


def absolute(trial: Trial, relative: str) -> bytes:
    """Give the path as events have it."""
    return os.fsencode(trial.host) + (b"" if relative == "." else b"/" + os.fsencode(relative))


def agrees(state: FileState | None, seen: list[Any] | None) -> bool:
    """Tell whether a state is the one that was described."""
    if state is None or seen is None:
        return state is None and seen is None
    known = (state.mode, state.uid, state.gid) == (seen[MODE] & 0o7777, seen[UID], seen[GID])
    content = state.digest == f"sha256:{seen[CONTENT]}" if state.kind is Kind.FILE else True
    return known and content and {name: value.hex() for name, value in state.xattrs} == seen[5]


@pytest.mark.parametrize("seed", range(30, 42))
def test_observations_are_what_the_overlay_showed(tmp_path: Path, seed: int) -> None:
    """Every path has the state before and after that the kernel shows, and every difference is among the changed."""
    trial = Trial(tmp_path / "t", seed=seed)
    before = trial.looks()
    after = trial.act(seed=seed, count=25)["merged"]
    names = {absolute(trial, name): name for name in {*before, *after}}
    with trial.stage as stage:
        observed = stage.observe(names)
        changed = set(stage.changed())
    for path, name in names.items():
        assert agrees(observed[path].before, before.get(name)), name
        assert agrees(observed[path].after, after.get(name)), name
    differ = {path for path, name in names.items() if name != "." and before.get(name) != after.get(name)}
    content = {path for path in differ if before.get(names[path], [])[:6] != after.get(names[path], [])[:6]}
    assert content <= changed


@pytest.mark.parametrize("seed", range(50, 58))
def test_a_snapshot_over_the_workspace_shows_what_the_trial_saw(tmp_path: Path, seed: int) -> None:
    """The snapshot of everything is a whole upper tree again: its merged view equals the trial's."""
    trial = Trial(tmp_path / "t", seed=seed)
    trial.act(seed=seed, count=25)
    with trial.stage as stage:
        snapshot = stage.snapshot(["**"])
        assert stage.snapshot(["**"]) == snapshot
        digest = stage.digest()
        paths = [absolute(trial, name) for name in describe(os.fsencode(trial.host))] + list(stage.changed())
        after = {path: stage.observe([path])[path].after for path in paths}
        shutil.move(snapshot.upper, tmp_path / "kept")
        stage.discard()
        shutil.move(tmp_path / "kept", stage.upper)
        again = {path: stage.observe([path])[path].after for path in paths}
        assert again == after
        with Merged.open(trial.host, stage.upper) as view:
            assert view.root.entry is not None
    assert digest.startswith("sha256:")


def test_a_snapshot_costs_what_was_touched_in_the_footprint(tmp_path: Path) -> None:
    """Touched files outside the footprint and untouched files inside are not copied; the digest knows the state."""
    trial = Trial(
        tmp_path / "t", script="mkdir notes; echo 1 > notes/a.md; echo 1 > notes/b.md; head -c 9999 /dev/zero > z"
    )
    trial.act(script="echo 22 > notes/a.md; echo 3 > y; rm z; rm notes/b.md")
    with trial.stage as stage:
        snapshot = stage.snapshot(["notes/*.md"])
        other = stage.snapshot(["nothing"])
    assert (snapshot.files, snapshot.size_bytes) == (1, 3)
    assert snapshot.digest != other.digest
    assert other.files == 0


def test_the_digest_knows_every_staged_byte(tmp_path: Path) -> None:
    """Another content, name, mode or deletion gives another digest; the same writes give the same."""
    digests = []
    for number, script in enumerate(
        ["echo 1 > a", "echo 1 > a", "echo 2 > a", "echo 1 > b", "echo 1 > a; chmod 600 a"]
    ):
        trial = Trial(tmp_path / str(number), script="true")
        trial.act(script=script)
        with trial.stage as stage:
            digests.append(stage.digest())
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_private_places_and_unstaged_ones_are_a_problem_not_a_guess(tmp_path: Path) -> None:
    """What the stage cannot know it does not make up."""
    trial = Trial(tmp_path / "t", script="true")
    with trial.stage as stage:
        found = stage.observe([b"/dev/shm/x", b"/etc/passwd", absolute(trial, "../x")])
    assert all(observed.after is not None and observed.after.problem for observed in found.values())


def test_writes_outside_are_seen_through_their_map(tmp_path: Path) -> None:
    """A path below a mapped mount point has its state on the host before, and in the discarded upper after."""
    trial = Trial(tmp_path / "t", script="true")
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "a").write_text("old", encoding="ascii")
    upper = trial.run.outside / "0/upper"
    upper.mkdir(parents=True)
    (upper / "a").write_text("newer", encoding="ascii")
    (trial.run.outside / "map.json").write_text(f'{{"{place}": "0"}}', encoding="ascii")
    path = os.fsencode(place / "a")
    with trial.stage as stage:
        found = stage.observe([path])[path]
    assert found.before is not None
    assert found.after is not None
    assert (found.before.size_bytes, found.after.size_bytes) == (3, 5)
