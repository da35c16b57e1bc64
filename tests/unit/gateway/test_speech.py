"""What a client says on one connection, as a transcript: what went in, what came out, or why it was refused."""

from __future__ import annotations

import itertools
from ipaddress import ip_address

import pytest
from hello_builder import extension, hello_body, message, named, records, vector
from hypothesis import given
from hypothesis import strategies as st

from policies.network import Action, NetworkRules
from policies.types import NetworkDefault
from probes.gateway.accounts import what_it_names
from probes.gateway.speech import Place, Refused, Speech, find_place

ADDRESS = ip_address("203.0.113.7")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GET = b"GET /x HTTP/1.1\r\nHost: api.test\r\n\r\n"
EVIL = b"GET /x HTTP/1.1\r\nHost: evil.test\r\n\r\n"


def hello(name: bytes | None) -> bytes:
    """Give the first bytes of a client of TLS, with or without the name of a server."""
    return records(message(hello_body(*([named(name)] if name else []))))


def rules(*allow: str, deny: tuple[str, ...] = (), default: NetworkDefault = NetworkDefault.DENY) -> NetworkRules:
    """Give rules by their texts."""
    return NetworkRules.from_texts(default, allow=allow, deny=deny)


def speech(*allow: str, port: int = 80, names: tuple[str, ...] = ("api.test",), **more: object) -> Speech:
    """Begin a connection to an address that was an answer for ``names``."""
    made = rules(*(allow or (f"api.test:{port}",)), **more)  # type: ignore[arg-type]
    return Speech(made, find_place(made, ADDRESS, port, names))


def refusal(one: Speech, *said: bytes) -> Refused:
    """Say it all, and give why it was refused."""
    try:
        for data in said:
            one.feed(data)
    except Refused as why:
        return why
    message = "it passed"
    raise AssertionError(message)


def test_a_request_for_the_allowed_name_passes_as_it_is() -> None:
    """What names the host that the address was an answer for is passed on unchanged, and so is the next one."""
    one = speech()
    assert one.feed(GET) == GET
    assert one.said.host == "api.test"
    assert one.said.speaks == "http"
    assert one.feed(GET) == GET


def test_a_request_for_another_name_is_refused_and_says_what_would_allow_it() -> None:
    """The address is allowed, the name is not."""
    why = refusal(speech(), EVIL)
    assert why.host == "evil.test"
    assert why.would_allow == "--allow evil.test:80"


def test_no_option_is_named_for_a_name_that_is_allowed_elsewhere() -> None:
    """It is allowed already: what is wrong is that the connection goes where another name leads."""
    why = refusal(speech("api.test:80", "other.test:80"), b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
    assert why.would_allow is None
    assert "its own look-up" in why.reason


def test_every_request_of_a_connection_is_judged() -> None:
    """A second request, alone or in one write with the first, must name the host too."""
    assert refusal(speech(), GET, EVIL).host == "evil.test"
    assert refusal(speech(), GET + EVIL).host == "evil.test"


def test_a_body_is_no_request() -> None:
    """Bytes that a length announces are passed on unread; the request behind them is judged."""
    post = b"POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 50\r\n\r\n" + EVIL.ljust(50, b" ")
    one = speech()
    assert one.feed(post) == post
    assert refusal(one, EVIL).host == "evil.test"


@given(st.lists(st.integers(1, 12), max_size=12))
def test_how_the_first_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    """However few bytes come at once, the whole passes, and nothing of a refused request does."""
    for text, passes in ((GET, True), (EVIL, False), (hello(b"api.test"), True), (hello(b"evil.test"), False)):
        one, out, rest = speech("api.test:80"), b"", text
        try:
            for cut in cuts:
                out += one.feed(rest[:cut])
                rest = rest[cut:]
            out += one.feed(rest)
        except Refused:
            assert not passes
        assert out == (text if passes else b"")


def test_a_tls_hello_must_name_the_host() -> None:
    """SNI is judged like Host; without one the address alone counts."""
    one = speech(port=443)
    assert one.feed(hello(b"api.test")) == hello(b"api.test")
    assert one.said.speaks == "tls"
    assert one.open
    assert refusal(speech(port=443), hello(b"evil.test")).host == "evil.test"
    assert speech(port=443).feed(hello(None)) == hello(None)


def test_a_hello_that_is_not_whole_passes_nothing() -> None:
    """Half a hello waits, and so do two letters that may become a request."""
    for begun in (hello(b"api.test")[:40], b"GE"):
        one = speech(port=443)
        assert one.feed(begun) == b""
        assert one.waiting


def test_a_protocol_that_names_nobody_stands_on_the_address() -> None:
    """SSH and binary protocols pass to an allowed host and port."""
    one = speech("api.test:22", port=22)
    assert one.feed(b"SSH-2.0-OpenSSH\r\n") == b"SSH-2.0-OpenSSH\r\n"
    assert one.said.speaks == "other"
    assert one.said.host == "api.test"
    assert speech("api.test:9000", port=9000).feed(b"\x00\x01\x02") == b"\x00\x01\x02"


def test_an_address_rule_lets_every_name_but_denied_ones_through() -> None:
    """Who allows an address has allowed whatever is served there, unless a name is denied."""
    assert speech("203.0.113.7:80", names=()).feed(EVIL) == EVIL
    why = refusal(speech("203.0.113.7:80", names=(), deny=("evil.test",)), EVIL)
    assert why.rule == "evil.test:*"


def test_deny_wins_by_name_over_the_default() -> None:
    """Where everything is allowed, a denied name is still refused on whatever address."""
    one = speech("a.test", names=(), default=NetworkDefault.ALLOW, deny=("evil.test",))
    assert refusal(one, EVIL).host == "evil.test"
    assert speech("a.test", names=(), default=NetworkDefault.ALLOW).feed(EVIL) == EVIL


def test_a_proxy_is_asked_only_for_hosts_that_are_allowed_themselves() -> None:
    """CONNECT and absolute targets through an allowed proxy are judged by where they lead."""
    allowed = ("proxy.test:3128", "api.test:443", "api.test:80")
    connect = b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n"
    absolute = b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n"
    for text in (connect, absolute):
        assert speech(*allowed, port=3128, names=("proxy.test",)).feed(text) == text
        bad = text.replace(b"api", b"bad")
        why = refusal(speech(*allowed, port=3128, names=("proxy.test",)), bad)
        assert "bad.test" in why.reason


def test_inside_a_tunnel_the_name_must_be_the_one_it_was_made_for() -> None:
    """After the proxy agreed, the hello inside is judged against the target of CONNECT."""
    connect = b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n"
    for name, good in ((b"api.test", True), (b"other.test", False)):
        one = speech("proxy.test:3128", "api.test", "other.test", port=3128, names=("proxy.test",))
        assert one.feed(connect + hello(name)) == connect
        if good:
            assert one.from_server(b"HTTP/1.1 200 OK\r\n\r\n") == hello(name)
        else:
            with pytest.raises(Refused, match=r"other\.test"):
                one.from_server(b"HTTP/1.1 200 OK\r\n\r\n")


def test_a_tunnel_that_was_not_granted_stays_http() -> None:
    """A refused CONNECT leaves a connection on which requests are judged."""
    connect = b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n"
    one = speech("proxy.test:3128", "api.test", port=3128, names=("proxy.test",))
    one.feed(connect)
    assert one.from_server(b"HTTP/1.1 403 Forbidden\r\n\r\n") == b""
    assert "evil.test" in refusal(one, b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n").reason


def test_a_switch_behind_an_unanswered_request_is_refused() -> None:
    """Else the answer to the first would be taken for the answer to the switch."""
    upgrade = b"GET / HTTP/1.1\r\nHost: api.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert refusal(speech(), GET + upgrade).rule == "http"
    one = speech()
    assert one.feed(upgrade) == upgrade
    assert one.from_server(b"HTTP/1.1 101 Switching Protocols\r\n\r\n") == b""
    assert one.feed(b"\x81\x05hello") == b"\x81\x05hello"


def test_http2_without_tls_is_refused_where_names_decide() -> None:
    """Its requests name hosts that nobody can read; an address rule, which asks for no name, lets it pass."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    assert refusal(speech(), preface).rule == "http2"
    assert speech("203.0.113.7:80", names=()).feed(preface) == preface


def test_a_place_is_decided_by_the_names_that_are_allowed_there() -> None:
    """Of two names at one address the allowed one counts; a synthetic address has no class of its own."""
    made = rules("api.test:80")
    assert find_place(made, ADDRESS, 80, ("evil.test", "api.test")).names == ("api.test",)
    assert find_place(made, ADDRESS, 81, ("api.test",)).decided.action is Action.BLOCKED
    stands = find_place(made, ip_address("198.18.0.1"), 80, ("api.test",), synthetic=True)
    assert stands.decided.action is Action.ALLOWED
    refused: Place = find_place(made, ip_address("198.18.0.1"), 80, ("api.test",))
    assert refused.decided.action is Action.BLOCKED


@given(st.binary(max_size=200))
def test_whatever_comes_first_is_passed_waits_or_is_refused(data: bytes) -> None:
    """No bytes make it fail, and what passes is what came."""
    one = speech()
    try:
        out = one.feed(data)
    except Refused:
        return
    assert out in (b"", data) or data.startswith(out)
    assert list(what_it_names(data)) is not None


def test_the_name_in_swallowed_bytes_is_found() -> None:
    """For the record of a sinkhole: the host that a hello or a request names."""
    assert list(what_it_names(hello(b"evil.test"))) == ["evil.test"]
    assert list(what_it_names(EVIL)) == ["evil.test"]
    assert list(what_it_names(b"\x00\x01")) == []


def test_what_never_became_a_request_passes_when_the_client_ends() -> None:
    """Words without an end of line could have begun one until then; half a head or half a hello still could."""
    words = speech("203.0.113.7:80", names=())
    assert words.feed(b"hello world") == b""
    assert words.finish() == b"hello world"
    for begun in (b"GET / HTTP/1.1\r\nHost: evil.test\r\n", b"\x16\x03\x01\x02\x00\x01"):
        half = speech("203.0.113.7:80", names=())
        assert half.feed(begun) == b""
        assert half.finish() == b""


LENIENT = (
    b"GET\x0b/\x0bHTTP/1.1\r\n",  # RFC 9112, 3, allows for it
    b"GET\x0c/ HTTP/1.1\r\n",
    b"GET\r/ HTTP/1.1\r\n",
    b"GET\xa0/\xa0HTTP/1.1\r\n",  # white space to Python's str.split
    b" " * 100 + b"GET / HTTP/1.1\r\n",
    b"GET / HTTP /1.1\r\n",
    b"GET http://evil.test/\r\n",
    b"CONNECT evil.test:443\r\n",
    b"PROXY TCP4 203.0.113.1 203.0.113.2 5 80\r\nGET / HTTP/1.1\r\n",
    b"\r\n\r\n\0\r\nQUIT\n" + bytes(20) + b"GET / HTTP/1.1\r\n",
    b"A" * 2000 + b" / HTTP/1.1\r\n",
)


@pytest.mark.parametrize("head", LENIENT)
@given(cuts=st.lists(st.integers(0, 2100), max_size=4))
def test_what_only_a_lenient_server_takes_for_a_request_is_refused(head: bytes, cuts: list[int]) -> None:
    """The host in it would not be read; whole lines of it never go on."""
    one, passed = speech(), []
    data = head + b"Host: evil.test\r\n\r\n"
    pieces = [data[start:end] for start, end in itertools.pairwise([0, *sorted(set(cuts)), len(data)])]
    with pytest.raises(Refused):
        passed.extend(map(one.feed, pieces))
    assert not b"".join(passed).strip(b"A")


@pytest.mark.parametrize(
    "said", [b"PING\r\n", b"GET key\r\n", b"x" * 5000, b"EHLO a.test\r\n", b'CONNECT {"verbose":false}\r\n', b"\x16abc"]
)
def test_other_protocols_are_not_taken_for_requests(said: bytes) -> None:
    """They stand on the address, and go on at once."""
    assert speech().feed(said) == said


def test_a_record_that_could_hide_a_hello_is_refused() -> None:
    """Some servers drop warnings that come before it, or take any version."""
    for before in (records(b"\x01\x5a", kind=21), b"\x16\x05" + hello(b"evil.test")[2:]):
        assert refusal(speech("api.test", port=443), before + hello(b"evil.test")).rule == "tls"


def test_the_hello_that_a_server_asks_for_again_must_name_the_same_host() -> None:
    """A server takes the name from the second one; also inside a tunnel through a proxy."""
    said = records(message(hello_body(named(b"api.test"), TLS_1_3)))
    again = records(message(hello_body(named(b"evil.test"), TLS_1_3)))
    tunnel = speech("proxy.test:80", "api.test:443", names=("proxy.test",))
    tunnel.feed(b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n")
    tunnel.feed(said)  # before the answer, which then comes in pieces
    assert tunnel.from_server(b"HTTP/1.1 200 Connected") == b""
    assert tunnel.from_server(b"\r\n\r\n") == said
    direct = speech("api.test", port=443)
    assert direct.feed(said) == said
    for one in (direct, tunnel):
        assert not one.open
        assert refusal(one, again).host == "api.test"
    content = speech("api.test", port=443)
    content.feed(said)
    content.from_server(records(message(b"\x03\x03" + bytes(40), kind=2)))
    assert content.open


TLS_1_3 = extension(43, vector(1, b"\x03\x04"))


def test_denied_names_are_not_hidden_in_http2() -> None:
    """Where a name is denied, names decide, whatever the default is."""
    open_rules = {"default": NetworkDefault.ALLOW, "names": ()}
    assert speech("other.test", **open_rules).feed(PREFACE)  # type: ignore[arg-type]
    assert refusal(speech("other.test", deny=("evil.test",), **open_rules), PREFACE).rule == "http2"  # type: ignore[arg-type]


def test_what_is_said_leads_nowhere_else() -> None:
    """A proxy is dialled for what it is asked for, and an allowed address for whatever name is said there."""
    made = rules("proxy.test:80", "api.test:80", "203.0.113.0/24:80")
    for answered, host in ((("proxy.test",), "proxy.test"), ((), None)):
        place = find_place(made, ADDRESS, 80, answered)
        assert place.leading("api.test") == host
        assert place.leading(None) == host
