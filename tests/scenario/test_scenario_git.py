"""An agent in a git repository: what docs/git.md says to allow is what its git needs, and no more."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

PAGE = (Path(__file__).resolve().parents[2] / "docs/git.md").read_text()
EDITS = "git status --short; echo 'b = 2' >> src/m.py; git status --short; git diff; python3 -c 'import src.m'"
COMMITS = f"git checkout -qb topic; {EDITS}; git add src; git commit -qm two; git checkout -q main; git merge -q topic"
NAMES = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a")
ADDRESSES = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@agent.test")


def git(lab: Lab, *words: str) -> str:
    """Run git on the host, in the workspace."""
    ran = subprocess.run(["git", *words], cwd=lab.work, env=os.environ | lab.environ, capture_output=True, check=True)
    return ran.stdout.decode()


@pytest.fixture
def repository(lab: Lab) -> Lab:
    """Make a clone with one commit; its index is older than its file, so that git refreshes it."""
    lab.environ.update(NAMES | ADDRESSES)
    git(lab, "init", "-q", "-b", "main")
    (lab.work / "src").mkdir()
    (lab.work / "src/m.py").write_text("a = 1\n")
    git(lab, "add", ".")
    git(lab, "commit", "-qm", "one")
    os.utime(lab.work / "src/m.py")
    return lab


def recipe(number: int) -> list[str]:
    """Give the options of a command line of the page."""
    lines = re.findall(r"^# supervise (--write .*?) -- ./agent$", PAGE.replace("\\\n", ""), re.MULTILINE)
    return [word.strip("'") for word in lines[number].split()]


@pytest.mark.parametrize("number", [0, 1])
def test_an_agent_that_edits_stays_in_its_scope(repository: Lab, number: int) -> None:
    """Status, diff and an import violate nothing, and the edit is applied."""
    ran = repository.sh(EDITS, *recipe(number))
    assert ran.scope == "clean", ran.report["scope"]["violations"]
    assert "b = 2" in (repository.work / "src/m.py").read_text()
    assert git(repository, "status", "--short") == " M src/m.py\n"


def test_without_the_recipe_status_alone_violates(repository: Lab) -> None:
    """The index is written; with `--commit clean` nothing is applied then, and with `always` the edit is."""
    ran = repository.sh(EDITS, "--write", "src/", "--commit", "clean")
    assert ran.scope == "violated"
    assert "b = 2" not in (repository.work / "src/m.py").read_text()
    repository.sh(EDITS, "--write", "src/")
    assert "b = 2" in (repository.work / "src/m.py").read_text()


def test_an_agent_that_commits_stays_in_its_scope(repository: Lab, tmp_path: Path) -> None:
    """A branch, a commit and a merge are applied whole: the repository is sound, and has both commits."""
    policy = tmp_path / "commits.toml"
    policy.write_text(PAGE.split("```toml\n")[1].split("```")[0])
    ran = repository.sh(COMMITS, "-p", str(policy))
    assert ran.scope == "clean", ran.report["scope"]["violations"]
    assert git(repository, "log", "--format=%s", "main") == "two\none\n"
    git(repository, "fsck", "--strict")


@pytest.mark.parametrize("mischief", ["echo '#!/bin/sh' > .git/hooks/post-merge", "git config core.pager ./src/m.py"])
def test_what_would_run_later_is_not_allowed(repository: Lab, tmp_path: Path, mischief: str) -> None:
    """A hook or a setting keeps back all of it: no commit whose reference arrives without its objects."""
    policy = tmp_path / "commits.toml"
    policy.write_text(PAGE.split("```toml\n")[1].split("```")[0])
    ran = repository.sh(f"{COMMITS}; {mischief}", "-p", str(policy))
    assert ran.scope == "violated"
    assert git(repository, "log", "--format=%s", "--all") == "one\n"
