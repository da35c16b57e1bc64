"""A file of the host whose text is the answer, such as one that a service keeps its state in."""

from __future__ import annotations

import os
import stat

from policies.types import Settle
from probes.services.answers import Answer, Question, read_absence, read_word, unknown

_MOST_BYTES = 4096


def ask(settle: Settle, question: Question) -> Answer:
    """Read it once. A FIFO or a device is not opened for long: it is no file.

    Raises:
        OSError: it cannot be read.
    """
    path = question.fill(settle.text("path") or "")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return read_absence(settle, path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return unknown(f"{path}: no regular file")
        text = os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace").strip()
    finally:
        os.close(descriptor)
    return read_word(settle, text, path)
