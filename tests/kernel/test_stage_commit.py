"""Commits of real overlays: the host's workspace becomes what the trial saw, whatever the trial did."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import zlib
from pathlib import Path

import pytest
from staged_trial import NAMES, Trial, everything, without

from supervisor.errors import MachineError, UsageError
from supervisor.launch.stage.stage import Stage

GIVEN = "given"
pytestmark = pytest.mark.kernel("overlay")


WAYS = pytest.mark.parametrize("way", ["copied", GIVEN])
"""Whether the stage gives its files away: the result is the same."""


@WAYS
@pytest.mark.parametrize("seed", range(24))
def test_a_commit_makes_the_workspace_what_the_trial_saw(tmp_path: Path, seed: int, way: str) -> None:
    """After any sequence of operations, kinds, modes, owners, content, attributes, times and links are the trial's."""
    trial = Trial(tmp_path / "t", seed=seed)
    seen = trial.act(seed=seed, count=25)
    with trial.stage as stage:
        result = stage.commit(everything, gives=way == GIVEN)
    assert result.left == ()
    assert trial.looks() == seen["merged"]


def killed_at(stage: Stage, step: int, *, gives: bool) -> bool:
    """Commit in a child that is killed before step number `step`; tells whether it came so far."""
    left = step

    def fault() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            stage.commit(everything, fault=fault, gives=gives)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@WAYS
@pytest.mark.parametrize("seed", [3, 11, 17])
def test_a_commit_killed_at_any_step_is_resumed_to_the_same_result(tmp_path: Path, seed: int, way: str) -> None:
    """SIGKILL before every single step in turn: the next call ends where an undisturbed commit ends."""
    step, came = 0, True
    while came:
        trial = Trial(tmp_path / str(step), seed=seed)
        seen = trial.act(seed=seed, count=25)
        with trial.stage as stage:
            came = killed_at(stage, step, gives=way == GIVEN)
            result = stage.commit(everything, gives=way == GIVEN)
        assert result.left == ()
        assert result.resumed or came
        assert trial.looks() == seen["merged"], step
        shutil.rmtree(trial.path)
        step += 3 if step else 1
    assert step > 20


@WAYS
def test_a_commit_killed_at_every_step_in_a_row_still_ends(tmp_path: Path, way: str) -> None:
    """A commit that dies again and again, one step later each time, ends right."""
    trial = Trial(tmp_path / "t", seed=5)
    seen = trial.act(seed=5, count=25)
    with trial.stage as stage:
        step = 0
        while killed_at(stage, step, gives=way == GIVEN):
            step += 1
        assert stage.commit(everything, gives=way == GIVEN).left == ()
    assert trial.looks() == seen["merged"]


@WAYS
def test_a_finished_commit_is_not_done_again(tmp_path: Path, way: str) -> None:
    """A second call changes nothing, even if the workspace has gone on."""
    trial = Trial(tmp_path / "t", script="echo one > a")
    trial.act(script="echo two > a")
    with trial.stage as stage:
        stage.commit(everything, gives=way == GIVEN)
        (trial.host / "a").write_text("later", encoding="ascii")
        assert stage.commit(everything, gives=way == GIVEN).resumed
    assert (trial.host / "a").read_text(encoding="ascii") == "later"


@WAYS
def test_only_allowed_paths_are_applied(tmp_path: Path, way: str) -> None:
    """Parents of allowed paths are made, everything else stays as it was and is reported."""
    trial = Trial(
        tmp_path / "t", script="mkdir -p src/in; echo 1 > src/in/x; echo 1 > src/y; echo 1 > keep; chmod 700 ."
    )
    trial.act(script="mkdir -p out/deep no; echo 2 > out/deep/z; echo 2 > no/z; rm keep; mv src out/src; chmod 755 .")
    with trial.stage as stage:
        result = stage.commit(lambda path: path.startswith(b"out/"), gives=way == GIVEN)
    assert sorted(trial.looks()) == [
        ".", "keep", "out", "out/deep", "out/deep/z", "out/src", "out/src/in", "out/src/in/x", "out/src/y",
        "src", "src/in", "src/in/x", "src/y",
    ]  # fmt: skip
    assert (trial.host / "out/src/in").stat().st_mtime_ns == (trial.host / "src/in").stat().st_mtime_ns
    assert trial.host.stat().st_mode & 0o777 == 0o700
    assert {entry.path for entry in result.left} >= {b"keep", b"no/z", b"no", b"src/in/x", b"src/y"}
    assert result.conflicts == ()


@WAYS
def test_a_moved_directory_that_may_be_written_at_both_places_keeps_its_inode(tmp_path: Path, way: str) -> None:
    """Moving is moving on the host too: nothing is copied, however large it is."""
    trial = Trial(tmp_path / "t", script="mkdir -p big/deep; echo 1 > big/deep/x; echo 1 > big/y")
    inode = (trial.host / "big/deep/x").stat().st_ino
    trial.act(script="mkdir new; mv big new/big; echo 2 > new/big/y; rm -r new/big/deep/../y; mv new/big/deep new/d")
    with trial.stage as stage:
        assert stage.commit(everything, gives=way == GIVEN).left == ()
    assert sorted(trial.looks()) == [".", "new", "new/big", "new/d", "new/d/x"]
    assert (trial.host / "new/d/x").stat().st_ino == inode


@WAYS
def test_what_the_host_changed_meanwhile_is_never_lost(tmp_path: Path, way: str) -> None:
    """Changed, new and kept host files survive a trial that overwrote or removed them, and are reported."""
    trial = Trial(tmp_path / "t", script="echo 1 > a; mkdir d; echo 1 > d/x; echo 1 > d/y; echo 1 > b")
    trial.act(script="echo trial > a; rm -r d; echo trial > new; echo trial > b")
    for name in ("a", "d/x", "new"):
        (trial.host / name).write_text("host", encoding="ascii")
    with trial.stage as stage:
        result = stage.commit(everything, gives=way == GIVEN)
    assert {entry.path for entry in result.conflicts} == {b"a", b"d/x", b"new"}
    found = {name: (trial.host / name).read_text(encoding="ascii") for name in ("a", "d/x", "new", "b")}
    assert found == {"a": "host", "d/x": "host", "new": "host", "b": "trial\n"}
    assert not (trial.host / "d/y").exists()


@WAYS
def test_no_symlink_leads_a_commit_out_of_the_workspace(tmp_path: Path, way: str) -> None:
    """A host symlink where the trial saw a directory is not followed, and a symlink of the trial is only a symlink."""
    outside = tmp_path / "outside"
    outside.mkdir()
    trial = Trial(tmp_path / "t", script="mkdir -p d/e")
    trial.act(script=f"echo evil > d/e/x; ln -s {outside} link; mkdir d/f; echo evil > d/f/y")
    shutil.rmtree(trial.host / "d")
    (trial.host / "d").symlink_to(outside)
    with trial.stage as stage:
        result = stage.commit(everything, gives=way == GIVEN)
    assert list(outside.iterdir()) == []
    assert (trial.host / "link").readlink() == outside
    assert {entry.path for entry in result.left} >= {b"d/e/x", b"d/f/y"}


@WAYS
def test_what_the_host_refuses_is_left_and_reported(tmp_path: Path, way: str) -> None:
    """An immutable host file stops nothing else; it stays, and the report says why."""
    trial = Trial(tmp_path / "t", script="echo 1 > a; echo 1 > b; echo 1 > c")
    trial.act(script="echo 2 > a; rm b; rm c")
    subprocess.run(["chattr", "+i", trial.host / "a", trial.host / "b"], check=True)
    try:
        (trial.run.stage / "began.json").write_text('{"realtime_ns": 99999999999999999999}', encoding="ascii")
        with trial.stage as stage:
            result = stage.commit(everything, gives=way == GIVEN)
    finally:
        subprocess.run(["chattr", "-i", trial.host / "a", trial.host / "b"], check=True)
    assert {(entry.path, entry.why) for entry in result.left} == {
        (b"a", "operation not permitted"),
        (b"b", "operation not permitted"),
    }
    assert sorted(trial.looks()) == [".", "a", "b"]


@WAYS
def test_what_is_needed_to_finish_a_commit_is_not_discarded(tmp_path: Path, way: str) -> None:
    """An interrupted commit must be finished first; after a discard nothing is left to commit."""
    trial = Trial(tmp_path / "t", script="echo 1 > a; echo 1 > b")
    trial.act(script="rm a; echo 2 > b")
    with trial.stage as stage:
        assert killed_at(stage, 4, gives=way == GIVEN)
        with pytest.raises(UsageError, match="was interrupted"):
            stage.discard()
        stage.commit(everything, gives=way == GIVEN)
        stage.discard()
        assert not stage.upper.exists()
        assert stage.commit(everything, gives=way == GIVEN).resumed
    other = Trial(tmp_path / "u", script="true")
    other.stage.discard()
    with pytest.raises(UsageError, match="nothing is staged"):
        other.stage.commit(everything, gives=way == GIVEN)


@WAYS
def test_holes_stay_holes(tmp_path: Path, way: str) -> None:
    """A sparse file is committed with its holes, and what lies between them."""
    trial = Trial(tmp_path / "t", script="true")
    trial.act(script="truncate -s 64M hole; printf mid | dd of=hole bs=1 seek=50000000 conv=notrunc status=none")

    with trial.stage as stage:
        stage.commit(everything, gives=way == GIVEN)
    found = (trial.host / "hole").stat()
    assert found.st_size == 64 << 20
    assert found.st_blocks * 512 < 1 << 20
    with (trial.host / "hole").open("rb") as file:
        file.seek(50_000_000)
        assert file.read(3) == b"mid"


@WAYS
def test_a_tree_deeper_than_any_path_is_committed(tmp_path: Path, way: str) -> None:
    """Four thousand characters are no limit: every component is entered by itself."""
    name = "d" * 200
    trial = Trial(tmp_path / "t", script="true")
    trial.act(
        script=f"for i in $(seq 60); do mkdir {name}; cd -P {name} 2>/dev/null || cd {name}; done; echo deep > end"
    )
    with trial.stage as stage:
        assert stage.commit(everything, gives=way == GIVEN).left == ()
        assert stage.digest().startswith("sha256:")
    depth = subprocess.run(
        ["find", ".", "-name", "end", "-printf", "%d"], cwd=trial.host, check=True, capture_output=True
    )
    assert depth.stdout == b"61"


def test_a_full_disk_leaves_the_workspace_as_it_was(tmp_path: Path) -> None:
    """When new content cannot be copied nothing has been changed, and the commit can be called again."""
    trial = Trial(tmp_path / "t", script="echo 1 > a; echo 1 > b")
    before = trial.looks()
    trial.act(script="rm a; echo 2 > b; echo 3 > c")
    calls = []

    def fault() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    with trial.stage as stage:
        with pytest.raises(MachineError, match="workspace is as it was"):
            stage.commit(everything, fault=fault)
        assert without(trial.looks()) == without(before)
        assert stage.commit(everything).left == ()
    assert sorted(trial.looks()) == [".", "b", "c"]


@WAYS
@pytest.mark.parametrize("seed", range(60, 76))
def test_whatever_is_allowed_is_applied_and_nothing_else(tmp_path: Path, seed: int, way: str) -> None:
    """With an arbitrary set of allowed paths: refused ones stay, allowed ones become the trial's or are reported."""

    def allowed(path: bytes) -> bool:
        return zlib.crc32(b"%d" % seed + path) % 3 != 0

    trial = Trial(tmp_path / "t", seed=seed)
    before = trial.looks()
    seen = trial.act(seed=seed, count=25)["merged"]
    with trial.stage as stage:
        left = {os.fsdecode(entry.path) for entry in stage.commit(allowed, gives=way == GIVEN).left}
    after = trial.looks()
    for path in (before.keys() | seen.keys()) - left:
        old, new, now = (description.get(path) for description in (before, seen, after))
        wanted = new if allowed(os.fsencode(path)) else old
        if not any(state and stat.S_ISDIR(state[0]) for state in (old, new, now)):
            assert (now and now[:NAMES]) == (wanted and wanted[:NAMES]), path
    assert not any(name.startswith(".supervise") for name in os.listdir(trial.host))  # noqa: PTH208 - names
