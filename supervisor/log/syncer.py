"""The syncer: brings the log to the disk while the trial runs, in a thread of its own.

What this promises (the policy, see also docs/log.md):
    * A frame that was written survives the death of this process at once: it is in the page cache.
    * It survives that of the machine at most `EVERY_S` and one fsync later.
    * Nobody waits for it: appending goes on while the disk works. Only when the disk is several segments behind does
      the writer wait (`supervisor.log.segments`), and the trial with it, so that what waits in memory is bounded.
    * What the disk refuses is known within that time: after a failed fsync nothing is appended any more, because what
      is on the disk is no longer known, and the run ends unsealed.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Flag
from threading import Thread

from supervisor.errors import LogError
from supervisor.log.writer import LogWriter

EVERY_S = 1.0
_ABANDON_S = 1.0


class Syncer:
    """Syncs one log from `start` to `stop`."""

    def __init__(self, log: LogWriter, *, on_error: Callable[[LogError], object], every_s: float = EVERY_S) -> None:
        """Prepare; no thread runs yet.

        Args:
            log: what is synced.
            on_error: gets what the disk said when it refused; nothing is synced after that.
            every_s: seconds between two syncs.
        """
        self._log, self._on_error, self._every_s = log, on_error, every_s
        self._ending = Flag()
        self._thread = Thread(target=self._loop, name="supervise-sync", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, *, patience_s: float | None = None) -> None:
        """End the thread, once the sync under way is done; the seal brings the rest to the disk. Twice is once."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(patience_s)

    def abandon(self) -> None:
        """End on the way out of a run that failed: a disk that hangs must not keep the trial's cleaning waiting."""
        self.stop(patience_s=_ABANDON_S)

    def _loop(self) -> None:
        synced = 0
        while not self._ending.wait(self._every_s):
            frames = self._log.frames
            if frames == synced:
                continue
            try:
                self._log.sync()
            except LogError as err:
                self._on_error(err)
                return
            synced = frames
