"""Decoys in what a client sends, in the ways in which a body can hide them."""

from __future__ import annotations

import base64
import gzip
import zlib
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.spotting import Spotter
from probes.gateway.lookout import Lookout
from probes.gateway.sent_bodies import MOST_BYTES, PIECE, SentBodies
from supervisor.events import CanaryLeaked

DECOY = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYzz93kQ"
LOOKOUT = Lookout("run-1", Spotter([("run-1 aws", DECOY)], twice={"run-1 aws"}))
TEXT = b'{"note": "' + DECOY + b'"}'


def head(*fields: bytes) -> bytes:
    """Give the head of a request."""
    return b"\r\n".join([b"POST /in HTTP/1.1", b"Host: api.test", *fields, b"", b""])


def sized(body: bytes, *fields: bytes) -> bytes:
    """Give a request with a body of a length."""
    return head(b"Content-Length: %d" % len(body), *fields) + body


def chunked(body: bytes, size: int, *fields: bytes) -> bytes:
    """Give a request with a body in chunks."""
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head(b"Transfer-Encoding: chunked", *fields) + framed + b"0\r\n\r\n"


def bare(data: bytes) -> bytes:
    """Compress without a header."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def looked(*sent: bytes, inside: bool = False) -> list[CanaryLeaked]:
    """Give what is told of what a client sent."""
    told: list[CanaryLeaked] = []
    watch = LOOKOUT.begin(1, told.append)
    for part in sent:
        watch.look(part, "api.test:80", inside=inside)
    return told


BODIES = {
    "in chunks": chunked(TEXT, 7),
    "byte by byte": chunked(TEXT, 1),
    "gzip": sized(gzip.compress(TEXT), b"Content-Encoding: gzip"),
    "x-gzip in chunks": chunked(gzip.compress(TEXT), 5, b"Content-Encoding: X-GZIP"),
    "deflate": sized(zlib.compress(TEXT), b"Content-Encoding: deflate"),
    "bare deflate": sized(bare(TEXT), b"Content-Encoding: deflate"),
    "compressed twice": sized(gzip.compress(zlib.compress(TEXT)), b"Content-Encoding: deflate, gzip"),
    "a second member": sized(gzip.compress(b"x") + gzip.compress(TEXT), b"Content-Encoding: gzip"),
    "a file that was packed": sized(gzip.compress(TEXT)),
    "behind another request": sized(b"{}") + chunked(TEXT, 3),
    "behind an upgrade that was declined": head(b"Upgrade: other", b"Connection: upgrade") + chunked(TEXT, 3),
}
WRITTEN = {
    "base64 of base64": base64.b64encode(base64.b64encode(TEXT)),
    "base64 of the other alphabet": base64.b64encode(base64.urlsafe_b64encode(TEXT)),
    "URL-encoded base64": quote_from_bytes(base64.b64encode(b"k" + TEXT)).encode(),
    "base64 of hex": base64.b64encode(TEXT.hex().encode()),
    "base64 of upper hex": base64.b64encode(TEXT.hex().upper().encode()),
    "base64 of UTF-16": base64.b64encode(TEXT.decode().encode("utf-16-le")),
    "base64 of UTF-16, big end first": base64.b64encode(TEXT.decode().encode("utf-16-be")),
    "base64 of URL-encoding": base64.b64encode(quote_from_bytes(TEXT, safe="").encode()),
    "hex of base64": base64.b64encode(TEXT).hex().upper().encode(),
    "UTF-16": TEXT.decode().encode("utf-16"),
    "upper hex": TEXT.hex().upper().encode(),
}


@pytest.mark.parametrize("sent", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("cut", [1, 4, 1 << 20])
def test_a_decoy_in_a_body_is_told_once_however_the_body_is_written(sent: bytes, cut: int) -> None:
    """Chunks are joined, and compression is undone."""
    parts = [sent[start : start + cut] for start in range(0, len(sent), cut)]
    (leaked,) = looked(*parts)
    assert (leaked.form, leaked.placed_by, leaked.connection) == ("aws", "run-1", 1)
    assert leaked.where.startswith("sent to api.test:80")


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("before", range(4))
def test_a_decoy_is_told_however_it_is_written(text: bytes, before: int) -> None:
    """At whatever place, also where one encoding is inside another; and in chunks."""
    assert len(looked(b"." * before + text)) == 1
    assert len(looked(chunked(text, 11))) == 1


def test_what_is_inside_tls_is_read_from_its_own_beginning() -> None:
    """The hello before it is no request, and ends no reading of what comes inside."""
    told: list[CanaryLeaked] = []
    watch = LOOKOUT.begin(1, told.append)
    watch.look(b"\x16\x03\x01\r\n\r\n", "api.test:443")
    watch.look(BODIES["gzip"], "api.test:443", inside=True)
    assert [leaked.where for leaked in told] == ["sent to api.test:443, inside TLS, in a compressed body"]


def test_a_decoy_that_lies_open_is_told_by_its_plainest_place() -> None:
    """One leak is told once, though both ways of looking meet it."""
    assert [leaked.where for leaked in looked(chunked(TEXT, 4096))] == ["sent to api.test:80"]


def test_what_is_unpacked_is_bounded() -> None:
    """A bomb costs what is allowed, in pieces of one size, and what follows it is not looked at."""
    bomb = gzip.compress(bytes(2 * MOST_BYTES))
    sizes = [len(content) for content, _ in SentBodies().feed(sized(bomb, b"Content-Encoding: gzip"))]
    assert max(sizes) <= PIECE
    assert sum(sizes) <= MOST_BYTES


@given(st.binary(max_size=300), st.integers(1, 40))
def test_no_bytes_break_the_reading(data: bytes, cut: int) -> None:
    """Whatever is sent: what is no HTTP, and what is no compression, is passed over."""
    for sent in (data, sized(data, b"Content-Encoding: gzip"), sized(b"\x78\x9c" + data, b"Content-Encoding: deflate")):
        looked(*(sent[start : start + cut] for start in range(0, len(sent), cut)))
