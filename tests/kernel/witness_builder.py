"""Programs that are watched without a box: a cgroup, a witness and what a test runs in it, gone again afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from probes.kernel.abi import Network
from probes.kernel.decode import decode_slab
from probes.kernel.witness import Counters, KernelWitness
from supervisor.events import Event, FileEvent, ProcessExited, ProcessKey
from supervisor.launch.cgroup import Cgroup, find_root

E = TypeVar("E", bound=Event)

#: What every program in Python begins with: `call` makes a system call by its number, and gives -errno when it fails.
PRELUDE = """
import ctypes, errno, os, signal, socket, struct, sys, threading, time
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = _libc.syscall(ctypes.c_long(number), *given)
    return -ctypes.get_errno() if result < 0 else result
def fork(act=lambda: None):
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return pid
"""
_JOIN = 'echo $$ > "$0" && exec "$@"'


@dataclass(slots=True, kw_only=True)
class Seen:
    """What one program did, as it was witnessed, and what it said itself."""

    events: list[Event]
    out: str
    err: str
    status: int

    def of(self, kind: type[E], where: Callable[[E], bool] = lambda _: True) -> list[E]:
        """Give the events of one class."""
        return [event for event in self.events if isinstance(event, kind) and where(event)]

    def one(self, kind: type[E], where: Callable[[E], bool] = lambda _: True) -> E:
        """Give the only event of one class."""
        (event,) = self.of(kind, where)
        return event

    @property
    def exits(self) -> dict[ProcessKey | None, int]:
        """When each process ended."""
        return {event.process: event.time_ns for event in self.of(ProcessExited)}

    def at(self, path: bytes | Path) -> list[FileEvent]:
        """Give the file events with this path."""
        return self.of(FileEvent, lambda event: event.path == bytes(path))


@dataclass(slots=True, kw_only=True)
class WitnessLab:
    """One watched cgroup."""

    ring_bytes: int = 1 << 20
    network: Network = Network.REFUSE
    cgroup: Cgroup = field(init=False)
    witness: KernelWitness = field(init=False)
    slabs: list[tuple[bytes, int]] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Make the cgroup and watch it."""
        self.cgroup = Cgroup.create(find_root(), f"witness-{os.getpid()}-{time.monotonic_ns()}")
        try:
            self.witness = KernelWitness.watch(
                find_root(), self.cgroup.path, ring_bytes=self.ring_bytes, network=self.network
            )
        except BaseException:
            self.cgroup.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing."""
        self.cgroup.kill()
        self.cgroup.wait_empty(10)
        self.cgroup.remove()
        self.witness.close()

    def take(self, slab: memoryview, count: int) -> None:
        """Keep one slab, as a log does."""
        self.slabs.append((bytes(slab), count))

    def drain(self) -> list[Event]:
        """Take what is in the ring; gives all events so far. A record that is being written hides those behind it."""
        goal, deadline = self.witness.ring.produced, time.monotonic() + 5
        while self.witness.ring.drain(self.take) or self.witness.ring.consumed < goal:
            assert time.monotonic() < deadline
        return list(self.decode())

    def decode(self) -> Iterator[Event]:
        """Decode all that was taken so far."""
        first = 0
        for slab, count in self.slabs:
            yield from decode_slab(slab, first, os.uname().machine)
            first += count

    def start(self, *argv: str | bytes | Path, **options: object) -> subprocess.Popen[str]:
        """Start a command in the cgroup."""
        join = ("/bin/sh", "-c", _JOIN, str(self.cgroup.path / "cgroup.procs"))
        pipe = subprocess.PIPE
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            [*join, *argv], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace", **options
        )

    def python(self, code: str, *arguments: str | Path, **options: object) -> subprocess.Popen[str]:
        """Start a program in Python."""
        return self.start(sys.executable, "-I", "-S", "-c", PRELUDE + code, *arguments, **options)

    def finish(self, process: subprocess.Popen[str]) -> Seen:
        """Take records until a command, and all that it left running, has ended. It must print little."""
        deadline = time.monotonic() + 60
        while process.poll() is None or not self.cgroup.wait_empty(0):
            self.witness.ring.drain(self.take)
            time.sleep(0.002)
            assert time.monotonic() < deadline
        out, err = process.communicate()
        return Seen(events=self.drain(), out=out, err=err, status=process.returncode)

    def counters(self) -> Counters:
        """Read the counters."""
        return self.witness.counters()


def witnessed(code: str, *arguments: str | Path, **options: object) -> Seen:
    """Watch one program in Python from its start to the end of all that it started; nothing may be lost, or raised."""
    with WitnessLab() as lab:
        seen = lab.finish(lab.python(code, *arguments, **options))
        assert lab.counters().losses == ()
        assert not seen.err, seen.err
        return seen


def compile_c(source: str, directory: Path, *flags: str) -> Path:
    """Build a program in C."""
    path = directory / "program"
    compiler = shutil.which("cc") or "gcc"
    subprocess.run(
        [compiler, "-O1", "-pthread", *flags, "-xc", "-", "-o", str(path)], input=source, text=True, check=True
    )
    return path


def witnessed_c(source: str, directory: Path, *arguments: str | Path) -> Seen:
    """Watch one program in C, like `witnessed`."""
    program = compile_c(source, directory)
    with WitnessLab() as lab:
        seen = lab.finish(lab.start(program, *arguments))
        assert lab.counters().losses == ()
        return seen
