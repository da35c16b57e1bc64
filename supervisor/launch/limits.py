"""The limits of a trial: what the policy asks for, resolved on this machine, set in its cgroups, and read back.

In: `policies.types.Limits`. Out: values for the manifest, the files that a member joins by, and at the end what each
limit did, in the kernel's own count.

Laws:
    * Nobody but the trial and the box's two processes is in a limited cgroup: the supervisor and its guardian are not.
    * Limits are set before the first member joins.
    * A controller that this machine lacks is a limit that says so, never one that is left out.
    * When memory runs out, the box's own processes are the last to be chosen, and the trial is chosen before the host.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from policies.types import Limits, Memory
from supervisor.errors import MachineError
from supervisor.launch.cgroup import Cgroup
from supervisor.launch.controllers import Controller, enable, find_controllers, make_companion
from supervisor.values import dataclass

OWN_PROCESSES = 2
"""bubblewrap and the box's init: they come on top of what the policy allows."""

PERIOD_US = 100_000
"""The kernel's usual period for processor quotas."""

_LEAST_QUOTA_US = 1_000
_TRIAL_SCORE = b"500"
_HELPER_SCORE = b"-999"
_HINT = "lift it with --{0} none, or see what `supervise doctor` says about limits"


class Resource(StrEnum):
    """What is limited; the value is the name of the controller and of the policy's key."""

    PIDS = "pids"
    MEMORY = "memory"
    CPU = "cpu"


class Effect(StrEnum):
    """What a limit did to the trial when it was reached."""

    REFUSED = "refused"
    KILLED = "killed"
    RECLAIMED = "reclaimed"
    THROTTLED = "throttled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit.

    Attributes:
        amount: processes, bytes or processors.
        controller: what enforces it, or None when this machine has nothing that could.
    """

    resource: Resource
    amount: float
    controller: Controller | None

    def describe(self) -> dict[str, object]:
        """Give what the manifest says about it."""
        if self.controller is None:
            return {"limit": self.amount, "by": None, "note": f"not enforced: no {self.resource} controller here"}
        return {"limit": self.amount, "by": "cgroup v1" if self.controller.legacy else "cgroup v2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A limit that the trial met, and how many times the kernel counted it."""

    resource: Resource
    limit: float
    effect: Effect
    times: int


def plan_limits(limits: Limits, root: Path) -> tuple[Limit, ...]:
    """Resolve the limits of a policy on this machine, ``root`` being where cgroup v2 is mounted."""
    controllers = find_controllers(root)
    amounts = {Resource.PIDS: limits.pids, Resource.MEMORY: resolve_memory(limits.memory), Resource.CPU: limits.cpu}
    return tuple(
        Limit(resource=resource, amount=amount, controller=controllers.get(resource))
        for resource, amount in amounts.items()
        if amount is not None
    )


def resolve_memory(memory: Memory | None) -> int | None:
    """Give an amount of memory in bytes; a share is one of all that the machine has, in whole MiB."""
    if memory is None or memory.percent is None:
        return memory.size_bytes if memory else None
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total * memory.percent // 100 >> 20 << 20


# -- setting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedCgroup:
    """The limits of one trial, in force.

    Attributes:
        joins: what a process writes ``0`` into to enter those cgroups that it is not in by being in the trial's.
    """

    joins: tuple[Path, ...]
    _places: tuple[tuple[Limit, Path], ...]

    @classmethod
    def create(cls, cgroup: Cgroup, limits: Iterable[Limit]) -> LimitedCgroup:
        """Set the limits of a trial whose cgroup has no member yet. They go when the cgroup is removed.

        Raises:
            MachineError: the kernel refuses one.
        """
        enforced = [(limit, limit.controller) for limit in limits if limit.controller is not None]
        unified = [controller for _, controller in enforced if not controller.legacy]
        if unified:
            _enable(cgroup, unified)
        places = tuple((limit, _set(limit, controller, cgroup)) for limit, controller in enforced)
        # `tasks`, not `cgroup.procs`: a thread that moves itself needs no lock on all forks of the machine, whose
        # taking waits for a grace period of RCU (kernel/cgroup/cgroup.c, cgroup_procs_write_start; 0.1 ms, not 14).
        joins = tuple(dict.fromkeys(place / "tasks" for _, place in places if place != cgroup.path))
        return cls(joins=joins, _places=places)

    def reached(self) -> tuple[Reached, ...]:
        """Read which limits the trial met."""
        return tuple(
            Reached(resource=limit.resource, limit=limit.amount, effect=effect, times=times)
            for limit, place in self._places
            for effect, times in _COUNTS[limit.resource](place)
            if times
        )


def _enable(cgroup: Cgroup, controllers: Iterable[Controller]) -> None:
    try:
        enable(cgroup.path.parent.parent, cgroup.path.parent, [controller.name for controller in controllers])
    except OSError as err:
        message = f"controllers cannot be enabled: {err.strerror}"
        hint = "lift the limits with --pids none --memory none --cpus none"
        raise MachineError(message, place=str(cgroup.path.parent), hint=hint) from err


def _set(limit: Limit, controller: Controller, cgroup: Cgroup) -> Path:
    try:
        place = make_companion(controller, cgroup.path) if controller.legacy else cgroup.path
        for name, text in _settings(limit, legacy=controller.legacy):
            try:
                (place / name).write_text(text, encoding="ascii")
            except FileNotFoundError:
                if "sw" not in name:  # a kernel that does not account for swap
                    raise
    except OSError as err:
        message = f"the limit of {limit.resource} cannot be set: {err.strerror}"
        option = "cpus" if limit.resource is Resource.CPU else limit.resource.value
        raise MachineError(message, place=str(controller.top), hint=_HINT.format(option)) from err
    return place


def _settings(limit: Limit, *, legacy: bool) -> Iterator[tuple[str, str]]:
    """Give the files of a limit and what is written into them: swap counts as memory, or the limit would only slow."""
    amount = limit.amount
    quota = max(_LEAST_QUOTA_US, round(amount * PERIOD_US))
    match limit.resource, legacy:
        case Resource.PIDS, _:
            yield "pids.max", str(int(amount) + OWN_PROCESSES)
        case Resource.MEMORY, True:
            yield "memory.limit_in_bytes", str(int(amount))
            yield "memory.memsw.limit_in_bytes", str(int(amount))
        case Resource.MEMORY, False:
            yield "memory.max", str(int(amount))
            yield "memory.swap.max", "0"
        case Resource.CPU, True:
            yield "cpu.cfs_period_us", str(PERIOD_US)
            yield "cpu.cfs_quota_us", str(quota)
        case Resource.CPU, False:
            yield "cpu.max", f"{quota} {PERIOD_US}"


def prefer_trial_as_victim(main_pid: int, helper_pids: Iterable[int]) -> None:
    """Say whom to kill when memory runs out: CMD and what it starts, before the host's processes and the box's own.

    Call it when CMD is held: what its process is given, its children get. The trial can take back what it was given,
    but go no further; and only with CAP_SYS_RESOURCE can the box's own be spared outright.
    """
    for pid, score in ((main_pid, _TRIAL_SCORE), *((pid, _HELPER_SCORE) for pid in helper_pids)):
        with suppress(PermissionError, FileNotFoundError):
            Path(f"/proc/{pid}/oom_score_adj").write_bytes(score)


# -- reading ---------------------------------------------------------------------------------------------------------


def _pids_counts(place: Path) -> Iterator[tuple[Effect, int]]:
    yield Effect.REFUSED, _read_counts(place / "pids.events").get("max", 0)


def _memory_counts(place: Path) -> Iterator[tuple[Effect, int]]:
    """Kills, else how often memory had to be taken back from caches: ordinary, but it makes a trial slow."""
    if (place / "memory.events").exists():
        counts = _read_counts(place / "memory.events")
        met = counts.get("max", 0)
    else:
        counts = _read_counts(place / "memory.oom_control")
        met = int((place / "memory.failcnt").read_text(encoding="ascii"))
    killed = counts.get("oom_kill", 0)
    yield (Effect.KILLED, killed) if killed else (Effect.RECLAIMED, met)


def _cpu_counts(place: Path) -> Iterator[tuple[Effect, int]]:
    yield Effect.THROTTLED, _read_counts(place / "cpu.stat").get("nr_throttled", 0)


def _read_counts(path: Path) -> dict[str, int]:
    words = path.read_text(encoding="ascii").split()
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}


_COUNTS: dict[Resource, Callable[[Path], Iterator[tuple[Effect, int]]]] = {
    Resource.PIDS: _pids_counts,
    Resource.MEMORY: _memory_counts,
    Resource.CPU: _cpu_counts,
}
