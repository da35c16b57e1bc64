"""An outside to reach: servers on the host's loopback, which a trial sees under names that are mapped to them.

Nothing here leaves the machine: names end in ``.test``, addresses are those of documentation, and the gateway dials
loopback only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from scenario_lab import Lab, Ran, python

ACTING = """
import hashlib, json, os, socket, struct, sys, threading, time
if open("/proc/1/comm").read() != "boxinit\\n":
    raise SystemExit("not in a box")
results = {}
def act(name, what):
    try:
        results[name] = what()
    except OSError as error:
        results[name] = type(error).__name__
def to(host, port=80, family=socket.AF_INET):
    address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
    made = socket.socket(family)
    made.settimeout(20)
    made.connect(address)
    return made
def whole(sock):
    read = b""
    while data := sock.recv(65536):
        read += data
    return read.decode("latin-1")
def request(host, path="/", **more):
    return f"GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode()
def get(host, path="/", port=80, named=None, family=socket.AF_INET):
    sock = to(host, port, family)
    sock.sendall(request(named or host, path))
    return whole(sock)
def question(name, kind=1):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return b"\\x12\\x34\\x01\\x00\\x00\\x01" + bytes(6) + labels + struct.pack("!BHH", 0, kind, 1)
"""
TOLD = "\nprint(json.dumps(results))\n"


@dataclass(slots=True)
class Outside:
    """A server of the host: it answers each connection with one function, and remembers what it was told."""

    port: int
    told: list[bytes] = field(default_factory=list)


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket, list[bytes]], None]) -> Iterator[Outside]:
    """Serve on loopback, a thread for each connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        outside = Outside(listener.getsockname()[1])

        def handle(sock: socket.socket) -> None:
            with sock, contextlib.suppress(OSError):
                answer(sock, outside.told)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    threading.Thread(target=handle, args=(sock,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield outside
        listener.shutdown(socket.SHUT_RDWR)


def web(sock: socket.socket, told: list[bytes]) -> None:
    """Answer every request of a connection with ``hello``."""
    read = b""
    while data := sock.recv(65536):
        read += data
        while b"\r\n\r\n" in read:
            head, _, read = read.partition(b"\r\n\r\n")
            told.append(head)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            if b"close" in head:
                return


def greeting(sock: socket.socket, told: list[bytes]) -> None:
    """Speak first, as SSH and SMTP do; then say what was said."""
    sock.sendall(b"220 ready\r\n")
    told.append(sock.recv(100))
    sock.sendall(b"bye\r\n")


def digesting(sock: socket.socket, told: list[bytes]) -> None:
    """Read to the end, then send as many bytes back, and the digest of what was read."""
    digest, size = hashlib.sha256(), 0
    while data := sock.recv(1 << 20):
        digest.update(data)
        size += len(data)
    told.append(digest.hexdigest().encode())
    sock.sendall(bytes(size))


def options(**mapped: Outside) -> tuple[str, ...]:
    """Give the options that allow and map ``name_port=outside``: ``api_80`` is ``api.test:80``."""
    words: list[str] = []
    for name, outside in mapped.items():
        host, _, port = name.rpartition("_")
        words += ["--allow", f"{host}.test:{port}", "--map", f"{host}.test:{port}=127.0.0.1:{outside.port}"]
    return tuple(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """A trial that tried things: what came of each, its report, and its events by kind."""

    results: dict[str, Any]
    ran: Ran
    events: dict[str, list[dict[str, Any]]]

    def flows(self, **wanted: object) -> list[dict[str, Any]]:
        """Give the flows with these values."""
        found = self.ran.report["effects"]["network"]
        return [flow for flow in found if all(flow.get(name) == value for name, value in wanted.items())]


def act(lab: Lab, source: str, *more: str) -> Acted:
    """Run a trial whose program tries things by ``act(name, what)``."""
    ran = lab.run(*more, "--", *python(ACTING + source + TOLD))
    assert ran.out, ran.err
    events: dict[str, list[dict[str, Any]]] = {}
    for event in lab.events():
        events.setdefault(event["kind"], []).append(event)
    return Acted(results=json.loads(ran.out.splitlines()[-1]), ran=ran, events=events)
