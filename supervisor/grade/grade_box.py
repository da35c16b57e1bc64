"""One run of a grader in a box of its own: held, witnessed, released, ended, and its log sealed beside the run's.

Laws:
    * A grader is watched as a trial is: own cgroup, own ring, own log, whose root the caller binds into the run's.
    * It sees the captured outcome read-only, and nothing that it does outlives it.
    * How it ended is told by the kernel witness. Whatever else goes wrong is a ``problem``, never a label.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from policies.redaction import NOTHING_HIDDEN, Redactor
from probes.kernel.consumer import Consumer
from probes.kernel.decode import decode_slab
from probes.kernel.watching import plan_looks
from probes.kernel.witness import KernelWitness
from supervisor import clock
from supervisor.errors import LaunchError, MachineError
from supervisor.events import (
    Origin,
    TrialCounted,
    TrialEmptied,
    TrialEndpoint,
    TrialHeld,
    TrialKilled,
    TrialReleased,
    TrialSealed,
    TrialTested,
)
from supervisor.evidence.graders.grader import GraderDid, read_grader
from supervisor.launch.box import Box, hold
from supervisor.launch.boxspec import BoxSpec
from supervisor.launch.brake import Brake
from supervisor.launch.cgroup import Cgroup, find_root
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.leftovers import clean_cgroup, clean_run
from supervisor.launch.limits import Limit, LimitedCgroup
from supervisor.launch.runs.owner import Owner
from supervisor.launch.runs.state import RunDir
from supervisor.launch.view.grader_view import GraderViewSpec, plan_grader_view
from supervisor.launch.view.mounts import parse_mountinfo
from supervisor.launch.view.view import ViewSpec
from supervisor.log.keys import SigningKey
from supervisor.log.reader import read_events
from supervisor.log.signer import Signer
from supervisor.log.writer import LogWriter
from supervisor.prepare.canary import Canary, judge_canary
from supervisor.prepare.redacting import redact_event
from supervisor.trial.tape import Tape, record
from supervisor.values import dataclass, field

SHELL = b"/bin/sh"
SCHEMA = "grade/1"
SCRATCH = b"/dev/shm"

_KEPT_BYTES = 64 << 10
_READS = 16
_GRACE_S = 0.5
_EMPTY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderBox:
    """What all runs of a grader for one run have in common.

    Attributes:
        name: of whose outcome is graded: a run's id, or that of a judgement of it.
        state: the directory of all runs.
        workspace: absolute, free of symbolic links.
        environ: of the grader, filtered.
        uid, gid, groups: whom it runs as.
        limits: of its resources.
        key: signs its log.
        policy, host: what the manifest of the run says of them.
        cache: for the compiled system call filter.
        timeout_s: how long one run may take.
        redactor: takes out of its log what must not be written.
        stopped: descriptor that is readable when the supervisor was told to stop, or None.
    """

    name: str
    state: Path
    workspace: bytes
    environ: Mapping[str, str]
    uid: int
    gid: int
    groups: tuple[int, ...]
    limits: tuple[Limit, ...]
    key: SigningKey
    policy: Mapping[str, Any]
    host: Mapping[str, Any]
    cache: Path | None
    timeout_s: float
    redactor: Redactor = NOTHING_HIDDEN
    stopped: Callable[[], bool] = lambda: False
    stop_fd: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a grader, or of a script that makes a possible state.

    Attributes:
        directory: of this run of it, not there yet; its name is its number or name.
        command: for the shell.
        about: what it is for, for its manifest.
        layers, base, write_to, nested: see `supervisor.launch.view.grader_view`.
        stdin: a descriptor that it reads from, None for nothing.
    """

    directory: RunDir
    command: str
    about: Mapping[str, Any]
    layers: tuple[bytes, ...]
    base: bytes
    write_to: bytes | None = None
    nested: tuple[tuple[bytes, bytes], ...] = ()
    stdin: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What came of it; ``problem`` says why it can give no label, ``cut`` that of stdout only the end was kept."""

    problem: str | None
    did: GraderDid | None = None
    stdout: bytes = b""
    cut: bool = False
    stderr: bytes = b""
    log_root: str | None = None


def run_grader(box: GraderBox, job: Job) -> Ran:
    """Run a grader once. Nothing of it is alive afterwards.

    What cannot be built or witnessed is a problem of this run of it: the trial that is graded has run already.
    """
    try:
        with ExitStack() as stack:
            return _Run(box, job, stack).whole()
    except (MachineError, OSError, LookupError) as err:
        return Ran(problem=f"its box could not be built: {err}")


class _Run:
    def __init__(self, box: GraderBox, job: Job, stack: ExitStack) -> None:
        self._common, self._job, self._stack = box, job, stack
        self._problem: str | None = None
        self._out, self._err = _Tail(), _Tail()

    def whole(self) -> Ran:
        directory = self._job.directory
        directory.path.mkdir(mode=0o700, parents=True)
        self._stack.callback(clean_run, directory)
        for place in (directory.box, directory.outside):
            place.mkdir(mode=0o700)
        digest = hashlib.sha256(directory.write_manifest(self._manifest())).hexdigest()
        root = find_root()
        cgroup = Cgroup.create(root, self._name.replace("/", "."), owner=Owner.current())
        closing = self._stack.enter_context(ExitStack())
        self._stack.callback(clean_cgroup, cgroup)
        limited = LimitedCgroup.create(cgroup, self._common.limits)
        witness = KernelWitness.watch(root, cgroup.path)
        closing.callback(witness.close)  # after the cgroup is gone: that is how the last one is known
        redactor = self._common.redactor
        log = LogWriter.create(
            directory.log,
            manifest_digest=f"sha256:{digest}",
            redact=None if redactor.empty else lambda event: redact_event(event, redactor),
        )
        self._stack.callback(log.close)
        signer = Signer(log, directory.log, self._common.key, run_id=self._name)
        out, err, box = self._hold(cgroup, limited)
        tape = Tape(log, self._common.redactor)
        consumer = Consumer(witness, take=tape.take, brake=Brake(cgroup), tell_loss=tape.tell_loss)
        main, init = witness.identify(box.main_pid), witness.identify(box.init_pid)
        helpers = tuple(witness.identify(pid) for pid in box.helper_pids)
        offset_ns = clock.realtime_offset_ns()
        record(log, TrialHeld, process=main, init=init, helpers=helpers, cgroup=cgroup.id, realtime_offset_ns=offset_ns)
        mounts = parse_mountinfo(Path(f"/proc/{box.init_pid}/mountinfo").read_bytes())
        witness.look_for(plan_looks(mounts, shared=(self._common.workspace,), hidden=()))
        consumer.start()
        self._stack.callback(_stop_quietly, consumer)
        signer.start()
        self._stack.callback(signer.abandon)
        consumer.flush()
        canary = self._canary
        tested = judge_canary(
            tape.latest(main.pid), main, canary, marker_on_host=os.path.lexists(os.fsdecode(canary.marker))
        )
        record(log, TrialTested, process=main, canary="opening", findings=tested.findings, witnessed=tested.witnessed)
        if tested.findings:
            raise LaunchError("; ".join(tested.findings), step="test the grader's box")
        record(log, TrialReleased, process=main)
        box.release()
        reason = self._watch(box, out, err)
        self._end(box, cgroup, log, witness, reason)
        counters = consumer.stop()
        record(log, TrialCounted, egress_packets=counters.egress_packets, egress_bytes=counters.egress_bytes)
        signer.stop()
        did = read_grader(read_events(directory.log, _decode), workspace=self._common.workspace)
        self._check(did)
        return Ran(
            problem=self._problem,
            did=did,
            stdout=bytes(self._out.text),
            cut=self._out.cut,
            stderr=bytes(self._err.text),
            log_root=self._seal(log, signer, did),
        )

    @property
    def _name(self) -> str:
        return f"{self._common.name}/{self._job.directory.path.parent.name}/{self._job.directory.id}"

    @property
    def _canary(self) -> Canary:
        marker = "/.supervise-canary-" + self._name.replace("/", ".")
        return Canary(log=os.fsencode(self._job.directory.log / "canary"), marker=os.fsencode(marker))

    def _manifest(self) -> dict[str, Any]:
        common = self._common
        return {
            "schema": "manifest/1",
            "run": self._name,
            "started": clock.now_rfc3339(),
            "name": None,
            "command": [SHELL.decode(), "-c", common.redactor.redact_text(self._job.command, where="manifest")],
            "workspace": common.workspace.decode(errors="surrogateescape"),
            "user": {"uid": common.uid, "gid": common.gid},
            "policy": dict(common.policy),
            "claim": None,
            "grades": {"run": common.name, **self._job.about},
            "key": common.key.public,
            "environment": {"kept": sorted(common.environ)},
            "host": dict(common.host),
        }

    def _hold(self, cgroup: Cgroup, limited: LimitedCgroup) -> tuple[int, int, Box]:
        common, job = self._common, self._job
        seen = plan_grader_view(
            GraderViewSpec(
                workspace=common.workspace,
                layers=job.layers,
                base=job.base,
                box=os.fsencode(job.directory.box),
                state=os.fsencode(common.state),
                write_to=job.write_to,
                nested=job.nested,
            )
        )
        # What the box asks of a trial's view beside the plan: the name of its host, and where it would have been built.
        unused = ViewSpec(
            workspace=common.workspace,
            staged=False,
            stage=b"",
            outside=os.fsencode(job.directory.outside),
            box=os.fsencode(job.directory.box),
            state=os.fsencode(common.state),
            hostname="grader",
        )
        null = self._opened(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        out, out_side = self._pipe()
        err, err_side = self._pipe()
        spec = BoxSpec(
            argv=(SHELL, b"-c", os.fsencode(job.command)),
            environ=tuple((os.fsencode(name), os.fsencode(value)) for name, value in common.environ.items()),
            cwd=common.workspace,
            view=unused,
            log_canary=self._canary.log,
            marker_canary=self._canary.marker,
            uid=common.uid,
            gid=common.gid,
            groups=common.groups,
            stdio=(null if job.stdin is None else job.stdin, out_side, err_side),
            cache=common.cache,
        )
        box = self._stack.enter_context(hold(spec, cgroup, joins=limited.joins, view=seen))
        os.close(out_side)
        os.close(err_side)
        return out, err, box

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(read, False)
        return self._opened(read), write

    def _opened(self, fd: int) -> int:
        self._stack.callback(os.close, fd)
        return fd

    def _watch(self, box: Box, out: int, err: int) -> str:
        """Wait for its end and keep what it writes; gives the reason of the endpoint."""
        deadline_ns = clock.boottime_ns() + int(self._common.timeout_s * 1e9)
        kept = {out: self._out, err: self._err}
        stop_fd = self._common.stop_fd
        reason = "exit"
        poll = select.poll()
        for fd in (box.pidfd, *kept, *(() if stop_fd is None else (stop_fd,))):
            poll.register(fd, select.POLLIN)
        while True:
            left_s = (deadline_ns - clock.boottime_ns()) / 1e9
            if left_s <= 0:
                reason = "timeout"
                self._problem = f"it did not end within {self._common.timeout_s:g} s"
                break
            ready = dict(poll.poll(left_s * 1000))
            for fd in kept.keys() & ready.keys():
                if not _keep(fd, kept[fd]):
                    poll.unregister(fd)
            if stop_fd in ready and self._common.stopped():
                reason, self._problem = "stopped", "we were told to stop while it ran"
                break
            if box.pidfd in ready:
                break
        for fd, text in kept.items():
            _keep(fd, text)
        return reason

    def _end(self, box: Box, cgroup: Cgroup, log: LogWriter, witness: KernelWitness, reason: str) -> None:
        """End what is left of it; a process that outlives the shell by more than a moment costs the label."""
        alive = box.members()
        if reason == "exit" and alive:
            alive = _after_a_moment(box)
        keys = tuple(sorted(witness.identify(pid) for pid in alive))
        record(log, TrialEndpoint, reason=reason, alive=keys)
        if alive:
            self._problem = (
                self._problem or f"it left {len(alive)} {'process' if len(alive) == 1 else 'processes'} behind"
            )
            record(log, TrialKilled, why="hygiene", killed=keys)
            box.kill_members()
        if not cgroup.wait_empty(_EMPTY_S):
            cgroup.kill()
            cgroup.wait_empty(_EMPTY_S)
        record(log, TrialEmptied, pids_left=len(cgroup.pids()))

    def _check(self, did: GraderDid) -> None:
        """Say what makes a label worthless although the grader gave one."""
        found = self._problem
        if did.lost:
            found = found or f"{did.lost} events of it were lost: what it looked at is not known"
        if did.outside or did.left:
            found = found or f"it reached outside its box: {', '.join(did.outside) or 'a process of it left'}"
        if did.exit_code is None and did.signal is None:
            found = found or "its end was not witnessed"
        self._problem = found

    def _seal(self, log: LogWriter, signer: Signer, did: GraderDid) -> str:
        log.sync()
        evidence = log.checkpoint()
        told = {
            "schema": SCHEMA,
            "run": self._name,
            "policy": {"digest": self._common.policy.get("digest")},
            "log": {"frames": evidence.frames, "root": evidence.root, "key": self._common.key.public},
            "exit_code": did.exit_code,
            "signal": did.signal,
            "problem": self._problem,
        }
        document = json.dumps(told, indent=1).encode() + b"\n"
        write_whole(self._job.directory.completion, document)
        whole = log.seal(
            lambda n: TrialSealed(
                n=n,
                time_ns=clock.boottime_ns(),
                origin=Origin.SUPERVISOR,
                evidence_frames=evidence.frames,
                evidence_root=evidence.root,
                completion=f"sha256:{hashlib.sha256(document).hexdigest()}",
                stage="none",
                policy=str(self._common.policy.get("digest")),
            )
        )
        signer.sign_seal(whole)
        return whole.root


def _decode(slab: bytes, first: int) -> Any:  # noqa: ANN401 - events
    return decode_slab(slab, first, os.uname().machine)


@dataclass(slots=True)
class _Tail:
    """The last of what was written; ``cut`` when more was before."""

    text: bytearray = field(default_factory=bytearray)
    cut: bool = False

    def add(self, chunk: bytes) -> None:
        self.text += chunk
        self.cut = self.cut or len(self.text) > _KEPT_BYTES
        del self.text[:-_KEPT_BYTES]


def _keep(fd: int, kept: _Tail) -> bool:
    """Read some of what is there, and keep the last of it; False at its end. Who writes for ever is read no longer."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(_READS):
            chunk = os.read(fd, _KEPT_BYTES)
            if not chunk:
                return False
            kept.add(chunk)
    return True


def _after_a_moment(box: Box) -> tuple[int, ...]:
    """Give those who are still there after a moment: the last of a pipeline may end just after its shell."""
    deadline_ns = clock.boottime_ns() + int(_GRACE_S * 1e9)
    poll = select.poll()
    while (alive := box.members()) and clock.boottime_ns() < deadline_ns:
        poll.poll(5)
    return alive


def _stop_quietly(consumer: Consumer) -> None:
    with contextlib.suppress(Exception):  # on the way out: what is wrong has been raised already
        consumer.stop()
