"""What a user of the command meets, end to end: closed streams, programs that are not there, names, counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab

import supervisor
from supervisor.errors import UsageError

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")


def last_status(lab: Lab, *words: str) -> dict[str, Any]:
    """Run a trial and give its last status line."""
    status = lab.home.parent / "status"
    with status.open("wb") as file:
        lab.call("-q", "--status-fd", str(file.fileno()), *words, pass_fds=(file.fileno(),))
    return dict(json.loads(status.read_bytes().splitlines()[-1]))


def test_a_command_that_was_not_found_is_told_from_one_that_ends_so(lab: Lab) -> None:
    """Both end with 127; only one was ever executed."""
    never = last_status(lab, "--", "no-such-program")
    begun = last_status(lab, "--", "sh", "-c", "exit 127")
    assert [record["exit_code"] for record in (never, begun)] == [127, 127]
    assert [record["executed"] for record in (never, begun)] == [False, True]
    assert [record["exec_error"] for record in (never, begun)] == ["ENOENT", None]


def test_our_limit_is_told_from_a_command_that_ends_like_it(lab: Lab) -> None:
    """124 is ours when the endpoint is the time-out; a signal is told as one."""
    own = last_status(lab, "--", "sh", "-c", "exit 124")
    ours = last_status(lab, "-t", "300ms", "--settle", "0s", "--", "sleep", "72.1")
    assert own["endpoint"] == {"reason": "exit", "exit_code": 124, "signal": None}
    assert ours["endpoint"] == {"reason": "timeout", "exit_code": None, "signal": 15}
    assert own["exit_code"] == ours["exit_code"] == 124


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_stays_closed_and_nothing_lands_in_it(lab: Lab, closed: str) -> None:
    """CMD finds the same streams closed, and whatever it writes there goes into no file of ours."""
    probe = (
        "exec 9> seen; for n in 0 1 2; do if [ -e /proc/self/fd/$n ]; then echo $n >&9; fi; done; echo X; echo X >&2"
    )
    command = [sys.executable, "-m", "supervisor", "-q", "--", "sh", "-c", probe]
    environ = os.environ | {"SUPERVISE_HOME": str(lab.home)}
    with subprocess.Popen(
        ["sh", "-c", f'"$@" {closed}', "sh", *command], cwd=lab.work, env=environ, stdin=subprocess.DEVNULL
    ) as process:
        process.wait(timeout=60)
    gone = {"<&-": {"0"}, ">&-": {"1"}, "2>&-": {"2"}}.get(closed, {"0", "1", "2"})
    assert set((lab.work / "seen").read_text().split()) == {"0", "1", "2"} - gone
    assert lab.call("verify", "last").returncode == 0


def test_a_program_of_tmp_is_not_silently_another_one(lab: Lab) -> None:
    """PATH leads elsewhere inside, where /tmp is empty: said in one line."""
    tools = lab.home.parent / "tools"
    tools.mkdir()
    (tools / "ls").write_text("#!/bin/sh\necho mine\n")
    (tools / "ls").chmod(0o755)
    lab.environ["PATH"] = f"{tools}:/usr/bin:/bin"
    said = lab.call("-q", "--", "ls", "-d", "/")
    assert said.stdout == b"/\n"
    (line,) = said.stderr.decode().splitlines()
    assert line.startswith(f"supervise: {tools}/ls: not in the box")
    assert line.endswith("; ls is /usr/bin/ls there; what lies outside of /tmp, or in the workspace, is there")


def test_a_workspace_is_there_by_the_callers_name_for_it(lab: Lab) -> None:
    """A symlink by which the caller got there leads there inside too, for the name and for $PWD."""
    link = lab.home.parent / "link"
    link.symlink_to(lab.work)
    lab.environ["PWD"] = str(link)
    ran = lab.call("-q", "--", "sh", "-c", f"pwd; echo 1 > {link}/out; cat {lab.work}/out")
    assert ran.stdout.decode() == f"{link}\n1\n"
    assert (lab.work / "out").read_text() == "1\n"


@pytest.mark.parametrize("name", ["work/../home", "homelink"])
def test_a_home_may_be_named_anyhow(lab: Lab, name: str) -> None:
    """The box is tested by a path in the home; it passes by whichever name the home was given."""
    (lab.home.parent / "homelink").symlink_to(lab.home)
    lab.environ["SUPERVISE_HOME"] = str(lab.home.parent / name)
    assert lab.call("-q", "--", "true").returncode == 0


def test_a_masked_file_that_was_tried_is_found_by_why(lab: Lab) -> None:
    """The attempt is in the log, though in no argument, because nothing was changed."""
    lab.call("-q", "--", "cat", "/etc/shadow")
    told = lab.call("why", "last", "/etc/shadow")
    assert told.returncode == 0
    assert b"file.opened" in told.stdout


def test_what_was_staged_can_be_seen_and_applied_once(lab: Lab) -> None:
    """Not applied, shown, applied; the second time says that it was done, and the report says so too."""
    (lab.work / "a").write_text("1\n")
    lab.sh("echo 2 > a; echo new > b", "-q", "--commit", "never")
    assert lab.call("diff", "last", "--stat").stdout.decode().splitlines() == [
        "modified  a, +1 -1",
        "created   b, +1 -0",
        "2 paths, +2 -1 lines",
    ]
    assert (lab.work / "a").read_text() == "1\n"
    assert b": 2 changes applied to " in lab.call("commit", "last").stderr
    assert (lab.work / "a").read_text() == "2\n"
    again = lab.call("commit", "last")
    assert (again.returncode, b"applied before" in again.stderr) == (0, True)
    assert b"staged writes were applied" in lab.call("show", "last").stdout
    assert lab.call("diff", "last").stdout == b"0 paths, +0 -0 lines\n"


def test_a_call_from_python_is_a_trial(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own home and directory; `read` gives the same argument again; a text is no list of globs."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    made = supervisor.run(["sh", "-c", "echo 1 > out"], cwd=lab.work, home=lab.home, timeout=20, write=["out"])
    assert supervisor.read("last", home=lab.home) == made
    assert (lab.work / "out").read_text() == "1\n"
    with pytest.raises(UsageError, match="write: expected a list"):
        supervisor.run(["true"], cwd=lab.work, home=lab.home, write="*.md")
    assert len(list((Path(lab.home) / "runs").iterdir())) == 1
    assert made.scope.verdict == "clean"


def test_a_quiet_caller_learns_of_writes_that_were_not_applied(lab: Lab) -> None:
    """The exit code stays the command's, and one line says it; `--require applied` makes 120 of it."""
    script = "echo a > a; echo b > b"
    quiet = lab.call("--quiet", "--write", "b", "--", "sh", "-c", script)
    assert quiet.returncode == 0
    assert b"not allowed, so left out" in quiet.stderr
    required = lab.call("--quiet", "--write", "b", "--require", "applied", "--", "sh", "-c", script)
    assert required.returncode == 120
    assert b"--require applied: not met" in required.stderr
    kept = lab.call("--quiet", "--require", "applied", "--", "sh", "-c", script)
    assert (kept.returncode, kept.stderr) == (0, b"")


def test_the_name_of_a_run_is_in_its_argument(lab: Lab) -> None:
    """Without values of credentials, as text whatever its bytes are, and the same when the log is judged again."""
    lab.environ["API_KEY"] = "sk-test-0123456789abcdef"
    ran = lab.run("--name", b"nightly \xff sk-test-0123456789abcdef", "--env", "API_KEY", "--", "true")
    assert ran.report["name"].startswith("nightly \\xff ")
    assert "0123456789abcdef" not in ran.report["name"]
    assert lab.call("verify", "last", "--rejudge").returncode == 0
    assert lab.run("--", "true").report["name"] is None


def test_a_harness_gives_streams_and_gets_what_was_written(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    """Each of the three, and nothing reaches the caller's own; what is not given is the caller's own."""
    (lab.work / "in").write_text("asked")
    words = ["sh", "-c", "cat; echo out; echo err >&2"]
    options = {"cwd": lab.work, "home": lab.home, "timeout": 20}
    with (lab.work / "in").open() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        supervisor.run(words, stdin=given, stdout=out, stderr=err.fileno(), **options)
        out.seek(0)
        err.seek(0)
        assert (out.read(), err.read()) == (b"askedout\n", b"err\n")
    assert capfd.readouterr() == ("", "")
    supervisor.run(["sh", "-c", "echo out; echo err >&2"], **options)
    assert capfd.readouterr() == ("out\n", "err\n")


def test_a_command_that_is_not_there_says_so_on_the_stream_that_it_was_given(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    """A harness that keeps both streams finds nothing of it on its own."""
    with tempfile.TemporaryFile() as err:
        supervisor.run(["nosuchcmd"], cwd=lab.work, home=lab.home, stderr=err)
        err.seek(0)
        assert b"nosuchcmd" in err.read()
    assert capfd.readouterr() == ("", "")
