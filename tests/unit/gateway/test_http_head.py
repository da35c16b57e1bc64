"""The reader of HTTP requests: each host is seen, nothing ambiguous passes, and cuts never matter."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.gateway.http_body import HttpError, Opaque, Payload
from probes.gateway.http_head import (
    HTTP2_PREFACE,
    MAX_HEAD,
    Protocol,
    RequestHead,
    RequestReader,
    parse_head,
    protocol_of,
)

PIPELINED = (
    b"GET /1 HTTP/1.1\r\nHost: A.test:80\r\n\r\n"
    b"POST /2 HTTP/1.1\r\nhost:b.test \r\nContent-Length: 5\r\n\r\nhello"
    b"\r\nPUT http://c.test/3 HTTP/1.1\r\nHost: c.test\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b"3;x=y\r\nGET\r\n10\r\n / HTTP/1.1\r\n\r\n.\r\n0\r\nTrailer: x\r\n\r\n"
    b"OPTIONS * HTTP/1.0\r\n\r\n"
)


def pieces(data: bytes, *cuts: int) -> tuple[list[RequestHead | Payload | Opaque], str | None]:
    """Feed bytes cut at the given places; give what came out, and the words of a refusal."""
    reader = RequestReader()
    found: list[RequestHead | Payload | Opaque] = []
    places = [0, *sorted(set(cuts)), len(data)]
    try:
        for a, b in pairwise(places):
            found.extend(reader.feed(data[a:b]))
    except HttpError as err:
        return found, str(err)
    return found, None


def heads(data: bytes, *cuts: int) -> tuple[list[RequestHead], str | None]:
    """The same, heads only."""
    found, refused = pieces(data, *cuts)
    return [piece for piece in found if isinstance(piece, RequestHead)], refused


def passed(data: bytes) -> bytes:
    """What would be sent on."""
    return b"".join(piece.forward for piece in pieces(data)[0])


def one(fields: str, line: str = "GET / HTTP/1.1") -> bytes:
    """Make a request from text with plain line ends."""
    return "\n".join([line, *fields.splitlines(), "", ""]).replace("\n", "\r\n").encode("latin-1")


def test_every_pipelined_request_is_seen() -> None:
    """Bodies with a length and in chunks are no requests, whatever they contain."""
    found, refused = heads(PIPELINED)
    assert refused is None
    assert [(head.method, head.host, head.port) for head in found] == [
        (b"GET", "a.test", 80),
        (b"POST", "b.test", None),
        (b"PUT", "c.test", 80),
        (b"OPTIONS", None, None),
    ]
    assert passed(PIPELINED) == PIPELINED


def test_bodies_are_given_without_their_framing() -> None:
    """The contents of the chunks, and where each request ends."""
    payloads = [piece for piece in pieces(PIPELINED)[0] if isinstance(piece, Payload)]
    assert b"".join(piece.content for piece in payloads) == b"helloGET / HTTP/1.1\r\n\r\n."
    assert sum(piece.last for piece in payloads) == 2


@given(st.lists(st.integers(0, len(PIPELINED)), max_size=30))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    """The same heads come out, and the same bytes in all."""
    found, refused = pieces(PIPELINED, *cuts)
    assert refused is None
    assert [piece for piece in found if isinstance(piece, RequestHead)] == heads(PIPELINED)[0]
    assert b"".join(piece.forward for piece in found) == PIPELINED


WORDS = [
    b"GET / HTTP/1.1\r\n",
    b"POST http://a.test/ HTTP/1.1\r\n",
    b"Host: a.test\r\n",
    b"Host: b.test\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"abc",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b" x\r\n",
    b"CONNECT a.test:443 HTTP/1.1\r\n",
    b"Upgrade: websocket\r\n",
    b"PRI * HTTP/2.0\r\n",
    b"\0",
    b":",
]
MIXTURES = st.lists(st.sampled_from(WORDS) | st.binary(max_size=4), max_size=14).map(b"".join)


@given(MIXTURES, st.lists(st.integers(0, 200), max_size=12))
def test_mixtures_give_one_answer_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    """Never a crash, the same heads, the same refusal or none."""
    assert heads(data, *cuts) == heads(data)


@given(MIXTURES, st.lists(st.integers(0, 200), max_size=12))
def test_the_protocol_does_not_depend_on_cuts(data: bytes, cuts: list[int]) -> None:
    """What was decided on the first bytes is what the whole would have given."""
    whole = protocol_of(data) if data else None
    for cut in cuts:
        early = protocol_of(data[:cut]) if data[:cut] else None
        assert early is None or early is whole


def by_h11(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Read requests as h11 does: method, target and body of each."""
    found = []
    while data:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(data)
        request, body = connection.next_event(), b""
        if not isinstance(request, h11.Request):
            break
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
        if not isinstance(event, h11.EndOfMessage):
            break
        found.append((request.method, request.target, body))
        data = connection.trailing_data[0]
    return found


def by_us(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Read requests as we do, whole ones only."""
    found: list[tuple[bytes, bytes, bytes]] = []
    body = b""
    head: RequestHead | None = None
    for piece in pieces(data)[0]:
        if isinstance(piece, RequestHead):
            head, body = piece, b""
            if not piece.values(b"transfer-encoding") and piece.values(b"content-length") in {(), (b"0",)}:
                found.append((piece.method, piece.target, b""))
        elif isinstance(piece, Payload) and head is not None:
            body += piece.content
            if piece.last:
                found.append((head.method, head.target, body))
    return found


BODIES = st.one_of(
    st.just((b"", b"")),
    st.binary(min_size=1, max_size=30).map(lambda body: (b"Content-Length: %d\r\n" % len(body), body)),
    st.lists(st.binary(min_size=1, max_size=20), max_size=4).map(
        lambda parts: (
            b"Transfer-Encoding: chunked\r\n",
            b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n",
        )
    ),
)


@given(st.lists(BODIES, min_size=1, max_size=5))
def test_another_reader_sees_the_same_requests(bodies: list[tuple[bytes, bytes]]) -> None:
    """h11 finds the same methods, targets and bodies."""
    data = b"".join(b"POST /%d HTTP/1.1\r\nHost: a.test\r\n%b\r\n%b" % (n, *body) for n, body in enumerate(bodies))
    assert by_us(data) == by_h11(data)
    assert len(by_us(data)) == len(bodies)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (one("Host: a.test\nHost: b.test"), "more than one Host"),
        (one("Host: a.test\nhost: a.test"), "more than one Host"),
        (one("Accept: x"), "no Host"),
        (one("Host: b.test", "GET http://a.test/ HTTP/1.1"), "two hosts"),
        (one("Host: a.test:81", "GET http://a.test/ HTTP/1.1"), "two hosts"),
        (one("Host: b.test", "CONNECT a.test:443 HTTP/1.1"), "two hosts"),
        (one("Host: a.test\n X: folded"), "no field"),
        (one("Host : a.test"), "no field"),
        (one("Host: a.test\nX"), "no field"),
        (one("Host: a.test\nX: \0"), "no field"),
        (one("Host: a.test\nContent-Length: 3\nTransfer-Encoding: chunked"), "a length and a transfer coding"),
        (one("Host: a.test\nContent-Length: 3\nContent-Length: 4"), "more than one length"),
        (one("Host: a.test\nContent-Length: 3, 3"), "more than one length"),
        (one("Host: a.test\nContent-Length: +3"), "more than one length"),
        (one("Host: a.test\nTransfer-Encoding: gzip, chunked"), "transfer coding"),
        (one("Host: a.test\nTransfer-Encoding: xchunked"), "transfer coding"),
        (one("Host: a.test\nTransfer-Encoding: chunked", "POST / HTTP/1.0"), "HTTP/1.0"),
        (one("Host: a.test\nContent-Length: 3", "CONNECT a.test:443 HTTP/1.1"), "CONNECT with a body"),
        (one("Host: a.test\nConnection: keep-alive, Host"), "dropped on the way"),
        (one("Host: a.test", "GET  / HTTP/1.1"), "no request"),
        (one("Host: a.test", "GET / HTTP/1.1 "), "no request"),
        (one("Host: a.test", "GET / HTTP/2.0"), "no request"),
        (one("Host: a.test", "GET a.test HTTP/1.1"), "neither a path nor a URL"),
        (one("Host: a.test", "GET ftp://a.test/ HTTP/1.1"), "neither a path nor a URL"),
        (one("", "CONNECT a.test HTTP/1.0"), "no host and port"),
        (b"GET / HTTP/1.1\nHost: a.test\n\n", "CR LF"),
        (b"GET / HTTP/1.1\r\nHost: a.test\nHost: b.test\r\n\r\n", "CR LF"),
        (b"GET / HTTP/1.1\r\nHost: a.test\rHost: b.test\r\n\r\n", "CR LF"),
        (HTTP2_PREFACE, "HTTP/2 without TLS"),
        (one("Host: a.test\nTransfer-Encoding: chunked") + b"x\r\n", "without a length"),
        (one("Host: a.test\nTransfer-Encoding: chunked") + b"1\r\nab\r\n", "longer than its length"),
        (one("Host: a.test\nTransfer-Encoding: chunked") + b"1\nab\r\n", "CR LF"),
    ],
)
def test_what_two_servers_could_read_in_two_ways_is_refused(data: bytes, words: str) -> None:
    """Nothing of it is passed on but what was whole and good before it."""
    found, refused = pieces(data)
    assert refused is not None
    assert words in refused
    assert not [piece for piece in found if isinstance(piece, RequestHead)] or b"chunked" in data


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (b"a.test", "a.test", None),
        (b"A.TEST.:8080", "a.test", 8080),
        (b"[2001:db8::1]:80", "2001:db8::1", 80),
        (b"[::ffff:203.0.113.9]", "203.0.113.9", None),
        (b"203.0.113.9:80", "203.0.113.9", 80),
        (b"a.test:0", None, None),
        (b"a.test:99999", None, None),
        (b"a.test@b.test", None, None),
        (b"a.test/b", None, None),
        (b"2001:db8::1", None, None),
        (b"127.1", None, None),
        (b"b\xc3\xbccher.test", None, None),
        (b"", None, None),
    ],
)
def test_hosts_have_one_spelling(text: bytes, host: str | None, port: int | None) -> None:
    """What is no host gives None, which no rule can allow."""
    head = parse_head(b"GET / HTTP/1.1\r\nHost: " + text + b"\r\n\r\n")
    assert (head.host, head.port) == (host, port)
    assert head.host_text == (text or None)


def test_bytes_after_connect_are_held_until_the_answer() -> None:
    """A proxy that declined would read them as a request, one that agreed passes them on."""
    connect = one("Host: a.test:443", "CONNECT a.test:443 HTTP/1.1")
    later = one("Host: evil.test")
    for switched in (True, False):
        reader = RequestReader()
        (head,) = reader.feed(connect + later)
        assert isinstance(head, RequestHead)
        assert (head.host, head.port, head.switches, reader.holding) == ("a.test", 443, True, True)
        (piece,) = reader.answered(switched=switched)
        assert piece.forward == later
        assert isinstance(piece, Opaque if switched else RequestHead)


def test_bytes_after_an_upgrade_are_held_too_but_not_for_ever() -> None:
    """A websocket; more than is sensible before the answer is refused."""
    reader = RequestReader()
    (head,) = reader.feed(one("Host: a.test\nConnection: Upgrade\nUpgrade: websocket"))
    assert isinstance(head, RequestHead)
    assert head.switches
    with pytest.raises(HttpError, match="before the answer"):
        list(reader.feed(bytes(MAX_HEAD + 1)))


def test_an_offer_of_http2_is_taken_out() -> None:
    """The request stays, the offer goes, so the answer stays HTTP/1."""
    data = one("Host: a.test\nConnection: Upgrade, HTTP2-Settings, close\nUpgrade: h2c\nHTTP2-Settings: x\nAccept: y")
    (head,), refused = heads(data)
    assert refused is None
    assert not head.switches
    assert head.forward == one("Host: a.test\nAccept: y\nConnection: close")


@pytest.mark.parametrize(
    ("data", "protocol"),
    [
        (b"GET / HTTP/1.1\r\n", Protocol.HTTP1),
        (b"get / http/1.1\n", Protocol.HTTP1),
        (b"\r\n\nGET\t/\tHTTP/1.1\r\n", Protocol.HTTP1),
        (b" GET / HTTP/1.1\r\n", Protocol.HTTP1),
        (HTTP2_PREFACE, Protocol.HTTP2),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Protocol.OTHER),
        (b"EHLO me.test\r\n", Protocol.OTHER),
        (b"*1\r\n$4\r\nPING\r\n", Protocol.OTHER),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", Protocol.OTHER),
        (b"\x16\x03\x01", Protocol.OTHER),
        (b"GET / HT", None),
        (b"PRI", None),
        (b"\r\n", None),
        (b"X" * 20_000, Protocol.OTHER),
        (b"GET /" + b"x" * 20_000, Protocol.HTTP1),
    ],
)
def test_first_bytes_say_the_protocol(data: bytes, protocol: Protocol | None) -> None:
    """Whatever a lenient server could take for HTTP is HTTP; None while the rest could make it that."""
    assert protocol_of(data) is protocol


def test_memory_is_bounded() -> None:
    """A head that never ends is refused, byte by byte too."""
    reader = RequestReader()
    list(reader.feed(b"GET / HTTP/1.1\r\nHost: a.test\r\n"))
    with pytest.raises(HttpError, match="longer than"):
        deque((piece for _ in range(MAX_HEAD) for piece in reader.feed(b"X: y\r\n")), maxlen=0)
