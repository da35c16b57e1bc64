"""From the release to the end: follow CMD to the endpoint, what is left of it until it settles, and end the rest.

Laws:
    * The endpoint is the end of CMD, or the limit that ends it; its reason is never inferred afterwards.
    * What is alive at the endpoint is frozen and the outcome captured, before anything else is decided.
    * A limit that is part of the task ends CMD (TERM, 2 s later KILL); one that only ends the observation leaves it be.
    * After `follow` nothing of the trial is alive, and the kernel has said so.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.types import AtEndpoint, LimitRole, PeriodKind, StopRule
from supervisor import clock
from supervisor.events import (
    TrialEmptied,
    TrialEndpoint,
    TrialFrozen,
    TrialIsolated,
    TrialKilled,
    TrialSettled,
    TrialSnapshotted,
    TrialThawed,
)
from supervisor.launch.terminal import stop_ourselves
from supervisor.request import Phase
from supervisor.signals import ENDING, FORWARDED, Signals
from supervisor.trial.trial import Trial, wait_until_empty
from supervisor.values import dataclass

if TYPE_CHECKING:
    from supervisor.launch.stage.inplace import InPlace
    from supervisor.launch.stage.stage import Stage

_KILL_AFTER_S = 2.0
_TELL_EVERY_S = 0.25
_BOUNDARY = "boundary"
_LONG_S = 60.0
"""A period longer than this is not waited out for services alone: ``supervise settle`` goes on with the run later."""
_GOING_ON = frozenset({AtEndpoint.FOLLOW, AtEndpoint.ISOLATE})
_TERMINAL = "terminal"


@dataclass(slots=True, kw_only=True)
class Watch:
    """Waits for one descriptor and meanwhile does what signals, the terminal and the consumer ask for.

    ``outlived``: something was alive, or followed, after the endpoint, so that services must be asked once more.
    ``command_ended``: CMD has ended, and the keys of the terminal are the user's again.
    """

    trial: Trial
    signals: Signals
    stopping: bool = False
    settling: bool = False
    init_is_gone: bool = False
    asked: bool = False
    outlived: bool = False
    command_ended: bool = False

    def until(
        self,
        fd: int,
        deadline_ns: int | None,
        *,
        tick: Callable[[], None] | None = None,
        within_budget: bool = False,
    ) -> bool:
        """Wait until ``fd`` is readable.

        False when the deadline (CLOCK_BOOTTIME) passed, a budget was used up (if that matters), or we were told to
        stop.
        """
        while not self.stopping and not (within_budget and self.trial.budgets.reached):
            left_s = None if deadline_ns is None else (deadline_ns - clock.boottime_ns()) / 1e9
            if left_s is not None and left_s <= 0:
                return False
            if self._wait(fd, left_s, ticking=tick is not None):
                return True
            if tick is not None:
                tick()
        return False

    def ask_services(self, moment: str) -> None:
        """Have every service asked, if there are any; `hear_services` waits for what they say."""
        if self.trial.services is not None:
            self.trial.services.ask(moment)
            self.asked = True

    def hear_services(self) -> None:
        """Wait until the services have answered what they were last asked, or have let their time pass."""
        services = self.trial.services
        if services is not None and self.asked:
            self.asked = False
            self.until(services.answered, clock.boottime_ns() + int(services.patience_s * 1e9))

    def _wait(self, fd: int, left_s: float | None, *, ticking: bool) -> bool:
        trial, terminal = self.trial, self.trial.prepared.terminal
        poll = select.poll()
        failing = (trial.consumer.failed, trial.room.failed)
        watched = self._watched(fd, *failing)
        for number, wanted in watched.items():
            poll.register(number, wanted)
        wait_s = min(left_s if left_s is not None else 3600.0, _TELL_EVERY_S if ticking else 3600.0)
        ready = dict(poll.poll(max(0.0, wait_s) * 1000))
        if any(one in ready for one in failing):
            trial.room.check()  # raises what stopped it, as does
            trial.consumer.flush()
        if trial.box.trial_notes.fileno() in ready:
            trial.take_notes()
        if self.signals.fileno() in ready:
            for number in self.signals.take():
                self._obey(number)
        if terminal is not None and trial.box.pty_master is not None:
            terminal.pump()
        if self.settling and trial.box.pidfd in ready:
            self.give_back_keys()
        said = ready.get(trial.box.control.fileno(), 0)
        if said & select.POLLIN:
            self._notice()
        self.init_is_gone |= bool(said & select.POLLHUP)
        return bool(ready.get(fd, 0))

    def _watched(self, *descriptors: int) -> dict[int, int]:
        """Give everything that is polled for, beside these descriptors, with the events of each."""
        trial, terminal = self.trial, self.trial.prepared.terminal
        watched = dict.fromkeys((*descriptors, self.signals.fileno(), trial.box.trial_notes.fileno()), select.POLLIN)
        if not trial.budgets.reached:
            watched[trial.budgets.fileno()] = select.POLLIN
        if self.settling and not self.command_ended:
            watched[trial.box.pidfd] = select.POLLIN
        if not self.init_is_gone:
            watched[trial.box.control.fileno()] = select.POLLIN
        if terminal is not None and trial.box.pty_master is not None:
            watched |= terminal.interest()
        return watched

    def give_back_keys(self) -> None:
        """Once CMD has ended, let ^C and its like end the following, as the signals do that they send."""
        terminal = self.trial.prepared.terminal
        if not self.command_ended and terminal is not None and self.trial.box.pty_master is not None:
            terminal.heed_signals()
        self.command_ended = True

    def _notice(self) -> None:
        notice = self.trial.box.read_notice()
        terminal = self.trial.prepared.terminal
        if notice is not None and terminal is not None and self.trial.box.pty_master is not None:
            terminal.obey(notice, self.trial.box)

    def _obey(self, number: int) -> None:
        terminal = self.trial.prepared.terminal
        if number == signal.SIGWINCH:
            if terminal is not None and self.trial.box.pty_master is not None:
                terminal.resize()
        elif number == signal.SIGTSTP:
            self._stop_with_trial()
        elif number == signal.SIGCONT:
            self._resume()
        elif number in ENDING and self.trial.room.waiting:
            self.trial.room.end_waiting()
        elif self.settling:
            self.stopping |= number in ENDING
        elif number in FORWARDED:
            self.trial.box.signal(number)

    def _stop_with_trial(self) -> None:
        """Stop as the shell wants, and the trial with us: its events would find nobody to take them."""
        terminal = self.trial.prepared.terminal
        self.trial.box.signal(signal.SIGTSTP)
        self.trial.brake.hold(_TERMINAL)
        if terminal is not None:
            terminal.leave()
        stop_ourselves()
        self._resume()

    def _resume(self) -> None:
        terminal = self.trial.prepared.terminal
        if terminal is not None and self.trial.box.pty_master is not None:
            terminal.resume()
        self.trial.brake.release(_TERMINAL)
        self.trial.box.signal(signal.SIGCONT)


def follow(trial: Trial, stage: Stage | InPlace, signals: Signals) -> None:
    """Follow the trial to its end; everything that is found out is in the log afterwards."""
    watch = Watch(trial=trial, signals=signals)
    stop = trial.prepared.request.policy.stop
    deadline = None if stop.wall_s is None else trial.released_ns + int(stop.wall_s * 1e9)
    ended = watch.until(trial.box.pidfd, deadline, within_budget=True)
    trial.tell(Phase.ENDPOINT)
    endpoint_ns = clock.boottime_ns()
    alive = trial.box.members()
    _record_endpoint(trial, ended=ended, alive=alive)
    watch.settling = True
    if ended:
        watch.give_back_keys()
    watch.ask_services("endpoint")
    if alive:
        _capture(watch, stage, thaw=stop.at_endpoint is AtEndpoint.FOLLOW)
    watch.hear_services()
    watch.outlived = bool(alive)
    if alive and stop.at_endpoint is AtEndpoint.ISOLATE:
        _isolate(trial)
    if not ended and stop.role is LimitRole.TASK and stop.at_endpoint in _GOING_ON:
        _end_command(watch)
    _settle(watch, stage, stop, endpoint_ns)
    _finish(watch)


def _record_endpoint(trial: Trial, *, ended: bool, alive: tuple[int, ...]) -> None:
    keys = trial.identify(alive)
    reason = "exit" if ended else "budget" if trial.budgets.reached else "timeout"
    trial.record(TrialEndpoint, reason=reason, alive=keys)
    trial.boundary()


def _capture(watch: Watch, stage: Stage | InPlace, *, thaw: bool, state: str = "endpoint") -> None:
    """Freeze, capture the outcome, hear what services said of this moment, and go on if asked to.

    Args:
        watch: of the trial.
        stage: of the trial.
        thaw: go on afterwards.
        state: ``endpoint`` or ``within``.
    """
    trial = watch.trial
    if not trial.brake.hold(_BOUNDARY):
        trial.brake.release(_BOUNDARY)
        return
    trial.boundary()
    trial.record(TrialFrozen)
    policy, run = trial.prepared.request.policy, trial.prepared.run
    target = run.snapshot if state == "endpoint" else run.snapshot_within
    captured = trial.room.persist(lambda: stage.snapshot(policy.captured, target))
    trial.captured[state] = captured.digest
    trial.record(
        TrialSnapshotted,
        digest=captured.digest,
        files=captured.files,
        size_bytes=captured.size_bytes,
        kept_in=f"{target.name}/upper",
        form=captured.form,
    )
    watch.hear_services()
    if thaw:
        trial.record(TrialThawed)
        trial.brake.release(_BOUNDARY)


def _isolate(trial: Trial) -> None:
    """Take the workspace away from what lives, while it is frozen; then let it go on."""
    from supervisor.launch.view.isolate import isolate  # noqa: PLC0415 - few policies isolate

    done = isolate(trial.box.init_pid, trial.box.view.workspace)
    trial.record(TrialIsolated, error=done.error)
    trial.record(TrialThawed)
    trial.brake.release(_BOUNDARY)


def _end_command(watch: Watch) -> None:
    """End a CMD whose limit is part of the task: TERM to its group, KILL two seconds later."""
    box = watch.trial.box
    box.signal(signal.SIGTERM)
    box.signal(signal.SIGCONT)
    if not watch.until(box.pidfd, clock.boottime_ns() + int(_KILL_AFTER_S * 1e9)):
        box.signal(signal.SIGKILL)
        watch.until(box.pidfd, clock.boottime_ns() + int(_KILL_AFTER_S * 1e9))


def _settle(watch: Watch, stage: Stage | InPlace, stop: StopRule, endpoint_ns: int) -> None:
    """Wait for the rest, as long as the policy follows it; capture the outcome again where the period ends."""
    trial = watch.trial
    settle_s = stop.settle_s
    period = trial.prepared.request.policy.claim.period
    within_s = period.within_s if period.kind is PeriodKind.WITHIN else None
    if stop.at_endpoint in _GOING_ON and trial.box.members():
        launcher = os.pidfd_open(trial.box.launcher_pid)
        last_s = max(settle_s, within_s or 0.0)
        try:
            for at_s in sorted({within_s or last_s, last_s}):
                tick = _teller(trial, last_s)
                if watch.until(launcher, endpoint_ns + int(at_s * 1e9), tick=tick):
                    break
                if at_s == within_s and trial.box.members():
                    watch.ask_services("deadline")
                    _capture(watch, stage, thaw=True, state="within")
        finally:
            os.close(launcher)
    if stop.at_endpoint in _GOING_ON:
        _settle_services(watch, endpoint_ns, settle_s, within_s)
    keys = trial.identify(trial.box.members())
    trial.record(TrialSettled, emptied=not keys, alive=keys)
    trial.tell(Phase.SETTLED)


def _cancel_services(watch: Watch) -> None:
    """Have services call off what the trial asked for, as declared, once nothing is alive that could ask again."""
    trial = watch.trial
    if trial.services is None or not any(
        one.settle and one.settle.cancels for one in trial.prepared.request.policy.services
    ):
        return
    trial.services.cancel(trial.tell_cancelled)
    watch.asked = True
    watch.hear_services()
    watch.outlived = True
    trial.services.follow(on=True)
    settle_s = max(trial.prepared.request.policy.stop.settle_s, trial.services.patience_s)
    watch.until(trial.services.settled, clock.boottime_ns() + int(settle_s * 1e9))
    trial.services.follow(on=False)


def _settle_services(watch: Watch, endpoint_ns: int, settle_s: float, within_s: float | None) -> None:
    """Follow services as long as the policy follows anything: until none may still act, or the time is over."""
    trial = watch.trial
    if trial.services is None:
        return
    last_s = max(settle_s, within_s if within_s is not None and within_s <= _LONG_S else 0.0)
    within_s = within_s if within_s is not None and within_s <= last_s else None
    watch.outlived |= last_s > 0
    trial.services.follow(on=True)
    for at_s in sorted({within_s or last_s, last_s}):
        if watch.until(trial.services.settled, endpoint_ns + int(at_s * 1e9), tick=_teller(trial, last_s)):
            break
        if at_s == within_s:
            watch.ask_services("deadline")
            watch.hear_services()
    trial.services.follow(on=False)


def _teller(trial: Trial, last_s: float) -> Callable[[], None]:
    end_s = (clock.boottime_ns() - trial.released_ns) / 1e9 + last_s
    return lambda: trial.tell(Phase.SETTLING, deadline_s=end_s)


def _finish(watch: Watch) -> None:
    """End what is alive, let the box test itself once more, and wait for the kernel's word that it is empty."""
    trial = watch.trial
    members = trial.box.members()
    if members:
        keys = trial.identify(members)
        trial.box.kill_members()
        why = "stopped" if watch.stopping else _why(trial.prepared.request.policy.stop)
        trial.record(TrialKilled, why=why, killed=keys)
    trial.brake.release(_BOUNDARY)
    left = wait_until_empty(trial)
    while trial.take_notes():
        pass  # nobody is alive who could send more
    trial.record(TrialEmptied, pids_left=left)
    if trial.relay is not None:
        trial.relay.finish()
    if trial.prepared.request.policy.stop.at_endpoint is AtEndpoint.CANCEL:
        _cancel_services(watch)
    if watch.outlived:
        watch.ask_services("last")
        watch.hear_services()
    if trial.services is not None:
        trial.services.stop()
    trial.record_limits()
    if trial.prepared.terminal is not None and trial.box.pty_master is not None:
        trial.prepared.terminal.drain()
        trial.prepared.terminal.close()
    trial.boundary()
    trial.test("closing", trial.init)


def _why(stop: StopRule) -> str:
    return "cancel" if stop.at_endpoint is AtEndpoint.CANCEL else "hygiene"
