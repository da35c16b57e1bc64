"""IP addresses: what an address really reaches, and the classes that no rule by name may lead to.

The law: an address that carries an IPv4 address is decided as that one is. ``::ffff:10.0.0.1``, ``64:ff9b::10.0.0.1``
and ``2002:a00:1::`` are all ``10.0.0.1``; nothing is gained by spelling an address in another family.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA = "an address of a metadata service"
"""The class that nothing is ever suggested for."""

_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)
"""Where clouds give credentials to whoever asks."""

_CLASSES: tuple[tuple[str, tuple[Network, ...]], ...] = tuple(
    (words, tuple(map(ip_network, networks)))
    for words, networks in (
        ("a loopback address", ("127.0.0.0/8", "::1/128")),
        ("an unspecified address", ("0.0.0.0/8", "::/128")),
        ("a link-local address", ("169.254.0.0/16", "fe80::/10", "fec0::/10")),
        ("a multicast address", ("224.0.0.0/4", "ff00::/8")),
        ("a reserved address", ("240.0.0.0/4", "192.0.0.0/24", "64:ff9b:1::/48")),
        (
            "a private address",
            ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7"),
        ),
    )
)
"""In the order in which they are looked up. Documentation ranges are in none: they lead nowhere."""

_LOW_32 = 0xFFFFFFFF
_CARRIERS = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""IPv4-compatible and mapped (RFC 4291), translated (RFC 2765), NAT64 (RFC 6052): IPv4 is in the last 32 bits."""
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_ISATAP_MARKS = frozenset({0x00005EFE, 0x02005EFE})


@lru_cache(maxsize=4096)
def parse_address(text: str) -> Address | None:
    """Read an address in its usual form, without brackets; None for anything else, scopes (``%eth0``) among it."""
    if "%" in text:
        return None
    try:
        return ip_address(text)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def read_address(text: str) -> Address:
    """Read an address as the kernel writes it, a scope left out.

    Raises:
        ValueError: it is none.
    """
    return ip_address(text.partition("%")[0])


def plain_address(address: Address) -> Address:
    """Give the IPv4 address that is really meant by an IPv6 form of it, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    value = int(address)
    if value <= 1:  # :: and ::1 are addresses of their own
        return address
    if any(address in carrier for carrier in _CARRIERS):
        return IPv4Address(value & _LOW_32)
    if address in _6TO4:
        return IPv4Address(value >> 80 & _LOW_32)
    return address


def address_forms(address: Address) -> tuple[Address, ...]:
    """Give every address that a packet to this one may be meant for: itself, and the IPv4 ones that it carries.

    Teredo (RFC 4380) carries a server and, inverted, a client; ISATAP (RFC 5214) a node's.
    """
    forms: dict[Address, None] = {plain_address(address): None, address: None}
    if isinstance(address, IPv6Address):
        value = int(address)
        if address in _TEREDO:
            forms[IPv4Address(value >> 64 & _LOW_32)] = None
            forms[IPv4Address(~value & _LOW_32)] = None
        if value >> 32 & _LOW_32 in _ISATAP_MARKS:
            forms[IPv4Address(value & _LOW_32)] = None
    return tuple(forms)


def forbidden_class(address: Address, own: frozenset[Address] = frozenset()) -> str | None:
    """Say why an address is out of reach (``a loopback address``), or give None.

    Args:
        address: in any form.
        own: the addresses of the host itself.
    """
    for form in address_forms(address):
        if form in _METADATA:
            return METADATA
        for words, networks in _CLASSES:
            if any(form in network for network in networks):
                return words
        if form in own:
            return "an address of this host"
    return None


def forbidden_network(network: Network) -> str | None:
    """Say why every address of a network is out of reach, or give None when one may be within reach."""
    words = forbidden_class(network.network_address)
    return words if words is not None and words == forbidden_class(network.broadcast_address) else None
