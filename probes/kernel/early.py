"""Let the kernel verify our programs while the rest of us is still being imported.

Loading takes about as long as importing, and needs no Python: a thread does it from the first moment. What was loaded
is taken by the first trial that finds nothing pinned, or dropped. It is a saving only: without it, `pins` loads itself.
Whoever starts it has imported next to nothing yet, so this module imports little.
"""

from __future__ import annotations

import os
import sys
import threading

from probes.kernel import libbpf
from supervisor.errors import MachineError

CASTS_SINCE = (6, 2)
"""Kernels before read each field by a call: see direct.bpf.h."""


def object_for(release: str) -> str:
    """Choose the object that was built for a kernel, by its version (``uname -r``)."""
    numbers = release.replace("-", ".").split(".")[:2]
    old = all(number.isdecimal() for number in numbers) and tuple(map(int, numbers)) < CASTS_SINCE
    name = "witness_by_calls.bpf.o" if old else "witness.bpf.o"
    return os.path.join(os.path.dirname(__file__), name)  # noqa: PTH118, PTH120 - pathlib costs 6 ms


OBJECT = object_for(os.uname().release)
BPFFS = ("/sys/fs/bpf", "/run/supervise/bpf")
"""Where pins may be: the machine's own, and ours where it has none."""

READY = "ready"
SWITCH_S = 0.0005
"""After how long a thread lets another one in: Python's 5 ms would make the loader and the consumer wait for us."""


class EarlyLoad:
    """One object being loaded by a thread."""

    def __init__(self, path: str) -> None:
        """Begin; whatever goes wrong is left to whoever loads in earnest, and tells."""
        self._path = path
        self._loaded: libbpf.BpfObject | None = None
        self._thread: threading.Thread | None = threading.Thread(target=self._load, name="supervise-load")
        self._thread.start()

    def _load(self) -> None:
        try:
            self._loaded = libbpf.BpfObject(self._path)
        except MachineError:
            self._loaded = None

    def wait(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def take(self) -> libbpf.BpfObject | None:
        """Wait for the thread and give what it loaded, once."""
        self.wait()
        loaded, self._loaded = self._loaded, None
        return loaded


_early: EarlyLoad | None = None


def begin_loading(path: str = OBJECT) -> None:
    """Begin, unless it has begun, or a trial that runs has loaded already. For the very start of the program."""
    global _early  # noqa: PLW0603 - one process, one load
    sys.setswitchinterval(SWITCH_S)
    if _early is None and not _is_pinned():
        _early = EarlyLoad(path)


def _is_pinned() -> bool:
    return any(_is_ready(f"{base}/{name}") for base in BPFFS for name in _names(base) if name.startswith("supervise-"))


def _is_ready(directory: str) -> bool:
    return os.path.exists(f"{directory}/{READY}")  # noqa: PTH110 - as above


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - as above
    except OSError:
        return []


def wait_for_loading() -> None:
    """Wait until no thread of ours runs: before a fork."""
    if _early is not None:
        _early.wait()


def take_loaded() -> libbpf.BpfObject | None:
    """Give what was loaded early, if anything was, once; no thread runs afterwards."""
    return _early.take() if _early is not None else None
