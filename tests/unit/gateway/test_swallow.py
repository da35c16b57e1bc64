"""Swallowed clients of TLS: what they meant to say is read, and nobody else hears it."""

from __future__ import annotations

from inspection_builder import OUTSIDE, RUN, trusting

from probes.gateway.swallow import Swallowed
from probes.gateway.tls_end import TlsEnd, TlsError


def talk(client: TlsEnd, swallowed: Swallowed, say: bytes, piece: int = 4096) -> bytes:
    """Move bytes both ways until the client has said it; give the text that was read."""
    text, said = b"", False
    for _ in range(10):
        try:
            if client.handshake() and not said:
                client.write(say)
                said = True
        except TlsError:
            pass
        data = client.outgoing()
        for at in range(0, len(data), piece):
            back, part = swallowed.feed(data[at : at + piece])
            text += part
            client.receive(back)
    return text


def test_what_a_client_of_tls_says_is_read() -> None:
    """It is answered as whom it names, trusts the run, and goes on to say its request; cuts do not matter."""
    for piece in (4096, 7):
        client = TlsEnd(trusting(RUN), server_side=False, server_hostname="api.test")
        text = talk(client, Swallowed(RUN, "203.0.113.9"), b"POST / HTTP/1.1\r\n\r\nsecret", piece)
        assert text == b"POST / HTTP/1.1\r\n\r\nsecret"


def test_who_names_nobody_is_answered_as_the_address() -> None:
    """A client that connects to an address verifies the address."""
    client = TlsEnd(trusting(RUN), server_side=False, server_hostname="203.0.113.9")
    assert talk(client, Swallowed(RUN, "203.0.113.9"), b"hello") == b"hello"


def test_what_is_no_tls_is_given_as_it_is() -> None:
    """All of it, the first bytes and the later ones."""
    swallowed = Swallowed(RUN, "api.test")
    assert swallowed.feed(b"GET / ") == (b"", b"GET / ")
    assert swallowed.feed(b"HTTP/1.1") == (b"", b"HTTP/1.1")


def test_a_client_that_trusts_others_only_leaves_its_hello() -> None:
    """What it said in the open is what is kept."""
    client = TlsEnd(trusting(OUTSIDE), server_side=False, server_hostname="api.test")
    swallowed = Swallowed(RUN, "api.test")
    text = talk(client, swallowed, b"never sent")
    assert b"api.test" in (text or swallowed.pending)
    assert b"never sent" not in text
