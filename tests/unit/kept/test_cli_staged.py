"""Staged writes after the run: `commit` and `discard`."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.types import FilesPolicy, Policy
from supervisor.cli import main
from supervisor.conclude.differing import MAX_BYTES, MAX_LINES
from supervisor.launch.runs.state import Home, RunDir
from supervisor.launch.stage.stage import Stage
from supervisor.prepare.manifest import Started, describe_run
from supervisor.request import RunRequest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Make a workspace with one file."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "a").write_text("1")
    return place


@pytest.fixture
def run(tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """Keep a run that is over and staged `notes/n` and `b`, of which its policy allows what is in `notes`."""
    home_path = tmp_path / "home"
    home_path.mkdir(mode=0o700)
    monkeypatch.setenv("SUPERVISE_HOME", str(home_path))
    home = Home.open({"SUPERVISE_HOME": str(home_path)}, uid=home_path.stat().st_uid)
    run = home.create("20261130-080642-k3f9")
    run.owner_file.unlink()
    policy = Policy(files=FilesPolicy(write=("notes/*",)))
    request = RunRequest(argv=(b"true",), policy=policy, cwd=workspace)
    started = Started(run=run.id, at="t", workspace=bytes(workspace), user=(0, 0), host={}, versions={})
    run.write_manifest(describe_run(request, started))
    with Stage(run, workspace) as stage:
        stage.prepare()
        (stage.upper / "notes").mkdir()
        (stage.upper / "notes/n").write_text("new")
        (stage.upper / "b").write_text("not allowed")
    run.completion.write_text("{}")
    return run


def test_commit_says_that_an_ended_supervisor_left_things_half_done(
    run: RunDir, capfd: pytest.CaptureFixture[str]
) -> None:
    """What such a run staged is whatever it had come to."""
    run.completion.unlink()
    assert main(["commit", run.id]) == 0
    assert "they may be half-done" in capfd.readouterr().err


def test_commit_applies_what_the_policy_allows(run: RunDir, workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Allowed paths and their parents arrive, the others are left out; the second time says that it was done."""
    assert main(["commit", run.id]) == 0
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err == f"supervise: {run.id}: 2 changes applied to {workspace}, 1 path not allowed and left out\n"
    assert sorted(path.name for path in workspace.iterdir()) == ["a", "notes"]
    assert (workspace / "notes/n").read_text() == "new"
    assert main(["commit", run.id]) == 0
    assert "were applied before, at 2" in capfd.readouterr().err
    assert main(["discard", run.id]) == 0
    assert main(["commit", run.id]) == 0
    assert "nothing is left to do" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("prepare", "changes"),
    [
        ([], 0),
        ([("write", "notes/a")], 2),
        ([("write", "a")], 1),
        ([("chmod", ".")], 1),
        ([("write", "a"), ("write", "c"), ("chmod", ".")], 3),
    ],
)
def test_changes_are_counted_as_people_count(tmp_path: Path, prepare: list[tuple[str, str]], changes: int) -> None:
    """A path is one change however many steps it takes, and a directory is none for what is in it."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a").write_text("1")
    (tmp_path / "home").mkdir(mode=0o700)
    run = Home.open({"SUPERVISE_HOME": str(tmp_path / "home")}, uid=tmp_path.stat().st_uid).create("r")
    with Stage(run, tmp_path / "work") as stage:
        stage.prepare()
        for what, path in prepare:
            if what == "chmod":
                (stage.upper / path).chmod(0o700)
                continue
            (stage.upper / path).parent.mkdir(exist_ok=True)
            (stage.upper / path).write_text("22")
        assert stage.commit(lambda _: True).changes == changes


def test_a_conflict_names_the_way_on(run: RunDir, workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What the host changed meanwhile is left alone; where the staged content is, and how to see it, is said."""
    (run.stage / "upper/notes/n").unlink()
    (run.stage / "upper/notes/b").write_text("theirs")
    (workspace / "notes").mkdir()
    (workspace / "notes/b").write_text("ours")
    for _ in range(2):
        assert main(["commit", run.id]) == 125
        told = capfd.readouterr().err
        assert "changed on the host meanwhile: notes/b" in told
        assert f"supervise diff {run.id}" in told
        assert str(run.stage / "upper") in told
    assert (workspace / "notes/b").read_text() == "ours"


def test_diff_shows_both_sides(run: RunDir, workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Lines for text, sizes for what is none, the kind of a directory, and what a commit would leave out."""
    upper = run.stage / "upper"
    (upper / "a").write_text("2\tx\n3")
    (upper / "notes/bin").write_bytes(b"\0" * 1234)
    (upper / "notes/\x1b[2J").write_text("\x1b[2J\n")
    (upper / "notes/n").unlink()
    assert main(["diff", run.id]) == 0
    told = capfd.readouterr().out
    assert told == (
        "modified  a, not allowed: a commit leaves it out\n"
        "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n-1\n\\ no line end\n+2\tx\n+3\n\\ no line end\n"
        "created   b, not allowed: a commit leaves it out\n"
        "--- a/b\n+++ b/b\n@@ -0,0 +1 @@\n+not allowed\n\\ no line end\n"
        "created   notes (directory), not allowed: a commit leaves it out\n"
        "created   notes/\\x1b[2J\n"
        "--- a/notes/\\x1b[2J\n+++ b/notes/\\x1b[2J\n@@ -0,0 +1 @@\n+\\x1b[2J\n"
        "created   notes/bin (file, 1,234 bytes)\n"
    )
    assert main(["diff", run.id, "--stat"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "modified  a, not allowed: a commit leaves it out, +2 -1",
        "created   b, not allowed: a commit leaves it out, +1 -0",
        "created   notes (directory), not allowed: a commit leaves it out",
        "created   notes/\\x1b[2J, +1 -0",
        "created   notes/bin (file, 1,234 bytes)",
        "5 paths, +4 -1 lines",
    ]
    assert (workspace / "a").read_text() == "1"


def test_a_long_file_is_compared_by_its_size(run: RunDir, capfd: pytest.CaptureFixture[str]) -> None:
    """The time of a comparison grows with the square of the lines, and memory with the file."""
    (run.stage / "upper/b").write_bytes(b"x\n" * (MAX_BYTES // 2 + 1))
    (run.stage / "upper/notes/n").write_bytes(b"\n" * (MAX_LINES + 1))
    assert main(["diff", run.id]) == 0
    told = capfd.readouterr().out
    assert "created   b (file, 1,048,578 bytes), not allowed" in told
    assert "created   notes/n (file, 20,001 bytes)" in told


def test_discard_forgets_so_that_nothing_can_be_committed(
    run: RunDir, workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The workspace is as it was, and both commands then say that there is nothing."""
    assert main(["discard", "last"]) == 0
    assert [path.name for path in workspace.iterdir()] == ["a"]
    for words in (["commit", "last"], ["discard", "last"], ["diff", "last"]):
        assert main(words) == 125
        assert f"{run.id}: nothing is staged: it was discarded at 2" in capfd.readouterr().err


def test_a_run_that_goes_on_is_left_alone(run: RunDir, capfd: pytest.CaptureFixture[str]) -> None:
    """Staged writes of a living trial are its own."""
    from supervisor.launch.runs.owner import Owner  # noqa: PLC0415  (only this test has a living owner)

    run.completion.unlink()
    run.write_owner(Owner.current())
    assert main(["commit", "last"]) == 125
    assert main(["discard", "last"]) == 125
    assert main(["diff", "last"]) == 125
    assert "goes on" in capfd.readouterr().err
