"""Asks the services of a policy, beside the trial: at its boundaries, and again and again while it settles.

Laws:
    * Everything runs in threads of its own: a service that hangs keeps neither a signal nor the trial waiting.
    * At a boundary every answer is told; in between only one that differs from the one before.
    * A service that asks for patience (``Retry-After``) is left alone until then, but for the boundaries.
    * What the trial announced is asked about, and is nothing more.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Mapping
from typing import Protocol

from policies.types import Policy, Service, ServiceStatus
from probes.services.answers import Answer
from probes.services.asking import Asker, asks_by_operation, warm_up
from supervisor import clock
from supervisor.values import dataclass, field

SLACK_S = 1.0
"""How much longer than a deadline somebody waits for the threads themselves."""

_UNSETTLED = frozenset({ServiceStatus.PENDING, ServiceStatus.UNKNOWN})
_STOP = ""
_CANCEL = "cancel"
_OPERATION_CHARS = 200
_NANO = 1_000_000_000


class Tell(Protocol):
    """Puts one answer in the log."""

    def __call__(
        self, *, service: str, moment: str, answer: Answer, asked_ns: int, operations: tuple[str, ...]
    ) -> object:
        """Record it; called from any thread."""


class TellCancelled(Protocol):
    """Puts it in the log that a service was asked to call something off."""

    def __call__(self, *, service: str, problem: str | None) -> object:
        """Record it; called from any thread."""


@dataclass(slots=True, kw_only=True)
class _Asked:
    """One service, and where it stands."""

    asker: Asker
    every_s: float
    by_operation: bool
    cancels: bool
    last: Answer | None = None
    due_ns: int = 0
    operations: list[str] = field(default_factory=list)


class ServiceWatch:
    """Asks all services that can be asked. `start`, then `ask` at boundaries and `follow` in between, then `stop`."""

    def __init__(
        self, policy: Policy, *, run: str, environ: Mapping[str, str], tell: Tell, since_s: float | None = None
    ) -> None:
        """Prepare; nothing is asked and no thread runs yet.

        Args:
            policy: its services that have a ``settle`` are asked.
            run: id.
            environ: of the supervisor, for credentials.
            tell: records answers.
            since_s: when the run began, CLOCK_REALTIME; None for now.
        """
        self._tell = tell
        since_s = clock.now_s() if since_s is None else since_s
        self._kinds = tuple({one.settle.kind for one in policy.services if one.settle is not None})
        self._asked = {
            one.name: _prepare(one, run, environ, since_s) for one in policy.services if one.settle is not None
        }
        self._moments: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._following = False
        self._failure: BaseException | None = None
        self._tell_cancelled: TellCancelled | None = None
        self._answered_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._settled_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._loop, name="supervise-services", daemon=True)
        deadlines = [one.settle.deadline_s for one in policy.services if one.settle is not None]
        self.patience_s = max(deadlines, default=0.0) + SLACK_S

    @property
    def answered(self) -> int:
        """A descriptor that is readable once every service has answered, or failed to, at the boundary asked for."""
        return self._answered_fd

    @property
    def settled(self) -> int:
        """A descriptor that is readable once no service that is followed may still act."""
        return self._settled_fd

    def start(self) -> None:
        """Begin to wait for questions."""
        self._thread.start()

    def ask(self, moment: str) -> None:
        """Have all services asked now; `answered` becomes readable."""
        _clear(self._answered_fd)
        self._moments.put(moment)

    def follow(self, *, on: bool) -> None:
        """Ask again and again from now on, or no more."""
        _clear(self._settled_fd)
        with self._lock:
            self._following = on
        self._moments.put("settling" if on else "wake")

    def cancel(self, tell: TellCancelled) -> None:
        """Have every service that may still act, and can, call off its work; `answered` becomes readable then."""
        _clear(self._answered_fd)
        self._tell_cancelled = tell
        self._moments.put(_CANCEL)

    def announce(self, note: str) -> None:
        """Take a note of the trial that names an operation: ``{"service": NAME, "operation": ID}``."""
        named = parse_announcement(note)
        if named is not None:
            self.announce_one(*named)

    def announce_one(self, service: str, operation: str) -> None:
        """Ask a service about one more operation; a name that no service has is passed over."""
        asked = self._asked.get(service)
        with self._lock:
            if asked is not None and operation not in asked.operations:
                asked.operations.append(operation)

    def stop(self) -> None:
        """Ask no more. What a thread failed of is raised.

        Raises:
            LogError: an answer could not be recorded.
        """
        if self._thread.is_alive():
            self._moments.put(_STOP)
            self._thread.join(self.patience_s + SLACK_S)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Let go of what is left, on the way out."""
        self._moments.put(_STOP)
        if self._thread.is_alive():
            self._thread.join(self.patience_s + SLACK_S)
        if self._thread.is_alive():
            return  # it may still write to them, and their numbers must not be somebody else's by then
        os.close(self._answered_fd)
        os.close(self._settled_fd)

    # -- the thread ----------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        try:
            for kind in self._kinds:
                warm_up(kind)
            while (moment := self._next()) != _STOP:
                if moment == "settling":
                    self._round(moment, [one for one in self._asked.values() if one.due_ns <= clock.boottime_ns()])
                elif moment == _CANCEL:
                    self._call_off()
                    os.eventfd_write(self._answered_fd, 1)
                elif moment != "wake":
                    self._round(moment, list(self._asked.values()))
                    os.eventfd_write(self._answered_fd, 1)
                if self._following and self._all_settled():
                    os.eventfd_write(self._settled_fd, 1)
        except BaseException as err:  # noqa: BLE001 - raised again by `stop`, in the thread of whoever waits
            self._failure = err
            os.eventfd_write(self._answered_fd, 1)
            os.eventfd_write(self._settled_fd, 1)

    def _next(self) -> str:
        """Wait for a question, or until it is time to ask again."""
        with self._lock:
            following = self._following
        due = [one.due_ns for one in self._asked.values() if self._may_act(one)]
        if not following or not due:
            return self._moments.get()
        try:
            return self._moments.get(timeout=max(0.0, (min(due) - clock.boottime_ns()) / _NANO))
        except queue.Empty:
            return "settling"

    def _call_off(self) -> None:
        for one in self._asked.values():
            if one.cancels and self._may_act(one) and self._tell_cancelled is not None:
                operations = tuple(one.operations) if one.by_operation else ()
                problem = one.asker.cancel(operations)
                one.due_ns = 0
                self._tell_cancelled(service=one.asker.service.name, problem=problem)

    def _round(self, moment: str, asked: list[_Asked]) -> None:
        """Ask some services at once, and tell what they say."""
        threads = [threading.Thread(target=self._one, args=(moment, one), daemon=True) for one in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _one(self, moment: str, asked: _Asked) -> None:
        with self._lock:
            operations = tuple(asked.operations) if asked.by_operation else ()
        asked_ns = clock.boottime_ns()
        answer = asked.asker.ask(operations)
        before, asked.last = asked.last, answer
        wait_s = max(asked.every_s, answer.wait_s or 0.0)
        asked.due_ns = clock.boottime_ns() + int(wait_s * _NANO)
        if moment == "settling" and before is not None and _says(before) == _says(answer):
            return
        try:
            self._tell(
                service=asked.asker.service.name,
                moment=moment,
                answer=answer,
                asked_ns=asked_ns,
                operations=operations,
            )
        except BaseException as err:  # noqa: BLE001 - as above
            self._failure = err

    def _all_settled(self) -> bool:
        return not any(self._may_act(one) for one in self._asked.values())

    @staticmethod
    def _may_act(asked: _Asked) -> bool:
        return asked.last is None or asked.last.status in _UNSETTLED


def parse_announcement(note: str) -> tuple[str, str] | None:
    """Read a note that names a service and an operation; None for every other note."""
    if not note.startswith("{"):
        return None
    try:
        said = json.loads(note)
    except (ValueError, RecursionError):
        return None
    service, operation = said.get("service"), said.get("operation")
    if isinstance(operation, int) and not isinstance(operation, bool):
        operation = str(operation)
    if not isinstance(service, str) or not isinstance(operation, str) or not 0 < len(operation) <= _OPERATION_CHARS:
        return None
    if not operation.isprintable():
        operation = operation.encode("unicode_escape").decode()[:_OPERATION_CHARS]  # in the log as it was said
    return service, operation


def watch_services(policy: Policy, *, run: str, environ: Mapping[str, str], tell: Tell) -> ServiceWatch | None:
    """Give a watch for the services that can be asked; None when there are none."""
    if not any(one.settle is not None for one in policy.services):
        return None
    return ServiceWatch(policy, run=run, environ=environ, tell=tell)


def _prepare(service: Service, run: str, environ: Mapping[str, str], since_s: float) -> _Asked:
    settle = service.settle
    if settle is None:
        message = f"service {service.name} cannot be asked"
        raise ValueError(message)
    asker = Asker(service, settle, run=run, environ=environ, since_s=since_s)
    return _Asked(asker=asker, every_s=settle.every_s, by_operation=asks_by_operation(settle), cancels=settle.cancels)


def _says(answer: Answer) -> tuple[ServiceStatus, str]:
    return answer.status, answer.detail


def _clear(descriptor: int) -> None:
    try:
        os.eventfd_read(descriptor)
    except BlockingIOError:
        return
