"""Inspected connections: what is recorded, what goes on, and who does not agree."""

from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from inspection_builder import OUTSIDE, RUN, trusting, wire

from probes.gateway.authority import Authority
from probes.gateway.inspected_text import AnswerRecord, RequestRecord, StreamRecord
from probes.gateway.inspection import Failure, Side

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
GET = b"GET /x?q=1 HTTP/1.1\r\nHost: api.test\r\n\r\n"


def digest(data: bytes) -> str:
    """The digest of a body as records have it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def failure(made: object) -> Failure:
    """The one failure among the records."""
    (found,) = [one for one in made.records if isinstance(one, Failure)]  # type: ignore[attr-defined]
    return found


def test_a_request_and_its_answer_are_recorded() -> None:
    """Method, URL, status, and digests of the bodies; the bytes arrive as they were sent."""
    made = wire(lambda _: OK)
    send = b"POST /a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\n\r\nhello"
    made.run(send)
    request, answer = made.records
    assert request == RequestRecord(
        number=0,
        method="POST",
        url="https://api.test/a",
        cut=False,
        size_bytes=5,
        digest=digest(b"hello"),
        complete=True,
    )
    assert answer == AnswerRecord(number=0, status=200, size_bytes=2, digest=digest(b"hi"), complete=True)
    assert made.served == send
    assert made.text_out == send
    assert made.received == OK


def test_chunks_are_digested_without_their_framing() -> None:
    """The same body in two framings has one digest."""
    made = wire(lambda _: OK)
    made.run(b"PUT /a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")
    request = made.records[0]
    assert isinstance(request, RequestRecord)
    assert (request.size_bytes, request.digest) == (5, digest(b"hello"))


def test_a_request_to_another_host_does_not_go_on() -> None:
    """What was good before it does; the failure says which host."""
    made = wire(lambda _: OK)
    made.run(GET + b"GET /leak HTTP/1.1\r\nHost: evil.test\r\n\r\n")
    assert b"leak" not in made.served
    assert made.served in {b"", GET}
    assert failure(made) == Failure(side=Side.REQUEST, reason="a request to evil.test")
    assert made.closed


def test_a_server_that_nobody_vouches_for_is_refused() -> None:
    """The client sees its connection fail, the record says whose certificate was wrong."""
    made = wire(lambda _: OK, server=Authority("stranger", now=datetime.now(UTC)))
    made.run(GET)
    assert made.served == b""
    found = failure(made)
    assert found.side is Side.SERVER
    assert "api.test was not accepted" in found.reason
    assert made.broken is not None


def test_a_server_with_the_wrong_name_is_refused() -> None:
    """An address that answers for another name."""
    made = wire(lambda _: OK, server_name="other.test")
    made.run(GET)
    assert made.served == b""
    assert "mismatch" in failure(made).reason.lower()


def test_a_client_that_trusts_others_only_fails_clearly() -> None:
    """A pinned client: nothing is sent, and the record says why."""
    made = wire(lambda _: OK, client=trusting(OUTSIDE))
    made.run(GET)
    found = failure(made)
    assert found.side is Side.CLIENT
    assert "does not trust the run's authority" in found.reason
    assert made.served == b""


def test_a_client_that_speaks_http2_only_fails_clearly() -> None:
    """It is told so by its own alert."""
    made = wire(lambda _: OK, alpn=["h2"])
    made.run(GET)
    assert failure(made).reason == "the client speaks only h2, which cannot be inspected"
    assert made.broken is not None
    assert "no application protocol" in made.broken


def test_a_client_that_offers_both_gets_http_1() -> None:
    """HTTP/2 is not agreed on."""
    made = wire(lambda _: OK, alpn=["h2", "http/1.1"], server_protocol="http/1.1")
    made.run(GET)
    assert made.client.protocol == "http/1.1"
    assert made.received == OK


def test_an_answer_to_the_end_of_the_connection_is_whole() -> None:
    """HTTP/1.0 without a length; the client is told the end."""
    made = wire(lambda _: b"HTTP/1.0 200 OK\r\n\r\nall")
    made.run(GET)
    made.end()
    assert made.records[-1] == AnswerRecord(number=0, status=200, size_bytes=3, digest=digest(b"all"), complete=True)
    assert made.client.ended


def test_a_cut_answer_is_not_complete() -> None:
    """The server closes in the middle."""
    made = wire(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi")
    made.run(GET)
    made.end()
    assert made.records[-1] == AnswerRecord(number=0, status=200, size_bytes=2, digest=digest(b"hi"), complete=False)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 9\r\n"])
def test_an_answer_that_nobody_waited_for_is_told_once(length: bytes) -> None:
    """The connection went before its end was read; whether that was all of it is not known."""
    made = wire(lambda _: b"HTTP/1.0 429 No\r\n" + length + b"\r\nhi")
    made.run(GET)
    told = made.inspection.broken_off().records
    assert told == [AnswerRecord(number=0, status=429, size_bytes=2, digest=digest(b"hi"), complete=False)]
    assert made.inspection.broken_off().records == []


def test_what_is_no_http_is_digested_whole() -> None:
    """Both ways, at the end."""
    made = wire(lambda data: data[::-1])
    made.run(b"\0\1\2")
    made.end()
    assert made.records == [
        StreamRecord(bytes_out=3, digest_out=digest(b"\0\1\2"), bytes_in=3, digest_in=digest(b"\2\1\0"))
    ]
    assert made.received == b"\2\1\0"


def test_a_websocket_flows_after_the_server_agreed() -> None:
    """The request and its 101 are recorded, then the stream."""
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
    made = wire(lambda data: upgrade if b"Upgrade" in data else b"pong")
    made.run(b"GET /w HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframe")
    made.end()
    assert made.received == upgrade + b"pong"
    assert made.served.endswith(b"frame")
    _, answer, stream = made.records
    assert isinstance(answer, AnswerRecord)
    assert answer.status == 101
    assert isinstance(stream, StreamRecord)
    assert (stream.bytes_out, stream.bytes_in) == (5, 4)


def test_after_a_declined_switch_requests_are_judged_again() -> None:
    """What was sent behind it is a request, and not to an allowed host."""
    made = wire(lambda _: OK)
    made.run(
        b"GET /w HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        b"GET /leak HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    )
    assert b"leak" not in made.served
    assert failure(made).side is Side.REQUEST


def test_an_address_gets_a_certificate_of_its_own() -> None:
    """Clients of addresses verify addresses."""
    made = wire(lambda _: OK, host="203.0.113.9", judge=lambda _: None)
    made.run(GET)
    assert made.received == OK


def test_the_authority_signs_for_nobody_below_it() -> None:
    """Its certificate makes no further authorities, and each run has a key of its own."""
    made = x509.load_pem_x509_certificate(RUN.certificate)
    constraints = made.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    other = Authority("run-1", now=datetime.now(UTC))
    assert other.certificate != RUN.certificate


def test_a_context_is_made_once_a_name() -> None:
    """Certificates are kept, not without bound."""
    one = RUN.context("api.test", None)
    assert RUN.context("api.test", None) is one
    assert RUN.context("api.test", "http/1.1") is not one
    assert isinstance(one, ssl.SSLContext)
