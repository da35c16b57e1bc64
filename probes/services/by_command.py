"""A program of the operator that is asked by running it. Its exit code is the answer, its first line the detail."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

from policies.types import ServiceStatus, Settle
from probes.services.answers import Answer, Question, bounded, unknown

STATUSES = {
    0: ServiceStatus.COMMITTED,
    1: ServiceStatus.FAILED,
    2: ServiceStatus.PENDING,
    3: ServiceStatus.CANCELLED,
    4: ServiceStatus.SETTLED,
}
"""What an exit code means; 3 only for what was called off and can no longer be done."""


def ask(settle: Settle, question: Question) -> Answer:
    """Run it once, outside the box, with the supervisor's own environment and two names more.

    Raises:
        OSError: it cannot be run, or did not end in time; then it is killed, with all of its process group.
    """
    words = [question.fill(word) for word in settle.texts("command")]
    environ = {**question.environ, "SUPERVISE_RUN": question.run, "SUPERVISE_OPERATION": question.operation or ""}
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=question.left_s())
    except subprocess.TimeoutExpired as err:
        message = "it did not end in time"
        raise TimeoutError(message) from err
    finally:
        _end(process)
    said = bounded(out.decode("utf-8", "replace").partition("\n")[0])
    detail = f"exit {process.returncode}{f': {said}' if said else ''}"
    status = STATUSES.get(process.returncode)
    return unknown(detail) if status is None else Answer(status=status, detail=bounded(detail))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the group, the program's own children among it, and take its exit code."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
