"""Standard streams: the trial gets the stream that was handed over, and nothing else of the host by way of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from scenario_lab import SUPERVISE, Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

REOPEN = "echo pwned > /proc/self/fd/0"
CHANGE_MODE = "chmod 4777 /proc/self/fd/0; touch -d 1999-01-01 /proc/self/fd/0"


@pytest.fixture
def given(lab: Lab) -> Path:
    """A file of the host, outside the workspace, that is handed over for reading."""
    path = lab.work.parent / "given"
    path.write_text("one\ntwo\nthree\n")
    path.chmod(0o644)
    return path


def test_a_file_on_stdin_cannot_be_opened_anew_for_writing(lab: Lab, given: Path) -> None:
    """``/proc/self/fd/0`` leads to the host's file past every mount of the box; that mount is ours, too."""
    with given.open("rb") as stdin:
        lab.run("--", "sh", "-c", REOPEN, stdin=stdin)
    assert given.read_text() == "one\ntwo\nthree\n"


def test_mode_and_times_of_a_file_on_stdin_cannot_be_changed(lab: Lab, given: Path) -> None:
    """Its owner needs no capability for that, only the descriptor: a set-user-id file of the host's root would do."""
    before = given.stat()
    with given.open("rb") as stdin:
        lab.run("--", "sh", "-c", CHANGE_MODE, stdin=stdin)
    after = given.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_an_unlinked_file_on_stdin_cannot_be_changed_either(lab: Lab, given: Path) -> None:
    """A shell reads its here-document from the same file after us."""
    with given.open("rb") as stdin:
        given.unlink()
        lab.run("--", "sh", "-c", REOPEN, stdin=stdin)
        assert stdin.read() == b"one\ntwo\nthree\n"


def test_the_caller_goes_on_reading_where_the_command_stopped(lab: Lab, given: Path) -> None:
    """As without us: a file's position is shared between a shell and its commands."""
    with given.open("rb", buffering=0) as stdin:
        stdin.seek(4)
        ran = lab.run("--", "head", "-c", "4", stdin=stdin)
        assert ran.out == b"two\n"
        assert stdin.read() == b"three\n"


def test_a_device_that_could_be_opened_anew_is_refused(lab: Lab) -> None:
    """A read-only mount does not make a device read-only, so nothing starts."""
    with Path("/dev/kmsg").open("rb", buffering=0) as stdin:
        ended = lab.call("--", "sh", "-c", "echo ran > ran", stdin=stdin)
    assert not (lab.work / "ran").exists()
    assert b"standard stream 0 is a device" in ended.stderr
    assert ended.returncode == 125


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_streams_that_are_closed_change_nothing_but_what_is_printed(lab: Lab, closed: tuple[int, ...]) -> None:
    """None of our own files takes the number of a closed stream, and the exit code stays the command's."""
    script = f"{' '.join(SUPERVISE)} -- sh -c 'echo x > x; exit 7' {' '.join(f'{number}>&-' for number in closed)}"
    environ = {**os.environ, "SUPERVISE_HOME": str(lab.home)}
    ended = subprocess.run(
        ["sh", "-c", script], cwd=lab.work, env=environ, capture_output=True, timeout=60, check=False
    )
    assert lab.call("verify", "last").returncode == 0
    assert (lab.work / "x").read_text() == "x\n"
    assert ended.returncode == 7
