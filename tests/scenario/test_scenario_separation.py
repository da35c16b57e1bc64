"""Runs judged against each other, each a real trial: what joins them is what one met of another's effects."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, python, wait_until

import supervisor

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")


@dataclass
class Board:
    """A shared directory, and runs by the names that tests use."""

    lab: Lab
    place: Path
    runs: dict[str, str] = field(default_factory=dict)

    def trial(self, name: str, script: str, *options: str) -> None:
        """Run a trial that shares the directory, and never commits."""
        ran = self.lab.run("--shared", str(self.place), "--commit", "never", *options, "--", "sh", "-c", script)
        self.runs[name] = ran.report["run"]

    def separate(self, *names: str) -> dict[str, Any]:
        """Judge some of them."""
        answer = self.lab.call("separate", *(self.runs[name] for name in names), "--json")
        assert answer.returncode == 0, answer.stderr
        return dict(json.loads(answer.stdout))

    def edge(self, one: str, other: str) -> dict[str, Any]:
        """Give what joins two; nothing is separate."""
        edges = self.separate(one, other)["edges"]
        return dict(edges[0]) if edges else {"verdict": "separate", "reasons": []}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """One run that writes a note and puts another file back, and those that come after it."""
    base = tmp_path_factory.mktemp("board")
    home, work, place = base / "home", base / "work", base / "board"
    home.mkdir(mode=0o700)
    for directory in (work, place, place / "side"):
        directory.mkdir()
    (place / "put-back").write_text("1\n")
    found = Board(Lab(home, work), place)
    found.trial("early", f"cat {place}/note {place}/put-back; true")
    found.trial("writer", f"echo n > {place}/note; echo 2 > {place}/put-back; echo 1 > {place}/put-back")
    found.trial("reader", f"cat {place}/note")
    found.trial("looker", f"test -e {place}/note")
    found.trial("lister", f"ls {place}")
    found.trial("beside", f"cat {place}/side/nothing; ls {place}/side; true")
    found.trial("graded", "true", "--grade", f"test -e {place}/note && cat {place}/note")
    found.trial("removed", "true")
    return found


@pytest.mark.parametrize("other", ["early", "reader", "looker"])
def test_who_meets_a_change_in_a_shared_place_is_joined_with_who_made_it(board: Board, other: str) -> None:
    """Reading and looking up; also looking in vain before it was there, since both are contacts with the name."""
    edge = board.edge("writer", other)
    expected = "separate" if other == "early" else "connected"
    assert edge["verdict"] == expected
    assert any("note" in reason["text"] for reason in edge["reasons"])
    assert {event.partition(":")[0] for event in edge["reasons"][0]["events"]} == {
        board.runs["writer"],
        board.runs[other],
    }


def test_a_grader_is_a_reader_too(board: Board) -> None:
    """Its trial met nothing, but its label rests on what another trial wrote."""
    edge = board.edge("writer", "graded")
    assert edge["verdict"] == "connected"
    assert any("note, and" in reason["text"] for reason in edge["reasons"])
    assert board.edge("beside", "graded")["verdict"] == "separate"


def test_who_lists_the_place_is_joined(board: Board) -> None:
    """The name of what was made is in the list."""
    assert board.edge("writer", "lister")["verdict"] == "connected"


def test_who_looks_elsewhere_in_the_place_is_not(board: Board) -> None:
    """Every contact with it is told, so that having had none is known."""
    assert board.edge("writer", "beside")["verdict"] == "separate"


def test_readers_of_one_note_are_one_unit_through_its_writer(board: Board) -> None:
    """They met nothing of each other."""
    answer = board.separate("reader", "writer", "looker")
    (through,) = (edge for edge in answer["edges"] if edge["via"])
    assert through["via"] == [board.runs["writer"]]
    assert len(answer["units"]) == 1
    assert len(board.separate("reader", "looker")["units"]) == 2


def test_what_is_gone_or_named_twice_is_said(board: Board) -> None:
    """A run that was thrown away stays in the registry; one that is named but not there joins everything."""
    shutil.copytree(board.lab.home, board.lab.home.parent / "copy", symlinks=True)
    copy = Board(Lab(board.lab.home.parent / "copy", board.lab.work), board.place, board.runs)
    shutil.rmtree(copy.lab.home / "runs" / board.runs["removed"])
    answer = copy.separate("reader", "beside", "beside")
    assert answer["registry"]["missing"] == [board.runs["removed"]]
    assert [problem["run"] for problem in answer["problems"]] == [board.runs["beside"]]
    assert board.runs["removed"].encode() in copy.lab.call("ls").stderr
    (edge, *_) = copy.separate("removed", "beside")["edges"]
    assert (edge["verdict"], edge["reasons"][0]["rule"]) == ("unresolved", "run-without-proof")


def test_an_index_that_was_changed_is_not_believed(board: Board) -> None:
    """The seal binds it."""
    copy = Lab(board.lab.home.parent / "changed", board.lab.work)
    shutil.copytree(board.lab.home, copy.home, symlinks=True)
    index = copy.home / "runs" / board.runs["reader"] / "index.msgpack"
    index.write_bytes(index.read_bytes().replace(b"/note", b"/nope"))
    assert copy.call("verify", board.runs["reader"]).returncode == 1
    answer = json.loads(copy.call("separate", board.runs["reader"], board.runs["beside"], "--json").stdout)
    assert answer["edges"][0]["verdict"] == "unresolved"
    assert "index.msgpack" in answer["problems"][0]["problem"]


def test_python_gives_the_same_answer(board: Board, tmp_path: Path) -> None:
    """And the command draws it."""
    runs = [board.runs["writer"], board.runs["reader"]]
    found = supervisor.separate(runs, home=board.lab.home)
    assert json.loads(json.dumps(found.to_json())) == board.separate("writer", "reader")
    picture = tmp_path / "graph.svg"
    assert board.lab.call("separate", *runs, "--dot", "--plot", str(picture)).stdout.startswith(b"graph separation {")
    assert all(run in picture.read_text() for run in runs)


def test_a_run_that_was_never_sealed_joins_all(lab: Lab) -> None:
    """Its supervisor was killed: it is told, and never left out."""
    first = lab.run("--commit", "never", "--", "true").report["run"]
    started = lab.work.parent / "started"
    started.mkdir()
    running = lab.start("--shared", str(started), "--", "sh", "-c", f"touch {started}/now; sleep 60")
    assert wait_until((started / "now").exists)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    answer = json.loads(lab.call("separate", "all", "--json").stdout)
    assert len(answer["units"]) == 1
    (edge,) = answer["edges"]
    assert first in (edge["a"], edge["b"])
    assert edge["verdict"] == "unresolved"


@pytest.mark.parametrize(("then", "expected"), [("cat out", "connected"), ("true", "unresolved")])
def test_a_committed_workspace_that_is_used_again(lab: Lab, then: str, expected: str) -> None:
    """What was met joins; what may have been looked up is not known."""
    lab.sh("echo 1 > out")
    lab.sh(then)
    answer = json.loads(lab.call("separate", "all", "--json").stdout)
    assert [edge["verdict"] for edge in answer["edges"]] == [expected]


def test_a_stage_that_is_committed_later_is_met_from_then_on(lab: Lab) -> None:
    """The run had kept it; who worked before the commit met nothing of it."""
    writer = lab.sh("echo 1 > out", "--commit", "never").report["run"]
    early = lab.sh("cat out; true", "--commit", "never").report["run"]
    answer = json.loads(lab.call("separate", writer, early, "--json").stdout)
    assert len(answer["units"]) == 2
    assert lab.call("commit", writer).returncode == 0
    late = lab.sh("cat out", "--commit", "never").report["run"]
    answer = json.loads(lab.call("separate", writer, early, late, "--json").stdout)
    assert answer["units"] == [[writer, late], [early]]
    (edge,) = (edge for edge in answer["edges"] if edge["verdict"] != "separate")
    assert edge["verdict"] == "connected"


@contextmanager
def serving() -> Iterator[int]:
    """Serve HTTP on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_one_server_behind_two_names_that_are_declared_per_run_is_found_out(lab: Lab) -> None:
    """Both runs say that theirs is their own, and the same one answered."""
    with serving() as port:
        for name in ("one.test", "two.test"):
            policy = lab.work.parent / f"{name}.toml"
            policy.write_text(
                f'schema = 1\nname = "p"\n[[services]]\nname = "api"\nat = "{name}:80"\nstate = "per-run"\n'
            )
            get = f"import urllib.request as u; print(u.urlopen('http://{name}/', timeout=9).status)"
            options = ("--commit", "never", "--allow", f"{name}:80", "--map", f"{name}:80=127.0.0.1:{port}")
            ran = lab.run("-p", str(policy), *options, "--", *python(get))
            assert ran.out == b"200\n", ran.err
    (edge,) = json.loads(lab.call("separate", "all", "--json").stdout)["edges"]
    assert (edge["verdict"], edge["reasons"][0]["rule"]) == ("unresolved", "service-not-per-run")


def test_mistakes_are_said_before_anything_is_read(lab: Lab) -> None:
    """One run is no pair, and an ambiguous name is none either."""
    alone = lab.call("separate", "last")
    assert alone.returncode == 125
    assert b"two or more" in alone.stderr


def test_a_copy_of_a_run_is_the_same_run(board: Board) -> None:
    """Whatever its directory is called, it is counted once, and a run that was moved is not missing."""
    copy = Lab(board.lab.home.parent / "twins", board.lab.work)
    shutil.copytree(board.lab.home, copy.home, symlinks=True)
    kept, moved = copy.home / "runs" / board.runs["beside"], copy.home / "runs" / board.runs["reader"]
    shutil.copytree(kept, kept.with_name("20000101-000000-aaaaaa"), symlinks=True)
    moved.rename(moved.with_name("20000101-000000-bbbbbb"))
    answer = json.loads(copy.call("separate", "all", "--json").stdout)
    names = [run for unit in answer["units"] for run in unit]
    assert sorted(names) == sorted(board.runs.values())
    assert answer["registry"]["missing"] == []
    assert [problem["run"] for problem in answer["problems"]] == ["20000101-000000-aaaaaa"]
    assert any("bbbbbb" in problem for problem in answer["registry"]["problems"])
