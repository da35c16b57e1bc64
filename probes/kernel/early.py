"""Let the kernel verify our programs while the rest of us is still being imported.

Loading takes about as long as importing, and needs no Python: a thread does it from the first moment. What was loaded
is taken by the first trial that finds nothing pinned, or dropped. It is a saving only: without it, `pins` loads itself.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from probes.kernel import libbpf
from supervisor.errors import MachineError


@dataclass(slots=True)
class EarlyLoad:
    """One object being loaded by a thread."""

    path: Path
    _loaded: libbpf.BpfObject | None = None
    _thread: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin; whatever goes wrong is left to whoever loads in earnest, and tells."""
        self._thread = threading.Thread(target=self._load, name="supervise-load")
        self._thread.start()

    def _load(self) -> None:
        try:
            self._loaded = libbpf.BpfObject(self.path)
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


def begin_loading(path: Path) -> None:
    """Begin, unless it has begun."""
    global _early  # noqa: PLW0603 - one process, one load
    if _early is None:
        _early = EarlyLoad(path)
        _early.start()


def wait_for_loading() -> None:
    """Wait until no thread of ours runs: before a fork."""
    if _early is not None:
        _early.wait()


def take_loaded() -> libbpf.BpfObject | None:
    """Give what was loaded early, if anything was, once; no thread runs afterwards."""
    return _early.take() if _early is not None else None
