"""Disks that are really full: an ext4 file system on a loop device holds the stage, the workspace, or the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_lab import Lab
from scenario_load import ext4_disk, fill, load, trial_cgroups

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

SIZE_BYTES = 16 << 20
MORE = "dd if=/dev/zero of=big bs=64k count=400 2>/dev/null; echo dd $?"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is soon full."""
    with ext4_disk(tmp_path / "disk", SIZE_BYTES) as place:
        yield place


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with two files."""
    place = tmp_path / "work"
    place.mkdir()
    begin(place)
    return place


def begin(place: Path) -> None:
    """Put two files there."""
    for name in ("a", "b"):
        (place / name).write_text("1\n", encoding="ascii")


def texts(place: Path) -> dict[str, str]:
    """Read every file there."""
    return {path.name: path.read_text(encoding="ascii") for path in place.iterdir() if path.is_file()}


def test_a_full_stage_is_the_trials_own_error(disk: Path, work: Path) -> None:
    """The trial meets ENOSPC at its write, as on a bare disk, and may go on; its log had its room before."""
    lab = Lab(disk, work)
    ran = lab.sh(f"{MORE}; rm big; echo 2 > b; rm a")
    assert (ran.code, ran.out) == (0, b"dd 1\n")
    assert texts(work) == {"b": "2\n"}
    assert (ran.report["log"]["lost"], ran.finality, ran.scope) == (0, "final", "clean")


def test_a_stage_that_stays_full_is_committed_all_the_same(disk: Path, work: Path) -> None:
    """What was written before the disk was full reaches the workspace, and so does the file that was cut short."""
    ran = Lab(disk, work).sh(f"echo 2 > b; rm a; {MORE}; truncate -s -1M big")  # the end of the log lies there too
    assert (ran.code, ran.out) == (0, b"dd 1\n")
    assert (ran.finality, ran.scope) == ("final", "clean")
    assert not (work / "a").exists()
    assert (work / "b").read_text(encoding="ascii") == "2\n"
    assert 0 < (work / "big").stat().st_size < SIZE_BYTES


@pytest.mark.parametrize("more", ["true", "mkdir -p d/e; mv d f"])
def test_a_workspace_without_room_stays_as_it_was_until_there_is_some(disk: Path, tmp_path: Path, more: str) -> None:
    """The commit changes nothing, says where it stopped, and is called again with room; the label waits for it."""
    work = disk / "work"
    work.mkdir()
    begin(work)
    lab = Lab(tmp_path / "home", work)
    ran = lab.sh(f"{MORE}; rm a; echo 2 > b; {more}")
    assert ran.out == b"dd 0\n"
    assert texts(work) == {"a": "1\n", "b": "1\n"}
    assert not list(work.glob(".supervise-*"))
    assert f"{work}: staged writes cannot be copied, the workspace is as it was: no space left" in ran.err.decode()
    assert ran.finality == "unresolved"
    again = lab.call("commit", "last")
    assert again.returncode != 0
    assert f"{work}: staged writes cannot be copied" in again.stderr.decode()
    assert texts(work) == {"a": "1\n", "b": "1\n"}
    big = next(lab.home.glob("runs/*/stage/upper/big"))
    with big.open("r+b") as file:
        file.truncate(1 << 20)
    assert lab.call("commit", "last").returncode == 0
    assert (work / "b").read_text(encoding="ascii") == "2\n"
    assert not (work / "a").exists()
    assert (work / "big").stat().st_size == 1 << 20


def test_a_full_disk_of_the_log_ends_the_run_and_keeps_what_was_logged(disk: Path, work: Path) -> None:
    """Unsealed and unresolved, and whole to the last frame: what ext4 has promised to write it has room for."""
    lab = Lab(disk, work, {"SUPERVISE_WAIT_FOR_ROOM": "1s"})
    program = load(lab)
    fill(disk, leave_bytes=2 << 20)
    ended = lab.call("--", program, "2000000", "1")
    assert ended.returncode == 125
    assert f"supervise: {disk} (".encode() in ended.stderr
    assert b"its verdicts are unresolved" in ended.stderr
    verified = lab.call("verify", "last")
    assert (verified.returncode, b"never sealed" in verified.stderr) == (1, True)
    shown = b" ".join(lab.call("show", "last").stdout.split())
    assert all(f"{name} unresolved".encode() in shown for name in ("finality", "separation", "scope"))
    assert len(lab.events("file.deleted")) > 1000
    assert not trial_cgroups() & {run.name for run in (disk / "runs").iterdir()}
