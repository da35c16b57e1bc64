"""What cannot be masked is refused before anything runs, by its key and its path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.errors import UsageError
from supervisor.prepare.masking import LOOKED_AT, linked_files, require_maskable


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace in a home, with a file in it and a link to a file of the kernel."""
    made = tmp_path / "home" / "work"
    made.mkdir(parents=True)
    (made / "file").write_text("x", encoding="utf-8")
    (made / "processes").symlink_to("/proc/mounts")
    return made.resolve()


def require(workspace: Path, *mask: str) -> None:
    """Check a mask."""
    require_maskable(mask, workspace=str(workspace), home=str(workspace.parent))


def test_a_symlink_to_the_kernels_files_costs_nothing(workspace: Path) -> None:
    """A glob over all of a workspace is looked up in it, not in each process's root, and refused where it leads."""
    (workspace / "all").symlink_to("/proc")
    (workspace / "0up").symlink_to("/proc/self/root/proc")
    require(workspace, "**/file")
    with pytest.raises(UsageError, match="the kernel's"):
        require(workspace, "*/**")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/", "the workspace is in it"),
        (".", "the workspace is in it"),
        ("**", "the workspace is in it"),
        ("~", "the workspace is in it"),
        ("~/", "the workspace is in it"),
        ("/proc", "the kernel's"),
        ("/proc/", "the kernel's"),
        ("/proc/1/environ", "the kernel's"),
        ("/proc/does/not/exist", "the kernel's"),
        ("processes", "the kernel's"),
        ("/sys", "the kernel's"),
        ("/dev", "the kernel's"),
        ("/dev/null", "the kernel's"),
        ("/tmp", "its own"),
        ("/run", "its own"),
        ("/dev/shm", "its own"),
        ("/etc", "nothing could run"),
        ("/e[t]c", "nothing could run"),
        ("/usr", "nothing could run"),
        ("/bin", "nothing could run"),
    ],
)
def test_what_cannot_be_masked_is_refused(workspace: Path, text: str, why: str) -> None:
    """It would hide nothing, or leave nothing that can run: the error names key and path."""
    with pytest.raises(UsageError, match=why) as caught:
        require(workspace, "file", text)
    assert caught.value.place == "credentials.mask[1]"


@pytest.mark.parametrize("text", ["file", "file/", "*.key", "*", "~/.vault", "/etc/passwd", "/var/nothing", "/tmp/x"])
def test_what_can_be_masked_is_not_refused(workspace: Path, text: str) -> None:
    """Files and directories, those that are not there, and globs that mean none of the others."""
    (workspace / "processes").unlink()  # a glob means it too
    require(workspace, text)


def test_a_home_that_there_is_none_of_is_refused(workspace: Path) -> None:
    """It would be looked for in the workspace."""
    with pytest.raises(UsageError, match="no home"):
        require_maskable(("~/.vault",), workspace=str(workspace), home=None)


def test_masked_files_with_another_name_are_found(tmp_path: Path) -> None:
    """A masked file, and one below a masked directory; a file of one name, a symlink and what is gone are none."""
    keys = tmp_path / "keys" / "deep"
    keys.mkdir(parents=True)
    for name, linked in (("one", True), ("two", False)):
        (keys / name).write_text("x", encoding="utf-8")
        if linked:
            os.link(keys / name, tmp_path / f"{name}-again")
    (keys / "link").symlink_to("one")
    found = dict(linked_files([os.fsencode(tmp_path / "keys"), b"/does/not/exist"]))
    assert list(found) == [os.fsencode(keys / "one")]
    assert found[os.fsencode(keys / "one")].st_ino == (tmp_path / "one-again").stat().st_ino


def test_the_search_for_other_names_is_bounded(tmp_path: Path) -> None:
    """Of a large directory the first entries are looked at."""
    directory = tmp_path / "keys"
    directory.mkdir()
    for number in range(LOOKED_AT + 50):
        (directory / f"{number}").touch()
        os.link(directory / f"{number}", tmp_path / f"{number}")
    assert len(list(linked_files([os.fsencode(directory)]))) == LOOKED_AT - 1
