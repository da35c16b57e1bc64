"""Bombs: the machine stays usable, the trial ends, the verdicts are right, no event is lost, nothing stays behind.

Every bomb stops by itself: at 500 processes, at 300 MB, or after 2 s, whether or not a limit stops it before.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from scenario_lab import Lab, Ran

pytestmark = pytest.mark.kernel("cgroup-v2", "limits")

FORK_BOMB = """
import os, signal
refused = 0
for _ in range(500):
    try:
        if os.fork() == 0:
            signal.pause()
    except BlockingIOError:
        refused += 1
print(refused, flush=True)
"""
EATER = "held = [bytearray(b'x' * (1 << 20)) for _ in range(300)]"
SHARED_EATER = """
import mmap
held = mmap.mmap(-1, 300 << 20)
for at in range(0, 300 << 20, 4096):
    held[at] = 1
"""


def program(source: str) -> tuple[str, ...]:
    """Give CMD: the system's own Python, which every box shows."""
    return ("/usr/bin/python3", "-c", source)


def limits_of(ran: Ran) -> dict[str, dict[str, Any]]:
    """Give the limits that were met, by resource."""
    return {met["resource"]: met for met in ran.report["effects"]["limits"]}


def sound(ran: Ran) -> bool:
    """Tell whether every verdict is the good one and nothing was lost."""
    good = (ran.finality, ran.separation, ran.scope) == ("final", "separate", "clean")
    return good and ran.report["log"]["lost"] == 0 and ran.report["log"]["sealed"]


def test_a_fork_bomb_is_refused_what_is_above_its_limit(lab: Lab) -> None:
    """CMD and 99 more run; each refusal is counted, each process is known; verdicts: final, separate, clean."""
    ran = lab.run("--pids", "100", "--settle", "200ms", "--", *program(FORK_BOMB))
    assert ran.code == 0, ran.err
    assert int(ran.out) == 401
    assert limits_of(ran)["pids"]["times"] == 401
    assert len(ran.report["effects"]["processes"]) == 100
    assert b"pids limit of 100: 401 forks refused" in ran.err
    assert sound(ran)


def test_without_the_limit_the_same_bomb_runs_to_its_own_end(lab: Lab) -> None:
    """The keeping twin: 500 processes are fewer than the default allows; verdicts: final, separate, clean."""
    ran = lab.run("--settle", "200ms", "--", *program(FORK_BOMB))
    assert int(ran.out) == 0
    assert limits_of(ran) == {}
    assert len(ran.report["effects"]["processes"]) == 501
    assert sound(ran)


def test_the_machine_stays_usable_beside_a_fork_bomb(lab: Lab) -> None:
    """While the bomb's processes are all there, others on the machine still start; verdict: final."""
    with lab.start("--pids", "100", "--settle", "1s", "--", *program(FORK_BOMB)) as bomb:
        assert bomb.stdout is not None
        assert bomb.stdout.readline() == b"401\n"
        assert subprocess.run(["true"], check=False).returncode == 0
        bomb.communicate(timeout=60)
    assert lab.report()["finality"]["verdict"] == "final"


@pytest.mark.parametrize("source", [EATER, SHARED_EATER], ids=["own", "shared"])
def test_a_memory_bomb_is_killed_and_its_death_is_put_down_to_the_limit(lab: Lab, source: str) -> None:
    """CMD dies of signal 9 that nobody sent: 137, and the report names it; verdicts: final, separate, clean."""
    ran = lab.run("--memory", "100MB", "--", *program(source))
    assert ran.code == 137, ran.err
    met = limits_of(ran)["memory"]
    (main,) = ran.report["effects"]["processes"]
    assert (met["effect"], met["times"], met["limit"]) == ("killed", 1, 100_000_000)
    assert met["processes"] == [main["id"]]
    assert ran.report["endpoint"]["signal"] == 9
    assert b"memory limit of 100MB: 1 process was killed" in ran.err
    assert sound(ran)


def test_with_room_enough_the_same_eater_ends_by_itself(lab: Lab) -> None:
    """The keeping twin; verdicts: final, separate, clean."""
    ran = lab.run("--memory", "600MB", "--", *program(EATER))
    assert ran.code == 0
    assert limits_of(ran) == {}
    assert sound(ran)


def test_a_trial_goes_on_after_one_of_its_processes_was_killed(lab: Lab) -> None:
    """The largest is chosen; what CMD does about it is its own affair; verdicts: final, separate, clean."""
    ran = lab.sh(f'/usr/bin/python3 -c "{EATER}"; echo $?; kill -9 $$', "--memory", "100MB")
    assert ran.out == b"137\n"
    met = limits_of(ran)["memory"]
    main = next(process for process in ran.report["effects"]["processes"] if process["parent"] is None)
    assert ran.code == 137
    assert main["signal"] == 9
    assert len(met["processes"]) == 1
    assert main["id"] not in met["processes"]
    assert sound(ran)


@pytest.mark.parametrize(("place", "share"), [("/tmp", 50), ("/dev/shm", 25), ("/run", 5)])
def test_a_private_place_is_full_before_the_memory_is(lab: Lab, place: str, share: int) -> None:
    """Filling it is an error of the filler, and nobody is killed; verdicts: final, separate, clean."""
    ran = lab.sh(f"dd if=/dev/zero of={place}/filler bs=1M count=300; stat -c %s {place}/filler", "--memory", "100MB")
    assert b"No space left" in ran.err
    assert abs(int(ran.out) - share * 1_000_000) < 1 << 20
    assert limits_of(ran) == {}
    assert sound(ran)


def test_memory_that_no_killing_frees_ends_the_trial_and_not_the_box(lab: Lab) -> None:
    """/dev has no size of its own: what lies there stays; init and its closing test survive; verdict: final."""
    ran = lab.sh("for i in 1 2 3; do dd if=/dev/zero of=/dev/filler$i bs=1M count=100; done", "--memory", "100MB")
    met = limits_of(ran)["memory"]
    assert met["effect"] == "killed"
    assert lab.events("trial.tested")[-1]["findings"] == []
    assert ran.finality == "final"


def test_processor_time_is_shared_out(lab: Lab) -> None:
    """A fifth of a processor makes 0.2 s of work take most of a second, and the waits are counted; verdict: final."""
    work = (
        "import time\nstart = time.monotonic()\nwhile time.process_time() < 0.25: pass\nprint(time.monotonic() - start)"
    )
    ran = lab.run("--cpus", "0.2", "--", *program(work))
    assert float(ran.out) > 0.5
    met = limits_of(ran)["cpu"]
    assert (met["effect"], met["limit"]) == ("throttled", 0.2)
    assert met["times"] >= 3
    assert sound(ran)


def test_the_manifest_says_how_each_limit_is_enforced(lab: Lab) -> None:
    """By what, and how much in the machine's own terms; a lifted limit is not there; verdict: final."""
    ran = lab.run("--pids", "50", "--memory", "none", "--", "true")
    manifest = json.loads(next((lab.home / "runs").glob("*/manifest.json")).read_text())
    assert manifest["limits"].keys() == {"pids"}
    assert manifest["limits"]["pids"]["limit"] == 50
    assert manifest["limits"]["pids"]["by"] in {"cgroup v1", "cgroup v2"}
    assert manifest["policy"]["document"]["limits"] == {"pids": 50, "memory": "none", "cpu": "none"}
    assert ran.finality == "final"


def test_supervisor_and_guardian_are_not_limited(lab: Lab) -> None:
    """Their pids are in no limited cgroup, while CMD's is: its own forks fail where theirs do not; verdict: final."""
    with lab.start("--pids", "1", "--", "sleep", "1.25") as running:
        deadline = time.monotonic() + 20
        while not (limited := _limited_pids()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(limited) <= 3
        assert running.pid not in limited
        running.communicate(timeout=60)
    assert lab.report()["finality"]["verdict"] == "final"


def _limited_pids() -> set[int]:
    """Give the members of the pids-limited cgroup of the one trial whose limit is 1."""
    from supervisor.launch.cgroup import PARENT, find_root  # noqa: PLC0415 - after the capability was asked for
    from supervisor.launch.controllers import find_controllers  # noqa: PLC0415 - as above

    top = find_controllers(find_root())["pids"].top / PARENT
    for path in top.glob("*/pids.max"):
        if path.read_text() == "3\n":
            return set(map(int, path.with_name("cgroup.procs").read_text().split()))
    return set()
