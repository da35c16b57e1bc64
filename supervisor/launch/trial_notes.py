"""What the trial says about itself through ``$SUPERVISE_NOTIFY``: datagrams, kept as they are and believed in nothing.

The socket was made inside the box; only its receiving end is ours. Who sent a note is what the kernel says
(SCM_CREDENTIALS, unix(7)). There is room for the credentials alone, so that descriptors that come with a note are
dropped by the kernel instead of reaching us.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from supervisor.values import dataclass

VARIABLE = "SUPERVISE_NOTIFY"
PATH = "/run/supervise/notify"
"""Where the trial finds it; boxinit.c makes it."""

NOTE_BYTES = 4096
_UCRED = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNote:
    """One note: the sender's pid on the host, and the text, whose undecodable bytes are replaced.

    ``truncated`` when it was longer than `NOTE_BYTES`.
    """

    pid: int
    text: str
    truncated: bool


def open_notes(descriptor: int) -> socket.socket:
    """Take the receiving end that came out of the box."""
    notes = socket.socket(fileno=descriptor)
    notes.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    notes.settimeout(0)
    return notes


def read_notes(notes: socket.socket, at_most: int) -> Iterator[TrialNote]:
    """Take up to ``at_most`` notes that wait; senders wait for room meanwhile, so that none can outrun us."""
    for _ in range(at_most):
        try:
            data, ancillary, flags, _ = notes.recvmsg(NOTE_BYTES, socket.CMSG_SPACE(_UCRED.size))
        except BlockingIOError:
            return
        pids = [_UCRED.unpack(cred[: _UCRED.size])[0] for _, kind, cred in ancillary if kind == socket.SCM_CREDENTIALS]
        yield TrialNote(
            pid=pids[0] if pids else 0,
            text=data.decode("utf-8", "replace"),
            truncated=bool(flags & socket.MSG_TRUNC),
        )
