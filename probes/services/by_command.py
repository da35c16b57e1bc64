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
    code, said = _run(settle.texts("command"), question)
    detail = f"exit {code}{f': {said}' if said else ''}"
    status = STATUSES.get(code)
    return unknown(detail) if status is None else Answer(status=status, detail=bounded(detail))


def cancel(settle: Settle, question: Question) -> None:
    """Run the program that calls off what was asked for.

    Raises:
        OSError: it cannot be run, did not end in time, or failed.
    """
    code, said = _run(settle.texts("cancel"), question)
    if code:
        message = f"exit {code}{f': {said}' if said else ''}"
        raise OSError(message)


def _run(command: tuple[str, ...], question: Question) -> tuple[int, str]:
    """Run a program; gives its exit code and the first line of what it said."""
    words = [question.fill(word) for word in command]
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
    return process.returncode, bounded(out.decode("utf-8", "replace").partition("\n")[0])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the group, the program's own children among it, and take its exit code."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
