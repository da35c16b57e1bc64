"""Both ends of the gateway's benchmark: a server, and a client that measures. Standard library only.

    bench_gateway_peer.py serve                      serves on loopback, prints its port, until its stdin ends
    bench_gateway_peer.py down|up|latency|many HOST PORT PREFIX COUNT [BYTES]

``PREFIX`` stands before the path of a request: empty, or ``http://HOST:PORT`` for a proxy. The last line printed is the
figure in nanoseconds; ``many`` prints ``holding`` when all its connections stand, and goes on at a line of its stdin.
"""

from __future__ import annotations

import select
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator

BLOCK = 1 << 20
BACKLOG = 8192
AT_ONCE = 256
PATIENCE_S = 120.0
NAME = "api.test"


class Served:
    """One connection of the server: what was read, and how many bytes are still to be sent."""

    def __init__(self, sock: socket.socket) -> None:
        """Begin before the first request."""
        self.sock = sock
        self.read = bytearray()
        self.to_read = 0
        self.head = b""
        self.to_send = 0


def serve() -> None:
    """Answer ``GET …/N`` with N bytes and ``PUT`` with none, keeping connections alive, until stdin ends."""
    block = memoryview(bytes(BLOCK))
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    listener.setblocking(False)  # noqa: FBT003  (the call's own form)
    poll = select.epoll()
    served: dict[int, Served] = {}
    poll.register(listener.fileno(), select.EPOLLIN)
    poll.register(0, select.EPOLLIN)
    print(listener.getsockname()[1], flush=True)
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                return
            if fd == listener.fileno():
                accept(listener, poll, served)
                continue
            one = served[fd]
            try:
                alive = turn(one, block)
            except OSError:
                alive = False
            if not alive:
                poll.unregister(fd)
                served.pop(fd).sock.close()
            else:
                poll.modify(fd, select.EPOLLOUT if one.head or one.to_send else select.EPOLLIN)


def accept(listener: socket.socket, poll: select.epoll, served: dict[int, Served]) -> None:
    """Take every connection that waits."""
    while True:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)  # noqa: FBT003  (the call's own form)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        served[sock.fileno()] = Served(sock)
        poll.register(sock.fileno(), select.EPOLLIN)


def turn(one: Served, block: memoryview) -> bool:
    """Go on with one connection; False when it is over."""
    if not one.head and not one.to_send:
        data = one.sock.recv(BLOCK)
        if not data:
            return False
        hear(one, data)
    try:
        while one.head:
            one.head = one.head[one.sock.send(one.head) :]
        while one.to_send:
            one.to_send -= one.sock.send(block[: min(BLOCK, one.to_send)])
    except BlockingIOError:
        pass
    return True


def hear(one: Served, data: bytes) -> None:
    """Take bytes of a request."""
    if one.to_read:
        one.to_read -= len(data)
        if one.to_read <= 0:
            one.head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        return
    one.read += data
    head, ended, rest = bytes(one.read).partition(b"\r\n\r\n")
    if not ended:
        return
    one.read.clear()
    method, target, _ = head.split(b" ", 2)
    if method == b"PUT":
        length = next(int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: "))
        one.to_read = length
        if rest or not length:
            one.to_read = length
            hear(one, rest)
        return
    one.to_send = int(target.rpartition(b"/")[2])
    one.head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % one.to_send


def request(prefix: str, size: int, method: str = "GET", length: int = 0) -> bytes:
    """Write a request."""
    more = f"Content-Length: {length}\r\n" if method == "PUT" else ""
    return f"{method} {prefix}/{size} HTTP/1.1\r\nHost: {host_field(prefix)}\r\n{more}\r\n".encode()


def host_field(prefix: str) -> str:
    """Give the Host that agrees with the target."""
    return prefix.removeprefix("http://") or NAME


def read_answer(sock: socket.socket, buffer: bytearray) -> None:
    """Read one whole answer."""
    count = sock.recv_into(buffer)
    head, ended, rest = bytes(buffer[:count]).partition(b"\r\n\r\n")
    while not ended:
        more = sock.recv(4096)
        if not more:
            raise ConnectionError("the answer was cut")
        head, ended, rest = (head + more).partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise ConnectionError(repr(head[:80]))
    length = next(int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: "))
    left = length - len(rest)
    while left > 0:
        count = sock.recv_into(buffer)
        if not count:
            raise ConnectionError("the answer was cut")
        left -= count


def connect(address: tuple[str, int]) -> socket.socket:
    """Connect, as programs do that care for latency."""
    sock = socket.create_connection(address, PATIENCE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def down(address: tuple[str, int], prefix: str, count: int, size: int) -> int:
    """Receive ``count`` answers of ``size`` bytes, on one connection each."""
    buffer = bytearray(BLOCK)
    started = time.perf_counter_ns()
    for _ in range(count):
        with connect(address) as sock:
            sock.sendall(request(prefix, size))
            read_answer(sock, buffer)
    return time.perf_counter_ns() - started


def up(address: tuple[str, int], prefix: str, count: int, size: int) -> int:
    """Send ``count`` bodies of ``size`` bytes."""
    block, buffer = bytes(BLOCK), bytearray(BLOCK)
    started = time.perf_counter_ns()
    for _ in range(count):
        with connect(address) as sock:
            sock.sendall(request(prefix, 0, "PUT", size))
            left = size
            while left:
                left -= sock.send(block[: min(BLOCK, left)] if left < BLOCK else block)
            read_answer(sock, buffer)
    return time.perf_counter_ns() - started


def latency(address: tuple[str, int], prefix: str, count: int, size: int) -> int:
    """Connect, ask, read and close, one after the other; the median of one."""
    buffer = bytearray(BLOCK)
    taken = []
    for _ in range(count):
        started = time.perf_counter_ns()
        with connect(address) as sock:
            sock.sendall(request(prefix, size))
            read_answer(sock, buffer)
        taken.append(time.perf_counter_ns() - started)
    return int(statistics.median(taken))


def many(address: tuple[str, int], prefix: str, count: int, size: int) -> int:
    """Hold ``count`` connections at once, ask on each of them, and read every answer."""
    started = time.perf_counter_ns()
    held = [sock for batch in batches(count) for sock in [connect(address) for _ in range(batch)]]
    print("holding", flush=True)
    sys.stdin.readline()
    buffer = bytearray(1 << 16)
    for sock in held:
        sock.sendall(request(prefix, size))
    for sock in held:
        read_answer(sock, buffer)
    taken = time.perf_counter_ns() - started
    print("answered", flush=True)
    sys.stdin.readline()
    for sock in held:
        sock.close()
    return taken


def batches(count: int) -> Iterator[int]:
    """Part a count."""
    while count > 0:
        yield min(AT_ONCE, count)
        count -= AT_ONCE


MEASURES: dict[str, Callable[[tuple[str, int], str, int, int], int]] = {
    "down": down,
    "up": up,
    "latency": latency,
    "many": many,
}


def main() -> None:
    """Serve, or measure and print."""
    if sys.argv[1] == "serve":
        serve()
        return
    name, host, port, prefix, count, size = sys.argv[1:7]
    family, _, _, _, address = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)[0]
    if family != socket.AF_INET:
        raise SystemExit("expected an IPv4 address")
    print(MEASURES[name]((str(address[0]), int(address[1])), prefix, int(count), int(size)))


if __name__ == "__main__":
    main()
