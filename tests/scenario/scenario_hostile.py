"""Hostile trials: a table of attempts, tried in one box, each in a process of its own, so that each has its events.

Rule: nothing of it runs outside a box; every program looks at pid 1 first.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenario_lab import PATIENCE_S, Lab, Ran, python

GUARD = """
if open("/proc/1/comm").read() != "boxinit\\n":
    raise SystemExit("not in a box")
"""

TRYING = (
    GUARD
    + """
import ctypes, errno, fcntl, json, mmap, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    words = [a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    return "did" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def tried(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "did"
def write(path, data=b"x"):
    file = os.open(path, os.O_WRONLY)
    os.write(file, data)
    os.close(file)
def machine(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
)

EACH = (
    TRYING
    + """
given, answers = json.load(sys.stdin), {}
os.chdir("/tmp")
for name, source in json.loads(sys.argv[1]).items():
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        try:
            exec(source)
        except BaseException as error:
            print("failed:", repr(error))
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode().strip()
    answers[name] = [pid, os.waitpid(pid, 0)[1], said]
print(json.dumps(answers))
"""
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row: what is tried, what must be answered, and the events that must be in the log, by their fields.

    ``killed`` is the signal that must end the process. A path in ``events`` stands for every path that ends in it.
    """

    source: str
    answer: str
    events: tuple[Mapping[str, Any], ...] = ()
    killed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of one attempt."""

    answer: str
    status: int
    events: Sequence[Mapping[str, Any]]

    def holds(self, wanted: Mapping[str, Any]) -> bool:
        """Tell whether the log has an event of the attempt's own process with these fields."""
        return any(all(_meets(event, name, value) for name, value in wanted.items()) for event in self.events)


def _meets(event: Mapping[str, Any], name: str, wanted: object) -> bool:
    found = event.get(name)
    return str(found).endswith(str(wanted)) if name == "path" else found == wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Assault:
    """One finished trial of many attempts."""

    ran: Ran
    tried: Mapping[str, Tried]
    events: Sequence[Mapping[str, Any]]


def assault(lab: Lab, attempts: Mapping[str, Attempt], *options: str, **given: Any) -> Assault:
    """Try everything in one box; ``given`` is what the hostile programs know of the host, and the supervisor's pid."""
    sources = {name: attempt.source for name, attempt in attempts.items()}
    with lab.start(*options, "--", *python(EACH, json.dumps(sources)), stdin=subprocess.PIPE) as process:
        known = json.dumps({**given, "supervisor": process.pid}).encode()
        out, err = process.communicate(known, timeout=PATIENCE_S)
    assert process.returncode == 0, err
    ran = Ran(code=0, out=out, err=err, report=lab.report())
    events = lab.events()
    tried = {
        name: Tried(answer=said, status=status, events=_of_process(events, pid))
        for name, (pid, status, said) in json.loads(out).items()
    }
    return Assault(ran=ran, tried=tried, events=events)


def check(attempt: Attempt, tried: Tried) -> None:
    """Check one row."""
    assert (tried.answer, tried.status) == (attempt.answer, attempt.killed)
    for wanted in attempt.events:
        assert tried.holds(wanted), (wanted, [event for event in tried.events if event["kind"] != "process.started"])


def _of_process(events: Sequence[Mapping[str, Any]], pid: int) -> list[Mapping[str, Any]]:
    """Give the events of the process with this pid in the box, and of what it started."""
    keys = {event["process"] for event in events if event["kind"] == "process.started" and event["pid_inside"] == pid}
    for event in events:
        if event["kind"] == "process.started" and event.get("parent") in keys:
            keys.add(event["process"])
    return [event for event in events if event.get("process") in keys]
