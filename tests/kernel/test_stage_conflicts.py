"""What the host did meanwhile, of every kind: it is left as it is, told, and overwritten only when asked for."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from staged_trial import Trial, everything

pytestmark = pytest.mark.kernel("overlay")

KEEP = "mkdir -p d/e; echo 1 > d/a; echo 1 > d/e/b; echo 1 > f; echo 1 > other; mkdir empty o; echo 1 > o/a"

CASES = {
    "deleted what was changed": ("echo 2 > f", "rm f", {"f"}),
    "moved what was changed": ("echo 2 > f", "mv f g", {"f"}),
    "moved away the directory of what was changed": ("echo 2 > d/a", "mv d away", {"d/a"}),
    "removed the directory of what was changed": ("echo 2 > d/e/b", "rm -r d", {"d/e/b"}),
    "removed the directory of what was made": ("echo 2 > d/new", "rm -r d", {"d/new"}),
    "another directory of that name": ("echo 2 > d/a; echo 2 > d/new", "mv d away; mkdir d", {"d/a", "d/new"}),
    "a symlink in the place of a directory": ("echo 2 > d/e/b", "mv d away; ln -s away d", {"d/e/b"}),
    "a file in the place of a directory": ("echo 2 > d/e/b", "rm -r d; echo h > d", {"d/e/b"}),
    "another file of that name": ("echo 2 > f", "rm f; echo h > f", {"f"}),
    "an old file moved over it": ("echo 2 > f", "mv other f", {"f"}),
    "an old directory moved over it": ("echo 2 > f", "rm f; mv d f", {"f"}),
    "an old directory in the place of a removed file": ("rm f", "rm f; mv d f", {"f"}),
    "an old directory moved into a removed one": ("rm -r empty", "mv d empty", {"empty"}),
    "made what the trial made": ("echo 2 > n", "echo h > n", {"n"}),
    "made the directory that the trial made": ("mkdir n; echo 2 > n/x", "mkdir n; echo h > n/y", {"n/x"}),
    "moved an old directory where the trial made one": ("mkdir n; echo 2 > n/x", "mv d n", {"n/x"}),
    "changed what the trial removed": ("rm f", "echo h > f", {"f"}),
    "changed what the trial moved": ("mv f g", "echo h > f", {"f", "g"}),
    "removed what the trial moved": ("mv f g", "rm f", {"g"}),
    "removed the directory that the trial moved": ("mv d g; echo 2 > g/a", "rm -r d", {"g/a"}),
    "took the place that a directory was moved to": ("mv d g", "mkdir g; echo h > g/x", {"g", "d"}),
    "took the place that a directory was moved into": ("mkdir n; mv d n/g", "mkdir n; echo h > n/x", {"n/g", "d"}),
    "changed what the trial moved a directory over": ("rm -r empty; mv d empty", "echo h > empty/x", {"empty", "d"}),
    "changed a file that the trial moved a directory over": ("rm -r o; mv d o", "echo h > o/a", {"o", "d"}),
    "mode of a file": ("echo 2 > f", "chmod 600 f", {"f"}),
    "owner of a file": ("echo 2 > f", "chown 1:1 f", {"f"}),
    "attribute of a file": ("echo 2 > f", "setfattr -n user.x -v h f", {"f"}),
    "mode of a directory whose mode the trial changed": ("chmod 755 d; chmod 711 d", "chmod 700 d", {"d"}),
    "same content again": ("echo 2 > f", "cp f g; mv g f", {"f"}),
}  # fmt: skip


def looks(top: Path) -> dict[str, tuple[int, str]]:
    """Give mode and content of everything."""
    return {
        str(path.relative_to(top)): (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.read_text(encoding="ascii") if path.is_file() else "",
        )
        for path in top.rglob("*")
    }


@pytest.mark.parametrize("way", ["copied", "given"])
@pytest.mark.parametrize("case", CASES)
def test_what_the_host_did_is_left_and_told(tmp_path: Path, case: str, way: str) -> None:
    """A commit changes nothing there, names what it left, and leaves the trial's content in the stage."""
    act, host, told = CASES[case]
    trial = Trial(tmp_path / "t", script=KEEP)
    trial.act(script=act + "; echo 2 > beside")
    subprocess.run(["bash", "-euc", host], cwd=trial.host, check=True)
    before, staged = looks(trial.host), looks(trial.stage.upper)
    with trial.stage as stage:
        result = stage.commit(everything, gives=way == "given")
        assert {left.path.decode() for left in result.conflicts} == told
        assert looks(trial.host) == {**before, "beside": looks(trial.plain)["beside"]}
        left = looks(stage.upper)
        assert {name: left[name] for name in staged if name != "beside"} == {
            name: state for name, state in staged.items() if name != "beside"
        }
        assert stage.commit(everything, force=True).against == ()
    wanted = looks(trial.plain)
    now = looks(trial.host)
    for name in told:
        assert now.get(name) == wanted.get(name), name


def test_what_was_replaced_is_known_from_the_log(tmp_path: Path) -> None:
    """A new file in the place of an old one is copied from nothing: only the log says that there was an old one."""
    trial = Trial(tmp_path / "t", script="echo 1 > f; echo 1 > g; mkdir d; echo 1 > d/x")
    trial.act(script="for one in f g; do echo 2 > tmp; mv tmp $one; done; rm -r d; mkdir d; echo 2 > d/x; echo 2 > n")
    (trial.host / "f").unlink()
    with trial.stage as stage:
        stage.note_existed([b"f", b"g", b"d/x"])
        assert [left.path for left in stage.commit(everything, gives=True).conflicts] == [b"f"]
        assert sorted(looks(trial.host)) == ["d", "d/x", "g", "n"]
        stage.commit(everything, force=True)
    assert looks(trial.host) == looks(trial.plain)


@pytest.mark.parametrize("way", ["copied", "given"])
def test_what_the_trial_itself_put_another_directory_over_is_not_lost(tmp_path: Path, way: str) -> None:
    """The directory in that place had no such file, so a new one in it is the trial's alone: it is applied."""
    trial = Trial(tmp_path / "t", script="mkdir d o; echo 1 > d/x; echo 1 > o/y")
    trial.act(script="rm -r d; mv o d; echo 2 > d/x")
    with trial.stage as stage:
        stage.note_existed([b"d/x"])
        assert stage.commit(everything, gives=way == "given").left == ()
    assert looks(trial.host) == looks(trial.plain)


@pytest.mark.parametrize("way", ["copied", "given"])
def test_what_the_host_deleted_in_a_directory_that_moved_is_lost(tmp_path: Path, way: str) -> None:
    """The log tells of it where it lay at the beginning; the new file in its place stays in the stage."""
    trial = Trial(tmp_path / "t", script="mkdir o; echo 1 > o/x; echo 1 > o/y")
    trial.act(script="echo 2 > tmp; mv tmp o/x; mv o d")
    (trial.host / "o/x").unlink()
    with trial.stage as stage:
        stage.note_existed([b"o/x"])
        assert [left.path for left in stage.commit(everything, gives=way == "given").conflicts] == [b"d/x"]
    assert looks(trial.host).keys() == {"d", "d/y"}


def test_a_commit_sees_what_the_one_before_it_did(tmp_path: Path) -> None:
    """Two commits to one workspace take turns, and the second one plans when its turn has come."""
    trial = Trial(tmp_path / "t", script="echo 1 > f")
    trial.act(script="mv f g")
    other = os.open(trial.host, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool, trial.stage as stage:
        going = pool.submit(stage.commit, everything, gives=True)
        time.sleep(0.5)
        assert not going.done()
        (trial.host / "f").unlink()
        os.close(other)
        assert [left.path for left in going.result(30).conflicts] == [b"g"]
    assert looks(trial.host) == {}


def test_another_directory_in_the_place_of_the_workspace_gets_nothing(tmp_path: Path) -> None:
    """It is not the directory that the trial began with, whatever is in it."""
    trial = Trial(tmp_path / "t", script="mkdir d; echo 1 > d/f")
    trial.act(script="echo 2 > d/f; echo 2 > new")
    trial.host.rename(tmp_path / "away")
    trial.host.mkdir()
    with trial.stage as stage:
        result = stage.commit(everything, gives=True)
    assert {left.path for left in result.conflicts} == {b"d/f", b"new"}
    assert list(trial.host.iterdir()) == []


@pytest.mark.parametrize("way", ["copied", "given"])
def test_what_is_removed_in_a_moved_directory_is_told_where_it_lies_now(tmp_path: Path, way: str) -> None:
    """The host's change moves along with the directory, is named there, and is overwritten there."""
    trial = Trial(tmp_path / "t", script=KEEP)
    trial.act(script="mv d g; rm g/e/b")
    subprocess.run(["bash", "-euc", "echo h > d/e/b"], cwd=trial.host, check=True)
    with trial.stage as stage:
        result = stage.commit(everything, gives=way == "given")
        assert [left.path for left in result.left] == [b"g/e/b"]
        assert (trial.host / "g/e/b").read_text(encoding="ascii") == "h\n"
        assert stage.commit(everything, force=True).against == ()
    assert looks(trial.host).keys() == looks(trial.plain).keys()


LOST = {
    "may not come where it goes": ("mv d g", "true", b"g/a", ("d/a", "1\n")),
    "may not come anywhere there": ("mv d/e n/e", "true", b"n/e", ("d/e/b", "1\n")),
    "goes where the host changed something": (
        "mv d x; mv s d; mv x s", "echo h > s/a", b"d/q", ("d/a", "1\n"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", ["copied", "given"])
@pytest.mark.parametrize("case", LOST)
def test_what_finds_no_place_where_its_directory_moved_stays_where_it_was(tmp_path: Path, case: str, way: str) -> None:
    """Nothing but the host has the content of such a file, so that removing it would be the end of it."""
    act, host, refused, (name, text) = LOST[case]
    trial = Trial(tmp_path / "t", script=KEEP + "; mkdir n s; echo s > s/a; echo s > s/q")
    trial.act(script=act)
    subprocess.run(["bash", "-euc", host], cwd=trial.host, check=True)

    def allowed(path: bytes) -> bool:
        return path != refused and not path.startswith(refused + b"/")

    with trial.stage as stage:
        result = stage.commit(allowed, gives=way == "given")
    assert name.encode() in {left.path for left in result.left}
    assert (trial.host / name).read_text(encoding="ascii") == text
