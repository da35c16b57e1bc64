"""What a glob means on this host is found in a bounded time, wherever symlinks lead."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

from supervisor.errors import UsageError
from supervisor.prepare import globbing
from supervisor.prepare.globbing import existing


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Directories with a hidden one, an odd name, a loop, and symlinks to the kernel's, to everything and outside."""
    top = tmp_path / "top"
    for name in (".env", "a/.env", "a/b/.env", ".hidden/.env", "odd[1]/.env"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("x", encoding="utf-8")
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    (tmp_path / "outside" / "deep" / ".env").write_text("x", encoding="utf-8")
    (top / "0loop").symlink_to(top)
    (top / "0again").symlink_to(top / "a")
    (top / "kernel").symlink_to("/proc")
    (top / "out").symlink_to(tmp_path / "outside")
    return top


def found(tree: Path, pattern: str) -> list[str]:
    """Give what is found below the tree, by the names there."""
    return sorted(path.removeprefix(f"{tree}/") for path in existing(f"{tree}/{pattern}"))


def test_every_directory_is_looked_into_once_and_the_kernels_never(tree: Path) -> None:
    """Python's glob follows /proc/PID/root and cwd over and over: minutes for one symlink."""
    assert found(tree, "**/.env") == [".env", ".hidden/.env", "a/.env", "a/b/.env", "odd[1]/.env", "out/deep/.env"]
    assert found(tree, "**/**/.env") == found(tree, "**/.env")
    assert found(tree, "kernel/**/environ") == []


def test_all_below_is_each_name_once_with_the_top(tree: Path) -> None:
    """The symlinks themselves are among them, as whoever wants to refuse one must see it."""
    assert next(iter(existing(f"{tree}/**"))) == str(tree)
    all_of_it = found(tree, "**")
    assert {"kernel", "0loop", "a", "a/b", "a/b/.env", "out/deep/.env"} <= set(all_of_it)
    assert len(all_of_it) == len(set(all_of_it))


@pytest.mark.parametrize(
    "pattern", ["a", "none", "*", "?", "a/*", "*/.env", "odd[[]1]/.e*", "a/**", "a/**/*", "**x", "a/**/b/**"]
)
def test_without_symlinks_it_means_what_pythons_does(tree: Path, pattern: str) -> None:
    """Only the way there differs; a `**` has the directory itself with a slash there."""
    expected = glob.glob(f"{tree}/{pattern}", recursive=True, include_hidden=True)  # noqa: PTH207 - what is compared with
    assert found(tree, pattern) == sorted({os.path.normpath(path).removeprefix(f"{tree}/") for path in expected})


def test_symlinks_that_lead_to_much_are_an_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not looked at would not be hidden, so it is said; the tree itself has no such bound."""
    monkeypatch.setattr(globbing, "LED_TO", 1)
    assert len(found(tree, "a/**/.env")) == 2
    with pytest.raises(UsageError, match="few places"):
        found(tree, "**/.env")


def test_from_the_root_the_kernels_are_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below ``/proc`` the root of every process would be looked into."""
    looked: list[str] = []
    real = os.scandir

    def scan(path: str) -> object:
        looked.append(path)
        if path == "/":
            return real(path)
        raise PermissionError

    monkeypatch.setattr(globbing.os, "scandir", scan)
    assert list(existing("/**/no such name here")) == []
    assert "/etc" in looked
    assert not {"/proc", "/sys", "/dev"}.intersection(looked)
