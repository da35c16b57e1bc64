"""The service of the replay: a shop that takes orders at once and carries them out later, from a queue on disk.

Run as ``python -m supervisor.replay.shop SOCKET DATABASE DELAY_MS``; it ends when its standard input does.

Laws:
    * An order is pending from when it is taken until DELAY_MS later, whoever asks meanwhile.
    * Carrying one out is one transaction: the stock is one less and the order committed, or the order failed.
    * What is in the database is all there is: a shop that is started on the same file goes on with it.
"""

from __future__ import annotations

import json
import socketserver
import sqlite3
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

STOCK = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT NOT NULL, due_ns INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS stock (pieces INTEGER NOT NULL);
"""
_WORK_EVERY_S = 0.005


class Shop:
    """The queue and the stock; every method is one transaction."""

    def __init__(self, path: Path, delay_ms: int) -> None:
        """Open the database, and fill the stock when it is new."""
        self._path, self._delay_ns = path, delay_ms * 1_000_000
        self._lock = threading.Lock()
        with self._lock, closing(self._open()) as database, database:
            database.executescript(_TABLES)
            if database.execute("SELECT count(*) FROM stock").fetchone() == (0,):
                database.execute("INSERT INTO stock VALUES (?)", (STOCK,))

    def take(self, order: str) -> str:
        """Take an order; one that was taken before is not taken again. Gives its status."""
        with self._lock, closing(self._open()) as database, database:
            due_ns = time.monotonic_ns() + self._delay_ns
            database.execute("INSERT OR IGNORE INTO orders VALUES (?, 'pending', ?)", (order, due_ns))
            return self._status(database, order)

    def tell(self, order: str) -> dict[str, str]:
        """Give the status of an order, and the state of the shop in words."""
        with self._lock, closing(self._open()) as database, database:
            counts = dict(database.execute("SELECT status, count(*) FROM orders GROUP BY status").fetchall())
            (pieces,) = database.execute("SELECT pieces FROM stock").fetchone()
            told = ", ".join(f"{counts.get(status, 0)} {status}" for status in ("pending", "committed", "failed"))
            return {"status": self._status(database, order), "shop": f"stock {pieces}, orders: {told}"}

    def work(self) -> None:
        """Carry out what is due."""
        with self._lock, closing(self._open()) as database, database:
            due = database.execute(
                "SELECT id FROM orders WHERE status = 'pending' AND due_ns <= ? ORDER BY due_ns", (time.monotonic_ns(),)
            ).fetchall()
            for (order,) in due:
                taken = database.execute("UPDATE stock SET pieces = pieces - 1 WHERE pieces > 0").rowcount
                status = "committed" if taken else "failed"
                database.execute("UPDATE orders SET status = ? WHERE id = ?", (status, order))

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)

    @staticmethod
    def _status(database: sqlite3.Connection, order: str) -> str:
        found = database.execute("SELECT status FROM orders WHERE id = ?", (order,)).fetchone()
        return "absent" if found is None else str(found[0])


class _Handler(BaseHTTPRequestHandler):
    """``POST /orders/ID`` takes an order, ``GET /orders/ID`` tells of it."""

    shop: ClassVar[Shop]
    timeout = 5

    def do_POST(self) -> None:
        """Take an order."""
        self._answer(202, {"status": self.shop.take(self._order())})

    def do_GET(self) -> None:
        """Tell of an order."""
        self._answer(200, self.shop.tell(self._order()))

    def _order(self) -> str:
        return self.path.rpartition("/")[2]

    def _answer(self, code: int, document: dict[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        """Give who asks: a unix socket has no name of the other side."""
        return "unix"

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base class has it
        """Say nothing."""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def main(socket_path: str, database: str, delay_ms: str) -> None:
    """Serve until standard input ends."""
    shop = Shop(Path(database), int(delay_ms))
    handler = type("Handler", (_Handler,), {"shop": shop})
    with _Server(socket_path, handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=_work, args=(shop,), daemon=True).start()
        sys.stdin.buffer.read()


def _work(shop: Shop) -> None:
    while True:
        shop.work()
        time.sleep(_WORK_EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:4])
