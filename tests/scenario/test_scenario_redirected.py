"""Runs between which the caller redirects: files, fifos and pipes that are the standard streams of both.

Each test has a home of its own, in which there are two runs; neither commits anything.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, Ran, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

ONLY_KEPT = ("--commit", "never")
READ_AGAIN = "import os; os.write(1, b'x'); os.read(os.open('/proc/self/fd/1', os.O_RDONLY), 9)"


@pytest.fixture
def base(lab: Lab) -> Path:
    """A directory of the host, outside of every workspace."""
    return lab.work.parent


def trial(lab: Lab, script: str, *options: str, **streams: Any) -> Ran:
    """Run a script with these streams."""
    ran = lab.run(*ONLY_KEPT, *options, "--", "sh", "-c", script, **streams)
    assert ran.code == 0, ran.err
    return ran


def edge(lab: Lab) -> dict[str, Any]:
    """Give what joins the two runs; nothing is separate."""
    answer = lab.call("separate", "all", "--json")
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert sum(map(len, found["units"])) == 2
    return dict(found["edges"][0]) if found["edges"] else {"verdict": "separate", "reasons": []}


def judged(lab: Lab) -> tuple[str, set[str]]:
    """Give the verdict and its rules."""
    found = edge(lab)
    return found["verdict"], {reason["rule"] for reason in found["reasons"]}


def test_who_is_given_what_another_run_wrote_is_joined_with_it(lab: Lab, base: Path) -> None:
    """``A > f; B < f``: the events say what each was given, and a write through a stream violates no scope."""
    with (base / "f").open("wb") as out:
        wrote = trial(lab, "echo one", "--write", "nothing/**", stdout=out)
    with (base / "f").open("rb") as given:
        read = trial(lab, "cat", stdin=given)
    assert read.out == b"one\n"
    found = edge(lab)
    (reason,) = found["reasons"]
    assert {event.partition(":")[0] for event in reason["events"]} == {wrote.report["run"], read.report["run"]}
    told = [event for event in lab.events("stream") if event["number"] == 0]
    assert [(event["kind"], event.get("path")) for event in told] == [
        ("stream.given", str(base / "f")),
        ("stream.left", None),
    ]
    assert (wrote.scope, found["verdict"], reason["rule"]) == ("clean", "connected", "met-a-change")


def test_files_of_their_own_join_nobody(lab: Lab, base: Path) -> None:
    """Also side by side in one directory, where each new one is made between runs."""
    for name in ("a", "b"):
        (base / f"{name}.in").write_text(name)
        with (base / f"{name}.in").open("rb") as given, (base / f"{name}.out").open("wb") as out:
            trial(lab, "cat", stdin=given, stdout=out)
    assert judged(lab) == ("separate", set())


def test_who_reads_it_by_its_name_is_joined_too(lab: Lab) -> None:
    """In its workspace."""
    with (lab.work / "f").open("wb") as out:
        trial(lab, "echo one", stdout=out)
    assert trial(lab, "cat f").out == b"one\n"
    verdict, rules = judged(lab)
    assert "met-a-change" in rules
    assert verdict == "connected"


def test_who_works_elsewhere_is_not(lab: Lab, base: Path) -> None:
    """Nothing of it is seen from there."""
    with (lab.work / "f").open("wb") as out:
        trial(lab, "echo one", stdout=out)
    (base / "elsewhere").mkdir()
    trial(lab, "cat f 2> errors; true", "--workspace", str(base / "elsewhere"))
    assert judged(lab) == ("separate", set())


@pytest.mark.parametrize(("given", "expected"), [("f", "connected"), ("g", "separate")])
def test_who_is_given_what_was_written_in_a_shared_place(lab: Lab, base: Path, given: str, expected: str) -> None:
    """Written by its name, and handed over to the other run; a file beside it is another one."""
    place = base / "place"
    place.mkdir()
    for name in ("f", "g"):
        (place / name).write_text("before\n")
    trial(lab, f"echo one > {place}/f", "--shared", str(place))
    with (place / given).open("rb") as stdin:
        trial(lab, "cat", stdin=stdin)
    assert judged(lab)[0] == expected


@pytest.mark.parametrize(
    ("flags", "script", "expected"),
    [
        (os.O_WRONLY, ("sh", "-c", "echo x"), "separate"),
        (os.O_RDWR, ("sh", "-c", "echo x"), "connected"),
        (os.O_WRONLY, python(READ_AGAIN), "connected"),
    ],
)
def test_a_log_to_which_both_append(lab: Lab, base: Path, flags: int, script: tuple[str, ...], expected: str) -> None:
    """It joins nobody who cannot read it: not by its descriptor, nor by opening that anew."""
    for _ in range(2):
        log = os.open(base / "log", flags | os.O_APPEND | os.O_CREAT, 0o600)
        assert lab.run(*ONLY_KEPT, "--", *script, stdout=log).code == 0
        os.close(log)
    assert judged(lab)[0] == expected


def test_one_input_that_neither_changed_joins_nobody(lab: Lab, base: Path) -> None:
    """Each has it from the beginning, and to its end."""
    (base / "in").write_text("one\n")
    for _ in range(2):
        with (base / "in").open("rb") as given:
            assert trial(lab, "cat", stdin=given).out == b"one\n"
    assert judged(lab) == ("separate", set())


@pytest.mark.parametrize(
    ("first", "expected"),
    [("head -c 4 > /dev/null", ("unresolved", {"read-on"})), ("true", ("separate", set()))],
)
def test_one_open_file_is_read_on_where_the_first_stopped(
    lab: Lab, base: Path, first: str, expected: tuple[str, set[str]]
) -> None:
    """``(A; B) < f``: what A takes B does not get. Where it takes nothing, B begins where the caller was."""
    (base / "in").write_text("no\none\ntwo\n")
    with (base / "in").open("rb", buffering=0) as given:
        given.seek(3)
        trial(lab, first, stdin=given)
        assert trial(lab, "cat", stdin=given).out == (b"two\n" if first.startswith("head") else b"one\ntwo\n")
    assert judged(lab) == expected


def test_a_file_is_known_again_by_another_name(lab: Lab, base: Path) -> None:
    """It was renamed between the runs."""
    with (base / "f").open("wb") as out:
        trial(lab, "echo one", stdout=out)
    (base / "f").rename(base / "g")
    with (base / "g").open("rb") as given:
        trial(lab, "cat", stdin=given)
    assert judged(lab) == ("connected", {"met-a-stream"})


def test_a_new_file_is_not_taken_for_one_that_is_gone(lab: Lab, base: Path) -> None:
    """Its inode may have the same number."""
    with (base / "f").open("wb") as out:
        trial(lab, "echo one", stdout=out)
    (base / "f").unlink()
    (base / "g").write_text("two\n")
    with (base / "g").open("rb") as given:
        trial(lab, "cat", stdin=given)
    assert judged(lab) == ("separate", set())


def test_an_output_that_stayed_empty_changed_nobody(lab: Lab, base: Path) -> None:
    """No write is told, and the file is as it was."""
    with (base / "f").open("wb") as out:
        trial(lab, "true", stdout=out)
    with (base / "f").open("rb") as given:
        trial(lab, "cat", stdin=given)
    assert judged(lab) == ("separate", set())


@pytest.mark.parametrize(("by_the_run", "expected"), [(True, "connected"), (False, "separate")])
def test_an_output_that_was_put_back_in_between(lab: Lab, base: Path, *, by_the_run: bool, expected: str) -> None:
    """By somebody else, so that the later run found what the earlier one had found; itself it would show when."""
    (base / "f").write_text("before\n")
    with (base / "f").open("ab") as out:
        trial(lab, "echo one" + ("; truncate -s 7 /proc/self/fd/1" if by_the_run else ""), stdout=out)
    if not by_the_run:
        (base / "f").write_text("before\n")
    with (base / "f").open("rb") as given:
        assert trial(lab, "cat", stdin=given).out == b"before\n"
    assert judged(lab)[0] == expected


@pytest.mark.parametrize(("named", "rule"), [(True, "met-a-change"), (False, "met-a-stream")])
def test_a_pipe_from_one_to_the_other_joins_them(lab: Lab, base: Path, *, named: bool, rule: str) -> None:
    """``A | B``, and the same through a fifo."""
    os.mkfifo(base / "fifo")
    read, write = os.pipe()
    if named:
        os.close(read)
        os.close(write)
        read, write = os.open(base / "fifo", os.O_RDONLY | os.O_NONBLOCK), os.open(base / "fifo", os.O_WRONLY)
        os.set_blocking(read, True)
    earlier = lab.start(*ONLY_KEPT, "--", "echo", "one", stdout=write)
    later = lab.start(*ONLY_KEPT, "--", "cat", stdin=read)
    os.close(read)
    os.close(write)
    assert (later.communicate()[0], earlier.communicate()[0]) == (b"one\n", None)
    assert judged(lab) == ("connected", {rule})


def test_pipes_of_their_own_join_nobody(lab: Lab) -> None:
    """While both run, and both also write to one pipe."""
    read, write = os.pipe()
    started = [lab.start(*ONLY_KEPT, "--", "cat", stdin=subprocess.PIPE, stderr=write) for _ in range(2)]
    os.close(write)
    for process in started:
        process.communicate(b"x")
    assert os.read(read, 1)
    os.close(read)
    assert judged(lab) == ("separate", set())


@pytest.mark.parametrize(
    ("closed", "expected"),
    [(False, ("unresolved", {"read-from-one-stream"})), (True, ("separate", set()))],
)
def test_one_pipe_that_both_can_read_from(lab: Lab, *, closed: bool, expected: tuple[str, set[str]]) -> None:
    """What one takes the other does not get; at its end there is nothing to be taken."""
    read, write = os.pipe()
    if closed:
        os.close(write)
    for _ in range(2):
        trial(lab, "true", stdin=read)
    assert judged(lab) == expected


def test_a_terminal_and_devnull_join_nobody(lab: Lab) -> None:
    """Nothing is told of them."""
    master, terminal = pty.openpty()
    drained = threading.Thread(target=_drain, args=(master,))
    drained.start()
    for _ in range(2):
        lab.call(*ONLY_KEPT, "--", "true", stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    drained.join()
    assert lab.events("stream") == []
    assert judged(lab) == ("separate", set())


def _drain(master: int) -> None:
    try:
        while os.read(master, 4096):
            pass
    except OSError:  # nobody has the terminal any more
        os.close(master)


@pytest.mark.parametrize(("given", "expected"), [("answers", "connected"), ("calls", "separate")])
def test_what_a_tool_server_answers_is_its_output(lab: Lab, base: Path, given: str, expected: str) -> None:
    """It is passed on to where the client is; what was asked of it was not its doing."""
    (base / "calls").write_text('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    with (base / "calls").open("rb") as calls, (base / "answers").open("wb") as answers:
        assert lab.call("tool", *ONLY_KEPT, "--", "head", "-n", "1", stdin=calls, stdout=answers).returncode == 0
    assert (base / "answers").read_bytes()
    with (base / given).open("rb") as stdin:
        trial(lab, "cat", stdin=stdin)
    assert judged(lab)[0] == expected
