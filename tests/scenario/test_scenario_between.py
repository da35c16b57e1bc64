"""What comes to a trial from another one by a way that is no run: other writers, other names, times of files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

Step = str | Callable[[Path], object]
"""The script of a trial, or what somebody else does meanwhile, between two of them."""


def last_two(lab: Lab, place: Path, *steps: Step, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run trials that share a place; gives the edge between the last two, an empty verdict for none.

    ``$P`` is the place in their scripts.
    """
    runs: list[str] = []
    for step in steps:
        if callable(step):
            step(place)
            continue
        ran = lab.run("--shared", str(place), "--commit", "never", *options, "--", "sh", "-c", f"P={place}\n{step}")
        runs.append(ran.report["run"])
    answer = lab.call("separate", *runs[-2:], "--json")
    assert answer.returncode == 0, answer.stderr
    edges = json.loads(answer.stdout)["edges"]
    return dict(edges[0]) if edges else {"verdict": "separate", "reasons": []}


def rules(edge: dict[str, Any]) -> set[str]:
    """Give what it rests on."""
    return {reason["rule"] for reason in edge["reasons"]}


@pytest.fixture
def place(lab: Lab) -> Path:
    """A shared place with two files in it."""
    found = lab.work.parent / "place"
    found.mkdir()
    (found / "f").write_text("first")
    (found / "g").write_text("first")
    return found


@pytest.mark.parametrize(
    ("one", "between", "other", "expected"),
    [
        ("echo 2 > $P/f", lambda place: (place / "g").write_text("new"), "cat $P/g", "unresolved"),
        ("echo 2 > $P/f", lambda place: (place / "new").write_text("new"), "ls $P/", "connected"),
        ("echo 2 > $P/f", lambda place: (place / "g").unlink(), "test -e $P/g", "unresolved"),
        ("echo 2 > $P/f", lambda place: (place / "g").write_text("new"), "cat $P/none; true", "separate"),
        ("cat $P/f", lambda place: (place / "g").write_text("new"), "cat $P/g", "separate"),
    ],
    ids=["read", "listed, with what the run changed", "gone", "not met", "nothing to carry"],
)
def test_who_finds_what_somebody_else_wrote_is_not_known_to_be_separate(
    lab: Lab, place: Path, one: str, between: Step, other: str, expected: str
) -> None:
    """It may carry what the earlier run left in that place."""
    edge = last_two(lab, place, one, between, other)
    assert edge["verdict"] == expected
    assert ("unknown-writer" in rules(edge)) is (expected == "unresolved")


def test_what_somebody_else_put_back_is_told_and_parts_nobody(lab: Lab, place: Path) -> None:
    """What the run changed is as it was, and so is what it only read; both were written in between."""

    def put_back(place: Path) -> None:
        (place / "f").write_text("first")
        (place / "g").write_text("first")

    edge = last_two(lab, place, "cat $P/g; echo 2 > $P/f", put_back, "cat $P/f $P/g")
    assert edge["verdict"] == "separate"
    assert rules(edge) == {"reset-checked", "put-back-between"}


@pytest.mark.parametrize("deed", ["echo 2 > $P/f; printf first > $P/f", "touch -d 2001-01-01 $P/f", "touch -a $P/f"])
def test_what_a_run_put_back_itself_still_shows_when(lab: Lab, place: Path, deed: str) -> None:
    """Nobody else wrote it since: its times are a message."""
    edge = last_two(lab, place, deed, "stat $P/f")
    assert (edge["verdict"], rules(edge)) == ("connected", {"met-a-change"})


def test_reading_leaves_no_time_behind(lab: Lab, place: Path) -> None:
    """Otherwise whoever looks at the time of access would know who had read."""
    before_ns = (place / "f").stat().st_atime_ns
    assert last_two(lab, place, "cat $P/f", "stat -c %X $P/f")["verdict"] == "separate"
    assert (place / "f").stat().st_atime_ns == before_ns


def test_two_names_of_one_file_are_one_resource(lab: Lab, place: Path) -> None:
    """In two shared places; reading by the one meets a change by the other."""
    twin = place.parent / "twin"
    twin.mkdir()
    os.link(place / "f", twin / "g")
    options = ("--shared", str(twin))
    edge = last_two(lab, place, "echo 2 > $P/f", f"cat {twin}/g", options=options)
    assert (edge["verdict"], rules(edge)) == ("connected", {"met-a-change"})


def test_one_place_that_is_mounted_twice_is_one_place(lab: Lab, place: Path) -> None:
    """The two trials call it by different names, and neither sees the other's."""
    twin = place.parent / "twin"
    twin.mkdir()
    subprocess.run(["mount", "--bind", place, twin], check=True)
    try:
        first = lab.run("--shared", str(place), "--commit", "never", "--", "sh", "-c", f"echo 2 > {place}/new")
        second = lab.run("--shared", str(twin), "--commit", "never", "--", "sh", "-c", f"test -e {twin}/new")
    finally:
        subprocess.run(["umount", twin], check=True)
    (edge,) = json.loads(lab.call("separate", first.report["run"], second.report["run"], "--json").stdout)["edges"]
    assert (edge["verdict"], rules(edge)) == ("connected", {"met-a-change"})


def test_a_run_that_nobody_asked_about_is_named_where_it_lies_in_between(lab: Lab, place: Path) -> None:
    """It carried what the first one wrote to the last one; without it, or asked about what came after, nothing did."""
    runs = {}
    deeds = {"first": "echo 2 > $P/f", "middle": "cat $P/f > $P/copy", "last": "cat $P/copy", "later": "cat $P/g"}
    for name, script in deeds.items():
        options = ("--shared", str(place), "--commit", "never")
        runs[name] = lab.run(*options, "--", "sh", "-c", f"P={place}\n{script}").report["run"]

    def edges(*names: str) -> list[dict[str, Any]]:
        answer = json.loads(lab.call("separate", *(runs[name] for name in names), "--json").stdout)
        assert sorted(run for unit in answer["units"] for run in unit) == sorted(runs[name] for name in names)
        return list(answer["edges"])

    (through,) = edges("first", "last")
    assert (through["verdict"], through["via"]) == ("connected", [runs["middle"]])
    assert runs["middle"].rpartition("-")[2].encode() in lab.call("separate", runs["first"], runs["last"]).stdout
    assert edges("first", "later") == []
    assert edges("last", "later") == []


def test_whoever_asks_for_a_run_is_a_reader(lab: Lab, place: Path) -> None:
    """An adapter read what another run had written, and its own trial never did; also an addendum reads it."""
    policy = lab.work.parent / "asks.toml"
    words = 'committed = ["done"], pending = ["first", "2"]'
    policy.write_text(
        'schema = 1\n[claim]\noutcome = "service:queue"\nperiod = "eventually"\n[[services]]\nname = "queue"\n'
        f'settle = {{ kind = "file", path = "{place}/f", {words} }}\n'
    )
    options = ("--shared", str(place), "--commit", "never")
    asked = lab.run("-p", str(policy), "--commit", "never", "--settle", "100ms", "--", "true").report["run"]
    writer = lab.run(*options, "--", "sh", "-c", f"echo 2 > {place}/f").report["run"]
    again = lab.run("-p", str(policy), "--commit", "never", "--settle", "100ms", "--", "true").report["run"]
    beside = lab.run(*options, "--", "sh", "-c", f"echo 2 > {place}/g").report["run"]

    def verdict(one: str, other: str) -> str:
        edges = json.loads(lab.call("separate", one, other, "--json").stdout)["edges"]
        return str(edges[0]["verdict"]) if edges else "separate"

    assert verdict(writer, again) == "connected"
    assert verdict(beside, again) == "separate"
    assert verdict(asked, writer) == "separate"
    settled = lab.call("settle", asked, "--for", "200ms")
    assert list((lab.home / "runs" / asked / "addenda").iterdir()), settled.stderr
    assert verdict(asked, writer) == "connected"


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        ("test -e $A/out", "connected"),
        ("cat $A/out/none", "connected"),
        ("stat $A/old", "connected"),
        ("cat $A/out/x", "connected"),
        ("test -e $A/other; ls $A/..", "separate"),
    ],
)
def test_a_look_at_what_another_run_left_elsewhere_is_seen(
    tmp_path_factory: pytest.TempPathFactory, look: str, expected: str
) -> None:
    """By its name, also in vain, and outside of everything that the two have in common."""
    base = tmp_path_factory.mktemp("elsewhere")
    home, one, other = base / "home", Path("/var/tmp") / f"{base.name}-{os.getpid()}", base / "other"
    home.mkdir(mode=0o700)
    other.mkdir()
    one.mkdir()
    try:
        (one / "old").write_text("1")
        first = Lab(home, one).run("--", "sh", "-c", "mkdir out; echo 1 > out/x; rm old").report["run"]
        lab = Lab(home, other)
        second = lab.run("--commit", "never", "--", "sh", "-c", f"A={one}\n{look}; true").report["run"]
    finally:
        shutil.rmtree(one)
    edges = json.loads(lab.call("separate", first, second, "--json").stdout)["edges"]
    assert [edge["verdict"] for edge in edges] == ([expected] if expected == "connected" else [])


def test_what_a_box_brings_itself_is_no_sight_of_the_host(lab: Lab) -> None:
    """Somebody changes the host's /tmp, below which both work; the second trial lists its own, and kernel's places."""
    first = lab.run("--", "sh", "-c", "echo 1 > f").report["run"]
    with tempfile.TemporaryDirectory(dir="/tmp"):
        pass
    twin = Lab(lab.home, lab.work.parent / "twin")
    twin.work.mkdir()
    looks = "ls -la /tmp /run /dev/shm; ls /dev /proc /sys > /dev/null"
    second = twin.run("--commit", "never", "--", "sh", "-c", looks).report["run"]
    assert json.loads(lab.call("separate", first, second, "--json").stdout)["edges"] == []


def side_by_side(lab: Lab, script: str, meanwhile: Callable[[Path], object]) -> dict[str, Any]:
    """Grade three runs in workspaces beside their grader, which lists where they lie; gives the answer about them."""
    top = lab.work.parent / "st"
    top.mkdir()
    (top / "known").write_text("first")
    (top / "check.sh").write_text(f"ls {top} && cat {top}/known && grep -q ok out")
    runs = []
    for number in range(3):
        work = top / str(number)
        work.mkdir()
        grade = ("--outcome", "out", "--grade", f"sh {top}/check.sh")
        ran = Lab(lab.home, work).run(*grade, "--", "sh", "-c", f"top={top}\n{script}")
        assert ran.report["finality"]["label"] == "success"
        runs.append(ran.report["run"])
        meanwhile(top)
    return dict(json.loads(lab.call("separate", *runs, "--json").stdout))


def test_runs_in_workspaces_side_by_side_are_separate(lab: Lab) -> None:
    """The next workspace is made between them, in a directory that every grader lists and no run changed."""
    answer = side_by_side(lab, "echo ok > out", lambda _: None)
    assert (len(answer["units"]), answer["edges"]) == (3, [])


def test_notes_beside_the_workspaces_that_somebody_changed_between_join_their_readers(lab: Lab) -> None:
    """Every grader reads them, and whoever wrote them may have read what the run before had made."""
    answer = side_by_side(lab, "echo ok > out", lambda top: (top / "known").write_text("ok"))
    assert len(answer["units"]) == 1
    assert {reason["rule"] for edge in answer["edges"] for reason in edge["reasons"]} == {"unknown-writer"}
