"""A workspace that is the whole machine: what CMD writes to the system is then applied to it.

In: a request. Out: a sentence, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from policies.types import Commit, FilesMode
from supervisor.request import RunRequest


def everywhere(request: RunRequest) -> Iterator[str]:
    """Say that writes anywhere reach this machine, unless somebody said which may, or that they are only kept."""
    files = request.policy.files
    if (request.cwd / (files.workspace or ".")).resolve() != Path("/") or files.write is not None:
        return
    if files.mode is FilesMode.DIRECT:
        yield "the workspace is /, the whole machine: CMD writes anywhere in it in place; --write says what it may"
    elif files.commit is not Commit.NEVER:
        yield (
            "the workspace is /, the whole machine: what CMD writes anywhere is applied to it when the trial is over; "
            "--write says what may, --commit never keeps it to be looked at first"
        )
