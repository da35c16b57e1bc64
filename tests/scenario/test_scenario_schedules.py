"""What a trial leaves to run later: found among its files, wherever it was put."""

from __future__ import annotations

import pytest
from scenario_lab import Lab, Ran

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

LEAVES = """
mkdir -p /var/spool/cron/crontabs 2>/dev/null; echo '* * * * * true' > /var/spool/cron/crontabs/root
mkdir -p .git/hooks; echo true > .git/hooks/post-commit; chmod +x .git/hooks/post-commit
mkdir -p .config/systemd/user; echo '[Timer]' > .config/systemd/user/x.timer
mkfifo meeting
"""


def effects(ran: Ran) -> dict[str, dict[str, object]]:
    """Give the open effects that are no files, by the last part of what they are about."""
    return {one["what"].rpartition("/")[2]: one for one in ran.report["open_effects"] if one["route"] != "file"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run a trial whose writes stay, so that its triggers do."""
    return _run(tmp_path_factory, "--commit", "always")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run the same trial, whose writes stay staged."""
    return _run(tmp_path_factory, "--commit", "never")


def _run(places: pytest.TempPathFactory, *options: str) -> Ran:
    home, work = places.mktemp("home"), places.mktemp("work")
    home.chmod(0o700)
    return Lab(home, work).sh(LEAVES, "--period", "eventually", "--outcome", "out", *options)


def test_a_crontab_outside_the_workspace_is_seen_and_isolated(kept: Ran) -> None:
    """It went to a layer of the trial's own: no cron reads it, and both proofs are there."""
    crontab = effects(kept)["root"]
    assert (crontab["route"], crontab["handling"], crontab["status"]) == ("schedule", "isolated", "terminal")
    assert crontab["proof"]["prevented"]  # type: ignore[index]
    assert crontab["proof"]["checked"]  # type: ignore[index]
    assert "schedule-discarded" in kept.reasons("finality")


def test_a_timer_in_the_workspace_stays_and_leaves_the_future_open(kept: Ran) -> None:
    """A workspace may be somebody's home, and what starts by itself may change anything."""
    timer = effects(kept)["x.timer"]
    assert (timer["status"], timer["could_affect"]) == ("pending", ["outcome", "runs"])
    assert "schedule-persists" in kept.reasons("finality")
    assert kept.finality == "unresolved"


def test_a_hook_in_the_workspace_waits_for_somebody(kept: Ran) -> None:
    """It starts nothing by itself; another run may be who commits."""
    hook = effects(kept)["post-commit"]
    assert (hook["route"], hook["status"], hook["could_affect"]) == ("schedule", "persistent", ["runs"])
    assert "dormant-trigger" in kept.reasons("finality")


def test_a_fifo_in_the_workspace_is_a_place_to_meet(kept: Ran) -> None:
    """Whoever opens it from another run meets whoever opened it from this one."""
    assert {one["route"] for what, one in effects(kept).items() if "meeting" in what} == {"ipc"}


def test_the_same_triggers_are_isolated_while_they_stay_staged(staged: Ran) -> None:
    """Nothing of the host reads a stage: final, and separate."""
    handled = {one["handling"] for one in effects(staged).values() if one["route"] == "schedule"}
    assert handled == {"isolated"}
    assert staged.separation == "separate"
    assert staged.finality == "final"
