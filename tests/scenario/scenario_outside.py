"""A server outside of every trial: HTTPS on loopback, with a certificate that an authority of the test vouches for."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from probes.gateway.authority import Authority

NAME = "api.test"


@dataclass
class Outside:
    """The server, and what it was asked for."""

    port: int
    certificate: Path
    asked: list[tuple[str, str | None, bytes]] = field(default_factory=list)

    @property
    def mapping(self) -> tuple[str, ...]:
        """The options that lead to it by its name."""
        return ("--allow", NAME, "--map", f"{NAME}:443=127.0.0.1:{self.port}")


@contextmanager
def outside(folder: Path, *, name: str = NAME, status: int = 200) -> Iterator[Outside]:
    """Run a server that says hello to every request.

    Args:
        folder: gets the certificate of the authority.
        name: that its certificate is for.
        status: of its answers.
    """
    authority = Authority("outside", now=datetime.now(UTC))
    certificate = folder / "outside.pem"
    certificate.write_bytes(authority.certificate)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.asked.append((self.requestline, self.headers.get("Host"), body))
            self.send_response(status)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        do_POST = do_GET  # noqa: N815  (http.server's form)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = authority.context(name, None).wrap_socket(server.socket, server_side=True)
        made = Outside(port=server.server_address[1], certificate=certificate)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
