"""The command as a process: ``supervise``, or ``python -m supervisor`` where its script is not on the PATH."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from supervisor.cli import main


def entry() -> NoReturn:
    """Run the command line and end the process.

    Everything is undone and written when `main` returns. Taking the interpreter apart would only cost 20 ms more.
    """
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # closed, or nobody listens: `main` has told by its exit code
    os._exit(code)


if __name__ == "__main__":
    entry()
