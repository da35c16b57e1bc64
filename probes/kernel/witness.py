"""The kernel witness as the supervisor uses it: watch one cgroup, take its records, read its counters.

In: a cgroup that holds no process yet. Out: slabs of records (see `probes.kernel.ring`) and counters. It keeps the rule
that whoever is watched cannot reach what watches: nothing here is visible in the trial.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

from probes.kernel import abi, libbpf, pins
from probes.kernel.ring import Ring
from probes.kernel.watching import Looks
from supervisor.events import ProcessKey
from supervisor.launch.aside import Aside
from supervisor.values import dataclass

DEFAULT_RING_BYTES = 8 << 20
_RECORD_HEADER = 8
_MINOR_BITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records of one hook that found no room, and when (CLOCK_BOOTTIME ns, over all hooks)."""

    hook: str
    count: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """What the kernel saw of the trial's end of a flow so far. Times are CLOCK_BOOTTIME, None for what did not come.

    Attributes:
        process: who asked for it.
        begun_ns: when.
        said_ns: when something that it said last left.
        left_ns: when its last holder closed it, or ended. What had been said by then may leave later.
    """

    process: ProcessKey
    begun_ns: int | None = None
    said_ns: int | None = None
    left_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The trial's counters at one moment."""

    losses: tuple[Loss, ...]
    egress_packets: int
    egress_bytes: int
    throttled_ns: int
    unreadable: int
    last_error: int
    gateway_starts: int = 0
    gateway_packets: int = 0
    gateway_bytes: int = 0

    @property
    def lost(self) -> int:
        """All lost records together."""
        return sum(loss.count for loss in self.losses)


def _enter(path: Path, key: bytes, value: bytes) -> None:
    entries = libbpf.BpfMap(libbpf.open_pin(path), len(value))
    try:
        entries.update(key, value)
    finally:
        entries.close()


class KernelWitness:
    """Watches one trial. Made by `watch`; `close` ends it, and takes the programs away when it was the last."""

    def __init__(self, cgroup_root: Path, cgroup_id: int, directory: Path, ring_fd: int, ring_bytes: int) -> None:
        """Use `watch`."""
        self._cgroup_root = cgroup_root
        self._cgroup_id = cgroup_id
        self._key = cgroup_id.to_bytes(8, "little")
        self.ring_fd = ring_fd
        self.ring = Ring(ring_fd, ring_bytes)
        self._trials = libbpf.BpfMap(libbpf.open_pin(directory / "trials"), ctypes.sizeof(abi.Trial))
        self._orders = libbpf.BpfMap(libbpf.open_pin(directory / "orders"), abi.ORDERS.size)
        self._writers = libbpf.BpfMap(libbpf.open_pin(directory / "writers"), abi.WRITER.size)
        self._members = libbpf.BpfMap(libbpf.open_pin(directory / "members"), abi.MEMBER.size)
        self._ports = libbpf.BpfMap(libbpf.open_pin(directory / "ports"), abi.OWNER.size)
        self._dials = libbpf.BpfMap(libbpf.open_pin(directory / "dials"), abi.DIAL.size)
        self._looks = libbpf.BpfMap(libbpf.open_pin(directory / "looks"), abi.LOOKS.size)
        self._watched = libbpf.BpfMap(libbpf.open_pin(directory / "watched"), 4)
        self._watching: list[bytes] = []
        # The links are held too: what somebody does to the pins does not end the watching.
        self._links = [libbpf.open_pin(path) for path in sorted(directory.glob("link_*"))]
        self._programs = [libbpf.open_pin(path) for path in sorted(directory.glob("prog_*"))]
        self._missed_before = self._misses()

    @classmethod
    def watch(
        cls,
        cgroup_root: Path,
        cgroup: Path,
        *,
        ring_bytes: int = DEFAULT_RING_BYTES,
        network: abi.Network = abi.Network.REFUSE,
        meanwhile: Callable[[], object] | None = None,
    ) -> KernelWitness:
        """Begin to watch ``cgroup``, a child of ``<cgroup_root>/supervise``.

        Args:
            cgroup_root: of the v2 tree.
            cgroup: of the trial.
            ring_bytes: size of its ring.
            network: whether a gateway serves the trial's network namespace.
            meanwhile: called while the kernel waits until all processors know of the ring, which takes it 10 ms.

        Raises:
            MachineError: the programs cannot be loaded or attached here.
        """
        cgroup_id = cgroup.stat().st_ino
        key = cgroup_id.to_bytes(8, "little")
        began_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        offset_ns = time.time_ns() - began_ns
        with pins.locked(cgroup_root):
            directory = pins.ensure(pins.Parent.of(cgroup.parent))
            ring_fd = libbpf.create_ring(ring_bytes)
            _enter(directory / "trials", key, bytes(abi.Trial()))
            _enter(directory / "orders", key, abi.ORDERS.pack(0, network, 0, began_ns, offset_ns))
            witness = cls(cgroup_root, cgroup_id, directory, ring_fd, ring_bytes)
        # The trial is known by now, so that nobody takes its entries away: others need not wait for it.
        known = Aside(lambda: _enter(directory / "rings", key, ring_fd.to_bytes(4, "little")))
        try:
            if meanwhile is not None:
                meanwhile()
            known.result()
        except BaseException:
            known.wait()
            witness.close()
            raise
        return witness

    def look_for(self, looks: Looks) -> None:
        """Tell of these looks too, from now on; call it once, before the trial is released."""
        for key in looks.entries(self._cgroup_id):
            self._watched.update(key, bytes(4))
            self._watching.append(key)
        if looks.flags():
            self._looks.update(self._key, looks.pack())

    def close(self) -> None:
        """Stop watching. Call it after the trial's cgroup was removed, so that the last one out is known."""
        self.ring.close()
        for key in self._watching:
            self._watched.delete(key)
        for fd in (self.ring_fd, *self._links, *self._programs):
            os.close(fd)
        for opened in (
            self._trials, self._orders, self._writers, self._members, self._looks, self._watched, self._ports,
            self._dials,
        ):  # fmt: skip
            opened.close()
        pins.collect_garbage(self._cgroup_root)

    def _trial(self) -> abi.Trial:
        value = self._trials.lookup(self._key)
        return abi.Trial.from_buffer_copy(value) if value else abi.Trial()

    def _misses(self) -> int:
        return sum(libbpf.recursion_misses(fd) for fd in self._programs)

    def counters(self) -> Counters:
        """Read the counters; a program that was skipped because it was running already counts as a loss."""
        trial = self._trial()
        first, last = trial.first_lost_ns, trial.last_lost_ns
        losses = [
            Loss(hook=hook, count=count, first_ns=first, last_ns=last)
            for hook, count in zip(abi.HOOKS, trial.lost, strict=True)
            if count
        ]
        if missed := self._misses() - self._missed_before:
            losses.append(Loss(hook="recursion", count=missed, first_ns=first, last_ns=last))
        return Counters(
            losses=tuple(losses),
            egress_packets=trial.egress_packets,
            egress_bytes=trial.egress_bytes,
            throttled_ns=trial.throttled_ns,
            unreadable=trial.unreadable,
            last_error=trial.last_error,
            gateway_starts=trial.gateway_starts,
            gateway_packets=trial.gateway_packets,
            gateway_bytes=trial.gateway_bytes,
        )

    def find_dial(self, protocol: int, ip: bytes, port: int) -> Dial | None:
        """Give what is known of the socket that last began to send from an address and port; None when nothing is.

        Args:
            protocol: its number in IP headers: 6 is TCP, 17 is UDP.
            ip: 16 bytes; an address of IPv4 in its mapped form.
            port: of the trial's end.
        """
        value = self._ports.lookup(abi.PORT.pack(self._cgroup_id, ip, port, protocol, 0))
        if value is None:
            return None
        start_ns, cookie, pid, _ = abi.OWNER.unpack(value)
        dial = self._dials.lookup(cookie.to_bytes(8, "little"))
        if dial is None:
            return Dial(process=ProcessKey(pid, start_ns))
        _, start_ns, pid, _, *times = abi.DIAL.unpack(dial)
        begun_ns, said_ns, left_ns = (time_ns or None for time_ns in times)
        if said_ns is not None and left_ns is not None:
            # It is closed a while after its last holder's end, and what that had said goes on leaving meanwhile.
            said_ns = min(said_ns, left_ns)
        return Dial(process=ProcessKey(pid, start_ns), begun_ns=begun_ns, said_ns=said_ns, left_ns=left_ns)

    def identify(self, pid: int) -> ProcessKey:
        """Name a member of the trial for ever; the start is 0 when it is not known (any more)."""
        value = self._members.lookup(pid.to_bytes(4, "little"))
        return ProcessKey(pid, abi.MEMBER.unpack(value)[1] if value else 0)

    def next_epoch(self) -> None:
        """From here on the first write through each descriptor is told again: call it at each boundary of the trial."""
        epoch, *rest = abi.ORDERS.unpack(self._orders.lookup(self._key) or bytes(abi.ORDERS.size))
        self._orders.update(self._key, abi.ORDERS.pack(epoch + 1, *rest))

    def keep_content(self, device: int) -> None:
        """From here on tell the beginning of what is written to regular files of one file system.

        Args:
            device: as ``st_dev`` of a directory on it.
        """
        epoch, network, _, *rest = abi.ORDERS.unpack(self._orders.lookup(self._key) or bytes(abi.ORDERS.size))
        keep = os.major(device) << _MINOR_BITS | os.minor(device)  # include/linux/kdev_t.h
        self._orders.update(self._key, abi.ORDERS.pack(epoch, network, keep, *rest))

    def pending_totals(self) -> tuple[bytes, int]:
        """Take, as a slab of records and their count, the writes that no close has told yet: each is told once."""
        records = []
        for key, value in self._writers.entries(abi.WRITER_KEY.size):
            mine = abi.WRITER.unpack(value)[2] == self._cgroup_id
            taken = self._writers.take(key) if mine else None
            if taken and (record := self._totals(key, taken)):
                records.append(record)
        return b"".join(records), len(records)

    def _totals(self, key: bytes, value: bytes) -> bytes | None:
        _file, _object, _cgroup, start_ns, inode, count, size_bytes, last_ns, device, _epoch = abi.WRITER.unpack(value)
        if count < 2:  # noqa: PLR2004 - the first write was told when it happened
            return None
        pid, _fd = abi.WRITER_KEY.unpack(key)
        record = abi.RECORD.pack(
            last_ns, start_ns, pid, abi.RecordKind.FILE_TOTALS, 0, 0, device, 0, 0, inode, size_bytes, count
        )
        return len(record).to_bytes(_RECORD_HEADER, "little") + record
