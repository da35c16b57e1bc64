"""All that tries to outlive its trial, in one trial: how each is seen, what it makes of the claim, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from scenario_lab import Lab, Ran, python, runs_on_host

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

ACT = """
import ctypes, os, signal, subprocess, sys, time
null = open(os.devnull, "r+")
quiet = {"stdin": null, "stdout": null, "stderr": null}
def run(*words, **more):
    return subprocess.Popen(words, **quiet, **more)
def forked(work):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for fd in range(3):
            os.dup2(null.fileno(), fd)
        work()
        os._exit(0)
    return pid
def become(number):
    os.execvp("sleep", ["sleep", number])
def hopping():
    until = time.monotonic() + 600
    while time.monotonic() < until:  # somebody else every 10 ms, whose parent is gone
        if os.fork() or os.fork():
            os._exit(0)
        time.sleep(0.01)
def orphan():
    if os.fork() == 0:
        become("91.1")
def deaf():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    become("91.2")
def uninterruptible():
    # The parent of a vfork sleeps uninterruptibly until its child executes something, which this one never does.
    ctypes.CDLL(None).vfork()
    time.sleep(600)
forked(orphan); forked(deaf)
stopped = forked(lambda: become("91.3"))
held = forked(uninterruptible)
run("nohup", "sleep", "91.4"); run("setsid", "-f", "sleep", "91.5")
run("sh", "-c", "sleep 91.6 & exit")
os.makedirs("/var/spool/cron/atjobs", exist_ok=True)
open("/var/spool/cron/atjobs/a0000101c9b1f5", "w").write("true")
def waits(pid, state):
    until = time.monotonic() + 60
    while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != state:
        assert time.monotonic() < until
        time.sleep(0.01)
def named(number):
    return any(b"sleep\\0" + number.encode() in words(pid) for pid in os.listdir("/proc") if pid.isdigit())
def words(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        return b""
time.sleep(0.1)
while not all(named(f"91.{n}") for n in range(1, 7)):
    time.sleep(0.01)
os.kill(stopped, signal.SIGSTOP); waits(stopped, "T"); waits(held, "D")
forked(hopping)
time.sleep(0.1)
os._exit(0)
"""
SLEEPERS = tuple(f"sleep 91.{number}" for number in range(1, 7))


@dataclass
class Told:
    """One trial, and its open effects."""

    lab: Lab
    ran: Ran

    def about(self, words: str) -> dict[str, Any]:
        """Give the effect of one process."""
        (found,) = [one for one in self.ran.report["open_effects"] if one["what"].startswith(words)]
        return dict(found)

    def processes(self) -> list[dict[str, Any]]:
        """Give the effects that are processes."""
        return [one for one in self.ran.report["open_effects"] if one["route"] == "process"]


def act(places: pytest.TempPathFactory, at_endpoint: str) -> Told:
    """Run the trial that leaves all of them."""
    home, work = places.mktemp("home"), places.mktemp("work")
    home.chmod(0o700)
    lab = Lab(home, work)
    options = ("--period", "eventually", "--at-endpoint", at_endpoint, "--settle", "300ms", "--outcome", "out")
    ran = lab.run(*options, "--commit", "never", "--", *python(ACT))
    assert ran.report["endpoint"]["exit_code"] == 0, ran.err
    return Told(lab, ran)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Follow them, then kill them for hygiene."""
    return act(tmp_path_factory, "follow")


@pytest.fixture(scope="module")
def cancelled(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Cancel them, as declared."""
    return act(tmp_path_factory, "cancel")


@pytest.mark.parametrize("sleeper", SLEEPERS)
def test_each_is_seen_keeps_the_future_open_and_is_gone(followed: Told, sleeper: str) -> None:
    """An orphan, a deaf one, a stopped one, one under nohup, in a session of its own, in a shell's background."""
    effect = followed.about(sleeper)
    assert (effect["status"], effect["handling"], effect["could_affect"]) == ("pending", "unresolved", ["outcome"])
    assert effect["proof"]["checked"]
    assert not runs_on_host(*sleeper.split())


def test_one_in_uninterruptible_sleep_is_seen_and_gone(followed: Told) -> None:
    """Both sides of its vfork are listed, and the cgroup was seen empty all the same."""
    assert followed.lab.events("trial.emptied")[0]["pids_left"] == 0
    assert "alive-when-following-ended" in followed.ran.reasons("finality")
    assert followed.ran.finality == "unresolved"


def test_one_that_is_somebody_else_every_moment_does_not_get_away(followed: Told) -> None:
    """However often it forks, its lineage is known, and the kill reaches whoever it is by then."""
    emptied = followed.lab.events("trial.emptied")[0]["n"]
    later = [one for one in followed.lab.events("process.started") if one["n"] > emptied]
    seen = followed.ran.report["effects"]["processes"]
    hops = [one for one in seen if one["outlived"] and one["argv"][0] not in {"sleep", "sh", "nohup"}]
    assert len(hops) > 3
    assert all(one["parent"] for one in hops)
    assert not later


def test_a_job_of_at_is_no_process_and_is_isolated(followed: Told) -> None:
    """It went to a layer of the trial's own, where no daemon looks."""
    assert followed.about("job of at")["handling"] == "isolated"


def test_declared_cancellation_is_final_over_all_of_them(cancelled: Told) -> None:
    """Each was killed by us and the kernel said that nothing is left: both proofs, for every one."""
    found = cancelled.processes()
    assert {sleeper for sleeper in SLEEPERS if any(one["what"].startswith(sleeper) for one in found)} == set(SLEEPERS)
    cut = [one for one in found if one["handling"] == "cancelled"]
    assert len(cut) >= len(SLEEPERS)
    assert all(one["proof"]["prevented"] and one["proof"]["checked"] for one in cut)
    assert not [one for one in found if one["handling"] == "unresolved"]
    assert cancelled.ran.report["finality"]["intervened"] is True
    assert cancelled.ran.finality == "final"
