"""A whole run on a terminal: what the keys do while CMD runs, and once it has ended and the rest is followed."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

SHELL = """
import os, select, signal, subprocess, sys, termios
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, lambda *_: None)  # as a shell does; what it runs has them as usual
before = termios.tcgetattr(0)
ended = subprocess.run(sys.argv[1:])
print(f"[ended with {ended.returncode}, modes {'kept' if termios.tcgetattr(0) == before else 'changed'}]", flush=True)
select.select([0], [], [], 10)
print(f"[the shell got {os.read(0, 1000)}]", flush=True)
"""
"""Stands for the user's shell: it waits for its command, and then takes a line for the next one."""
SETTLING = b"settling, "
INTERRUPT, QUIT = b"\x03", b"\x1c"
SOON_S = 15.0


class Session:
    """A user's terminal with a shell in it that runs one command."""

    def __init__(self, lab: Lab, *argv: str) -> None:
        """Begin it."""
        self.seen = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(lab.work)
            environ = {**os.environ, **lab.environ, "SUPERVISE_HOME": str(lab.home), "TERM": "xterm"}
            words = (sys.executable, "-c", SHELL, sys.executable, "-m", "supervisor", *argv)
            os.execve(sys.executable, words, environ)  # noqa: S606 - no shell

    def type(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    def until(self, wanted: bytes, within_s: float = SOON_S) -> bytes:
        """Read until something was printed; gives everything so far."""
        deadline = time.monotonic() + within_s
        while wanted not in self.seen:
            if not select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))[0]:
                pytest.fail(f"no {wanted!r} in {self.seen!r}")
            self.seen += os.read(self.master, 1 << 16)
        return self.seen

    def next_line(self) -> str:
        """Type a line once the command has ended; gives all that the shell finds typed then, as it shows it."""
        self.until(b"modes kept]")
        self.type(b"next\n")
        return self.until(b"\\n']\r\n").split(b"[the shell got ")[1].split(b"]")[0].decode()

    def close(self) -> None:
        """End it, if it has not ended."""
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.pid, 0)


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    """Sessions to end."""
    begun: list[Session] = []
    yield begun
    for session in begun:
        session.close()


QUIET = "(trap '' HUP; exec sleep 60) >/dev/null 2>&1 </dev/null & sleep 0.3; echo done"
HOLDING = "trap '' HUP; sleep 60 & sleep 0.3; echo done"


@pytest.mark.parametrize("key", [INTERRUPT, QUIT])
@pytest.mark.parametrize("script", [QUIET, HOLDING])
def test_once_cmd_has_ended_a_key_ends_the_following(
    lab: Lab, sessions: list[Session], script: str, key: bytes
) -> None:
    """As the signal does that it sends: at once, with the code of CMD, and what was alive told as killed by us."""
    session = Session(lab, "--settle", "50s", "--period", "eventually", "--", "sh", "-c", script)
    sessions.append(session)
    assert b"Ctrl-C ends following" in session.until(b"ends following")
    session.type(key)
    assert b"[ended with 0, modes kept]" in session.until(b"modes kept]")
    (killed,) = lab.events("trial.killed")
    assert killed["why"] == "stopped"
    report = lab.report()
    assert report["endpoint"]["exit_code"] == 0
    assert report["finality"]["verdict"] == "unresolved"


def test_without_a_key_it_is_followed_to_its_end(lab: Lab, sessions: list[Session]) -> None:
    """The twin: what is followed ends by itself, and the claim is final."""
    script = "(trap '' HUP; exec sleep 1) >/dev/null 2>&1 </dev/null & sleep 0.3; echo done"
    session = Session(lab, "--settle", "50s", "--period", "eventually", "--", "sh", "-c", script)
    sessions.append(session)
    assert b"[ended with 0, modes kept]" in session.until(b"modes kept]")
    assert lab.events("trial.killed") == []
    assert lab.report()["finality"]["verdict"] == "final"


def test_what_else_is_typed_while_it_settles_reaches_nobody(lab: Lab, sessions: list[Session]) -> None:
    """Neither who holds the trial's terminal, nor the shell afterwards; what is typed later the shell gets."""
    script = "trap '' HUP; exec 3<&0; (while read line <&3; do echo \"$line\" >> read; done; sleep 60) & sleep 0.3"
    session = Session(lab, "--settle", "50s", "--", "sh", "-c", script)
    sessions.append(session)
    session.until(SETTLING)
    session.type(b"q\ntouch evil\n")
    time.sleep(0.3)
    session.type(INTERRUPT)
    session.until(b"modes kept]")
    assert lab.events("trial.endpoint")[0]["alive"]
    assert session.next_line() == repr(b"next\n")
    assert b"touch evil" not in session.seen
    assert not (lab.work / "read").exists()


def test_while_cmd_runs_the_keys_are_its_own(lab: Lab, sessions: list[Session]) -> None:
    """^C is CMD's to handle, and a line that is typed is its input; nothing of that ends the trial."""
    script = "trap 'echo heard' INT; echo ready; sleep 60; read line; echo got $line; exit 3"
    session = Session(lab, "--", "sh", "-c", script)
    sessions.append(session)
    session.until(b"ready\r\n")
    session.type(INTERRUPT)
    session.until(b"heard\r\n")
    session.type(b"a line\n")
    session.until(b"got a line\r\n")
    assert b"[ended with 3, modes kept]" in session.until(b"modes kept]")
    assert lab.report()["endpoint"]["reason"] == "exit"


def test_a_command_that_is_only_watched_no_longer_keeps_its_keys_until_it_ends(
    lab: Lab, sessions: list[Session]
) -> None:
    """After an observation limit CMD may live on, and ^C is its own, which the live line does not claim; then ours."""
    script = "trap 'echo heard; exit 4' INT; trap '' HUP; sleep 60 & while :; do sleep 0.1; done"
    options = ("--settle", "50s", "-t", "0.5s", "--limit-role", "observation")
    session = Session(lab, *options, "--", "sh", "-c", script)
    sessions.append(session)
    assert b"ends following" not in session.until(SETTLING)
    time.sleep(0.6)
    session.type(INTERRUPT)
    assert b"ends following" not in session.until(b"heard\r\n")
    session.until(b"ends following")
    session.type(INTERRUPT)
    session.until(b"modes kept]")
    (killed,) = lab.events("trial.killed")
    assert killed["why"] == "stopped"
