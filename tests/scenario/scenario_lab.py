"""A place to run trials in: a home and a workspace of their own, and the command as a user calls it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
SUPERVISE = (sys.executable, "-m", "supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One finished call of the command; ``report`` is completion.json."""

    code: int
    out: bytes
    err: bytes
    report: dict[str, Any]

    @property
    def finality(self) -> str:
        """The verdict."""
        return str(self.report["finality"]["verdict"])

    @property
    def scope(self) -> str:
        """The verdict."""
        return str(self.report["scope"]["verdict"])

    @property
    def separation(self) -> str:
        """The verdict."""
        return str(self.report["separation"]["verdict"])

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """The files by path."""
        return {file["path"]: file for file in self.report["effects"]["files"] if "path" in file}

    def reasons(self, verdict: str) -> tuple[str, ...]:
        """Give the rules that a verdict rests on."""
        return tuple(reason["rule"] for reason in self.report[verdict]["reasons"])


@dataclass(frozen=True, slots=True)
class Lab:
    """The two directories, and the ways to call the command in them; ``prefix`` are words before it."""

    home: Path
    work: Path
    environ: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def start(self, *argv: str | bytes, **options: Any) -> subprocess.Popen[bytes]:
        """Start the command and give its process."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
        environ |= {"SUPERVISE_HOME": str(self.home), "NO_COLOR": "1", **self.environ}
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen([*self.prefix, *SUPERVISE, *argv], cwd=self.work, env=environ, **options)

    def call(self, *argv: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Call the command and wait for its end."""
        with self.start(*argv, **options) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def call_in(self, setup: str, *argv: str, then: str = "true") -> subprocess.CompletedProcess[bytes]:
        """Call the command in a mount namespace of its own, after a shell script; its mounts go with it.

        Args:
            setup: for ``sh -e``, in the workspace; ``$HOME_DIR`` and ``$WORK`` name the two directories.
            argv: of the command, which starts in the workspace.
            then: another script, run when the command has ended; there ``supervise`` is the command. The exit code is
                that of the first call.
        """
        places = {"HOME_DIR": str(self.home), "WORK": str(self.work)}
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
        environ |= {"SUPERVISE_HOME": str(self.home), "NO_COLOR": "1", **self.environ, **places}
        command = f'supervise() {{ {shlex.join(SUPERVISE)} "$@"; }}'
        script = f'{command}\n{setup}\ncd "$WORK"\ncode=0\nsupervise "$@" || code=$?\n{then}\nexit $code'
        words = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *argv)
        return subprocess.run(
            words, cwd=self.work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=90
        )

    def run(self, *argv: str | bytes, **options: Any) -> Ran:
        """Run a trial: options, ``--`` and CMD."""
        ended = self.call(*argv, **options)
        return Ran(code=ended.returncode, out=ended.stdout, err=ended.stderr, report=self.report())

    def sh(self, script: str, *options: str) -> Ran:
        """Run a shell script as a trial."""
        return self.run(*options, "--", "sh", "-c", script)

    def report(self) -> dict[str, Any]:
        """Read the completion argument of the last run."""
        shown = self.call("show", "last", "--format", "json")
        assert shown.returncode == 0, shown.stderr
        return dict(json.loads(shown.stdout))

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Read the events of the last run."""
        chosen = ["--kind", kind] if kind else []
        return [json.loads(line) for line in self.call("events", "last", *chosen).stdout.splitlines()]


def runs_on_host(*argv: str) -> bool:
    """Tell whether a process with exactly this command line exists on this machine."""
    wanted = b"".join(os.fsencode(word) + b"\0" for word in argv)
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == wanted:
                return True
        except OSError:
            continue
    return False


def wait_until(condition: Callable[[], bool], patience_s: float = 10.0) -> bool:
    """Wait for a condition, and tell whether it came."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def python(source: str, *arguments: str) -> Sequence[str]:
    """Give the words that run a Python program inside a trial."""
    return ("/usr/bin/env", "python3", "-c", source, *arguments)
