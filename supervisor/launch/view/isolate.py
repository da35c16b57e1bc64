"""Take the workspace away from processes that go on living: its mount in their box becomes read-only.

The kernel is asked, not the processes: it refuses with EBUSY while any descriptor is open for writing or any writable
mapping exists there, so that its consent is the proof that nobody can write any more. A write of our own must then be
refused too.
"""

from __future__ import annotations

import errno
import os
import threading

from supervisor.launch import libc
from supervisor.values import dataclass

_PROBE = b".supervise-isolated"


@dataclass(slots=True, kw_only=True)
class Isolation:
    """What came of it: ``error`` is None when the workspace cannot be written any more, else says why it can."""

    error: str | None = "was not tried"


def isolate(init_pid: int, workspace: bytes) -> Isolation:
    """Make the workspace read-only in the mount namespace of a box.

    Args:
        init_pid: of the box, as the host sees it.
        workspace: its path in the box.
    """
    done = Isolation()
    # A thread of its own: entering a mount namespace needs a root and a working directory that nobody shares.
    thread = threading.Thread(target=_isolate, args=(init_pid, workspace, done), name="supervise-isolate")
    thread.start()
    thread.join()
    return done


def _isolate(init_pid: int, workspace: bytes, done: Isolation) -> None:
    try:
        namespace = os.open(f"/proc/{init_pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            libc.unshare(libc.CLONE_FS)
            libc.setns(namespace, libc.CloneFlag.NEWNS)
        finally:
            os.close(namespace)
        libc.make_readonly(workspace)
        done.error = _probe(workspace)
    except OSError as err:
        busy = err.errno == errno.EBUSY
        done.error = "a descriptor or mapping is open for writing" if busy else err.strerror or str(err)


def _probe(workspace: bytes) -> str | None:
    path = workspace + b"/" + _PROBE
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as err:
        return None if err.errno == errno.EROFS else f"a probe write failed, but not as it should: {err.strerror}"
    os.unlink(path)  # noqa: PTH108 - bytes
    return "a probe write was not refused"
