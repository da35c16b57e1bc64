"""The reader of HTTP answers: statuses, lengths, and what the connection turns into."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.gateway.http_answer import AnswerHead, AnswerReader
from probes.gateway.http_body import HttpError, Opaque, Payload

MANY = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
    b"HTTP/1.1 204\r\n\r\n"
    b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    b"HTTP/1.0 200 OK\r\n\r\nto the end"
)
METHODS = (b"POST", b"HEAD", b"GET", b"GET", b"GET")


def read(data: bytes, *cuts: int, methods: tuple[bytes, ...] = METHODS) -> list[AnswerHead | Payload | Opaque]:
    """Feed answers cut at the given places."""
    reader = AnswerReader()
    for method in methods:
        reader.expect(method)
    places = [0, *sorted(set(cuts)), len(data)]
    return [piece for a, b in pairwise(places) for piece in reader.feed(data[a:b])]


def test_answers_are_told_apart_by_their_requests() -> None:
    """Interim ones, those without a body, in chunks, and to the end of the connection."""
    pieces = read(MANY)
    assert [piece.status for piece in pieces if isinstance(piece, AnswerHead)] == [100, 200, 200, 204, 404, 200]
    content = b"".join(piece.content for piece in pieces if isinstance(piece, Payload))
    assert content == b"helloabcto the end"
    assert b"".join(piece.forward for piece in pieces) == MANY


@given(st.lists(st.integers(0, len(MANY)), max_size=30))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    """The same heads come out, and the same bytes."""
    pieces = read(MANY, *cuts)
    heads = [piece for piece in pieces if isinstance(piece, AnswerHead)]
    assert heads == [piece for piece in read(MANY) if isinstance(piece, AnswerHead)]
    assert b"".join(piece.forward for piece in pieces) == MANY


@pytest.mark.parametrize(
    ("method", "answer", "switched"),
    [
        (b"GET", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", True),
        (b"CONNECT", b"HTTP/1.1 200 Connection established\r\n\r\n", True),
        (b"CONNECT", b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n", False),
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", False),
    ],
)
def test_a_switch_is_what_the_server_says(method: bytes, answer: bytes, *, switched: bool) -> None:
    """101, or 2xx to CONNECT; what follows a switch is no HTTP."""
    head, *after = read(answer + b"\0\1", methods=(method,)) if switched else read(answer, methods=(method,))
    assert isinstance(head, AnswerHead)
    assert head.switched is switched
    assert after == ([Opaque(b"\0\1")] if switched else [])


def test_what_is_no_answer_is_given_back() -> None:
    """The bytes are not lost."""
    reader = AnswerReader()
    with pytest.raises(HttpError):
        list(reader.feed(b"+OK ready\r\n\r\nmore"))
    assert reader.rest() == b"+OK ready\r\n\r\nmore"


@given(st.binary(max_size=200))
def test_garbage_never_crashes(data: bytes) -> None:
    """An answer or a refusal."""
    reader = AnswerReader()
    try:
        given_out = b"".join(piece.forward for piece in reader.feed(data))
    except HttpError:
        return
    assert given_out + reader.rest() == data
