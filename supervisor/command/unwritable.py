"""A workspace that CMD cannot write in, though whoever called us could: root inside has no capabilities.

In: a request. Out: a sentence, before anything runs. Told by owner and mode alone, as an access list is not read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from supervisor.errors import UsageError
from supervisor.prepare.preparing import User, find_user
from supervisor.request import RunRequest


def unwritable(request: RunRequest) -> Iterator[str]:
    """Say that the workspace belongs to somebody else, and that its mode refuses writes to who CMD runs as."""
    if request.policy.files.write == ():
        return
    try:
        user = find_user(request.user, request.environ)
        found = os.stat(request.cwd / (request.policy.files.workspace or "."))  # noqa: PTH116 - as it is named
    except (UsageError, OSError):
        return  # who or what is not there is said when the trial is prepared
    if user.uid == found.st_uid or _may_write(found, user):
        return
    who = "root inside has no capabilities" if user.uid == 0 else f"CMD runs as uid {user.uid}"
    hint = f": --user {found.st_uid}" if os.geteuid() == 0 else ""
    yield f"the workspace belongs to uid {found.st_uid} and its mode lets nobody else write in it; {who}{hint}"


def _may_write(found: os.stat_result, user: User) -> bool:
    if found.st_gid in {user.gid, *user.groups}:
        return bool(found.st_mode & stat.S_IWGRP)
    return bool(found.st_mode & stat.S_IWOTH)
