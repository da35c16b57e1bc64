"""``python -m supervisor``: the command, where its script is not on the PATH."""

from __future__ import annotations

import sys

from supervisor.cli import main

if __name__ == "__main__":
    sys.exit(main())
