"""Rules of the network: how they are read, and what they decide."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.addresses import address_forms, forbidden_class, parse_address, plain_address
from policies.hosts import normal_name, written
from policies.network import (
    Action,
    Effect,
    NetworkRules,
    bundles,
    canonical_rules,
    mapping_from_pair,
    parse_mapping,
    parse_rule,
)
from policies.types import NetworkDefault
from supervisor.errors import PolicyError


def rules(*allow: str, default: str = "deny", deny: tuple[str, ...] = (), maps: tuple[str, ...] = ()) -> NetworkRules:
    """Make rules as a policy would."""
    own = frozenset({ip_address("198.51.100.77")})
    return NetworkRules.from_texts(NetworkDefault(default), allow=allow, deny=deny, maps=maps, own=own)


def action(made: NetworkRules, name: str | None, address: str, port: int) -> str:
    """Decide, and give the word."""
    return made.decide(name, ip_address(address), port).action


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("api.example.com", "api.example.com:443"),
        ("API.Example.COM.:80", "api.example.com:80"),
        ("api.example.com:*", "api.example.com:*"),
        ("*.example.com", "*.example.com:443"),
        ("*.EXAMPLE.com.:8080", "*.example.com:8080"),
        ("bücher.example", "xn--bcher-kva.example:443"),
        ("my_host.test:22", "my_host.test:22"),
        ("203.0.113.9", "203.0.113.9:443"),
        ("203.0.113.9:80", "203.0.113.9:80"),
        ("203.0.113.0/24", "203.0.113.0/24:443"),
        ("203.0.113.0/24:*", "203.0.113.0/24:*"),
        ("2001:db8::1", "[2001:db8::1]:443"),
        ("2001:DB8:0::1", "[2001:db8::1]:443"),
        ("[2001:db8::1]", "[2001:db8::1]:443"),
        ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ("2001:db8::/32", "[2001:db8::/32]:443"),
        ("2001:db8::/32:80", "[2001:db8::/32]:80"),
        ("[2001:db8::/32]:80", "[2001:db8::/32]:80"),
        ("[::ffff:203.0.113.9]:80", "203.0.113.9:80"),
        ("::ffff:203.0.113.0/120", "203.0.113.0/24:443"),
        ("0.0.0.0/0:80", "0.0.0.0/0:80"),
    ],
)
def test_a_rule_has_one_spelling(text: str, spelled: str) -> None:
    """Case, dots, scripts and forms of an address are one rule, and the spelling reads as the same rule."""
    rule = parse_rule(text, Effect.ALLOW, place="x")
    assert str(rule) == spelled
    assert parse_rule(spelled, Effect.ALLOW, place="x") == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":80",
        "*",
        "*:443",
        "*.",
        "a.*.example",
        "a*.example",
        "https://api.example.com",
        "api.example.com/path",
        "api.example.com:",
        "api.example.com:0",
        "api.example.com:65536",
        "api.example.com:+80",
        "api.example.com:٣",
        "api example.com",
        "-a.example",
        "a..example",
        "a" * 64 + ".example",
        "1.2.3",
        "127.1",
        "0x7f.1",
        "2130706433",
        "203.0.113.9/24",
        "203.0.113.0/33",
        "[2001:db8::1",
        "[2001:db8::1]80",
        "fe80::1%eth0",
        "straße.example",
        "@nowhere",
        "127.0.0.1:80",
        "[::1]:80",
        "localhost:80",
        "::ffff:127.0.0.1",
        "10.0.0.0/8",
        "169.254.0.0/16",
        "10.0.0.1:*",
    ],
)
def test_what_is_no_rule_is_refused_with_its_place(text: str) -> None:
    """Nothing that could mean something else, or nothing at all, is taken; the error says where it stands."""
    with pytest.raises(PolicyError) as caught:
        canonical_rules(["fine.example", text], Effect.ALLOW, place="network.allow")
    assert caught.value.place == "network.allow[1]"


def test_the_hint_of_a_network_with_host_bits_is_the_network() -> None:
    """The likely mistake is named."""
    with pytest.raises(PolicyError) as caught:
        parse_rule("203.0.113.9/24", Effect.ALLOW, place="x")
    assert caught.value.hint == "did you mean 203.0.113.0/24?"


def test_a_denying_rule_without_a_port_means_every_port() -> None:
    """Who denies a host does not mean its port 443 only."""
    made = rules("api.test:*", deny=("api.test",))
    assert action(made, "api.test", "203.0.113.9", 8080) == "blocked"
    assert made.decide_name("api.test").action is Action.BLOCKED


def test_deny_wins_by_name_and_by_address() -> None:
    """A name that is allowed at an address that is denied is denied, in each form of the address."""
    made = rules("*.test:443", "203.0.113.0/24:443", deny=("bad.test", "203.0.113.66"))
    assert action(made, "good.test", "203.0.113.9", 443) == "allowed"
    assert action(made, "bad.test", "203.0.113.9", 443) == "blocked"
    assert action(made, "good.test", "203.0.113.66", 443) == "blocked"
    assert action(made, "good.test", "::ffff:203.0.113.66", 443) == "blocked"
    assert made.decide("good.test", ip_address("203.0.113.66"), 443).rule == "203.0.113.66:*"


def test_a_wildcard_means_the_names_below() -> None:
    """Not the name itself, not one that only ends like it; any depth below."""
    made = rules("*.example.test:443")
    assert made.decide_name("a.example.test").action is Action.ALLOWED
    assert made.decide_name("a.b.example.test").action is Action.ALLOWED
    assert made.decide_name("example.test").action is Action.BLOCKED
    assert made.decide_name("evilexample.test").action is Action.BLOCKED


def test_the_port_is_part_of_the_rule() -> None:
    """443 unless another is said."""
    made = rules("api.test")
    assert action(made, "api.test", "203.0.113.9", 443) == "allowed"
    refused = made.decide("api.test", ip_address("203.0.113.9"), 80)
    assert (refused.action, refused.would_allow) == (Action.BLOCKED, "--allow api.test:80")


def test_an_address_without_a_name_needs_a_rule_of_its_own() -> None:
    """A rule by name allows no address that was not an answer."""
    made = rules("api.test:80", "203.0.113.0/30:80", "[2001:db8::/64]:80")
    assert action(made, None, "203.0.113.9", 80) == "blocked"
    assert action(made, None, "203.0.113.2", 80) == "allowed"
    assert action(made, None, "2001:db8::5", 80) == "allowed"
    assert action(made, None, "2001:db8:1::5", 80) == "blocked"


@pytest.mark.parametrize("form", ["203.0.113.2", "::ffff:203.0.113.2", "64:ff9b::203.0.113.2", "2002:cb00:7102::1"])
def test_an_address_in_another_family_is_decided_as_what_it_carries(form: str) -> None:
    """Allowed and refused alike."""
    assert action(rules("203.0.113.2:80"), None, form, 80) == "allowed"
    assert action(rules("203.0.113.3:80"), None, form, 80) == "blocked"


OUT_OF_REACH = {
    "127.0.0.1": "loopback",
    "127.255.0.9": "loopback",
    "::1": "loopback",
    "::ffff:127.0.0.1": "loopback",
    "64:ff9b::7f00:1": "loopback",
    "2002:7f00:1::": "loopback",
    "::7f00:1": "loopback",
    "::ffff:0:127.0.0.1": "loopback",
    "2001:db8::5efe:7f00:1": "loopback",
    "2001:0:cb00:7109:0:0:80ff:fffe": "loopback",
    "0.0.0.0": "unspecified",  # noqa: S104  (decided about, not bound to)
    "::": "unspecified",
    "169.254.0.1": "link-local",
    "fe80::1": "link-local",
    "169.254.169.254": "metadata",
    "::ffff:169.254.169.254": "metadata",
    "fd00:ec2::254": "metadata",
    "100.100.100.200": "metadata",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
    "255.255.255.255": "reserved",
    "64:ff9b:1::a00:1": "reserved",
    "10.1.2.3": "private",
    "172.31.0.1": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "private",
    "fc00::1": "private",
    "198.51.100.77": "of this host",
    "64:ff9b::198.51.100.77": "of this host",
}


@pytest.mark.parametrize("address", OUT_OF_REACH)
@pytest.mark.parametrize("default", ["deny", "allow"])
def test_a_name_never_leads_to_an_address_out_of_reach(address: str, default: str) -> None:
    """Rebinding fails, whatever the form of the address and the default; the reason names the class."""
    decision = rules("api.test:443", default=default).decide("api.test", ip_address(address), 443)
    assert decision.action is Action.BLOCKED
    assert OUT_OF_REACH[address] in decision.reason


def test_documentation_addresses_are_within_reach() -> None:
    """They lead nowhere, and are what examples use."""
    for text in ("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "8.8.8.8", "2606:4700::1111"):
        assert forbidden_class(ip_address(text)) is None


def test_a_mapping_reaches_what_no_rule_does_but_allows_nothing() -> None:
    """Loopback of the host by a mapping, when the name is allowed too; only at the port of the mapping."""
    made = rules("api.test:*", maps=("api.test:80=127.0.0.1:8080", "evil.test:80=127.0.0.1:8080"))
    assert action(made, "api.test", "127.0.0.1", 80) == "allowed"
    assert action(made, "api.test", "127.0.0.1", 81) == "blocked"
    assert action(made, "evil.test", "127.0.0.1", 80) == "blocked"
    target = made.target("api.test", 80)
    assert target is not None
    assert (target.to_address, target.to_port) == ("127.0.0.1", 8080)
    assert made.target("api.test", 443) is None


def test_a_mapping_of_an_address_lets_that_address_be_reached() -> None:
    """A private address is allowed by naming it and where it is."""
    made = rules("10.0.0.5:443", maps=("10.0.0.5:443=10.0.0.5:443",))
    assert action(made, None, "10.0.0.5", 443) == "allowed"
    assert action(rules("10.0.0.5:443"), None, "10.0.0.5", 443) == "blocked"


def test_what_would_allow_it_does() -> None:
    """The option in a refusal is one that helps; for a metadata service there is none."""
    refused = rules("api.test").decide("api.test", ip_address("10.0.0.5"), 443)
    assert refused.would_allow == "--allow api.test:443 --map api.test:443=10.0.0.5:443"
    allowed = rules("api.test", maps=("api.test:443=10.0.0.5:443",))
    assert action(allowed, "api.test", "10.0.0.5", 443) == "allowed"
    assert rules().decide(None, ip_address("169.254.169.254"), 80).would_allow is None
    assert rules().decide(None, ip_address("2001:db8::1"), 80).would_allow == "--allow [2001:db8::1]:80"


def test_the_default_decides_what_no_rule_does() -> None:
    """Deny blocks, sinkhole swallows (also what is denied), allow allows (but what is denied)."""
    for default, unknown, denied in (
        ("deny", "blocked", "blocked"),
        ("sinkhole", "sinkholed", "sinkholed"),
        ("allow", "allowed", "blocked"),
    ):
        made = rules("api.test", default=default, deny=("bad.test",))
        assert made.decide_name("x.test").action == unknown
        assert action(made, None, "203.0.113.9", 25) == unknown
        assert made.decide_name("bad.test").action == denied
        assert action(made, "api.test", "203.0.113.9", 443) == "allowed"


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("API.test:80=127.0.0.1:8080", "api.test:80=127.0.0.1:8080"),
        ("api.test:443=[::1]:8443", "api.test:443=[::1]:8443"),
        ("[2001:db8::1]:80=[2001:db8::2]:81", "[2001:db8::1]:80=[2001:db8::2]:81"),
        ("203.0.113.9:80=192.0.2.1:80", "203.0.113.9:80=192.0.2.1:80"),
    ],
)
def test_a_mapping_has_one_spelling(text: str, spelled: str) -> None:
    """IPv6 on both sides; as one text and as the two sides of a table."""
    assert str(parse_mapping(text, place="x")) == spelled
    source, _, target = text.partition("=")
    assert mapping_from_pair(source, target, place="x") == parse_mapping(text, place="x")


@pytest.mark.parametrize(
    "text",
    ["api.test:80", "api.test=127.0.0.1:80", "api.test:80=127.0.0.1", "api.test:80=server.test:80", "=", "a:1=b:2",
     "*.test:80=127.0.0.1:80", "api.test:*=127.0.0.1:80", "localhost:80=127.0.0.1:80", "127.0.0.1:80=127.0.0.1:81"],
)  # fmt: skip
def test_what_is_no_mapping_is_refused(text: str) -> None:
    """Both ports are said, and the target is an address."""
    with pytest.raises(PolicyError):
        parse_mapping(text, place="--map")


def test_bundles_are_spelled_out_and_well_formed() -> None:
    """What a policy keeps is the hosts; each bundle reads, says what it is for, and repeats nothing."""
    assert "api.github.com:443" in canonical_rules(["@github"], Effect.ALLOW, place="x")
    for bundle in bundles().values():
        assert bundle.about
        assert canonical_rules(bundle.hosts, Effect.ALLOW, place=bundle.name) == bundle.hosts


def test_rules_given_twice_count_once() -> None:
    """A bundle and a host of it."""
    once = canonical_rules(["@anthropic"], Effect.ALLOW, place="x")
    assert canonical_rules(["api.anthropic.com", "@anthropic"], Effect.ALLOW, place="x") == once


@given(st.text(max_size=40))
def test_reading_a_rule_never_crashes_and_what_it_takes_reads_again(text: str) -> None:
    """Any text is a rule or an error of the policy's."""
    try:
        rule = parse_rule(text, Effect.DENY, place="x")
    except PolicyError:
        return
    assert parse_rule(str(rule), Effect.DENY, place="x") == rule


@given(st.binary(max_size=40))
def test_a_name_off_the_wire_is_normal_or_none(data: bytes) -> None:
    """Normalising twice changes nothing, and no name is an address."""
    name = normal_name(data)
    if name is not None:
        assert normal_name(name) == name
        assert parse_address(name) is None


@given(st.ip_addresses(v=4), st.ip_addresses(v=6))
def test_no_form_escapes_what_holds_for_the_address_inside(inner: object, outer: object) -> None:
    """An address is out of reach when one that it carries is; plain forms are stable."""
    for text in (f"::ffff:{inner}", f"64:ff9b::{inner}"):
        form = ip_address(text)
        assert str(plain_address(form)) == str(inner)
        assert forbidden_class(form) == forbidden_class(ip_address(str(inner)))
    address = ip_address(str(outer))
    assert plain_address(plain_address(address)) == plain_address(address)
    assert any(forbidden_class(one) for one in address_forms(address)) == (forbidden_class(address) is not None)
    assert written(str(address), 80) == f"[{address}]:80"
