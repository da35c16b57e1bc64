"""A stage that gives its files away: what that saves, and that nothing is given which somebody could still write."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from staged_trial import Trial, everything

from supervisor.launch.stage.stage import Stage

pytestmark = pytest.mark.kernel("overlay")

MOUNTED = """
mount -t overlay -o "lowerdir=$1,upperdir=$2,workdir=$3,index=on,redirect_dir=on,metacopy=off" overlay "$4"
cd "$4"
{act}
umount -l "$4"
echo ready
read -r line
{late}
"""


@contextmanager
def held(trial: Trial, act: str, late: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a script in the overlay, and keep its shell, with what it has opened; ``late`` runs when a line comes."""
    merged = trial.path / "merged"
    merged.mkdir(exist_ok=True)
    script = MOUNTED.format(act=act, late=late)
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script, "sh"]
    places = [trial.host, trial.stage.upper, trial.stage.work, merged]
    with subprocess.Popen([*words, *map(str, places)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ready\n"
        yield shell


def marks(top: Path) -> list[str]:
    """Give every attribute of an overlay in a tree."""
    found = [(path, os.listxattr(path, follow_symlinks=False)) for path in (top, *top.rglob("*"))]
    return [f"{path} {name}" for path, names in found for name in names if name.startswith("trusted.overlay")]


def test_a_given_file_is_the_very_file_that_the_trial_wrote(tmp_path: Path) -> None:
    """New files, changed ones and whole new directories keep their inodes, and carry nothing of the overlay."""
    trial = Trial(tmp_path / "t", script="mkdir old; echo 1 > old/a; echo 1 > moved")
    trial.act(script="echo 2 > old/a; echo 2 > b; mkdir -p new/deep; echo 2 > new/deep/c; mv moved new/moved")
    upper = trial.stage.upper
    wanted = {name: (upper / name).lstat().st_ino for name in ("old/a", "b", "new", "new/deep/c", "new/moved")}
    with trial.stage as stage:
        result = stage.commit(everything, gives=True)
    assert (result.left, result.changes) == ((), 7)
    assert {name: (trial.host / name).lstat().st_ino for name in wanted} == wanted
    assert marks(trial.host) == []
    assert [path for path in upper.rglob("*") if not path.is_dir() and path.stat().st_rdev] == []


def test_what_is_applied_later_stays_in_the_stage(tmp_path: Path) -> None:
    """Without leave to give them, files are copied: the stage is what it was."""
    trial = Trial(tmp_path / "t", script="true")
    trial.act(script="mkdir d; echo 2 > d/a")
    with trial.stage as stage:
        before = stage.digest()
        stage.commit(everything)
        assert stage.digest() == before
    assert (trial.host / "d/a").lstat().st_ino != (trial.stage.upper / "d/a").lstat().st_ino


@pytest.mark.parametrize(
    "grip",
    [
        "exec 9>>new/a",
        "exec 9<>new/a",
        "exec 9<new/a",
        "exec 9<.",
        "exec 9<new",
    ],
)
def test_nothing_is_given_while_anybody_holds_something_of_the_overlay(tmp_path: Path, grip: str) -> None:
    """A writer, a reader, or who merely stands in a directory could reach the file: the workspace gets a copy.

    What is written late goes where the trial's writes are, and not to the host.
    """
    trial = Trial(tmp_path / "t", script="true")
    late = "for file in /proc/self/fd/9 /proc/self/fd/9/a /proc/self/fd/9/new/a; do echo late >> $file; done || true"
    with held(trial, f"mkdir new; echo staged > new/a; {grip}", late) as shell, trial.stage as stage:
        result = stage.commit(everything, gives=True)
        assert result.left == ()
        shell.communicate(b"\n")
    assert (trial.host / "new/a").read_text(encoding="ascii") == "staged\n"
    assert (trial.host / "new/a").lstat().st_ino != (trial.stage.upper / "new/a").lstat().st_ino


def test_what_was_held_is_given_once_it_is_let_go(tmp_path: Path) -> None:
    """The kernel is asked at the commit, whoever held it before."""
    trial = Trial(tmp_path / "t", script="true")
    with held(trial, "echo staged > a; exec 9>>a", "") as shell:
        inode = (trial.stage.upper / "a").lstat().st_ino
        assert not trial.stage.layers()[0].is_let_go()
        shell.communicate(b"\n")
    with trial.stage as stage:
        assert stage.layers()[0].is_let_go()
        stage.commit(everything, gives=True)
    assert (trial.host / "a").lstat().st_ino == inode


def test_files_of_another_file_system_are_copied(tmp_path: Path) -> None:
    """A workspace that the stage cannot rename into gets copies."""
    place = tmp_path / "t"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], check=True)
    try:
        trial = Trial(place / "t", script="true")
        run = Stage(trial.run, trial.host)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        trial.act(script="mkdir d; echo 2 > d/a; ln -s a d/b")
        subprocess.run(["cp", "-a", trial.run.path, elsewhere], check=True)
        moved = Stage(type(trial.run)(elsewhere / trial.run.path.name), trial.host)
        with run, moved:
            assert moved.commit(everything, gives=True).left == ()
        assert (moved.upper / "d/a").exists()
        assert (trial.host / "d/a").read_text(encoding="ascii") == "2\n"
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_what_may_not_be_written_stays_in_the_stage(tmp_path: Path) -> None:
    """Its content is there for whoever wants to see it, and the rest of the directory is as it is on the host."""
    trial = Trial(tmp_path / "t", script="true")
    trial.act(script="mkdir d; echo yes > d/yes; echo no > d/no")
    with trial.stage as stage:
        result = stage.commit(lambda path: path != b"d/no", gives=True)
        assert [left.path for left in result.left] == [b"d/no"]
        kept = sorted(path.relative_to(stage.upper) for path in stage.upper.rglob("*"))
        assert kept == [Path("d"), Path("d/no")]
        [own] = stage.layers()
        with own.view() as view:
            seen = [node.path for node in view.below(view.root)]
    assert sorted(seen) == [b"d", b"d/no", b"d/yes"]
    assert sorted(os.listdir(trial.host / "d")) == ["yes"]  # noqa: PTH208 - names


def test_a_file_of_several_names_is_copied_with_all_of_them(tmp_path: Path) -> None:
    """Names that are left out would otherwise stay names of the host's file."""
    trial = Trial(tmp_path / "t", script="echo 1 > a; ln a b")
    trial.act(script="echo 2 > a; echo 3 > c; ln c d; mkdir n; ln c n/e; echo 4 > n/f")
    with trial.stage as stage:
        assert stage.commit(lambda path: path != b"d", gives=True).left[0].path == b"d"
    found = {name: (trial.host / name).stat() for name in ("a", "b", "c", "n/e", "n/f")}
    assert {name: one.st_nlink for name, one in found.items()} == {"a": 2, "b": 2, "c": 2, "n/e": 2, "n/f": 1}
    assert found["c"].st_ino == found["n/e"].st_ino != (trial.stage.upper / "d").stat().st_ino


MAPPED = """exec python3 -c '
import mmap, sys
file = open("a", "w+b"); file.truncate(4096)
page = mmap.mmap(file.fileno(), 4096)
page[:3] = b"one"; print("ready", flush=True)
sys.stdin.readline(); page[:3] = b"two"; print("done", flush=True)
sys.stdin.readline()
'"""


def test_a_digest_is_not_kept_while_somebody_can_write(tmp_path: Path) -> None:
    """A store into a page that is mapped and written already changes no time; still it is seen."""
    trial = Trial(tmp_path / "t", script="true")
    with held(trial, MAPPED, "") as shell, trial.stage as stage:
        assert shell.stdin is not None
        assert shell.stdout is not None
        path = os.fsencode(trial.host / "a")
        stage.rest()
        first = stage.observe([path])[path].after
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == b"done\n"
        second = stage.observe([path])[path].after
        shell.communicate(b"\n")
    assert first is not None
    assert second is not None
    assert first.digest != second.digest
