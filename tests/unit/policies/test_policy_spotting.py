"""Known values are found in streams, whatever form they have and however they are cut."""

from __future__ import annotations

import base64
from itertools import pairwise
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.encodings import Encoding
from policies.spotting import VALUE_MIN_BYTES, Sighting, Spotter

VALUE = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYzz93kQ"
OTHER = b"ghp_zQ81mfYYxpLmnd83nAk3ncsOxzAAb26d4Klp"
SPOTTER = Spotter([("aws", VALUE), ("github", OTHER)])

secrets = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/+@", min_size=16, max_size=60)
around = st.binary(max_size=90)


def wrapped(text: bytes, width: int, by: bytes) -> bytes:
    """Cut a text into lines of a width."""
    return by.join(text[start : start + width] for start in range(0, len(text), width))


FORMS = {
    Encoding.PLAIN: lambda data: data,
    Encoding.BASE64: base64.b64encode,
    Encoding.HEX: lambda data: data.hex().encode(),
    Encoding.BASE32: base64.b32encode,
    Encoding.URL: lambda data: b"".join(b"%%%02x" % byte for byte in data),
}


def cuts(size: int) -> st.SearchStrategy[list[int]]:
    """Where a stream of a size is cut."""
    return st.lists(st.integers(0, size), max_size=8).map(sorted)


def fed(spotter: Spotter, text: bytes, at: list[int]) -> list[Sighting]:
    """Feed a text, cut at some places, to one stream."""
    stream = spotter.stream()
    return [sighting for first, last in pairwise([0, *at, len(text)]) for sighting in stream.feed(text[first:last])]


@given(st.data(), secrets, around, around, st.sampled_from(list(FORMS)))
def test_a_value_is_seen_in_every_form_at_every_place_however_cut(
    data: st.DataObject, secret: str, before: bytes, after: bytes, form: Encoding
) -> None:
    """The value with anything around it, encoded together with it, is seen once; cuts change nothing."""
    text = FORMS[form](before + secret.encode() + after)
    found = fed(Spotter([("it", secret.encode())]), text, data.draw(cuts(len(text))))
    assert [sighting.name for sighting in found] == ["it"]


@given(st.data(), st.binary(max_size=3000))
def test_cuts_do_not_change_what_is_seen(data: st.DataObject, noise: bytes) -> None:
    """Whole or in pieces, the same names are seen."""
    text = noise.replace(b"\x01", VALUE).replace(b"\x02", quote_from_bytes(OTHER, safe="").encode())
    whole = {sighting.name for sighting in SPOTTER.spot(text)}
    assert {sighting.name for sighting in fed(SPOTTER, text, data.draw(cuts(len(text))))} == whole


@given(st.binary(max_size=4000))
def test_nothing_is_seen_where_nothing_is(noise: bytes) -> None:
    """Random bytes are no sighting."""
    assert SPOTTER.spot(noise) == ()


@given(st.lists(st.binary(min_size=1, max_size=5000), max_size=20))
def test_a_stream_keeps_less_than_one_form(chunks: list[bytes]) -> None:
    """Memory is bounded by the longest form, whatever runs through."""
    stream = SPOTTER.stream()
    for chunk in chunks:
        stream.feed(chunk)
        assert len(stream._tail) < SPOTTER.longest
        assert len(stream._unescaped_tail) < SPOTTER.longest
        assert len(stream._escape) < 3


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (b"GET /?k=" + quote_from_bytes(VALUE, safe="").encode(), Encoding.URL),
        (wrapped(base64.b64encode(b"x" + VALUE * 3), 76, b"\r\n"), Encoding.BASE64),
        (base64.urlsafe_b64encode(b"??" + VALUE + b">>"), Encoding.BASE64),
        (wrapped(base64.b32encode(VALUE).lower().rstrip(b"="), 30, b".") + b".evil.test", Encoding.BASE32),
        (wrapped(VALUE.hex().upper().encode(), 40, b".") + b".evil.test", Encoding.HEX),
        (wrapped(VALUE.hex().encode(), 2, b":"), Encoding.HEX),
        (b'{"key":"' + VALUE.replace(b"/", b"\\/") + b'"}', Encoding.PLAIN),
        (VALUE.lower() + b".evil.test", Encoding.PLAIN),
    ],
    ids=["query", "mime", "urlsafe", "labels32", "labels16", "colons", "json", "lower"],
)
def test_usual_ways_to_send_a_value_are_seen(text: bytes, encoding: Encoding) -> None:
    """Lines of base64, labels of a name, queries and string literals hide nothing."""
    assert SPOTTER.spot(text) == (Sighting("aws", encoding),)


def test_each_value_is_told_once_a_stream() -> None:
    """A value that is sent again and again is one sighting; another one is its own."""
    stream = SPOTTER.stream()
    assert stream.feed(VALUE + VALUE) == (Sighting("aws", Encoding.PLAIN),)
    assert stream.feed(VALUE.hex().encode()) == ()
    assert stream.feed(OTHER) == (Sighting("github", Encoding.PLAIN),)


def test_a_value_that_is_too_short_is_refused() -> None:
    """What would be met by chance is no value to look for."""
    with pytest.raises(ValueError, match="at least 12 bytes, got 11"):
        Spotter([("short", b"x" * (VALUE_MIN_BYTES - 1))])
    with pytest.raises(ValueError, match="dots"):
        Spotter([("dots", b"." * 40)])
