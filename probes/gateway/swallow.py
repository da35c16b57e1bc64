"""What a swallowed client says: the first of it is kept as evidence, and inside TLS where the policy has that read.

In: its bytes. Out: what is to be sent back (a handshake, nothing else), and the text that it meant to send. Nobody is
dialled: a client of TLS is answered by the run's authority alone, so that it goes on and says what it came to say.
"""

from __future__ import annotations

from policies.hosts import normal_name
from probes.gateway.authority import Authority
from probes.gateway.client_hello import HelloError, HelloReader, NotTlsError
from probes.gateway.tls_end import TlsEnd, TlsError

_OFFERED = b"http/1.1"


class Swallowed:
    """One client of TLS that is swallowed. ``open`` is true as long as it is read as text."""

    def __init__(self, authority: Authority, host: str) -> None:
        """Begin before its first byte.

        Args:
            authority: of the run.
            host: whom it is answered as, if it names nobody.
        """
        self._authority, self._host = authority, host
        self._hello = HelloReader()
        self._first = bytearray()
        self._end: TlsEnd | None = None
        self.open = True

    @property
    def pending(self) -> bytes:
        """What was said before anything could be read."""
        return bytes(self._first)

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Take what it sent; give what is sent back, and the text. What is no TLS, or is broken, is given as it is."""
        if not self.open:
            return b"", data
        try:
            return self._read(data)
        except (NotTlsError, HelloError, TlsError):
            self.open = False
            back = self._end.outgoing() if self._end is not None else b""
            return back, bytes(self._first) or data

    def _read(self, data: bytes) -> tuple[bytes, bytes]:
        if self._end is None:
            self._first += data
            hello = self._hello.feed(data)
            if hello is None:
                return b"", b""
            named = normal_name(hello.server_name) if hello.server_name is not None else None
            protocol = _OFFERED.decode() if _OFFERED in hello.alpn else None
            self._end = TlsEnd(self._authority.context(named or self._host, protocol), server_side=True)
            data = bytes(self._first)
        self._end.receive(data)
        text = b""
        if self._end.handshake():
            self._first.clear()
            text = self._end.read()
        return self._end.outgoing(), text
