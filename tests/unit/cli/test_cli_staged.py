"""Staged writes after the run: `commit` and `discard`."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.types import FilesPolicy, Policy
from supervisor.cli import main
from supervisor.launch.stage import Stage
from supervisor.launch.state import Home, RunDir
from supervisor.manifest import Started, describe_run
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
    return run


def test_commit_applies_what_the_policy_allows(run: RunDir, workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Allowed paths and their parents arrive, the others are left out; doing it twice does no harm."""
    assert main(["commit", run.id]) == 0
    told = capfd.readouterr()
    assert told.out == ""
    assert f"supervise: {run.id}: " in told.err
    assert sorted(path.name for path in workspace.iterdir()) == ["a", "notes"]
    assert (workspace / "notes/n").read_text() == "new"
    assert main(["commit", run.id]) == 0


def test_discard_forgets_so_that_nothing_can_be_committed(
    run: RunDir, workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The workspace is as it was, and both commands then say that there is nothing."""
    assert main(["discard", "last"]) == 0
    assert [path.name for path in workspace.iterdir()] == ["a"]
    assert main(["commit", "last"]) == 125
    assert main(["discard", "last"]) == 125
    assert f"{run.id}: nothing is staged" in capfd.readouterr().err


def test_a_run_that_goes_on_is_left_alone(run: RunDir, capfd: pytest.CaptureFixture[str]) -> None:
    """Staged writes of a living trial are its own."""
    from supervisor.launch.owner import Owner  # noqa: PLC0415  (only this test has a living owner)

    run.write_owner(Owner.current())
    assert main(["commit", "last"]) == 125
    assert main(["discard", "last"]) == 125
    assert "goes on" in capfd.readouterr().err
