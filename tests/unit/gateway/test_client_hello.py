"""The reader of client hellos: what it finds, what it refuses, and that cuts never matter."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hello_builder import extension, hello_body, message, named, real_hello, records, vector
from hypothesis import given
from hypothesis import strategies as st

from probes.gateway.client_hello import (
    MAX_HELLO,
    ClientHello,
    HelloError,
    HelloReader,
    NotTlsError,
    SecondHello,
    hides_hello,
    parse_hello,
)

Answer = ClientHello | str | None

REAL = real_hello("api.example.test", ["h2", "http/1.1"])
GREASE = extension(0x2A2A, b"\0") + extension(0xFAFA, b"")


def read(data: bytes, *cuts: int) -> Answer:
    """Feed bytes in pieces; give the hello, the words of the refusal, or None."""
    reader = HelloReader()
    places = [0, *sorted(set(cuts)), len(data)]
    try:
        for a, b in pairwise(places):
            hello = reader.feed(data[a:b])
            if hello is not None:
                return hello
    except (NotTlsError, HelloError) as err:
        return f"{type(err).__name__}: {err}"
    return None


def test_a_real_client_is_read() -> None:
    """Name, protocols and versions as OpenSSL sends them."""
    hello = read(REAL)
    assert isinstance(hello, ClientHello)
    assert hello.server_name == b"api.example.test"
    assert hello.alpn == (b"h2", b"http/1.1")
    assert 0x0304 in hello.versions
    assert not hello.encrypted
    assert hello.size_bytes == len(REAL)


def test_a_client_that_names_nobody() -> None:
    """No name is None, not empty."""
    hello = read(real_hello(None))
    assert isinstance(hello, ClientHello)
    assert hello.server_name is None


@given(st.lists(st.integers(0, len(REAL)), max_size=20))
def test_cuts_into_segments_change_nothing(cuts: list[int]) -> None:
    """The stream may be cut anywhere."""
    assert read(REAL, *cuts) == read(REAL)


@given(st.lists(st.integers(1, 120), max_size=20), st.lists(st.integers(0, 400), max_size=20))
def test_cuts_into_records_change_nothing(parts: list[int], cuts: list[int]) -> None:
    """The message may be cut over records, and those over segments."""
    body = message(hello_body(GREASE, named(b"api.example.test"), extension(16, vector(2, vector(1, b"h2")))))
    hello = read(records(body, *parts), *cuts)
    assert isinstance(hello, ClientHello)
    assert (hello.server_name, hello.alpn) == (b"api.example.test", (b"h2",))


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=10))
def test_garbage_gives_one_answer_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    """It never crashes."""
    assert read(data, *cuts) == read(data)


@given(st.data())
def test_a_damaged_hello_gives_one_answer_however_it_is_cut(data: st.DataObject) -> None:
    """One byte changed, or the end cut off."""
    damaged = bytearray(records(message(hello_body(named(b"a.test"), GREASE)), 40))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] = data.draw(st.integers(0, 255))
    cuts = data.draw(st.lists(st.integers(0, len(damaged)), max_size=8))
    assert read(bytes(damaged), *cuts) == read(bytes(damaged))


def test_an_encrypted_hello_is_said() -> None:
    """The outer name decides, and it is known that there may be another."""
    hello = parse_hello(hello_body(named(b"outer.test"), extension(0xFE0D, bytes(20))))
    assert hello.encrypted
    assert hello.server_name == b"outer.test"


def test_early_data_is_said() -> None:
    """The client may send before the server answers."""
    assert parse_hello(hello_body(extension(42, b""))).early_data


def test_what_follows_the_hello_is_left_alone() -> None:
    """Early data in records of its own."""
    hello = read(records(message(hello_body(named(b"a.test")))) + records(b"later", kind=23))
    assert isinstance(hello, ClientHello)
    assert hello.server_name == b"a.test"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "NotTlsError"),
        (b"\x16\x02\x00\x00\x05", "NotTlsError"),
        (b"\x80\x2e\x01\x03\x01", "NotTlsError"),
        (b"\x16\x03\x01\x00\x00", "record of 1 to"),
        (b"\x16\x03\x01\xff\xff", "record of 1 to"),
        (records(message(b"x", kind=2)), "handshake message 2"),
        (records(message(hello_body()), 10)[:15] + records(b"x", kind=21), "another kind"),
        (records(message(hello_body(named(b"a.test"))) + b"\x01"), "behind the hello"),
        (records(message(hello_body(named(b"a.test"), named(b"b.test")))), "given twice"),
        (records(message(hello_body(named(b"")))), "no host name"),
        (records(message(hello_body(named(b"a.test", kind=1)))), "no host name"),
        (records(message(hello_body(extension(0, b"")))), "cut short"),
        (records(message(hello_body(named(b"a.test")) + b"x")), "left over"),
        (records(message(hello_body(named(b"a.test"))[:-1])), "cut short"),
        (records(message(bytes(10))), "cut short"),
        (records(b"\x01\xff\xff\xff"), "longer than"),
        (
            records(message(hello_body(extension(0, vector(2, (b"\0" + vector(2, b"a.test")) * 2))))),
            "left over",
        ),
    ],
)
def test_what_no_server_should_see_is_refused(data: bytes, words: str) -> None:
    """Each refusal says what is wrong."""
    answer = read(data)
    assert isinstance(answer, str)
    assert words in answer


CHANGE = b"\x14\x03\x03\x00\x01\x01"
DATA = records(b"sealed", kind=23)


def watch(first: ClientHello, data: bytes, *cuts: int) -> tuple[bytes, str | None]:
    """Feed what follows a hello in pieces; give what could go on, and the refusal."""
    watched, passed = SecondHello(first), b""
    places = [0, *sorted(set(cuts)), len(data)]
    try:
        for a, b in pairwise(places):
            passed += watched.feed(data[a:b])
    except HelloError as err:
        return passed, str(err)
    return passed, None


FOLLOWING = {
    "the handshake goes on": CHANGE + DATA,
    "an older handshake goes on": records(message(bytes(40), kind=16)) + CHANGE + DATA,
    "an alert": records(b"\x02\x30", kind=21),
    "the same name again": CHANGE + records(message(hello_body(named(b"a.test"), GREASE)), 30) + DATA,
    "early data, then the same name": DATA + DATA + records(message(hello_body(named(b"a.test")))) + DATA,
}


@pytest.mark.parametrize("following", FOLLOWING)
@given(cuts=st.lists(st.integers(0, 300), max_size=10))
def test_what_follows_a_hello_goes_on(following: str, cuts: list[int]) -> None:
    """All of it, however it is cut."""
    first = parse_hello(hello_body(named(b"a.test"), extension(42, b"")))
    data = FOLLOWING[following]
    assert watch(first, data, *cuts) == (data, None)


@pytest.mark.parametrize("before", [b"", CHANGE, DATA, CHANGE + DATA + DATA])
@given(cuts=st.lists(st.integers(0, 300), max_size=10))
def test_a_second_hello_with_another_name_is_refused(before: bytes, cuts: list[int]) -> None:
    """Nothing of it goes on; a name left out is another name too."""
    first = parse_hello(hello_body(named(b"a.test"), extension(42, b"")))
    for other in (hello_body(named(b"evil.test")), hello_body()):
        passed, refused = watch(first, before + records(message(other), 20), *cuts)
        assert refused == "the second hello names another host than the first"
        assert passed in {before, before[: len(passed)]}


def test_memory_is_bounded() -> None:
    """A hello that never ends is refused, and so is one in a thousand records of one byte."""
    endless = message(bytes(MAX_HELLO - 4))
    answer = read(records(endless, *range(16_000, len(endless), 16_000)))
    assert isinstance(answer, str)
    assert "longer than" in answer
    crumbs = read(records(message(bytes(60_000)), *range(1, 60_000)))
    assert isinstance(crumbs, str)
    assert "longer than" in crumbs


RETRY = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"
ALERT = records(b"\x01\x5a", kind=21)


def server_hello(random: bytes) -> bytes:
    """Give the first record of a server."""
    return records(message(b"\x03\x03" + random + bytes(6), kind=2))


@pytest.mark.parametrize("before", [b"", ALERT])
@given(cut=st.integers(0, 60))
def test_only_a_server_that_asks_again_is_waited_for(before: bytes, cut: int) -> None:
    """Any other answer means that the rest passes unread; what was held goes on then."""
    first = parse_hello(hello_body(named(b"a.test")))
    for random, done in ((bytes.fromhex(RETRY), False), (bytes(32), True)):
        watched, said = SecondHello(first), before + server_hello(random)
        assert watched.feed(CHANGE[:3]) == b""
        watched.answered(said[:cut])
        watched.answered(said[cut:])
        assert watched.done is done
        assert watched.feed(b"") == (CHANGE[:3] if done else b"")


def test_an_alert_hides_no_second_hello() -> None:
    """Warnings and early data may come before it, as many as the client likes."""
    first = parse_hello(hello_body(named(b"a.test")))
    before = ALERT + CHANGE * 50_000
    passed, refused = watch(first, before + records(message(hello_body(named(b"evil.test")))), len(before))
    assert passed == before
    assert refused == "the second hello names another host than the first"


@pytest.mark.parametrize(
    ("data", "hidden"),
    [
        (ALERT, True),
        (b"\x16\x05\x01" + records(message(hello_body()))[3:], True),
        (CHANGE, True),
        (ALERT[:4], None),
        (b"\x15\x00\x00\x00\x10\x01", False),
        (b"\x16\x10\x01\x00\x10\x01", False),
        (b"GET / ", False),
    ],
)
def test_what_could_hide_a_hello_is_told(data: bytes, hidden: bool | None) -> None:  # noqa: FBT001 - what is expected
    """Some servers pass over records before a hello, or take ones of another major version."""
    assert hides_hello(data) is hidden
