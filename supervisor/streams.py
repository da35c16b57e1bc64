"""The three standard streams, of which a caller may have closed some.

The rule: nothing of ours ever gets one of the numbers 0, 1 and 2. The next file that we open would get the number of a
closed one, and what is written to standard output would land in it; or it would be handed to CMD.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def streams_held() -> Iterator[frozenset[int]]:
    """Hold every closed standard stream with ``/dev/null`` for as long as the ``with`` lasts; gives their numbers."""
    closed = hold_streams()
    try:
        yield closed
    finally:
        for number in closed:
            os.close(number)


def hold_streams() -> frozenset[int]:
    """Put ``/dev/null`` where a standard stream is closed, for good; gives the numbers of those."""
    closed = frozenset(number for number in range(3) if not is_open(number))
    for _ in closed:
        # open(2) gives the lowest free number, which is one of the closed.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - it has no name
    return closed


def is_open(number: int) -> bool:
    """Tell whether a descriptor is open."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def replace_missing() -> None:
    """Give Python a standard output and error where it found none: it makes them None, and every print would fail."""
    # No `with`: these last as long as the process, as those of Python do.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
