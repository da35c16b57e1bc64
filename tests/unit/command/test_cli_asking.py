"""What a caller brings along: his name for the directory he is in, a PATH, and standard streams that may be closed."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from policies.types import Commit, FilesMode, FilesPolicy, Policy
from supervisor.cli import main
from supervisor.command.asking import working_directory
from supervisor.command.everywhere import everywhere
from supervisor.command.unseen import unseen
from supervisor.command.unwritable import unwritable
from supervisor.errors import UsageError
from supervisor.request import RunRequest
from supervisor.signals import Signals
from supervisor.values import replace

ROOT = Path(__file__).resolve().parents[3]


def test_the_directory_keeps_the_callers_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PWD is believed when it is another name of the same directory, and only then."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    assert working_directory({"PWD": str(tmp_path / "link")}) == tmp_path / "link"
    for other in ("", ".", str(tmp_path), f"{tmp_path}/link/../real", f"{tmp_path}/none"):
        assert working_directory({"PWD": other}) == tmp_path / "real"


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take the test's directory for one of which a trial has its own, wherever the tests keep theirs."""
    monkeypatch.setattr("supervisor.command.unseen._PRIVATE", (str(tmp_path),))
    return tmp_path


def program(path: Path, text: str = "#!/bin/sh\n") -> str:
    """Make a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def told(tmp_path: Path, *argv: str, path: str = "/usr/bin:/bin", workspace: str | None = None) -> list[str]:
    """Say what is told of a command that is called in ``work``."""
    (tmp_path / "work").mkdir(exist_ok=True)
    request = RunRequest(
        argv=tuple(word.encode() for word in argv),
        policy=Policy(files=FilesPolicy(workspace=workspace)),
        cwd=tmp_path / "work",
        environ={"PATH": path},
    )
    return list(unseen(request))


@pytest.mark.usefixtures("private")
def test_a_program_of_a_private_place_is_told(tmp_path: Path) -> None:
    """By PATH another one of that name would run, or none; by its path none."""
    mine = program(tmp_path / "bin/ls")
    (line,) = told(tmp_path, "ls", path=f"{tmp_path}/bin:/usr/bin:/bin")
    remedy = f"; what lies outside of {tmp_path}, or in the workspace, is there"
    assert line == f"{mine}: not in the box, whose {tmp_path} is its own and empty; ls is /usr/bin/ls there{remedy}"
    (line,) = told(tmp_path, "ls", path=f"{tmp_path}/bin")
    assert line.endswith(f"; ls is not found there{remedy}")
    (line,) = told(tmp_path, "../bin/ls")
    assert line.endswith(f"; ../bin/ls is not found there{remedy}")


@pytest.mark.usefixtures("private")
def test_a_program_that_leads_to_a_private_place_is_told(tmp_path: Path) -> None:
    """A symlink in the workspace to a program beside it, and a script whose interpreter is there."""
    mine = program(tmp_path / "bin/tool")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/tool").symlink_to(mine)
    assert len(told(tmp_path, "./tool")) == 1
    script = program(tmp_path / "work/script", f"#!{mine} -x\n")
    assert told(tmp_path, "./script")[0].startswith(f"{mine}, which runs {script}: not in the box")


@pytest.mark.usefixtures("private")
def test_a_file_that_is_given_is_told_once(tmp_path: Path) -> None:
    """Whoever names a file in /tmp means the one outside; several make one line."""
    files = [program(tmp_path / name) for name in ("a", "b", "c")]
    (line,) = told(tmp_path, "cat", *files)
    assert line.startswith(f"{files[0]} and 2 more: not in the box")


@pytest.mark.usefixtures("private")
def test_what_is_there_is_not_told(tmp_path: Path) -> None:
    """Programs of the machine, what lies in the workspace by any of its names, words that are no paths, places."""
    program(tmp_path / "work/bin/ls", "#!/usr/bin/env python3\n")
    (tmp_path / "link").symlink_to("work")
    assert told(tmp_path, "ls", "-l", "/", str(tmp_path), "/usr/bin/env", str(tmp_path / "none")) == []
    assert told(tmp_path, "bin/ls", str(tmp_path / "work/bin")) == []
    assert told(tmp_path, "ls", path=f"{tmp_path}/work/bin:bin") == []
    assert told(tmp_path, f"{tmp_path}/link/bin/ls", workspace=str(tmp_path / "link")) == []
    assert told(tmp_path, "no-such-program") == []
    assert told(tmp_path, "") == []


def closed(numbers: str, code: str) -> subprocess.CompletedProcess[bytes]:
    """Run code in an interpreter that is started with some standard streams closed, and a file to tell by."""
    argv = [sys.executable, "-c", code]
    source = f"import os; [os.close(n) for n in {numbers}]; os.execv({argv[0]!r}, {argv!r})"
    return subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, check=False)


@pytest.mark.parametrize("numbers", ["(0,)", "(1,)", "(2,)", "(0, 1, 2)"])
def test_nothing_of_ours_gets_the_number_of_a_closed_stream(numbers: str) -> None:
    """The next file would be written to as if it were standard output; afterwards they are closed again."""
    done = closed(
        numbers,
        "import os, sys\n"
        "from supervisor.streams import is_open, replace_missing, streams_held\n"
        "with streams_held() as held:\n"
        f"    assert held == set({numbers})\n"
        "    assert all(map(is_open, range(3)))\n"
        "    assert os.open('/', os.O_RDONLY) > 2\n"
        f"assert not any(map(is_open, {numbers}))\n"
        "replace_missing()\n"
        "print(file=sys.stdout)\n"
        "print(file=sys.stderr)\n"
        "os._exit(7)\n",
    )
    assert done.returncode == 7, done.stderr


def test_what_prints_needs_a_standard_output() -> None:
    """A list that goes nowhere is a failure, and said."""
    for words in (["ls"], ["--version"], ["--help"], ["--dry-run", "--", "true"], ["--json", "--", "true"]):
        done = closed("(1,)", f"import os; from supervisor.cli import main; os._exit(main({words!r}))")
        if words == ["--version"]:
            assert done.returncode in {0, 125}
            continue
        assert done.returncode == 125, words
        assert b"got a closed one" in done.stderr


@pytest.mark.parametrize("words", [["policy", "schema"], ["--help"], ["--version"]])
def test_a_full_disk_is_told(words: list[str]) -> None:
    """Half a document must not pass for a whole one; nor is it a bug of ours."""
    code = f"import sys; from supervisor.cli import main; sys.exit(main({words!r}))"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 125
    assert done.stderr == "supervise: standard output: cannot be written: No space left on device\n"


def test_what_will_do_nothing_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A name that nobody set, a glob that is none here; and the policy's own file is blamed for what stands in it."""
    monkeypatch.chdir(tmp_path)
    assert main(["--dry-run", "--env", "NOT_SET_ANYWHERE", "--write", "no[tes", "--", "true"]) == 0
    assert capfd.readouterr().err.splitlines() == [
        "supervise: --env NOT_SET_ANYWHERE: not set in the environment, so not in that of CMD either",
        "supervise: files.write[0]: [ stands for itself: the wildcards are *, ** and ?, got 'no[tes'",
    ]
    Path("p.toml").write_text('schema = 1\n[files]\nworkspace = "none"\n')
    assert main(["-p", "p.toml", "--", "true"]) == 125
    assert capfd.readouterr().err == "supervise: p.toml: files.workspace: expected a directory, got 'none'\n"
    assert main(["--workspace", "none", "--", "true"]) == 125
    assert capfd.readouterr().err == "supervise: --workspace: expected a directory, got 'none'\n"
    Path("p.toml").write_text("schema = 2\ncolour = 1\n")
    assert main(["policy", "check", "p.toml"]) == 125
    assert len(capfd.readouterr().err.splitlines()) == 3  # each with its place, one with a hint


@pytest.mark.usefixtures("private")
def test_a_relative_name_of_a_file_that_is_not_inside_is_told_too(tmp_path: Path) -> None:
    """`git clone ../repo` finds nothing inside; what lies around the workspace, or in it, is there."""
    program(tmp_path / "repo/HEAD")
    program(tmp_path / "work/here")
    (line,) = told(tmp_path, "git", "clone", "../repo")
    assert line.startswith(f"../repo: not in the box, whose {tmp_path} is its own and empty; what lies outside")
    assert not told(tmp_path, "cat", "here", "./here", "..", ".", "", "../none", "-la", "sh\nscript")
    (tmp_path / "work/link").symlink_to("../repo")
    assert len(told(tmp_path, "ls", "link")) == 1


@pytest.mark.usefixtures("private")
def test_relative_names_begin_where_the_command_starts(tmp_path: Path) -> None:
    """With a workspace elsewhere CMD starts in that one, not where the caller is."""
    program(tmp_path / "repo/HEAD")
    (tmp_path / "other/deep/work").mkdir(parents=True)
    other = str(tmp_path / "other/deep/work")
    assert not told(tmp_path, "ls", "../repo", workspace=other)
    assert len(told(tmp_path, "ls", "../../../repo", workspace=other)) == 1


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("owner", "mode", "user", "hint"),
    [
        (1234, 0o755, "0", "root inside has no capabilities: --user 1234"),
        (1234, 0o755, "77:77", "CMD runs as uid 77: --user 1234"),
        (1234, 0o757, "0", None),
        (1234, 0o755, "1234:1234", None),
        (0, 0o555, "0", None),
    ],
)
def test_a_workspace_of_somebody_else_is_told(
    tmp_path: Path, owner: int, mode: int, user: str, hint: str | None
) -> None:
    """Root without capabilities is refused by the mode as anybody is; what its owner may do is the owner's business."""
    os.chown(tmp_path, owner, owner)
    tmp_path.chmod(mode)
    request = RunRequest(argv=(b"true",), policy=Policy(), cwd=tmp_path, environ={}, user=user)
    lines = list(unwritable(request))
    assert len(lines) == (hint is not None)
    assert hint is None or lines[0].endswith(hint)
    assert not list(unwritable(replace(request, policy=Policy(files=FilesPolicy(write=())))))


def test_a_trial_from_a_thread_is_the_callers_mistake() -> None:
    """Python handles signals in the main thread only; whoever calls from another one is told so in our words."""
    with ThreadPoolExecutor(max_workers=1) as pool, pytest.raises(UsageError, match="expected the main thread"):
        pool.submit(Signals().__enter__).result()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (FilesPolicy(workspace="/"), "is applied to it"),
        (FilesPolicy(workspace="/usr/..", commit=Commit.FINAL), "is applied to it"),
        (FilesPolicy(workspace="/", mode=FilesMode.DIRECT), "in place"),
        (FilesPolicy(workspace="/", commit=Commit.NEVER), None),
        (FilesPolicy(workspace="/", write=("/opt/x/**",)), None),
        (FilesPolicy(), None),
    ],
)
def test_a_workspace_that_is_the_whole_machine_is_told(tmp_path: Path, files: FilesPolicy, said: str | None) -> None:
    """Unless somebody said what may be written, or that nothing is applied; a directory of its own is no such thing."""
    request = RunRequest(argv=(b"true",), policy=Policy(files=files), cwd=tmp_path)
    lines = list(everywhere(request))
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]
