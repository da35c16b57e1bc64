"""Contacts with somebody outside the box, and calls that the box refuses. In: socket and syscall events.

A connection to a unix socket whose peer is no process of this trial, or a descriptor sent or received across one, is a
route that no network rule closes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from supervisor.events import (
    ConnectionAttempted,
    DescriptorPassed,
    Event,
    ProcessKey,
    ServiceShown,
    SocketCreated,
    SyscallRefused,
)
from supervisor.evidence.bounded import Numbers
from supervisor.evidence.facts import OutsideContact, Refusal
from supervisor.evidence.processes import Cast

_UNIX_DATAGRAM = (1, 2)
"""AF_UNIX and SOCK_DGRAM, the same on every architecture we run on; the socket module is system access."""

_NO_FILE = (0, 0)

_NAMED = 1000
"""How many are kept: the box itself makes none, so that one of the trial's is among them."""

_ContactKey = tuple[ProcessKey | None, str, bool, int | None, bytes | None, tuple[int, int]]
_UNDER_WAY = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EINTR, errno.EISCONN})
"""Errors of a connect that do not say that nobody was reached."""

_RefusalKey = tuple[ProcessKey | None, str, int]


class ContactFold:
    """Merges contacts and refused calls by process and target."""

    def __init__(self) -> None:
        """Begin with no contact."""
        self._shown: dict[tuple[int, int], str] = {}
        self._contacts: dict[_ContactKey, list[tuple[int, int]]] = {}
        self._refusals: dict[_RefusalKey, Numbers] = {}
        self._datagram: list[tuple[ProcessKey | None, int, int]] = []

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {
            ConnectionAttempted: self._connection,
            DescriptorPassed: self._descriptor,
            SyscallRefused: self._refused,
            SocketCreated: self._socket,
            ServiceShown: self._show,
        }

    def _show(self, event: Event) -> None:
        if isinstance(event, ServiceShown) and event.inode:
            self._shown[event.device, event.inode] = event.service

    def _connection(self, event: Event) -> None:
        if isinstance(event, ConnectionAttempted) and event.outside:
            what = f"{event.transport} socket {_where(event.path, event.ip, event.port)}"
            error = None if event.error in _UNDER_WAY else event.error
            self._add((event.process, what, False, error, event.path, (event.device, event.inode)), event)

    def _descriptor(self, event: Event) -> None:
        if isinstance(event, DescriptorPassed) and event.outside:
            word = "received from" if event.received else "sent to"
            self._add(
                (event.process, f"descriptor {word} {_where(event.path)}", True, None, event.path, _NO_FILE), event
            )

    def _add(self, key: _ContactKey, event: Event) -> None:
        self._contacts.setdefault(key, []).append((event.time_ns, event.n))

    def _refused(self, event: Event) -> None:
        if isinstance(event, SyscallRefused):
            self._refusals.setdefault((event.process, event.name, event.error), Numbers()).add(event.n, event.time_ns)

    def _socket(self, event: Event) -> None:
        if not isinstance(event, SocketCreated):
            return
        if not event.error and (event.family, event.socket_type) == _UNIX_DATAGRAM and len(self._datagram) < _NAMED:
            self._datagram.append((event.process, event.time_ns, event.n))
        if event.error in {errno.EPERM, errno.EACCES}:
            key = (event.process, f"socket family {event.family}", event.error)
            self._refusals.setdefault(key, Numbers()).add(event.n, event.time_ns)

    def contacts(self, cast: Cast) -> tuple[OutsideContact, ...]:
        """Build the trial's contacts, first one first."""
        found = []
        for (process, what, descriptor, error, path, file), entries in self._contacts.items():
            kept = sorted(entry for entry in entries if not cast.ignores(process, entry[0]))
            if kept:
                found.append(
                    OutsideContact(
                        what=what,
                        process=process,
                        events=tuple(sorted(number for _, number in kept)),
                        descriptor=descriptor,
                        first_ns=kept[0][0],
                        error=error,
                        path=path,
                        last_ns=kept[-1][0],
                        service=self._shown.get(file),
                    )
                )
        return tuple(sorted(found, key=lambda contact: contact.events))

    def datagram_sockets(self, cast: Cast) -> tuple[int, ...]:
        """Give the events in which the trial made datagram sockets of the unix family, the first few."""
        return tuple(sorted(n for process, at_ns, n in self._datagram if not cast.ignores(process, at_ns)))

    def refusals(self, cast: Cast) -> tuple[Refusal, ...]:
        """Build the trial's refused calls, first one first."""
        found = []
        for (process, what, error), numbers in self._refusals.items():
            if process is None or process in cast.outsiders:
                continue
            kept = numbers.since(cast.released_ns if process == cast.main else None)
            if kept.count:
                found.append(Refusal(what=what, error=error, process=process, count=kept.count, events=kept.values()))
        return tuple(sorted(found, key=lambda refusal: refusal.events))


def _where(path: bytes | None, ip: str | None = None, port: int | None = None) -> str:
    if path:
        return path.decode("utf-8", "backslashreplace")
    return f"{ip}:{port}" if ip else "without a name"
