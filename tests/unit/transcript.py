"""Transcripts of trials for tests: each call adds one event, a millisecond after the one before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from policies.types import AtEndpoint, Claim, FilesPolicy, LimitRole, Period, PeriodKind, Policy, StopRule
from supervisor import events as ev
from supervisor.evidence.collect import collect
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import FileState, Observed, SharedNames

WORK = b"/home/me/work"
INIT = ev.ProcessKey(100, 10)
MAIN = ev.ProcessKey(101, 20)
OFFSET_NS = 1_700_000_000_000_000_000
MS = 1_000_000
ENDPOINT, WITHIN, EVENTUALLY = PeriodKind.ENDPOINT, PeriodKind.WITHIN, PeriodKind.EVENTUALLY


def state(
    content: str = "x", *, mode: int = 0o644, kind: ev.Kind = ev.Kind.FILE, modified_ns: int | None = None
) -> FileState:
    """Give the state of a file whose digest is its content."""
    digest = f"sha256:{content}" if kind is ev.Kind.FILE else None
    return FileState(
        kind=kind, digest=digest, mode=mode, uid=0, gid=0, size_bytes=len(content), modified_ns=modified_ns
    )


def policy_for(
    *,
    period: PeriodKind = ENDPOINT,
    within_s: float | None = None,
    at_endpoint: AtEndpoint = AtEndpoint.FOLLOW,
    role: LimitRole = LimitRole.TASK,
    outcome: str | None = "out",
    files: FilesPolicy | None = None,
) -> Policy:
    """Give a policy with sane defaults; ``within`` is 10 s unless said otherwise."""
    if period is WITHIN and within_s is None:
        within_s = 10.0
    return Policy(
        claim=Claim(outcome=outcome, period=Period(kind=period, within_s=within_s)),
        stop=StopRule(at_endpoint=at_endpoint, role=role),
        files=files or FilesPolicy(),
    )


@dataclass
class Transcript:
    """A trial being told. `disk` is what `observe` finds: absolute path to (before, after).

    `shared` are the names that share a file, `beginning` the symlinks (and directories) that were there before.
    """

    events: list[ev.Event] = field(default_factory=list)
    disk: dict[bytes, Observed] = field(default_factory=dict)
    stage: list[bytes] = field(default_factory=list)
    shared: SharedNames = field(default_factory=SharedNames)
    beginning: dict[bytes, bytes] = field(default_factory=dict)
    now_ns: int = 1000 * MS
    next_pid: int = 200

    def add(self, kind: type[ev.Event], **fields: object) -> ev.Event:
        """Add one event of any class."""
        self.now_ns += MS
        fields.setdefault("process", MAIN)
        event = kind(n=len(self.events), time_ns=self.now_ns, **fields)
        self.events.append(event)
        return event

    # -- the box --

    def begin(self, *argv: str) -> ev.ProcessKey:
        """Hold CMD, test the box, release CMD and let it execute."""
        self.add(ev.ProcessStarted, process=INIT, parent=None, pid_inside=1)
        self.add(ev.ProcessStarted, process=MAIN, parent=INIT, pid_inside=2)
        self.add(ev.TrialHeld, init=INIT, helpers=(INIT,), cgroup=7, realtime_offset_ns=OFFSET_NS)
        self.add(ev.TrialTested, process=None, canary="opening", findings=(), witnessed=())
        self.add(ev.TrialReleased)
        self.execute(MAIN, *(argv or ("sh",)))
        return MAIN

    def endpoint(self, *alive: ev.ProcessKey, reason: str = "exit") -> None:
        """Reach the endpoint with some processes alive."""
        self.add(ev.TrialEndpoint, process=None, reason=reason, alive=alive)

    def snapshot(self, digest: str = "sha256:snap") -> None:
        """Freeze, capture and thaw."""
        self.add(ev.TrialFrozen, process=None)
        self.add(ev.TrialSnapshotted, process=None, digest=digest, files=1, size_bytes=1)
        self.add(ev.TrialThawed, process=None)

    def settled(self, *alive: ev.ProcessKey) -> None:
        """End following."""
        self.add(ev.TrialSettled, process=None, emptied=not alive, alive=alive)

    def kill(self, *killed: ev.ProcessKey, why: str = "hygiene") -> None:
        """Kill what is alive, and see it end."""
        self.add(ev.TrialKilled, process=None, why=why, killed=killed)
        for key in killed:
            self.exit(key, signal=9)

    def end(self, *, pids_left: int = 0) -> None:
        """Test the box again, end its init and see the cgroup empty."""
        self.add(ev.TrialTested, process=None, canary="closing", findings=(), witnessed=())
        self.exit(INIT)
        self.add(ev.TrialEmptied, process=None, pids_left=pids_left)
        self.add(ev.TrialCounted, process=None, egress_packets=0, egress_bytes=0)

    # -- processes --

    def fork(self, parent: ev.ProcessKey = MAIN) -> ev.ProcessKey:
        """Make a child."""
        self.next_pid += 1
        child = ev.ProcessKey(self.next_pid, self.now_ns + MS)
        self.add(ev.ProcessStarted, process=child, parent=parent, pid_inside=self.next_pid - 100)
        return child

    def execute(self, process: ev.ProcessKey, *argv: str) -> None:
        """Execute a program."""
        words = tuple(word.encode() for word in argv)
        self.add(ev.ProcessExecuted, process=process, exe=b"/usr/bin/" + words[0], argv=words)

    def spawn(self, *argv: str, parent: ev.ProcessKey = MAIN) -> ev.ProcessKey:
        """Make a child that executes a program."""
        child = self.fork(parent)
        self.execute(child, *argv)
        return child

    def exit(self, process: ev.ProcessKey = MAIN, code: int = 0, signal: int | None = None) -> None:
        """End a process."""
        self.add(ev.ProcessExited, process=process, exit_code=None if signal else code, signal=signal)

    # -- files --

    def file(self, kind: type[ev.Event], name: str | bytes, **fields: object) -> ev.Event:
        """Add a file event; a name without a leading slash is in the workspace."""
        for other in ("new_path",):
            if other in fields:
                fields[other] = absolute(fields[other])
        return self.add(kind, path=absolute(name), **fields)

    def create(self, name: str | bytes, **fields: object) -> ev.Event:
        """Open a new file for writing."""
        return self.file(ev.FileOpened, name, reads=False, writes=True, created=True, **fields)

    def write(self, name: str | bytes, **fields: object) -> ev.Event:
        """Write to a file that was opened for writing."""
        self.file(ev.FileOpened, name, reads=False, writes=True, **fields)
        return self.file(ev.FileWritten, name, count=1, size_bytes=1, last_ns=self.now_ns + MS, **fields)

    def delete(self, name: str | bytes, **fields: object) -> ev.Event:
        """Remove a name."""
        return self.file(ev.FileDeleted, name, **fields)

    def rename(self, name: str | bytes, new: str | bytes, **fields: object) -> ev.Event:
        """Rename a name."""
        return self.file(ev.FileRenamed, name, new_path=new, **fields)

    def found(self, name: str | bytes, before: FileState | None, after: FileState | None) -> None:
        """Say what is found on disk at a path, before and after; it is in the stage when the two differ."""
        self.disk[absolute(name)] = Observed(before=before, after=after)
        if before != after and absolute(name) not in self.stage:
            self.stage.append(absolute(name))

    # -- answers --

    def observe(self, paths: Sequence[bytes]) -> dict[bytes, Observed]:
        """Look at the disk."""
        return {path: self.disk.get(path, Observed(before=None, after=None)) for path in paths}

    def facts(self, policy: Policy | None = None, events: Iterable[ev.Event] | None = None) -> Facts:
        """Collect the facts, from the events as told or as given."""
        return collect(
            self.events if events is None else events,
            policy=policy or policy_for(),
            workspace=WORK,
            observe=self.observe,
            changed=lambda: list(self.stage),
            aliases=lambda _: self.shared,
            beginning=self.beginning.get,
        )


def absolute(name: object) -> bytes:
    """Give the absolute path of a name in the workspace."""
    raw = name if isinstance(name, bytes) else str(name).encode()
    return raw if raw.startswith(b"/") else WORK + b"/" + raw


def ordinary() -> Transcript:
    """Tell of ``echo hi > out``: ends by itself, nothing is left."""
    trial = Transcript()
    trial.begin("sh", "-c", "echo hi > out")
    trial.create("out")
    trial.write("out")
    trial.found("out", None, state("hi"))
    trial.exit()
    trial.endpoint()
    trial.settled()
    trial.end()
    return trial


def straggler(
    *,
    handling: str = "cut",
    snapshot: bool = True,
    gap_write: bool = False,
    late_write: bool = False,
    late_snapshot: bool = False,
    pids_left: int = 0,
    lasts_ms: int = 50,
) -> Transcript:
    """Tell of a daemon that outlives the endpoint; ``handling`` is ended, cut, cancel or unseen (never seen ending)."""
    trial = Transcript()
    trial.begin("sh", "-c", "(setsid sleep 61.5 &)")
    trial.create("out")
    trial.write("out")
    trial.found("out", None, state("1"))
    between = trial.fork()
    daemon = trial.spawn("sleep", "61.5", parent=between)
    trial.exit(between)
    trial.exit()
    trial.endpoint(daemon)
    if gap_write:
        trial.write("out", process=daemon)
    if snapshot:
        trial.snapshot()
    if late_write:
        trial.write("out", process=daemon)
    trial.now_ns += lasts_ms * MS
    if late_snapshot:
        trial.snapshot("sha256:late")
    if handling == "ended":
        trial.exit(daemon)
        trial.settled()
    elif handling != "unseen":
        trial.settled(daemon)
        trial.kill(daemon, why="cancel" if handling == "cancel" else "hygiene")
    trial.end(pids_left=pids_left)
    return trial


def without_commit(policy: Policy) -> Policy:
    """Give the same policy with staged writes that stay staged."""
    return replace(policy, files=replace(policy.files, commit=type(policy.files.commit).NEVER))
