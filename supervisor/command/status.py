"""The lines of ``--status-fd``: one JSON object each, for whoever waits for a trial."""

from __future__ import annotations

import os

from supervisor.report.live import Phase, Progress, progress_record
from supervisor.verdict.completion import Completion

TELL_EVERY_S = 0.2
"""How often progress within one phase is passed on."""


class Paced:
    """Lets every change of phase through, and within one phase a little now and then."""

    def __init__(self) -> None:
        """Begin before the first phase."""
        self._last: tuple[Phase | None, float] = (None, 0.0)

    def lets(self, progress: Progress) -> bool:
        """Tell whether this is to be passed on."""
        phase, elapsed_s = self._last
        if progress.phase is phase and progress.elapsed_s < elapsed_s + TELL_EVERY_S:
            return False
        self._last = (progress.phase, progress.elapsed_s)
        return True


def send_progress(descriptor: int | None, progress: Progress) -> None:
    """Write how far the trial is."""
    if descriptor is not None:
        _send(descriptor, progress_record(progress))


def send_done(descriptor: int | None, completion: Completion, code: int) -> None:
    """Write the last line, which tells CMD's end from ours: ``exit_code`` alone cannot."""
    if descriptor is not None:
        _send(descriptor, done_record(completion, code))


def done_record(completion: Completion, code: int) -> dict[str, object]:
    """Give the last record: our exit code, how CMD ended, and whether it ever began (None: nobody knows)."""
    endpoint = completion.endpoint
    return {
        "phase": "done",
        "run": completion.run,
        "exit_code": code,
        "endpoint": {"reason": endpoint.reason, "exit_code": endpoint.exit_code, "signal": endpoint.signal},
        "executed": endpoint.executed,
        "exec_error": endpoint.exec_error,
    }


def _send(descriptor: int, record: dict[str, object]) -> None:
    """Write one line, or none at all: a reader that is slow or gone must not hold or end a trial."""
    import json  # noqa: PLC0415
    import select  # noqa: PLC0415

    # A pipe that is ready has room for PIPE_BUF bytes, more than a line has: the write is whole and does not block.
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    try:
        if any(ready & select.POLLOUT for _, ready in poll.poll(0)):
            os.write(descriptor, json.dumps(record).encode() + b"\n")
    except OSError:
        return
