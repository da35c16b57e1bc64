"""All that tries to outlive its trial, in one trial: how each is seen, what it makes of the claim, and its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
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
run("sh", "-c", "sleep 91.6 & exit"); run("bash", "-c", "sleep 91.7 & disown; exit")
open("held", "w").write(str(held))
os.makedirs("/var/spool/at", exist_ok=True)
open("/var/spool/at/a0000101c9b1f5", "w").write("true")
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
while not all(named(f"91.{n}") for n in range(1, 8)):
    time.sleep(0.01)
os.kill(stopped, signal.SIGSTOP); waits(stopped, "T"); waits(held, "D")
forked(hopping)
time.sleep(0.1)
os._exit(0)
"""
SLEEPERS = tuple(f"sleep 91.{number}" for number in range(1, 8))


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
    """An orphan, a deaf one, a stopped one, one under nohup, in a session of its own, in the background, disowned."""
    effect = followed.about(sleeper)
    assert (effect["status"], effect["handling"], effect["could_affect"]) == ("pending", "unresolved", ["outcome"])
    assert effect["proof"]["checked"]
    assert not runs_on_host(*sleeper.split())


def test_one_in_uninterruptible_sleep_is_seen_and_gone(followed: Told) -> None:
    """Both sides of its vfork are listed with their ends, and the cgroup was seen empty all the same."""
    run = next((followed.lab.home / "runs").iterdir())
    held = int((run / "stage/upper/held").read_text())
    seen = followed.ran.report["effects"]["processes"]
    (sleeper,) = [one for one in seen if one["pid"] == held]
    (child,) = [one for one in seen if one["parent"] == sleeper["id"]]
    for process in (sleeper, child):
        assert (process["outlived"], process["signal"]) == (True, 9)
        (effect,) = [one for one in followed.processes() if f"(pid {process['pid']})" in one["what"]]
        assert (effect["status"], effect["handling"]) == ("pending", "unresolved")
        assert effect["proof"]["prevented"]
        assert effect["proof"]["checked"]
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


@pytest.mark.parametrize(("period", "verdict"), [("endpoint", "final"), ("within:1h", "unresolved")])
def test_the_other_periods_have_the_verdict_of_the_table(
    followed: Told, tmp_path: Path, period: str, verdict: str
) -> None:
    """The state at the endpoint was captured frozen, and is final whatever lived on; the state at D is not known."""
    claim = tmp_path / "claim.toml"
    claim.write_text(f'schema = 1\n[claim]\noutcome = "out"\nperiod = "{period}"\n')
    found = json.loads(followed.lab.call("judge", "last", "--claim", str(claim), "--json").stdout)["finality"]
    assert found["verdict"] == verdict
    about = [one for one in found["reasons"] if one["rule"] == "alive-when-following-ended"]
    assert all(any(f"sleep 91.{number}" in one["text"] for one in about) for number in range(1, 8))
    assert all(one["events"] for one in about)


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


# -- a grader and a straggler ----------------------------------------------------------------------------------------

FLIPS = """
import os, time
def put(text):
    with open("new", "w") as file: file.write(text)
    os.rename("new", "out")
put("1\\n")
if os.fork() == 0:
    os.setsid()
    for fd in range(3): os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    until = time.monotonic() + 600
    while time.monotonic() < until: put("2\\n"); put("1\\n")
time.sleep(0.2)
os._exit(0)
"""
GRADER = "test $(cat out) = $(cat out) && sleep 0.2 && grep -qx 1 out"
"""Looks three times, with time enough for a writer to come between."""


@pytest.mark.parametrize(
    ("period", "at_endpoint", "final"),
    [("endpoint", "follow", None), ("eventually", "follow", False), ("eventually", "cancel", True),
     ("eventually", "freeze", False)],
)  # fmt: skip
def test_a_grader_never_races_a_straggler(lab: Lab, period: str, at_endpoint: str, final: bool | None) -> None:  # noqa: FBT001
    """Who writes the outcome all the time is over, or the grader has a capture: its answer is that of one state.

    At the endpoint it is final only where no write fell between the exit and the freeze.
    """
    options = ("--outcome", "out", "--period", period, "--at-endpoint", at_endpoint, "--settle", "300ms")
    ran = lab.run(*options, "--grade", GRADER, "--commit", "never", "--", *python(FLIPS))
    finality = ran.report["finality"]
    run = next((lab.home / "runs").iterdir())
    graded = run / ("snapshot" if period == "endpoint" else "settled") / "upper/out"
    observed = finality["observed"]["label"]
    assert observed == {"1\n": "success", "2\n": "failure"}[graded.read_text()], ran.err
    events = {event["kind"]: event["n"] for event in lab.events()}
    assert events["trial.emptied"] < events["grade.started"]
    if final is not None:
        assert (finality["verdict"] == "final") is final
    assert finality["label"] == (observed if finality["verdict"] == "final" else None)
    if finality["verdict"] != "final" and period == "endpoint":
        assert any(
            "written, or maybe written, between the endpoint and the capture" in one["text"]
            for one in finality["reasons"]
        )
    assert lab.call("verify", "last", "--rejudge").returncode == 0
