"""Boxes for tests: a run directory, a workspace and a cgroup that are gone again afterwards."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.launch.box import Box, BoxSpec, hold
from supervisor.launch.view.view import ViewSpec

PYTHON = str(Path(sys.executable).resolve())
"""The interpreter itself: a virtual environment below /tmp does not exist in a box."""


def cgroup_root() -> Path:
    """Give the mount point of cgroup v2, on pure and hybrid hosts."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return Path(line.split()[4])
    message = "no cgroup v2 mount"
    raise LookupError(message)


class RealCgroup:
    """A cgroup of the test's own, with the few things a box asks of it."""

    def __init__(self) -> None:
        """Make it."""
        self.path = cgroup_root() / f"supervise-boxtest-{os.getpid()}-{time.monotonic_ns()}"
        self.path.mkdir()

    def pids(self) -> tuple[int, ...]:
        """Give its members."""
        return tuple(map(int, (self.path / "cgroup.procs").read_text().split()))

    def freeze(self, timeout_s: float) -> None:
        """Freeze it."""
        (self.path / "cgroup.freeze").write_text("1")
        deadline = time.monotonic() + timeout_s
        while "frozen 1" not in (self.path / "cgroup.events").read_text() and time.monotonic() < deadline:
            time.sleep(0.001)

    def thaw(self) -> None:
        """Thaw it."""
        (self.path / "cgroup.freeze").write_text("0")

    def kill(self) -> None:
        """Kill its members."""
        (self.path / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Remove it, once it is empty."""
        for _ in range(200):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.01)
        self.path.rmdir()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial came to."""

    status: int | None
    out: bytes
    err: bytes

    @property
    def code(self) -> int:
        """The exit code."""
        assert self.status is not None
        return os.waitstatus_to_exitcode(self.status)

    @property
    def text(self) -> str:
        """What it printed."""
        assert not self.err, self.err
        return self.out.decode()


class BoxLab:
    """Makes boxes on one workspace."""

    def __init__(self, base: Path) -> None:
        """Make the directories of a run."""
        self.base = base
        self.state = base / "state"
        self.run_dir = self.state / "runs" / "r1"
        self.workspace = base / "work"
        self.workspace.mkdir()
        for name in ("stage", "outside", "box", "log"):
            (self.run_dir / name).mkdir(parents=True)
        (self.run_dir / "manifest.json").write_text("secret")

    @property
    def upper(self) -> Path:
        """Where the workspace's writes are staged."""
        return self.run_dir / "stage" / "upper"

    def view(self, **changes: object) -> ViewSpec:
        """Give a view on the workspace."""
        spec = ViewSpec(
            workspace=bytes(self.workspace),
            staged=True,
            stage=bytes(self.run_dir / "stage"),
            outside=bytes(self.run_dir / "outside"),
            box=bytes(self.run_dir / "box"),
            state=bytes(self.state),
        )
        return replace(spec, **changes)

    def spec(self, *argv: str | bytes, view: ViewSpec | None = None, **changes: object) -> BoxSpec:
        """Give the specification of a box."""
        view = view or self.view()
        spec = BoxSpec(
            argv=tuple(map(os.fsencode, argv)),
            environ=((b"PATH", os.environb[b"PATH"]), (b"KEPT", b"yes")),
            cwd=os.path.realpath(view.workspace),
            view=view,
            log_canary=bytes(self.run_dir / "log" / "canary"),
            marker_canary=b"/.supervise-canary-r1",
            cache=self.state / "cache",
        )
        return replace(spec, **changes)

    def run(self, *argv: str | bytes, stdin: bytes = b"", view: ViewSpec | None = None, **changes: object) -> Outcome:
        """Run a command to the end of everything it started."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(stdin)
            files[0].seek(0)
            changes.setdefault("stdio", tuple(file.fileno() for file in files))
            with self.hold(self.spec(*argv, view=view, **changes)) as box:
                box.release()
                wait_end(box)
                box.kill_members()
                assert box.wait()
                status = box.read_exit_status()
            for file in files:
                file.seek(0)
            return Outcome(status=status, out=files[1].read(), err=files[2].read())

    @contextlib.contextmanager
    def hold(self, spec: BoxSpec) -> Iterator[Box]:
        """Hold a box in a cgroup of its own."""
        cgroup = RealCgroup()
        try:
            with hold(spec, cgroup) as box:
                yield box
        finally:
            cgroup.remove()
            for name in ("stage", "outside"):
                for layer in (self.run_dir / name).rglob("work"):
                    shutil.rmtree(layer, ignore_errors=True)


def wait_end(box: Box, timeout_s: float = 20) -> None:
    """Wait for the end of CMD."""
    poll = select.poll()
    poll.register(box.pidfd, select.POLLIN)
    assert poll.poll(timeout_s * 1000), "CMD did not end"


@contextlib.contextmanager
def box_lab() -> Iterator[BoxLab]:
    """Give a lab in a directory that is not below /tmp, so that the view shows it."""
    base = Path(tempfile.mkdtemp(prefix="boxtest-", dir="/var/tmp"))
    try:
        yield BoxLab(base)
    finally:
        shutil.rmtree(base)
