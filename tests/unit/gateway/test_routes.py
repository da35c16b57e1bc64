"""Which of the host's addresses it would go from, as its own routes say."""

from __future__ import annotations

from ipaddress import ip_address

from probes.gateway.service import Service, source_for


def test_an_address_of_the_host_is_known_as_its_own() -> None:
    """Whoever goes to the host's own address goes from it; an address of somebody else is none of its own."""
    assert source_for(ip_address("127.0.0.1")) == "127.0.0.1"
    assert Service.is_own(ip_address("127.0.0.1"))
    assert Service.is_own(ip_address("::ffff:127.0.0.1"))
    assert not Service.is_own(ip_address("203.0.113.9"))


def test_no_way_is_none() -> None:
    """A class of addresses that nobody routes has no source."""
    assert source_for(ip_address("255.255.255.255")) is None
