"""One end of a TLS connection without a socket: bytes of the wire go in and out, plain text out and in.

In: what came from the peer. Out: what is to be sent to it (`outgoing`), and the plain text. The owner moves the bytes;
this neither waits nor blocks.
"""

from __future__ import annotations

import ssl

_PIECE = 65_536


class TlsError(Exception):
    """The peer, or what it sent, was not accepted. ``reason`` is OpenSSL's, in words."""

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


class TlsEnd:
    """One end. ``ended`` is true once the peer said that it sends no more."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None) -> None:
        """Begin before the handshake."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self.established = False
        self.ended = False

    @property
    def protocol(self) -> str | None:
        """The protocol that was agreed on (ALPN), or None."""
        return self._tls.selected_alpn_protocol()

    def receive(self, data: bytes) -> None:
        """Take bytes of the peer."""
        self._incoming.write(data)

    def receive_end(self) -> None:
        """Take the end of the peer's bytes."""
        self._incoming.write_eof()

    def handshake(self) -> bool:
        """Go on with the handshake as far as it goes; tell whether it is done.

        Raises:
            TlsError: it failed. What `outgoing` gives then tells the peer why.
        """
        if not self.established:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLError as err:
                raise TlsError(_words(err)) from err
            self.established = True
        return True

    def read(self) -> bytes:
        """Give the plain text that is there; sets ``ended`` at its end.

        Raises:
            TlsError: the peer broke off with an alert, or sent what is no TLS.
        """
        parts: list[bytes] = []
        try:
            while not self.ended and (part := self._tls.read(_PIECE)):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self.ended = True
        except ssl.SSLError as err:
            if not parts:
                raise TlsError(_words(err)) from err
        return b"".join(parts)

    def write(self, data: bytes) -> None:
        """Send plain text; nothing is sent to a peer that is gone.

        Raises:
            TlsError: the connection is broken.
        """
        try:
            view = memoryview(data)
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as err:
            raise TlsError(_words(err)) from err

    def close(self) -> None:
        """Say that nothing more will be sent."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):  # the peer has not said the same yet, or the handshake was never done
            return

    def outgoing(self) -> bytes:
        """Give what is to be sent to the peer."""
        return self._outgoing.read()


def _words(err: ssl.SSLError) -> str:
    """Give what OpenSSL says in plain words: ``tlsv1 alert unknown ca``, ``certificate has expired``."""
    if isinstance(err, ssl.SSLCertVerificationError):
        return str(err.verify_message)
    if isinstance(err, ssl.SSLEOFError):
        return "the connection was closed"
    return (err.reason or str(err)).replace("_", " ").lower()
