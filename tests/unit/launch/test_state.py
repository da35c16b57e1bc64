"""The state directory and the names of runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.errors import LogUnreadableError, MachineError, UsageError
from supervisor.launch.runs.owner import Owner
from supervisor.launch.runs.state import Home, make_run_id


def open_home(path: Path) -> Home:
    """Open a home below a test's directory."""
    return Home.open({"SUPERVISE_HOME": str(path / "home")}, uid=os.getuid())


def test_run_ids_sort_by_time_and_differ_within_a_moment() -> None:
    """An id shows its second in UTC; they sort by time also in one second, and the token tells apart."""
    first, second = make_run_id(0.0, b"\0\1\2"), make_run_id(0.0001, b"\0\0\0")
    assert first == "19700101-000000-000012"
    assert first < second < make_run_id(0.9, b"\0\0\0") < make_run_id(1.0, b"\0\0\0")
    assert make_run_id(0.5, b"\0\0\0") != make_run_id(0.5, b"\0\0\1")


def test_the_chosen_home_wins_and_everything_in_it_is_private(tmp_path: Path) -> None:
    """SUPERVISE_HOME is used before any other, and is made with mode 0700, files with 0600."""
    home = open_home(tmp_path)
    run = home.create("20300101-000000-aaaa")
    run.write_manifest({"command": ["true"]})
    assert home.path == tmp_path / "home"
    assert {path.stat().st_mode & 0o777 for path in (home.path, home.runs, run.path)} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in (run.manifest, run.owner_file)} == {0o600}
    assert run.read_manifest() == {"command": ["true"]}


@pytest.mark.parametrize("name", ["home", "other/../home", "link", "./home/"])
def test_a_home_is_known_by_its_real_path(tmp_path: Path, name: str) -> None:
    """The witness tells paths without symlinks and `..`, and the box is tested by one in the home."""
    (tmp_path / "other").mkdir()
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("home")
    home = Home.open({"SUPERVISE_HOME": f"{tmp_path}/{name}"}, uid=os.getuid())
    assert home.path == tmp_path / "home"


def test_a_user_without_a_chosen_home_gets_one_below_the_state_directory(tmp_path: Path) -> None:
    """XDG_STATE_HOME comes before ~/.local/state, and neither is used for root."""
    uid = os.getuid() or 12345
    if os.getuid():
        assert Home.open({"XDG_STATE_HOME": str(tmp_path)}, uid=uid).path == tmp_path / "supervise"
    with pytest.raises(MachineError, match="no state directory"):
        Home.open({}, uid=uid)


def test_a_home_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    """A group- or world-accessible home is refused with the command that repairs it."""
    (tmp_path / "home").mkdir(mode=0o755)
    with pytest.raises(MachineError, match="mode 0755, expected 0700") as refused:
        open_home(tmp_path)
    assert refused.value.hint == f"chmod 700 {tmp_path / 'home'}"


def test_a_home_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """A home that belongs to another uid is refused."""
    open_home(tmp_path)
    with pytest.raises(MachineError, match="belongs to uid"):
        Home.open({"SUPERVISE_HOME": str(tmp_path / "home")}, uid=os.getuid() + 1)


def test_a_run_is_found_by_id_prefix_last_and_directory(tmp_path: Path) -> None:
    """Each form of RUN finds the run it means."""
    home = open_home(tmp_path)
    older, newer = home.create("20300101-000000-aaaa"), home.create("20300102-000000-bbbb")
    older.write_manifest({})
    assert home.all() == (older, newer)
    assert home.find("20300101-000000-aaaa") == older
    assert home.find("20300101") == older
    assert home.find("aaaa") == older
    assert home.find("bbbb") == newer
    assert home.find("last") == newer
    assert home.find(str(older.path)) == older


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("2030", "names 2 runs: .*aaaa, .*bbbb"),
        ("1999", "no run"),
        ("", "no"),
        ("aaa", "no run"),
        ("cccc", "names 2 runs"),
    ],
)
def test_a_reference_that_names_no_single_run_is_a_usage_error(tmp_path: Path, reference: str, said: str) -> None:
    """An ambiguous reference names the candidates, a wrong one says so."""
    home = open_home(tmp_path)
    home.create("20300101-000000-aaaa")
    home.create("20300102-000000-bbbb")
    home.create("20310102-000000-cccc")
    home.create("20310103-000000-cccc")
    with pytest.raises(UsageError, match=said):
        home.find(reference)


def test_a_run_is_never_made_twice(tmp_path: Path) -> None:
    """The second use of an id fails instead of mixing two runs."""
    home = open_home(tmp_path)
    home.create("20300101-000000-aaaa")
    with pytest.raises(MachineError, match="cannot be made"):
        home.create("20300101-000000-aaaa")


def test_a_missing_manifest_is_a_log_error(tmp_path: Path) -> None:
    """A run without a manifest is unreadable, not empty."""
    with pytest.raises(LogUnreadableError, match="cannot be read"):
        open_home(tmp_path).create("20300101-000000-aaaa").read_manifest()


def test_an_owner_is_this_process_and_no_other() -> None:
    """The recorded owner is alive while it runs, and another start time or boot is another process."""
    me = Owner.current()
    assert me.alive()
    assert Owner.from_json(me.to_json()) == me
    assert not Owner(pid=me.pid, start_ticks=me.start_ticks + 1, boot_id=me.boot_id).alive()
    assert not Owner(pid=me.pid, start_ticks=me.start_ticks, boot_id="another").alive()
    assert Owner.from_json(b'{"pid": 1}') is None
