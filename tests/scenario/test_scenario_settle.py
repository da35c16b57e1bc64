"""Runs whose period is longer than their supervisor: gone on with later, by addenda that verify with them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, python, wait_until

import servers_started

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

ROOT = Path(__file__).resolve().parents[2]
POLICY = """
schema = 1
[claim]
outcome = "service:orders"
period = "{period}"
[stop]
settle = "0s"
[files]
commit = "never"
[[services]]
name = "orders"
state = "per-run"
settle = {{ kind = "file", path = "{path}", every = "20ms", absent = "pending", committed = ["done"], failed = ["no"] }}
"""


@dataclass
class Left:
    """A run that was left open, and the file that its service answers with."""

    lab: Lab
    answer: Path

    def settle(self, *words: str) -> str:
        """Go on with it."""
        done = self.lab.call("settle", "last", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def finality(self) -> dict[str, Any]:
        """Read what is concluded now."""
        return dict(self.lab.report()["finality"])

    def run(self) -> Path:
        """Give the directory of the run."""
        (found,) = (self.lab.home / "runs").iterdir()
        return found


def leave(places: pytest.TempPathFactory, period: str = "within:24h") -> Left:
    """Run a trial whose service has not said anything yet."""
    home, work, outside = places.mktemp("home"), places.mktemp("work"), places.mktemp("service")
    home.chmod(0o700)
    policy, answer = outside / "policy.toml", outside / "answer"
    policy.write_text(POLICY.format(period=period, path=answer))
    left = Left(Lab(home, work), answer)
    ran = left.lab.run("-p", str(policy), "--", "true")
    assert ran.finality == "unresolved"
    return left


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Left, list[str]]:
    """Go on with a run twice before it is done: by a signal, with a limit; then it is done."""
    left = leave(tmp_path_factory)
    told = []
    with left.lab.start("settle", "last") as process:
        log = left.run() / "addenda" / "000" / "log"
        assert wait_until(lambda: any(log.glob("*.seg")) and b"resumed" in next(log.glob("*.seg")).read_bytes(), 60)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        told.append(out.decode())
    left.answer.write_text("done")
    told += [left.settle(), left.settle()]
    return left, told


def test_one_settles_at_a_time_and_one_that_was_killed_counts_for_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The second is refused while the first goes on; what is sealed after the kill verifies."""
    left = leave(tmp_path_factory)
    log = left.run() / "addenda" / "000" / "log"
    with left.lab.start("settle", "last") as process:
        assert wait_until(lambda: any(log.glob("*.seg")) and b"resumed" in next(log.glob("*.seg")).read_bytes(), 60)
        second = left.lab.call("settle", "last")
        assert (second.returncode, b"expected nobody else to settle this run" in second.stderr) == (125, True)
        process.kill()
    left.answer.write_text("done")
    assert "finality final, success" in left.settle()
    assert left.lab.call("verify", "last").returncode == 0


def test_an_interrupted_settling_is_sealed_and_still_open(settled: tuple[Left, list[str]]) -> None:
    """It says what it waited for."""
    assert "finality unresolved" in settled[1][0]
    assert "still open: service orders" in settled[1][0]
    first = json.loads((settled[0].run() / "addenda" / "000" / "completion.json").read_bytes())
    assert first["finality"]["verdict"] == "unresolved"


def test_settling_ends_when_the_service_has_answered(settled: tuple[Left, list[str]]) -> None:
    """Long before the period does; the label is final then, and there is nothing more to wait for."""
    assert "finality final, success" in settled[1][1]
    assert "nothing to wait for" in settled[1][2]
    found = settled[0].finality()
    assert (found["verdict"], found["label"]) == ("final", "success")
    assert settled[0].lab.report()["result"]["passed"] is True


def test_an_addendum_verifies_with_its_run(settled: tuple[Left, list[str]]) -> None:
    """By the command, and each by itself with the verifier that shares no code."""
    assert settled[0].lab.call("verify", "last").returncode == 0
    for addendum in sorted((settled[0].run() / "addenda").iterdir()):
        words = [sys.executable, str(ROOT / "scripts" / "verify_log.py"), str(addendum)]
        assert subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_lists_and_reports_tell_of_the_addendum(settled: tuple[Left, list[str]]) -> None:
    """The verdict is the latest one, and where its events are is said; they are read like those of a run."""
    lab = settled[0].lab
    assert b" final " in lab.call("ls").stdout
    assert b"was followed after the seal" in lab.call("show", "last").stderr
    events = lab.call("events", str(settled[0].run() / "addenda" / "001"), "--kind", "service.answered")
    assert b'"status":"committed"' in events.stdout


@pytest.mark.parametrize("what", ["completion.json", "manifest.json", "log/000000.seg", "log/000000.seg end"])
def test_an_addendum_that_was_changed_is_found(settled: tuple[Left, list[str]], tmp_path: Path, what: str) -> None:
    """Whatever of it was changed; and its run is then told with the reason."""
    home = tmp_path / "home"
    shutil.copytree(settled[0].lab.home, home)
    lab = Lab(home, settled[0].lab.work)
    (run,) = (home / "runs").iterdir()
    path = run / "addenda" / "001" / what.removesuffix(" end")
    data = bytearray(path.read_bytes())
    data[-30 if what.endswith(" end") else len(data) // 2] ^= 1
    path.write_bytes(data)
    assert lab.call("verify", "last").returncode == 1


def test_an_addendum_to_another_run_is_refused(settled: tuple[Left, list[str]], tmp_path: Path) -> None:
    """The first one taken away leaves the second without what it goes on with."""
    home = tmp_path / "home"
    shutil.copytree(settled[0].lab.home, home)
    (run,) = (home / "runs").iterdir()
    shutil.rmtree(run / "addenda" / "000")
    done = Lab(home, settled[0].lab.work).call("verify", "last")
    assert done.returncode == 1
    assert b"addendum" in done.stderr


def test_settling_may_be_given_a_time_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It ends then, and another one goes on from there."""
    left = leave(tmp_path_factory, period="within:61s")
    assert "finality unresolved" in left.settle("--for", "100ms")
    left.answer.write_text("no")
    assert "finality final, failure" in left.settle()


# -- restarts --------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import supervisor.settle.settling as settling
from supervisor.log.signer import Signer
from supervisor.log.writer import LogWriter
def dies(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
where, sys.argv[:] = sys.argv[1], ["supervise", "settle", "last"]
if where == "manifest": settling.verify_log = dies
if where == "log": LogWriter.create = dies
if where == "conclusion": settling.settle_later = dies
if where == "completion": settling.sign_envelope = dies
if where == "seal": LogWriter.seal = dies
if where == "signature": Signer.sign_seal = dies
from supervisor.cli import main
main()
"""


@pytest.mark.parametrize("where", ["manifest", "log", "conclusion", "completion", "seal", "signature"])
def test_one_that_was_killed_anywhere_is_begun_anew(tmp_path_factory: pytest.TempPathFactory, where: str) -> None:
    """Before each thing that it writes: the run verifies, is still open, and the next one closes it."""
    left = leave(tmp_path_factory)
    left.answer.write_text("done")
    environ = {**os.environ, "SUPERVISE_HOME": str(left.lab.home), "PYTHONPATH": str(ROOT)}
    died = subprocess.run([sys.executable, "-c", KILLED, where], cwd=left.lab.work, env=environ, check=False)
    assert died.returncode == -signal.SIGKILL
    assert left.lab.call("verify", "last").returncode == 0
    assert left.finality()["verdict"] == "unresolved"
    assert "finality final, success" in left.settle()
    assert left.lab.call("verify", "last").returncode == 0
    assert left.finality()["verdict"] == "final"


TWO = (
    POLICY
    + """
[[services]]
name = "slow"
at = "slow.test:80"
state = "per-run"
settle = {{ kind = "file", path = "{path}-slow", every = "20ms", absent = "pending", settled = ["over"] }}
[network]
default = "deny"
allow = ["slow.test:80"]
map = {{ "slow.test:80" = "127.0.0.1:{port}" }}
"""
)
REACHES = "import socket; s = socket.create_connection(('slow.test', 80)); s.close()"


def test_what_was_decided_before_a_kill_is_kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each route is sealed when it is decided: the answer of one service outlives the wait for the other."""
    home, work, outside = (tmp_path_factory.mktemp(name) for name in ("home", "work", "service"))
    home.chmod(0o700)
    answer, slow, policy = outside / "answer", outside / "answer-slow", outside / "policy.toml"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        policy.write_text(TWO.format(period="within:24h", path=answer, port=port))
        left = Left(Lab(home, work), answer)
        ran = left.lab.run("-p", str(policy), "--", *python(REACHES))
    assert len([rule for rule in ran.reasons("finality") if rule == "service-open"]) == 2, ran.err
    answer.write_text("done")
    with left.lab.start("settle", "last") as process:
        second = left.run() / "addenda" / "001" / "log"
        assert wait_until(lambda: any(second.glob("*.seg")), 60)
        process.kill()
    answer.write_text("no")
    found = left.finality()
    assert (found["verdict"], found["observed"]["label"]) == ("unresolved", "success")
    slow.write_text("over")
    assert "finality final, success" in left.settle()
    assert left.lab.call("verify", "last").returncode == 0


# -- the outcome -----------------------------------------------------------------------------------------------------

ABOUT_FILES = (
    POLICY.replace('outcome = "service:orders"', 'outcome = "out"\nscope = ["out", "parts/*"]')
    .replace('commit = "never"', 'commit = "{commit}"\n[grade]\ncommand = "{grader}"')
    .replace('name = "orders"', 'name = "orders"\nat = "unix:{path}.sock"')
)
SENDS = """
import os, socket, sys
os.makedirs("parts"); open("parts/a", "w").write("1"); open("out", "w").write("1")
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.close()
"""
TOUCHES = {
    "nothing": lambda _: None,
    "beside": lambda work: (work / "other").write_text("2"),
    "changed": lambda work: (work / "out").write_text("2"),
    "put back": lambda work: (work / "out").write_text("1"),
    "removed": lambda work: (work / "parts/a").unlink(),
    "added": lambda work: (work / "parts/b").write_text("2"),
    "missed by the grader": lambda work: (work / "later").write_text("2"),
}


@pytest.mark.parametrize("touch", list(TOUCHES))
def test_a_label_is_final_only_while_its_outcome_is_there(tmp_path_factory: pytest.TempPathFactory, touch: str) -> None:
    """Until the service was over it could have written it: nothing that claim and grader are about was touched."""
    places = [tmp_path_factory.mktemp(name) for name in ("home", "work", "service")]
    missing = "later " if touch.startswith("missed") else ""
    left = order(places, commit="always", grader=f"cat {missing}out parts/*; test -e out")
    TOUCHES[touch](left.lab.work)
    left.answer.write_text("done")
    told = left.settle()
    clean = touch in {"nothing", "beside"}
    assert ("finality final, success" in told) is clean, told
    assert ("touched since the run was sealed" in told) is not clean
    assert left.lab.call("verify", "last").returncode == 0


@pytest.mark.parametrize("change", [False, True])
def test_a_staged_outcome_is_compared_too(tmp_path_factory: pytest.TempPathFactory, change: bool) -> None:  # noqa: FBT001
    """What was never applied lies in the stage, of which the log has the digest."""
    left = order([tmp_path_factory.mktemp(name) for name in ("home", "work", "service")], commit="never")
    if change:
        (left.run() / "stage/upper/out").write_text("2")
    left.answer.write_text("done")
    if change:
        refused = left.lab.call("settle", "last")
        assert (refused.returncode, b"it was changed" in refused.stderr) == (125, True)
    else:
        assert "finality final, success" in left.settle()


def order(places: list[Path], *, commit: str, grader: str = "test -e out") -> Left:
    """Run a trial that writes an outcome and reaches a service that is not done."""
    home, work, outside = places
    home.chmod(0o700)
    answer, policy = outside / "a", outside / "policy.toml"
    policy.write_text(ABOUT_FILES.format(period="eventually", path=answer, commit=commit, grader=grader))
    with servers_started.place() as top, socket.socket(socket.AF_UNIX) as server:
        path = top / "s"
        policy.write_text(policy.read_text().replace(f"{answer}.sock", str(path)))
        server.bind(str(path))
        server.listen()
        left = Left(Lab(home, work), answer)
        ran = left.lab.run("-p", str(policy), "--", *python(SENDS, str(path)))
    assert ran.report["finality"]["observed"]["label"] == "success", ran.err
    assert ran.finality == "unresolved"
    return left


# -- other machines --------------------------------------------------------------------------------------------------

RENAMED = ("unshare", "--uts", "sh", "-c", 'hostname other; exec "$@"', "sh")


def test_on_another_machine_what_lies_here_is_not_followed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its files, sockets and schedules are others: that nothing is there would say nothing of this run."""
    left = leave(tmp_path_factory)
    left.answer.write_text("done")
    told = Lab(left.lab.home, left.lab.work, prefix=RENAMED).call("settle", "last").stdout.decode()
    assert "nothing that keeps it open can be followed" in told
    assert left.finality()["verdict"] == "unresolved"
    assert "finality final, success" in left.settle()
