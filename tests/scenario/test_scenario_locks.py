"""What one trial holds and another one waits for, or is refused: locks, sockets, fifos and names in a shared place."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from scenario_lab import Lab, python, wait_until

from supervisor.verdict.runs.run_index import decode_index

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

Trials = tuple[Lab, dict[str, str], dict[str, bytes]]
"""The lab, the ids of its runs, and what each of them printed."""

HOLDER = """
import fcntl, os, socket, sys
at = lambda name: os.path.join(sys.argv[1], name)
flock = open(at('flock')); fcntl.flock(flock, fcntl.LOCK_EX)
record = open(at('record'), 'r+'); fcntl.lockf(record, fcntl.LOCK_EX)
free = open(at('free')); fcntl.flock(free, fcntl.LOCK_EX); fcntl.flock(free, fcntl.LOCK_UN)
server = socket.socket(socket.AF_UNIX); server.bind(at('socket'))
os.mkdir(at('lock.d'))
fifo = os.open(at('fifo'), os.O_RDWR)
open(at('held'), 'w').close()
sys.stdin.read()
"""

ASKER = """
import fcntl, os, socket, struct, sys
at = lambda name: os.path.join(sys.argv[1], name)
shared = struct.pack('hhlli', fcntl.F_RDLCK, 0, 0, 0, 0)
deeds = {
    'refused-flock': lambda: fcntl.flock(open(at('flock')), fcntl.LOCK_EX | fcntl.LOCK_NB),
    'refused-record': lambda: fcntl.lockf(open(at('record'), 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB),
    'asked': lambda: fcntl.fcntl(open(at('record')), fcntl.F_GETLK, shared),
    'waited': lambda: fcntl.flock(open(at('flock')), fcntl.LOCK_SH),
    'free': lambda: fcntl.flock(open(at('free')), fcntl.LOCK_EX | fcntl.LOCK_NB),
    'other': lambda: fcntl.flock(open(at('other')), fcntl.LOCK_EX | fcntl.LOCK_NB),
    'port': lambda: socket.socket(socket.AF_UNIX).bind(at('socket')),
    'name': lambda: os.mkdir(at('lock.d')),
    'fifo': lambda: os.write(os.open(at('fifo'), os.O_WRONLY), b'x'),
}
for what in sys.argv[2:]:
    try: print(what, deeds[what]() is None)
    except OSError as error: print(what, error.errno)
"""

ASKERS = {
    "refused": ("refused-flock",),
    "asked": ("asked",),
    "names": ("port", "name", "fifo"),
    "nothing": ("free", "other"),
}
"""What each of the trials that come does."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    """One trial that holds things while others come and ask, each in its own way."""
    base = tmp_path_factory.mktemp("locks")
    home, work, place = base / "home", base / "work", base / "place"
    home.mkdir(mode=0o700)
    work.mkdir()
    place.mkdir()
    for name in ("flock", "record", "free", "other"):
        (place / name).write_text("x")
    os.mkfifo(place / "fifo")
    lab = Lab(home, work)
    common = ("--shared", str(place), "--commit", "never")
    ids: dict[str, str] = {}
    said: dict[str, bytes] = {}

    def asks(name: str, *options: str, what: tuple[str, ...]) -> None:
        ran = lab.run(*common, *options, "--", *python(ASKER, str(place), *what))
        ids[name], said[name] = ran.report["run"], ran.out

    holder = lab.start(*common, "--json", "--", *python(HOLDER, str(place)), stdin=subprocess.PIPE)
    assert wait_until((place / "held").exists)
    for name, what in ASKERS.items():
        asks(name, what=what)
    asks("waited", "--timeout", "1s", what=("waited",))
    out, _ = holder.communicate()
    ids["holder"] = json.loads(out)["run"]
    return lab, ids, said


def edges(runs: Trials, other: str) -> list[dict[str, Any]]:
    """Give what joins the holder and another one."""
    lab, ids, _ = runs
    answer = lab.call("separate", ids["holder"], ids[other], "--json")
    assert answer.returncode == 0, answer.stderr
    return list(json.loads(answer.stdout)["edges"])


@pytest.mark.parametrize(
    ("other", "met"),
    [
        ("refused", ("met-a-lock", "flock")),
        ("asked", ("met-a-lock", "record")),
        ("waited", ("met-a-lock", "flock")),
        ("names", ("met-a-change", "socket")),
        ("names", ("met-a-change", "lock.d")),
        ("names", ("met-a-change", "fifo")),
    ],
)
def test_who_is_blocked_or_refused_is_joined(runs: Trials, other: str, met: tuple[str, str]) -> None:
    """By a lock, a socket's name, a directory that stands for a lock, or a fifo: both sides' events are cited."""
    (edge,) = edges(runs, other)
    assert edge["verdict"] == "connected", runs[2][other]
    (reason, *_) = (one for one in edge["reasons"] if one["rule"] == met[0] and f"/{met[1]}" in one["text"])
    assert {event.partition(":")[0] for event in reason["events"]} == {runs[1]["holder"], runs[1][other]}


def test_who_is_not_hindered_is_not_joined(runs: Trials) -> None:
    """A lock that was given back before, or another file's lock, keeps nobody from anything."""
    assert runs[2]["nothing"] == b"free True\nother True\n"
    assert [edge["verdict"] for edge in edges(runs, "nothing")] in ([], ["separate"])


def test_a_wait_lasts_until_the_waiter_is_killed(runs: Trials) -> None:
    """The call never came back, and it is known all the same."""
    lab, ids, said = runs
    assert said["waited"] == b""
    (lock,) = decode_index((lab.home / "runs" / ids["waited"] / "index.msgpack").read_bytes()).locks
    assert (lock.how, lock.sort, lock.exact) == ("waited", "flock", True)
    assert lock.last_ns > lock.first_ns
