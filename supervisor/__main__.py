"""The command as a process: ``supervise``, or ``python -m supervisor`` where its script is not on the PATH."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

with suppress(OSError):  # a current directory that is gone has no modules
    # `python -m` looks into the current directory first: a workspace, where a trial may have left a json.py.
    if sys.path[:1] == [os.getcwd()] and not sys.flags.safe_path:  # noqa: PTH109 - a text is compared
        del sys.path[0]

from supervisor.command.beginning import begin

INTERRUPTED = 130
"""What a shell gives for SIGINT."""


def entry() -> NoReturn:
    """Run the command line and end the process.

    Everything is undone and written when `main` returns. Taking the interpreter apart would only cost 20 ms more.
    """
    words = sys.argv[1:]
    try:
        closed = begin(words)
        from supervisor.cli import main  # noqa: PLC0415 - the kernel verifies our programs meanwhile
    except KeyboardInterrupt:  # afterwards `main` sees to it
        os._exit(INTERRUPTED)

    code = main(words, closed=closed)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # closed, or nobody listens: `main` has told by its exit code
    os._exit(code)


if __name__ == "__main__":
    entry()
