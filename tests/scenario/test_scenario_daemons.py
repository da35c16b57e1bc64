"""Real daemons that go on for a trial when it is over: atd, cron and dockerd, each the test's own.

Every trial here has ended, with its cgroup empty; what it left is seen, keeps the claim open, and `settle` follows it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, Ran, python, wait_until

import servers_started
from supervisor.launch.cgroup import find_root

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

SPOOL = Path("/var/spool/cron")
SETUP = """
mount -t tmpfs none /var/spool/cron
mkdir -m 1770 /var/spool/cron/atjobs /var/spool/cron/atspool
mkdir -m 1730 /var/spool/cron/crontabs
echo 00000 > /var/spool/cron/atjobs/.SEQ
chmod 600 /var/spool/cron/atjobs/.SEQ
chown -R daemon:daemon /var/spool/cron/atjobs /var/spool/cron/atspool
mount -t tmpfs none /run
: > /run/nobody-is-denied
mount --bind /run/nobody-is-denied /etc/at.deny
"""
POLICY = """
schema = 1
[claim]
outcome = "out"
period = "eventually"
[stop]
settle = "0s"
[files]
{shared}
[grade]
command = "grep -qx 1 out"
"""


@dataclass
class Spool:
    """A lab in a mount namespace where the spool of cron and at is the test's own, and no daemon runs yet."""

    lab: Lab
    prefix: tuple[str, ...]

    def trial(self, spool: str, script: str, *options: str) -> Ran:
        """Run a trial that was given one of the spools."""
        policy = self.lab.home.parent / "policy.toml"
        policy.write_text(POLICY.format(shared=f'shared = [{{ path = "{SPOOL / spool}" }}]'))
        return self.lab.sh(script, "-p", str(policy), *options)

    def shell(self, script: str) -> str:
        """Run a shell script of ours there."""
        done = subprocess.run([*self.prefix, "sh", "-ec", script], capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    @contextmanager
    def daemon(self, *words: str) -> Iterator[None]:
        """Run a daemon in the foreground."""
        with servers_started.started([*self.prefix, *words], lambda: True):
            yield

    def settle(self, *words: str) -> str:
        """Go on with the last run."""
        done = self.lab.call("settle", "last", *words)
        assert done.returncode == 0, done.stderr
        assert self.lab.call("verify", "last").returncode == 0
        return done.stdout.decode()

    def finality(self) -> dict[str, Any]:
        """Read what is concluded now."""
        return dict(self.lab.report()["finality"])


@pytest.fixture
def spool() -> Iterator[Spool]:
    """Make the lab, where any user may work."""
    with servers_started.place() as top, servers_started.mounts_of_its_own(SETUP) as (*words, end):
        for name in ("home", "work"):
            (top / name).mkdir(mode=0o700)
        (top / "work").chmod(0o777)
        prefix = (*words, f"--wd={top / 'work'}", end)
        yield Spool(Lab(top / "home", top / "work", prefix=prefix), prefix)


def effect(ran: Ran | Lab, what: str) -> dict[str, Any]:
    """Give the open effect of a kind of schedule or service."""
    report = ran.report if isinstance(ran, Ran) else ran.report()
    (found,) = [one for one in report["open_effects"] if one["what"].startswith(what)]
    return dict(found)


# -- at --------------------------------------------------------------------------------------------------------------

AT_USER = ("--user", "daemon")
"""The box gives nobody the rights of a setuid program, so that only who owns the spool can use at."""


def leave_a_job(spool: Spool, when: str, script: str) -> Ran:
    """Have the trial call at."""
    ran = spool.trial("atjobs", f"echo 1 > out; echo '{script}' | at {when}", *AT_USER)
    assert (ran.finality, ran.code) == ("unresolved", 0), ran.err
    job = effect(ran, "job of at")
    assert (job["status"], job["handling"], job["could_affect"]) == ("pending", "unresolved", ["outcome", "runs"])
    assert job["events"]
    assert "schedule-persists" in ran.reasons("finality")
    return ran


def test_a_job_of_at_that_was_taken_back_before_it_was_due_is_closed(spool: Spool) -> None:
    """With atd running all the while: the queue is looked at until somebody calls atrm; the label is final then."""
    leave_a_job(spool, "now + 2 hours", "echo 2 > out")
    with spool.daemon("atd", "-f"), spool.lab.start("settle", "last") as settling:
        log = next((spool.lab.home / "runs").iterdir()) / "addenda" / "000" / "log"
        assert wait_until(lambda: any(b"schedule.checked" in one.read_bytes() for one in log.glob("*.seg")), 60)
        spool.shell("atrm 1")
        out, err = settling.communicate(timeout=60)
    assert "finality final, success" in out.decode(), err
    job = effect(spool.lab, "job of at")
    assert (job["status"], job["could_affect"], job["settled"]) == ("terminal", [], True)
    assert job["proof"]["checked"]
    assert spool.lab.call("verify", "last").returncode == 0


def test_a_job_that_atd_has_run_leaves_the_claim_open_whatever_it_did(spool: Spool) -> None:
    """`at now`: it is gone after it was due, so it ran, and what it started is not known."""
    leave_a_job(spool, "now", "true")
    with spool.daemon("atd", "-f"):
        assert wait_until(lambda: not spool.shell("ls /var/spool/cron/atjobs").strip(), 60)
        told = spool.settle()
    assert "finality unresolved" in told
    assert "it was due before this was looked at" in told
    assert spool.finality()["label"] is None
    assert effect(spool.lab, "job of at")["handling"] == "unresolved"


def test_a_job_that_atd_is_at_is_told_and_not_waited_for(spool: Spool) -> None:
    """It has fired: nothing that is seen later can take that back."""
    leave_a_job(spool, "now", "sleep 6")
    with spool.daemon("atd", "-f"):
        assert wait_until(lambda: spool.shell("ls /var/spool/cron/atjobs").startswith("="), 60)
        started_s = time.monotonic()
        told = spool.settle()
        assert time.monotonic() - started_s < 15, "it ends early"
        assert "its daemon has taken it" in told


# -- cron ------------------------------------------------------------------------------------------------------------

CRONTAB = "umask 077; echo 1 > out; echo '{line}' > /var/spool/cron/crontabs/root"


def test_an_entry_of_cron_that_was_removed_before_it_was_due_is_closed(spool: Spool) -> None:
    """A running cron has read it; `crontab -r` takes it away months before."""
    month = time.localtime().tm_mon % 12 + 1
    ran = spool.trial("crontabs", CRONTAB.format(line=f"0 0 1 {(month + 5) % 12 + 1} * echo 2 > {spool.lab.work}/out"))
    assert ran.finality == "unresolved"
    assert effect(ran, "crontab of a user")["status"] == "pending"
    with spool.daemon("cron", "-f"):
        told = spool.settle("--for", "100ms")
        assert "finality unresolved" in told
        assert "it is there" in told
        spool.shell("crontab -r")
        assert "finality final, success" in spool.settle()


def test_an_entry_that_cron_starts_by_itself_changes_the_outcome_and_is_seen_to(spool: Spool) -> None:
    """`@reboot` fires when cron starts; when that would be was not known, and the outcome is no longer what it was."""
    ran = spool.trial("crontabs", CRONTAB.format(line=f"@reboot echo 2 > {spool.lab.work}/out"))
    assert "when is not known" in " ".join(one["text"] for one in ran.report["finality"]["reasons"])
    with spool.daemon("cron", "-f"):
        assert wait_until(lambda: (spool.lab.work / "out").read_text() == "2\n", 60)
        spool.shell("crontab -r")
        told = spool.settle()
    assert "finality unresolved" in told
    assert "when it runs was not known" in told


@pytest.mark.parametrize("then", ["rm /var/spool/cron/crontabs/root", "mv /var/spool/cron/crontabs/root mine"])
def test_an_entry_that_the_trial_took_away_again_may_have_been_started(spool: Spool, then: str) -> None:
    """Cron reads the spool while the trial runs: what it started is not in the box, and nobody saw it end."""
    ran = spool.trial("crontabs", CRONTAB.format(line="* * * * * sleep 99") + f"; {then}")
    assert ran.finality == "unresolved"
    assert (effect(ran, "crontab of a user")["status"], ran.report["finality"]["label"]) == ("unknown", None)
    assert "nothing that keeps it open can be followed" in spool.settle()


# -- dockerd ---------------------------------------------------------------------------------------------------------

DOCKER = (
    POLICY.format(shared="")
    + """
[[services]]
name = "docker"
at = "unix:{socket}"
state = "per-run"
settle = {{ kind = "docker", socket = "{socket}", every = "100ms", deadline = "20s" }}
"""
)


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Path]:
    """Start one for all tests."""
    with servers_started.dockerd() as path:
        yield path


def run_container(lab: Lab, socket: Path, *words: str) -> Ran:
    """Run a trial that was given the socket, and has a container started that outlives it."""
    policy = lab.home.parent / "policy.toml"
    policy.write_text(DOCKER.format(socket=socket))
    call = f"docker -H unix://{socket} run -d --network none {' '.join(words)}"
    ran = lab.sh(f"echo 1 > out; {call} >/dev/null", "-p", str(policy))
    assert (ran.code, ran.finality) == (0, "unresolved"), ran.err
    found = effect(ran, "service docker")
    assert (found["status"], found["could_affect"]) == ("pending", ["outcome"])
    assert "is running" in found["bearing"]
    assert not [one for one in ran.report["effects"]["processes"] if one["outlived"]]
    return ran


def test_a_container_is_followed_until_it_has_ended(lab: Lab, dockerd: Path) -> None:
    """No process of the trial was alive any more: the daemon's word closes the route, and the label is final."""
    run_container(lab, dockerd, "busybox", "sleep", "2")
    told = lab.call("settle", "last").stdout.decode()
    assert "finality final, success" in told
    found = effect(lab, "service docker")
    assert (found["settled"], found["could_affect"]) == (True, [])
    assert found["proof"]["checked"]
    assert lab.call("verify", "last").returncode == 0


def test_a_container_that_was_removed_is_gone(lab: Lab, dockerd: Path) -> None:
    """Whoever removed it: with `--rm` the daemon does so itself."""
    run_container(lab, dockerd, "--rm", "busybox", "sleep", "1")
    assert "finality final, success" in lab.call("settle", "last").stdout.decode()


def test_one_that_starts_again_by_itself_is_not_over_when_it_has_ended(lab: Lab, dockerd: Path) -> None:
    """A restart policy is a schedule: until somebody removes it the claim is open."""
    run_container(lab, dockerd, "--name", "again", "--restart", "always", "busybox", "sleep", "1")
    told = lab.call("settle", "last", "--for", "3s").stdout.decode()
    assert "finality unresolved" in told
    assert servers_started.docker(dockerd, "rm", "-f", "again").returncode == 0
    assert "finality final, success" in lab.call("settle", "last").stdout.decode()


def test_a_container_that_writes_the_outcome_later_costs_the_label(lab: Lab, dockerd: Path) -> None:
    """It was given the workspace: the label was for what was there before."""
    run_container(lab, dockerd, "-v", f"{lab.work}:/w", "busybox", "sh", "-c", "'sleep 1; echo 2 > /w/out'")
    told = lab.call("settle", "last").stdout.decode()
    assert "finality unresolved" in told
    assert "touched since the run was sealed: out" in told
    reasons = lab.report()["finality"]["reasons"]
    assert reasons[0]["rule"] == "outcome-changed-since"
    assert "nothing that keeps it open can be followed" in lab.call("settle", "last").stdout.decode()


# -- a service of the host ------------------------------------------------------------------------------------------

LISTENS = """
import socket, sys, time
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1]); server.listen()
    server.accept()[0].close()
    time.sleep(float(sys.argv[2]))
    if sys.argv[3:]: open(sys.argv[3], "w").write("2")
"""
ASKS = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); open('out', 'w').write('1')"
HOST = (
    POLICY.format(shared="")
    + """
[[services]]
name = "worker"
at = "unix:{socket}"
state = "per-run"
settle = {{ kind = "cgroup", path = "{group}", every = "50ms" }}
"""
)


@pytest.fixture
def group() -> Iterator[Path]:
    """Make a cgroup for a service, as systemd would."""
    made = find_root() / f"sv-test-{os.getpid()}"
    made.mkdir()
    yield made
    assert wait_until(lambda: "populated 0" in (made / "cgroup.events").read_text())
    made.rmdir()


@pytest.mark.parametrize("writes", [False, True])
def test_a_process_of_the_host_is_followed_until_its_cgroup_is_empty(lab: Lab, group: Path, writes: bool) -> None:  # noqa: FBT001
    """It was asked over its socket, and lives on; what it writes into the outcome meanwhile costs the label."""
    with servers_started.place() as place:
        socket, policy = place / "worker.sock", lab.home.parent / "policy.toml"
        policy.write_text(HOST.format(socket=socket, group=group))
        words = [sys.executable, "-c", LISTENS, str(socket), "2", *([str(lab.work / "out")] if writes else [])]
        with subprocess.Popen(words) as worker:
            (group / "cgroup.procs").write_text(str(worker.pid))
            assert wait_until(socket.is_socket)
            ran = lab.run("-p", str(policy), "--", *python(ASKS, str(socket)))
            assert (ran.code, ran.finality) == (0, "unresolved"), ran.err
            assert "populated 1" in effect(ran, "service worker")["bearing"]
            told = lab.call("settle", "last").stdout.decode()
    assert ("finality final, success" in told) is not writes, told
    assert ("touched since the run was sealed: out" in told) is writes
    assert lab.call("verify", "last").returncode == 0
