"""Runs whose period is longer than their supervisor: gone on with later, by addenda that verify with them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, wait_until

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
    assert b"asked again after the seal" in lab.call("show", "last").stderr
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
