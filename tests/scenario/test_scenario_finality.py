"""What is still alive at the endpoint, and what that makes of the claim."""

from __future__ import annotations

import signal

import pytest
from scenario_lab import Lab, python, runs_on_host, wait_until

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

CHANGES_LATER = "echo 1 > out; (sh -c 'sleep {delay}; echo 2 > out' > /dev/null 2>&1 &)"


def test_a_command_that_leaves_nothing_is_final(lab: Lab) -> None:
    """Nothing ran after the endpoint, and the kernel said so: final for ever."""
    ran = lab.sh("echo 1 > out", "--period", "eventually", "--outcome", "out")
    assert (lab.work / "out").read_text() == "1\n"
    assert ran.reasons("finality") == ("nothing-alive",)
    assert ran.finality == "final"


def test_a_writer_that_is_alive_when_following_ends_leaves_the_future_open(lab: Lab) -> None:
    """It could still have changed the outcome: killing it for hygiene is no answer to what it would have done."""
    ran = lab.sh(CHANGES_LATER.format(delay="71.1"), "--period", "eventually", "--settle", "300ms", "--outcome", "out")
    assert not runs_on_host("sleep", "71.1")
    assert ran.report["finality"]["label"] is None
    assert ran.finality == "unresolved"


def test_the_same_writer_does_not_touch_a_claim_about_the_endpoint(lab: Lab) -> None:
    """The outcome was captured while everything stood still, before the writer could act."""
    ran = lab.sh(CHANGES_LATER.format(delay="71.2"), "--period", "endpoint", "--settle", "300ms", "--outcome", "out")
    assert ran.report["finality"]["observed"]["digest"].startswith("sha256:")
    assert ran.finality == "final"


def test_a_writer_that_ends_in_time_settles_the_outcome(lab: Lab) -> None:
    """It was followed to its end; what it wrote is the outcome."""
    ran = lab.sh(CHANGES_LATER.format(delay="0.3"), "--period", "within:5s", "--outcome", "out")
    assert (lab.work / "out").read_text() == "2\n"
    assert ran.finality == "final"


def test_a_writer_that_lives_beyond_the_period_is_captured_where_it_ends(lab: Lab) -> None:
    """The state at D was captured frozen, so what comes after D does not matter."""
    ran = lab.sh(CHANGES_LATER.format(delay="71.3"), "--period", "within:500ms", "--settle", "0s", "--outcome", "out")
    assert ran.report["claim"]["period"] == "within 0.5s"
    assert ran.finality == "final"


def test_declared_cancellation_is_final_with_both_proofs(lab: Lab) -> None:
    """Killed by us, and seen empty by the kernel: the handling was declared before the run."""
    ran = lab.sh(
        CHANGES_LATER.format(delay="71.4"), "--period", "eventually", "--at-endpoint", "cancel", "--outcome", "out"
    )
    proofs = [effect["proof"] for effect in ran.report["open_effects"] if effect["route"] == "process"]
    assert proofs
    assert all(proof["prevented"] and proof["checked"] for proof in proofs)
    assert ran.report["finality"]["intervened"] is True
    assert ran.finality == "final"


def test_isolation_is_final_when_the_kernel_consents(lab: Lab) -> None:
    """The workspace became read-only under the writer: its write was refused, and the outcome stands."""
    ran = lab.sh(
        CHANGES_LATER.format(delay="0.3"), "--period", "eventually", "--at-endpoint", "isolate", "--outcome", "out"
    )
    assert (lab.work / "out").read_text() == "1\n"
    assert [event["error"] for event in lab.events("file.opened") if event["path"].endswith("/out") if "error" in event]
    assert ran.finality == "final"


def test_isolation_is_no_proof_while_a_descriptor_is_open_for_writing(lab: Lab) -> None:
    """The kernel refused to make the workspace read-only: the writer kept its way in."""
    ran = lab.sh(
        "(sh -c 'echo 1; sleep 71.5; echo 2' > out 2>/dev/null &); sleep 0.2",
        "--period", "eventually", "--at-endpoint", "isolate", "--settle", "300ms", "--outcome", "out",
    )  # fmt: skip
    (isolated,) = lab.events("trial.isolated")
    assert "open for writing" in isolated["error"]
    assert ran.finality == "unresolved"


def test_freezing_keeps_the_state_of_the_endpoint(lab: Lab) -> None:
    """What was frozen never ran again; the state of the endpoint is what is committed."""
    ran = lab.sh(CHANGES_LATER.format(delay="0.2"), "--at-endpoint", "freeze", "--outcome", "out")
    assert (lab.work / "out").read_text() == "1\n"
    assert ran.finality == "final"


def test_a_limit_of_the_task_ends_it(lab: Lab) -> None:
    """CMD gets TERM, may end in its own way, and the time-out is the reason of the endpoint."""
    ran = lab.sh("trap 'echo bye; exit 3' TERM; sleep 71.6 & wait", "-t", "400ms", "--settle", "0s")
    assert (ran.code, ran.out) == (124, b"bye\n")
    assert ran.report["endpoint"]["reason"] == "timeout"
    assert ran.finality == "final"


def test_a_limit_of_the_observation_leaves_the_command_alone(lab: Lab) -> None:
    """CMD is then a descendant like any other: it ends by itself, and the outcome is what it made."""
    ran = lab.sh(
        "sleep 1; echo done > out",
        "-t", "300ms", "--limit-role", "observation", "--period", "eventually", "--settle", "10s", "--outcome", "out",
    )  # fmt: skip
    assert (ran.code, (lab.work / "out").read_text()) == (124, "done\n")
    assert ran.finality == "final"


@pytest.mark.parametrize(
    "how",
    [
        "nohup sleep {0} > /dev/null 2>&1 &",
        "setsid -f sleep {0}",
        "(sleep {0} &) ; true",
        "sh -c 'trap \"\" TERM HUP INT; sleep {0}' > /dev/null 2>&1 & true",
    ],
    ids=["nohup", "setsid", "double fork", "ignores signals"],
)
def test_no_way_to_daemonise_escapes(lab: Lab, how: str) -> None:
    """However it is left behind, it is seen, it keeps the future open, and it is gone afterwards."""
    ran = lab.sh(how.format("71.7"), "--period", "eventually", "--settle", "200ms", "--outcome", "out")
    assert not runs_on_host("sleep", "71.7")
    assert any("71.7" in effect["what"] for effect in ran.report["open_effects"])
    assert ran.finality == "unresolved"


def test_a_stopped_process_is_alive(lab: Lab) -> None:
    """A process that was stopped can be continued: it is no end."""
    ran = lab.sh("sleep 71.8 & kill -STOP $!", "--period", "eventually", "--settle", "200ms", "--outcome", "out")
    assert not runs_on_host("sleep", "71.8")
    assert ran.finality == "unresolved"


def test_signals_reach_the_command(lab: Lab) -> None:
    """TERM is passed on to CMD, whose own answer to it decides the exit code."""
    ready = lab.work / "ready"
    with lab.start("--direct", "--", "sh", "-c", "trap 'exit 9' TERM; touch ready; sleep 71.9 & wait") as process:
        assert wait_until(ready.exists)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 9
    assert lab.report()["endpoint"]["exit_code"] == 9


def test_a_signal_while_settling_ends_the_watching(lab: Lab) -> None:
    """Whoever interrupts us while we follow a straggler gets the report at once, and the future stays open."""
    command = ("sh", "-c", "(sleep 72.1 > /dev/null 2>&1 &)")
    options = ("--period", "eventually", "--settle", "60s", "--status-fd", "2", "--outcome", "out")
    with lab.start(*options, "--", *command) as process:
        assert process.stderr is not None
        assert any(b"settling" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert not runs_on_host("sleep", "72.1")
    assert lab.report()["finality"]["verdict"] == "unresolved"


def test_the_exit_status_is_the_one_that_the_kernel_saw(lab: Lab) -> None:
    """A death by signal is 128 plus its number, also when the last thread is not the first."""
    source = "import os, threading as t, time\nt.Thread(target=lambda: os.kill(os.getpid(), 11)).start(); time.sleep(9)"
    ran = lab.run("--", *python(source))
    assert ran.report["endpoint"]["signal"] == signal.SIGSEGV
    assert ran.code == 128 + signal.SIGSEGV
