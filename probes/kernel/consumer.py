"""The consumer: takes a trial's records out of the ring and hands them on, in a thread of its own.

Laws:
    * A record leaves the ring only after ``take`` returned.
    * Above three quarters the trial is frozen until the ring is nearly empty; below that the program's own throttle is
      enough.
    * When ``take`` fails (a full disk), the trial stays frozen, the error is kept, and ``failed`` becomes readable.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

from probes.kernel.witness import Counters, KernelWitness, Loss

_FREEZE_ABOVE = 0.75
_THAW_BELOW = 0.1
_WAIT_S = 0.02
_COUNT_EVERY = 10
_NICE = -10
_BUSY_S = 1.0
_BUSY_STEP_S = 0.0001
BRAKE_HOLDER = "consumer"


class Brake(Protocol):
    """What stops the trial: it goes on when the last holder lets go."""

    def hold(self, holder: str, *, wait: bool = True) -> bool:
        """Freeze, or stay frozen, on behalf of ``holder``, and ``wait`` for the kernel's word that it is done."""

    def release(self, holder: str) -> None:
        """Thaw unless somebody else holds."""


class Consumer:
    """Owns the ring of one witness from `start` to `stop`."""

    def __init__(
        self,
        witness: KernelWitness,
        *,
        take: Callable[[memoryview, int], object],
        brake: Brake,
        tell_loss: Callable[[Loss], object],
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            witness: whose ring is drained and whose counters are read.
            take: gets each slab with its number of records.
            brake: stops the trial when the ring fills up.
            tell_loss: gets each loss once, as soon as it is seen.
        """
        self._witness = witness
        self._take = take
        self._brake = brake
        self._tell_loss = tell_loss
        self._told: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervise-consumer", daemon=True)
        self.events = 0
        self.freezes = 0
        self.error: Exception | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self.failed = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def start(self) -> None:
        """Begin to drain."""
        self._thread.start()

    def stop(self) -> Counters:
        """Drain what is left, tell the last losses and end; raises what ``take`` raised. Twice is once."""
        if self.failed >= 0:
            self._ending.set()
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self.failed)
            os.close(self._wake)
            self.failed = -1
        if self.error is not None:
            raise self.error
        self.flush()
        return self._count_losses()

    def flush(self) -> None:
        """Drain all that happened before this call; for the main thread. Raises what ``take`` raised."""
        if self.error is not None:
            raise self.error
        with self._lock:
            self._drain_to(self._witness.ring.produced)

    def _run(self) -> None:
        # Without the capability the throttle and the freeze still hold.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        poll = select.epoll()
        # Edge-triggered: the programs wake us when much waits, our own timer does otherwise. By level the ring is ready
        # as long as anything is in it, and we would turn for every few records.
        poll.register(self._witness.ring_fd, select.EPOLLIN | select.EPOLLET)
        poll.register(self._wake, select.EPOLLIN)
        try:
            self._loop(poll)
        except Exception as err:  # noqa: BLE001 - kept for the main thread, which raises it
            self.error = err
            self._brake.hold(BRAKE_HOLDER)
            os.eventfd_write(self.failed, 1)
        finally:
            poll.close()

    def _loop(self, poll: select.epoll) -> None:
        turn = 0
        while not self._ending.is_set():
            poll.poll(_WAIT_S)
            self._keep_up()
            turn += 1
            if turn % _COUNT_EVERY == 0:
                self._count_losses()

    def _keep_up(self) -> None:
        ring = self._witness.ring
        if ring.fill() > _FREEZE_ABOVE:
            # Without waiting: one member that the kernel cannot stop yet must not keep the ring from being drained.
            self._brake.hold(BRAKE_HOLDER, wait=False)
            self.freezes += 1
            while ring.fill() > _THAW_BELOW:
                with self._lock:
                    self._drain()
            self._brake.release(BRAKE_HOLDER)
        with self._lock:
            self._drain()

    def _drain(self) -> None:
        self.events += self._witness.ring.drain(self._take)

    def _drain_to(self, position: int) -> None:
        # A record that is just being written hides those behind it for a moment.
        ring, end_s = self._witness.ring, time.monotonic() + _BUSY_S
        self._drain()
        while ring.consumed < position and time.monotonic() < end_s:
            time.sleep(_BUSY_STEP_S)
            self._drain()

    def _count_losses(self) -> Counters:
        counters = self._witness.counters()
        for loss in counters.losses:
            known = self._told.get(loss.hook, 0)
            if loss.count > known:
                self._told[loss.hook] = loss.count
                self._tell_loss(
                    Loss(hook=loss.hook, count=loss.count - known, first_ns=loss.first_ns, last_ns=loss.last_ns)
                )
        return counters
