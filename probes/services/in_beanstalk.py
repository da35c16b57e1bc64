"""What is left in beanstalkd: jobs that are ready, reserved by a worker or delayed. The protocol is lines of text.

A buried job is one that a worker gave up: it does not run again by itself, and is told in the detail.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from policies.types import ServiceStatus, Settle
from probes.services.answers import Answer, Question, bounded, read_count, together, unknown

_LEFT = ("current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed")
_LONGEST_BYTES = 1 << 16


def ask(settle: Settle, question: Question) -> Answer:
    """Ask once.

    Raises:
        OSError: nobody answered, or not in time.
    """
    with _connect(settle.text("address") or "", question) as connection:
        return together(_tube(connection, question.fill(name), question) for name in settle.texts("tubes"))


def _connect(address: str, question: Question) -> socket.socket:
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(question.left_s())
            connection.connect(address.removeprefix("unix:"))
        except BaseException:
            connection.close()
            raise
        return connection
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=question.left_s())


def _tube(connection: socket.socket, name: str, question: Question) -> Answer:
    about = f"tube {name}"
    if not name or any(char.isspace() for char in name):
        return unknown(f"{about}: no name of a tube")
    connection.sendall(b"stats-tube %b\r\n" % name.encode())
    head = _line(connection, question)
    if head == b"NOT_FOUND":
        return read_count(0, about)
    word, _, size = head.partition(b" ")
    if word != b"OK" or not size.isdigit():
        return unknown(f"{about}: {head.decode('ascii', 'replace')}")
    figures = _figures(_exactly(connection, int(size) + 2, question))
    if not all(name in figures for name in _LEFT):
        return unknown(f"{about}: no counts")
    counts = [figures[name] for name in _LEFT]
    told = f"{about}: ready {counts[0]}, reserved {counts[1]}, delayed {counts[2]}, buried "
    told += str(figures.get("current-jobs-buried", 0))
    return Answer(status=ServiceStatus.PENDING if any(counts) else ServiceStatus.SETTLED, detail=bounded(told))


def _figures(body: bytes) -> Mapping[str, int]:
    pairs = (line.partition(b": ") for line in body.splitlines())
    return {name.decode("ascii", "replace"): int(value) for name, _, value in pairs if value.strip().isdigit()}


def _line(connection: socket.socket, question: Question) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        line += _exactly(connection, 1, question)
        if len(line) > _LONGEST_BYTES:
            message = "the line does not end"
            raise OSError(message)
    return line[:-2]


def _exactly(connection: socket.socket, size_bytes: int, question: Question) -> bytes:
    if size_bytes > _LONGEST_BYTES:
        message = f"an answer of {size_bytes} bytes is too long"
        raise OSError(message)
    data = b""
    while len(data) < size_bytes:
        connection.settimeout(question.left_s())
        part = connection.recv(size_bytes - len(data))
        if not part:
            message = "the connection was closed"
            raise OSError(message)
        data += part
    return data
