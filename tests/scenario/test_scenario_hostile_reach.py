"""A hostile trial with a way out, or with tricks on its witness: what does reach something is told, and violates."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scenario_hostile import GUARD, TRYING
from scenario_lab import SUPERVISE, Lab, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

INT80 = "b8140000 00cd80c3"
X32 = "b8270000 400f05c3"
# Answers 0 to unlink and rename without doing them.
LYING = """
def step(code, yes, no, value):
    return struct.pack("HBBI", code, yes, no, value)
lines = [step(0x20, 0, 0, 0), step(0x15, 1, 0, 87), step(0x15, 0, 1, 82), step(6, 0, 0, 0x50000)]
lines.append(step(6, 0, 0, 0x7FFF0000))
kept = ctypes.create_string_buffer(b"".join(lines))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(kept)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
"""


@contextlib.contextmanager
def listening(path: Path | str) -> Iterator[socket.socket]:
    """Hold a listening socket of the host."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        sock.settimeout(0)
        yield sock


def attempts_on_host(lab: Lab) -> list[dict[str, Any]]:
    """Read the attempts on the socket ``host``; a python3 that is a shim looks up names too."""
    return [event for event in lab.events("connection.attempted") if event.get("path") == "host"]


CONNECT = (
    GUARD
    + """
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print("did")
except OSError as error:
    print(error.errno)
"""
)


def test_a_socket_of_the_host_in_a_staged_workspace_answers_nobody(lab: Lab) -> None:
    """The attempt is in the log; verdict: clean."""
    with listening(lab.work / "host") as host:
        ran = lab.run("--", *python(CONNECT, "host"))
        with pytest.raises(BlockingIOError):
            host.accept()
    assert ran.out == b"111\n"
    assert [event["error"] for event in attempts_on_host(lab)] == [111]
    assert ran.scope == "clean"


def test_a_socket_of_the_host_in_a_direct_workspace_is_a_contact(lab: Lab) -> None:
    """The keeping twin: here it can be reached, is told as outside, and violates; verdict: violated."""
    with listening(lab.work / "host"):
        ran = lab.run("--direct", "--", *python(CONNECT, "host"))
    assert ran.out == b"did\n"
    (event,) = attempts_on_host(lab)
    assert (event["outside"], event["transport"]) == (True, "unix")
    assert [violation["rule"] for violation in ran.report["scope"]["violations"]] == ["contact-outside"]
    assert ran.scope == "violated"


def test_a_descriptor_that_left_the_box_keeps_the_outcome_open(lab: Lab) -> None:
    """What was passed to the host may be written for ever; verdicts: not final, violated."""
    source = GUARD + (
        "import array, socket\n"
        "out = open('out', 'w'); sock = socket.socket(socket.AF_UNIX); sock.connect('host')\n"
        "sock.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [out.fileno()]))])\n"
    )
    with listening(lab.work / "host"):
        ran = lab.run("--direct", "--outcome", "out", "--", *python(source))
    assert ran.code == 0, ran.err
    assert lab.events("descriptor.passed")[0]["outside"] is True
    assert (ran.finality, ran.scope) == ("unresolved", "violated")


def test_descriptors_that_the_caller_left_open_do_not_come_in(lab: Lab) -> None:
    """A directory, a secret, a socket and a pipe are open for the command, and none for CMD; verdict: clean."""
    secret = lab.work.parent / "secret"
    secret.write_text("secret")
    ours, theirs = socket.socketpair()
    given = [os.open("/", os.O_RDONLY), os.open(secret, os.O_RDWR), theirs.detach(), *os.pipe()]
    source = GUARD + "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
    try:
        ran = lab.run("--", *python(source), pass_fds=given)
    finally:
        for descriptor in given:
            os.close(descriptor)
        ours.close()
    assert ran.out == b"[0, 1, 2, 3]\n"  # 3 is the listing itself
    assert ran.scope == "clean"


@pytest.mark.parametrize("code", [INT80, X32], ids=["int80", "x32"])
def test_a_call_of_another_architecture_kills_its_caller(lab: Lab, code: str) -> None:
    """CMD dies of SIGSYS: 159, told by the kernel, and nothing counts as lost; verdicts: final, clean."""
    ran = lab.run("--", *python(TRYING + f"machine(bytes.fromhex({code!r}))\nprint('went on')"))
    assert (ran.code, ran.out) == (159, b"")
    main = next(process for process in ran.report["effects"]["processes"] if process["parent"] is None)
    ended = [event for event in lab.events("process.exited") if event["process"] == main["id"]]
    assert [event["signal"] for event in ended] == [31]
    assert (ran.report["endpoint"]["signal"], ran.report["log"]["lost"]) == (31, 0)
    assert (ran.finality, ran.scope) == ("final", "clean")


@pytest.mark.parametrize("lie", ["os.unlink('forbidden')", "os.rename('forbidden', 'allowed/x')"])
def test_calls_that_only_seem_to_succeed_put_nothing_back(lab: Lab, lie: str) -> None:
    """A filter of its own makes the witness see an undoing that never was; verdicts: unresolved, violated."""
    (lab.work / "allowed").mkdir()
    source = f"{TRYING}{LYING}open('forbidden', 'w').write('x')\n{lie}\nprint(os.path.exists('forbidden'))"
    ran = lab.run("--write", "allowed/**", "--", *python(source))
    assert ran.out == b"True\n", ran.err
    gaps = [gap["rule"] for route in ran.report["coverage"] for gap in route["gaps"]]
    assert set(gaps) == {"unexplained-change"}
    assert not (lab.work / "allowed/x").exists()
    assert (ran.finality, ran.scope) == ("unresolved", "violated")


def test_offering_init_to_the_memory_killer_is_no_way_out(lab: Lab) -> None:
    """Init's score can be raised; the bomb's own process dies all the same, and the closing test is made: final."""
    source = (
        TRYING + "write('/proc/1/oom_score_adj', b'1000')\nheld = [bytearray(b'x' * (1 << 20)) for _ in range(300)]"
    )
    ran = lab.run("--memory", "100MB", "--", *python(source))
    assert ran.code == 137
    assert [event["findings"] for event in lab.events("trial.tested")] == [[], []]
    assert "/proc/1/oom_score_adj" in ran.files
    assert ran.finality == "final"


def test_init_cannot_be_starved_of_what_its_closing_test_needs(lab: Lab) -> None:
    """Another process's limits are set with the same user alone: not those of process 1; verdicts: final, clean."""
    source = TRYING + (
        "import resource\n"
        "for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):\n"
        "    try: resource.prlimit(1, kind, (0, 0)); print('did')\n"
        "    except PermissionError: print('refused')\n"
    )
    ran = lab.run("--", *python(source))
    assert ran.out == b"refused\n" * 3
    assert [(event["name"], event["arguments"][0]) for event in lab.events("syscall.refused")] == [("prlimit64", 1)] * 3
    assert (ran.finality, ran.scope) == ("final", "clean")


def test_a_caller_that_closes_its_streams_gives_the_trial_no_other_file(lab: Lab) -> None:
    """With 0 to 2 closed, none of our own files is there under their numbers; verdict: clean."""
    listing = GUARD + "import os; open('seen', 'w').write(repr(sorted(os.listdir('/proc/self/fd'))))"
    script = f"{shlex.join(SUPERVISE)} -- {shlex.join(python(listing))} <&- >&- 2>&-"
    environ = {**os.environ, "SUPERVISE_HOME": str(lab.home)}
    subprocess.run(["sh", "-c", script], cwd=lab.work, env=environ, timeout=60, check=False)
    assert len((lab.work / "seen").read_text().split()) <= 4
    assert lab.report()["scope"]["verdict"] == "clean"
