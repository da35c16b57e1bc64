"""What keeps a trial from starting: one line that names it, exit code 125, and nothing has run."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from scenario_lab import SUPERVISE, Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")


def shell(lab: Lab, script: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script of the host's shell that calls the command."""
    environ = {**os.environ, "SUPERVISE_HOME": str(lab.home), "COMMAND": " ".join(SUPERVISE)}
    return subprocess.run(["sh", "-c", script], cwd=lab.work, env=environ, capture_output=True, timeout=60, check=False)


def test_a_deleted_working_directory_is_named(lab: Lab) -> None:
    """It is the caller's mistake, not a crash of ours."""
    ended = shell(lab, "mkdir gone && cd gone && rmdir ../gone && exec $COMMAND -- true")
    assert b"the working directory: expected a directory, got one that was removed" in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.returncode == 125


@pytest.mark.parametrize("size", ["4k", "24k", "32k"])
def test_a_full_state_directory_is_named(lab: Lab, size: str, tmp_path: Path) -> None:
    """Wherever it fills up, in the manifest or in the log, the disk is said to be full and the place is named."""
    full = tmp_path / "full"
    full.mkdir()
    mounted = f'mount -t tmpfs -o mode=700,size={size} none "{full}"; SUPERVISE_HOME="{full}"; export SUPERVISE_HOME'
    began_s = time.monotonic()
    ended = shell(lab, f"unshare -m sh -c '{mounted}; $COMMAND -- touch ran; code=$?; ls {full}/runs; exit $code'")
    assert time.monotonic() - began_s < 20  # nothing is waited for
    assert not (lab.work / "ran").exists()
    assert ended.stdout == b""
    assert b"No space left on device" in ended.stderr
    assert str(full).encode() in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.returncode == 125


MISTAKES = {
    "example": '[grade]\ncommand = "true"\nselftest = [{outcome = "nosuch", expect = "success"}]',
    "requirement": '[claim]\nrequirements = ["task.md"]',
    "socket": '[[services]]\nname = "db"\nat = "unix:/nonexistent/socket"\nstate = "shared"',
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_trial_that_was_never_released_leaves_nothing_to_judge(lab: Lab, mistake: str, tmp_path: Path) -> None:
    """A mistake that is found while the trial is made leaves no run, so that separating all others is not in doubt."""
    policy = tmp_path / "mistaken.toml"
    policy.write_text(f'schema = 1\nname = "mistaken"\n{MISTAKES[mistake]}\n')
    refused = lab.call("-p", str(policy), "--", "touch", "ran")
    assert refused.returncode == 125
    assert b"Traceback" not in refused.stderr
    assert not (lab.work / "ran").exists()
    assert not any((lab.home / "runs").iterdir())
    assert not any((lab.home / "live").iterdir())
    assert lab.call("--", "true").returncode == lab.call("--", "true").returncode == 0
    separated = lab.call("separate", "all")
    assert separated.returncode == 0
    assert b"unsealed" not in separated.stdout + separated.stderr
    assert b"expected a log directory" not in separated.stdout + separated.stderr


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        ("$PRIVATE", "--workspace / --commit never", "got $PRIVATE: what the host has in /tmp is not there"),
        ("/", "--workspace / --commit never", None),
        ("hidden/deep", "--workspace ../.. --read-deny other", None),
        ("hidden/deep", "--workspace ../.. --read-deny hidden", "/hidden is not there"),
    ],
)
def test_a_directory_that_the_trial_does_not_see_is_named(lab: Lab, where: str, options: str, said: str | None) -> None:
    """Where the caller is, but what lies there is the host's alone: named, with what to do, before anything runs."""
    (lab.work / "hidden/deep").mkdir(parents=True)
    (lab.work / "other").mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp") as private:
        at = where.replace("$PRIVATE", private)
        ended = shell(lab, f'cd "{at}" && exec $COMMAND {options} -- pwd')
        if said is None:
            assert ended.returncode == 0, ended.stderr
            return
        assert b"the working directory: expected a directory that the trial sees" in ended.stderr
        assert said.replace("$PRIVATE", private).encode() in ended.stderr
        assert b"change to another directory of the workspace" in ended.stderr
        assert ended.returncode == 125
        assert not any((lab.home / "runs").iterdir())


def test_a_workspace_that_the_user_may_not_enter_is_named(lab: Lab) -> None:
    """Only the kernel knows that; what it refused is told with its path. Whoever may enter it starts there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as closed:
        there = replace(lab, work=Path(closed))
        refused = there.call("--user", "4321:4321", "--", "pwd")
        assert f"{closed}: enter the working directory: Permission denied".encode() in refused.stderr
        assert refused.returncode == 125
        there.work.chmod(0o755)
        assert there.call("--user", "4321:4321", "--", "pwd").stdout.decode().strip() == closed


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ("--read-deny nope", "--read-deny: "),
        ("--shared /nope", "--shared: "),
        ("--allow http://x/", "--allow: "),
        ("--write ../x", "--write: "),
        ("-p p.toml", "p.toml: files.read_deny[0]: "),
        ("-p p.toml --read-deny other", "p.toml: files.read_deny[0]: "),
        ("-p direct.toml --commit never", "--commit: "),
        ("-p commit.toml --direct", "commit.toml: files.commit: "),
        ("-p nosuch", "--policy: "),
    ],
)
def test_a_mistake_is_found_where_it_was_written(lab: Lab, options: str, place: str) -> None:
    """By the option, or by the file and its key, also where only a look at the host finds it."""
    for name, text in (("p", 'read_deny = ["nope"]'), ("direct", 'mode = "direct"'), ("commit", 'commit = "final"')):
        (lab.work / f"{name}.toml").write_text(f"schema = 1\n[files]\n{text}\n")
    refused = lab.call(*options.split(), "--", "touch", "ran")
    assert refused.returncode == 125
    assert refused.stderr.decode().startswith(f"supervise: {place}expected "), refused.stderr
    assert not (lab.work / "ran").exists()
