"""A trial that stands: its box, witness, log and brake, built in that order and taken down backwards.

Laws:
    * The cgroup is watched before its first member joins.
    * Everything forks while there is no thread beside us: the consumer's is the first one that stays, then the
      signer's and the syncer's.
    * A trial that is left, however, leaves no process alive, and no cgroup, mount, pin or thread.
"""

from __future__ import annotations

import importlib
import os
import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from probes.gateway.process import Gateway
from probes.gateway.process import load as load_gateway
from probes.gateway.wire import Told
from probes.kernel import early, pins
from probes.kernel.abi import Network
from probes.kernel.consumer import Consumer
from probes.kernel.witness import KernelWitness
from supervisor import clock
from supervisor.errors import LaunchError, SuperviseError
from supervisor.events import (
    BudgetReached,
    Event,
    GatewayDied,
    LimitReached,
    LogWaited,
    NoteReceived,
    Origin,
    ProcessKey,
    ServiceAnswered,
    ServiceCancelled,
    ServiceShown,
    StreamGiven,
    ToolAnswered,
    ToolCalled,
    TrialHeld,
    TrialReleased,
    TrialTested,
)
from supervisor.launch.box import Box, Served, hold
from supervisor.launch.brake import Brake
from supervisor.launch.building import GATEWAY
from supervisor.launch.cgroup import PARENT, Cgroup, find_root
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.guardian import Guardian
from supervisor.launch.leftovers import clean_cgroup, clean_run, sweep
from supervisor.launch.limits import LimitedCgroup, prefer_trial_as_victim
from supervisor.launch.runs.owner import Owner
from supervisor.launch.runs.registry import register
from supervisor.launch.trial_notes import read_notes
from supervisor.log.room import Room
from supervisor.log.signer import Signer
from supervisor.log.syncer import Syncer
from supervisor.log.writer import LogWriter
from supervisor.prepare.canary import judge_canary
from supervisor.prepare.preparing import Prepared
from supervisor.prepare.redacting import redact_event
from supervisor.request import Phase, Progress
from supervisor.trial.attributing import attribute
from supervisor.trial.budget import Budgets
from supervisor.trial.tape import E, Tape, record
from supervisor.trial.watching import Sharing
from supervisor.values import dataclass, field

if TYPE_CHECKING:  # hardly any trial has services
    from probes.services.answers import Answer
    from probes.shared import PlaceWatch
    from supervisor.trial.service_watch import ServiceWatch
    from supervisor.trial.tool_relay import ToolRelay

_EMPTY_S = 5.0
_NOTES_AT_ONCE = 64


@dataclass(slots=True, kw_only=True)
class Trial:
    """One trial, held or running; ``captured`` has the digests of its snapshots, by the state that they are of.

    ``left_names``: names that earlier runs left, look-ups of which are told. ``given``: its standard streams.
    """

    prepared: Prepared
    cgroup: Cgroup
    limited: LimitedCgroup
    box: Box
    brake: Brake
    witness: KernelWitness
    gateway: Gateway
    consumer: Consumer
    log: LogWriter
    room: Room
    syncer: Syncer
    signer: Signer
    tape: Tape
    main: ProcessKey
    init: ProcessKey
    budgets: Budgets
    services: ServiceWatch | None = None
    relay: ToolRelay | None = None
    released_ns: int = 0
    released: bool = field(default=False)
    captured: dict[str, str] = field(default_factory=dict)
    registered: str | None = None
    sharing: Sharing | None = None
    left_names: tuple[bytes, ...] = ()
    given: list[StreamGiven] = field(default_factory=list)
    writers: PlaceWatch | None = None

    def record(self, kind: type[E], **fields: Any) -> E:  # noqa: ANN401 - the fields of the kind
        """Write an event of the supervisor, and give it: numbered, with the time it is written at."""
        return redact_event(record(self.log, kind, **fields), self.prepared.credentials.redactor, where="")

    def record_told(self, event: Event, process: ProcessKey | None) -> Event:
        """Write an event that the gateway told once the trial was over, and give it: of whose doing is known."""
        made: list[Event] = []

        def make(n: int) -> Event:
            made.append(structs.replace(event, n=n, process=process))
            return made[-1]

        self.log.record(make)
        return redact_event(made[-1], self.prepared.credentials.redactor, where="")

    def identify(self, pids: tuple[int, ...]) -> tuple[ProcessKey, ...]:
        """Name members for ever, in order of their start."""
        return tuple(sorted((self.witness.identify(pid) for pid in pids), key=lambda key: (key.start_ns, key.pid)))

    def tell(self, phase: Phase, *, deadline_s: float | None = None) -> None:
        """Say how far the trial is."""
        terminal = self.prepared.terminal
        elapsed = (clock.boottime_ns() - self.released_ns) / 1e9 if self.released_ns else 0.0
        self.prepared.request.on_progress(
            Progress(
                run=self.prepared.run.id,
                phase=phase,
                elapsed_s=elapsed,
                processes=len(self.box.members()),
                events=self.log.events,
                deadline_s=deadline_s,
                heard=phase is Phase.SETTLING and terminal is not None and terminal.is_heard(),
            )
        )

    def boundary(self) -> None:
        """Cross a boundary: whatever was written before it is in the log, and what comes after is told anew."""
        self.witness.next_epoch()
        self.consumer.flush()
        slab, count = self.witness.pending_totals()
        if count:
            self.log.append_kernel(slab, count)
        for wait in self.room.take_waits():
            self.record(LogWaited, first_ns=wait.first_ns, last_ns=wait.last_ns)

    def take_notes(self) -> int:
        """Record notes of the trial that wait; gives how many there were."""
        count = 0
        for note in read_notes(self.box.trial_notes, _NOTES_AT_ONCE):
            count += 1
            if self.services is not None:
                self.services.announce(note.text)
            self.record(
                NoteReceived,
                origin=Origin.TRIAL,
                process=self.witness.identify(note.pid),
                text=note.text,
                truncated=True if note.truncated else UNSET,
            )
            self.budgets.note(note.text)
        return count

    def record_limits(self) -> None:
        """Record what the limits did, once the trial is empty."""
        for reached in self.limited.reached():
            self.record(
                LimitReached,
                resource=reached.resource.value,
                limit=reached.limit,
                effect=reached.effect.value,
                times=reached.times,
            )

    def test(self, which: str, actor: ProcessKey) -> tuple[str, ...]:
        """Judge the ``opening`` or ``closing`` canary by what was witnessed; gives the findings."""
        self.gateway.flush()
        self.consumer.flush()
        canary = self.prepared.canary
        tested = judge_canary(
            self.tape.latest(actor.pid),
            actor,
            canary,
            marker_on_host=os.path.lexists(os.fsdecode(canary.marker)),
            served=self.gateway.died is None,
        )
        self.record(TrialTested, process=actor, canary=which, findings=tested.findings, witnessed=tested.witnessed)
        return tested.findings

    def release(self, *, on_registered: Callable[[], object]) -> None:
        """Let CMD run, once the box has passed its test.

        Args:
            on_registered: called once the registry has the run: from there on it is kept, whatever happens.

        Raises:
            LaunchError: the box does not hold; nothing of CMD ran.
            MachineError: the run cannot be registered.
        """
        findings = self.test("opening", self.main)
        if findings:
            raise LaunchError("; ".join(findings), step="test the box", hint="`supervise doctor` says what is missing")
        self._ask_before_release()
        self.room.begin_waiting()
        registered = register(
            self.prepared.home.path,
            self.prepared.run.id,
            at=clock.now_rfc3339(),
            manifest=self.prepared.manifest_digest,
        )
        on_registered()
        self.released_ns = clock.boottime_ns()
        self.registered = registered.digest
        self.record(TrialReleased, process=self.main, registered=registered.digest)
        self.box.release()
        self.tell(Phase.RELEASED)

    def _ask_before_release(self) -> None:
        """Ask every service how it stands before the trial can have done anything."""
        if self.services is not None:
            self.services.ask("start")
            select.select([self.services.answered], [], [], self.services.patience_s)

    def tell_cancelled(self, *, service: str, problem: str | None) -> None:
        """Record that a service was asked to call something off; from any thread."""
        record(self.log, ServiceCancelled, service=service, problem=problem)

    def tell_answer(
        self, *, service: str, moment: str, answer: Answer, asked_ns: int, operations: tuple[str, ...]
    ) -> None:
        """Record what a service answered; from any thread."""
        record(
            self.log,
            ServiceAnswered,
            origin=Origin.SERVICE,
            service=service,
            moment=moment,
            status=answer.status.value,
            detail=answer.detail,
            asked_ns=asked_ns,
            operations=operations,
        )


@contextmanager
def hold_trial(prepared: Prepared) -> Iterator[Trial]:
    """Build everything and hold CMD before its first instruction.

    Raises:
        LaunchError: the box cannot be built.
        MachineError: the machine cannot witness it.
    """
    root = find_root()
    sweep(prepared.home, root)
    run = prepared.run
    with ExitStack() as stack:
        stack.callback(run.close)
        stack.callback(clean_run, run)
        for directory in (run.box, run.outside):
            directory.mkdir(mode=0o700)
        cgroup = Cgroup.create(root, prepared.run.id, owner=Owner.current())
        # The witness is closed after the cgroup is gone: that is how the last trial is known.
        closing = stack.enter_context(ExitStack())
        stack.callback(clean_cgroup, cgroup)
        load_gateway()  # while the kernel still verifies
        early.wait_for_loading()
        guardian = Guardian.start(cgroup, prepared.run, on_death=lambda: _clear_after_us(root, run.id))
        closing.callback(guardian.reap)
        stack.callback(guardian.release)
        gateway = Gateway.start(
            prepared.request.policy.network,
            lookout=prepared.credentials.lookout(),
            inspecting=prepared.inspection.gateway if prepared.inspection else None,
        )
        stack.callback(gateway.close)
        limited = LimitedCgroup.create(cgroup, prepared.limits)
        witness = KernelWitness.watch(root, cgroup.path, network=Network.PASS, meanwhile=_import_folds)
        closing.callback(witness.close)
        brake = Brake(cgroup)
        room = Room(
            run.path, brake=brake, tell=prepared.request.on_notice, wait_s=prepared.room_wait_s, is_worth_it=False
        )
        stack.callback(room.close)
        redactor = prepared.credentials.redactor
        log = LogWriter.create(
            run.log,
            manifest_digest=prepared.manifest_digest,
            patience=room,
            redact=None if redactor.empty else lambda event: redact_event(event, redactor),
        )
        stack.callback(log.close)
        box = stack.enter_context(_hold_box(prepared, cgroup, limited, gateway))
        _take_in(box, prepared, witness)
        syncer = Syncer(log, on_error=room.fail)
        places = prepared.request.policy.log.checkpoint_to
        signer = Signer(log, run.log, prepared.key, run_id=run.id, places=places)
        brake = Brake(cgroup)
        tape = Tape(log, redactor)
        consumer = Consumer(witness, take=tape.take, brake=brake, tell_loss=tape.tell_loss)
        main, init = witness.identify(box.main_pid), witness.identify(box.init_pid)
        trial = Trial(
            prepared=prepared,
            cgroup=cgroup,
            limited=limited,
            box=box,
            brake=brake,
            witness=witness,
            gateway=gateway,
            consumer=consumer,
            log=log,
            room=room,
            syncer=syncer,
            signer=signer,
            tape=tape,
            main=main,
            init=init,
            budgets=_count_budgets(prepared, log, stack),
        )
        trial.record(
            TrialHeld,
            process=main,
            init=init,
            helpers=trial.identify(box.helper_pids),
            cgroup=cgroup.id,
            realtime_offset_ns=clock.realtime_offset_ns(),
        )
        for kind, fields in prepared.credentials.events(prepared.spec.view.masks):
            trial.record(kind, process=None, **fields)
        gateway.follow(lambda told: _record_told(log, witness, tape, told), lambda problem: _record_death(log, problem))
        consumer.start()
        stack.callback(_stop_quietly, consumer)
        syncer.start()
        stack.callback(syncer.abandon)
        signer.start()
        stack.callback(signer.abandon)
        _watch_services(trial, stack)
        _start_relay(trial, stack)
        trial.tell(Phase.HELD)
        yield trial


def _clear_after_us(root: Path, run_id: str) -> None:
    """Do in the guardian what we died before: end a grader that ran, and take away the pins."""
    for left in (root / PARENT).glob(f"{run_id}.*"):
        with suppress(OSError, SuperviseError):
            clean_cgroup(Cgroup.at(left))
    pins.collect_garbage(root)


def _hold_box(prepared: Prepared, cgroup: Cgroup, limited: LimitedCgroup, gateway: Gateway) -> Box:
    try:
        return hold(
            prepared.spec,
            cgroup,
            joins=limited.joins,
            served=Served(namespace=gateway.namespace(), ready=gateway.ready),
            meanwhile=_import_later,
        )
    except LaunchError as err:
        raise (gateway.failure() if err.step == GATEWAY else err) from err


def _count_budgets(prepared: Prepared, log: LogWriter, stack: ExitStack) -> Budgets:
    budgets = Budgets(prepared.request.policy.stop, lambda **fields: record(log, BudgetReached, **fields))
    stack.callback(budgets.close)
    return budgets


def _start_relay(trial: Trial, stack: ExitStack) -> None:
    """Begin to pass messages between a client and the server in the box, for ``supervise tool``."""
    relay = trial.prepared.request.relay
    if relay is None:
        return
    trial.relay = relay
    stack.callback(relay.close)
    relay.start(
        called=lambda **fields: trial.record(ToolCalled, **fields),
        answered=lambda **fields: trial.record(ToolAnswered, **fields),
        allows=trial.budgets.call,
    )


def _watch_services(trial: Trial, stack: ExitStack) -> None:
    """Begin to ask the services that the policy names, if there are any."""
    policy = trial.prepared.request.policy
    if not policy.services:
        return
    from supervisor.trial.service_watch import watch_services  # noqa: PLC0415 - hardly any trial has one

    for service, path, device, inode in trial.prepared.sockets:
        trial.record(ServiceShown, service=service, path=path, device=device, inode=inode)
    environ = trial.prepared.request.environ
    trial.services = watch_services(policy, run=trial.prepared.run.id, environ=environ, tell=trial.tell_answer)
    if trial.services is not None:
        stack.callback(trial.services.close)
        trial.services.start()


def _import_folds() -> None:
    """Import what folds the log while the kernel waits for its processors."""
    importlib.import_module("supervisor.evidence.collect")


def _import_later() -> None:
    """Import what else is needed after the trial while its box builds itself."""
    importlib.import_module("supervisor.conclude.concluding")


def _record_told(log: LogWriter, witness: KernelWitness, tape: Tape, told: Told) -> None:
    """Write what the gateway told, with the process that the kernel saw begin the flow."""
    dial = witness.find_dial(told.protocol, told.ip, told.port) if told.protocol else None
    made: list[Event] = []

    def make(n: int) -> Event:
        made.append(structs.replace(attribute(told.event, dial), n=n))
        return made[-1]

    log.record(make)
    tape.hear(made[-1])


def _record_death(log: LogWriter, problem: str) -> None:
    with suppress(SuperviseError):  # a log that cannot be written is told elsewhere
        record(log, GatewayDied, problem=problem)


def _stop_quietly(consumer: Consumer) -> None:
    with suppress(Exception):  # on the way out: what is wrong has been raised already
        consumer.stop()


def _take_in(box: Box, prepared: Prepared, witness: KernelWitness) -> None:
    """Do with a box that stands what has to be done before CMD is released."""
    if prepared.request.policy.files.keep:
        witness.keep_content(box.workspace_device())
    prefer_trial_as_victim(box.main_pid, box.helper_pids)
    for place in (prepared.run.outside, prepared.run.nested):
        _write_layers(place, box)


def _write_layers(place: Path, box: Box) -> None:
    """Note which layer below a directory of the run belongs to which mount; nothing when there is none."""
    import json  # noqa: PLC0415 - 3 ms

    layers = {
        os.fsdecode(path): Path(os.fsdecode(upper)).parent.name
        for path, upper in box.view.layers
        if Path(os.fsdecode(upper)).is_relative_to(place)
    }
    if layers:
        write_whole(place / "map.json", json.dumps(layers).encode(), durable=False)


def wait_until_empty(trial: Trial) -> int:
    """Wait for ``populated 0``, killing what stays; gives how many members were left at last (0 is the good answer)."""
    if not trial.cgroup.wait_empty(_EMPTY_S):
        trial.cgroup.kill()
        trial.cgroup.wait_empty(_EMPTY_S)
    return len(trial.cgroup.pids())
