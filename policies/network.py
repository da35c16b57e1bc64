"""Which traffic may leave: rules as text → `NetworkRules`, which decide about names and connections.

Laws:

1. Deny wins over allow, by name and by address, in every form of the address.
2. A rule by name never leads to an address out of reach (loopback, link-local, metadata, private, the host's own): only
   a mapping does, because whoever wrote it chose the address.
3. A mapping says where, never whether: the name must be allowed too.
4. What no rule decides, ``network.default`` does; under ``sinkhole`` whatever is not allowed is swallowed, under
   ``hold`` it is blocked, and what is allowed is passed on once it was accepted (`holds`).

A rule is ``HOST[:PORT]``: a name, ``*.example.com`` (names below it, not itself), an address, a network, or the name of
a bundle (``@github``). Without a port an allowing rule means 443, a denying one every port; ``*`` is every port.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import NoReturn

from policies.addresses import (
    METADATA,
    Address,
    Network,
    address_forms,
    forbidden_class,
    forbidden_network,
    parse_address,
    plain_address,
)
from policies.hosts import ANY_PORT, parse_host, parse_name, parse_port, split_port, written
from policies.mistakes import read_each
from policies.types import NetworkDefault
from supervisor.errors import PolicyError
from supervisor.values import dataclass, field

DEFAULT_PORT = 443
_DECISIONS_KEPT = 4096
"""The same connections are decided about again and again."""


class Effect(StrEnum):
    """What a rule does."""

    ALLOW = "allow"
    DENY = "deny"


class Action(StrEnum):
    """What is done with a look-up or a connection, in the words of the events."""

    ALLOWED = "allowed"
    BLOCKED = "blocked"
    SINKHOLED = "sinkholed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: a name, the names below one (``below``), or a network; one address is a network too.

    Attributes:
        host: in its one spelling, without brackets; for ``below`` without the ``*.``.
        port: 1 to 65535, or `ANY_PORT`.
    """

    effect: Effect
    host: str
    port: int
    below: bool = False
    network: Network | None = None

    def __str__(self) -> str:
        """Write the rule so that reading it gives the same rule."""
        return written(f"*.{self.host}" if self.below else self.host, self.port)

    def meets_name(self, name: str) -> bool:
        """Tell whether the rule is about a name, at whatever port."""
        if self.network is not None:
            return False
        return name.endswith(f".{self.host}") if self.below else name == self.host

    def meets_address(self, address: Address) -> bool:
        """Tell whether the rule is about an address, at whatever port."""
        return self.network is not None and address.version == self.network.version and address in self.network

    def meets_port(self, port: int) -> bool:
        """Tell whether the rule is about a port."""
        return self.port in {ANY_PORT, port}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Where the gateway dials for one host and port, instead of where the name leads."""

    host: str
    port: int
    to_address: str
    to_port: int

    def __str__(self) -> str:
        """Write it as `parse_mapping` reads it."""
        return f"{written(self.host, self.port)}={written(self.to_address, self.to_port)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is done, by which rule and why.

    Attributes:
        rule: the rule as text, ``network.default``, or ``address`` when the address is out of reach.
        reason: for people, completing "because …".
        would_allow: an option that would let it through, or None when none would.
    """

    action: Action
    rule: str
    reason: str
    would_allow: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """The rules of one policy, ready to decide. Pure: what the host's own addresses are is an argument.

    Attributes:
        own: addresses of the host itself, out of reach like loopback.
    """

    default: NetworkDefault = NetworkDefault.DENY
    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    mappings: tuple[Mapping, ...] = ()
    own: frozenset[Address] = frozenset()
    _targets: dict[tuple[str, int], Mapping] = field(init=False, repr=False, compare=False)
    _decided: dict[tuple[str | None, Address, int], Decision] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the mappings."""
        object.__setattr__(self, "_targets", {(one.host, one.port): one for one in self.mappings})
        object.__setattr__(self, "_decided", {})

    @classmethod
    def from_texts(
        cls,
        default: NetworkDefault,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        maps: Iterable[str] = (),
        own: frozenset[Address] = frozenset(),
    ) -> NetworkRules:
        """Make the rules of a policy's texts.

        Raises:
            PolicyError: one cannot be read; a policy that was read has only such as can.
        """
        return cls(
            default=default,
            allow=parse_rules(allow, Effect.ALLOW, place="network.allow"),
            deny=parse_rules(deny, Effect.DENY, place="network.deny"),
            mappings=tuple(parse_mapping(text, place=f"network.map[{index}]") for index, text in enumerate(maps)),
            own=own,
        )

    @property
    def holds(self) -> bool:
        """Tell whether what is allowed is kept back until somebody accepts it."""
        return self.default is NetworkDefault.HOLD

    def target(self, host: str, port: int) -> Mapping | None:
        """Give the mapping of a host (a name or an address, in its one spelling) and a port, or None."""
        return self._targets.get((host, port))

    def decide_name(self, name: str) -> Decision:
        """Decide about a look-up: a name is answered when a connection to it could be allowed.

        Args:
            name: as `policies.hosts.normal_name` gives it.
        """
        denying = next((rule for rule in self.deny if rule.port == ANY_PORT and rule.meets_name(name)), None)
        if denying is not None:
            return self._refused(str(denying), f"{name} is denied", None)
        allowing = next((rule for rule in self.allow if rule.meets_name(name)), None)
        if allowing is not None:
            return Decision(action=Action.ALLOWED, rule=str(allowing), reason=f"{name} is allowed")
        return self._by_default(f"no rule allows {name}", f"--allow {written(name, DEFAULT_PORT)}")

    def decide(self, name: str | None, address: Address, port: int) -> Decision:
        """Decide about a connection.

        Args:
            name: the name that the address was an answer for, as `policies.hosts.normal_name` gives it; None when the
                address was no answer.
            address: where the connection would go. For a mapped name whatever the trial dialled; see `target`.
            port: where the trial dialled to.

        Returns:
            ``allowed`` only if no rule denies, a rule or the default allows, and the address is within reach.
        """
        key = (name, address, port)
        found = self._decided.get(key)
        if found is None:
            if len(self._decided) >= _DECISIONS_KEPT:
                self._decided.clear()
            found = self._decided[key] = self._decide(name, address, port)
        return found

    def _decide(self, name: str | None, address: Address, port: int) -> Decision:
        forms = address_forms(address)
        for rule in self.deny:
            if rule.meets_port(port) and (
                (name is not None and rule.meets_name(name)) or any(map(rule.meets_address, forms))
            ):
                return self._refused(str(rule), f"{_shown(name, address, port)} is denied", None)
        host = name if name is not None else str(plain_address(address))
        mapped = (host, port) in self._targets
        out_of_reach = None if mapped else forbidden_class(address, self.own)
        if out_of_reach is not None:
            reason = f"{_shown(name, address, port)} is {out_of_reach}"
            return self._refused("address", reason, _mapping_for(host, address, port, out_of_reach))
        allowing = self._allowing(name, address, port)
        if allowing is not None:
            return Decision(
                action=Action.ALLOWED, rule=str(allowing), reason=f"{_shown(name, address, port)} is allowed"
            )
        reason = f"no rule allows {_shown(name, address, port)}"
        return self._by_default(reason, f"--allow {written(host, port)}")

    def denied_name(self, name: str, port: int) -> Rule | None:
        """Give the rule that denies a name at a port, for a name said inside a connection, or None."""
        return next((rule for rule in self.deny if rule.meets_port(port) and rule.meets_name(name)), None)

    def allows_name(self, name: str, port: int) -> bool:
        """Tell whether a rule allows a name at a port, whatever address it leads to."""
        return any(rule.meets_port(port) and rule.meets_name(name) for rule in self.allow)

    def denies_names(self, port: int) -> bool:
        """Tell whether any name is denied at a port, so that what names are said there must be read."""
        return any(rule.network is None and rule.meets_port(port) for rule in self.deny)

    def _allowing(self, name: str | None, address: Address, port: int) -> Rule | None:
        plain = plain_address(address)
        for rule in self.allow:
            if rule.meets_port(port) and (
                (name is not None and rule.meets_name(name)) or rule.meets_address(plain) or rule.meets_address(address)
            ):
                return rule
        return None

    def _by_default(self, reason: str, would_allow: str) -> Decision:
        if self.default is NetworkDefault.ALLOW:
            return Decision(action=Action.ALLOWED, rule="network.default", reason="everything is allowed by default")
        return self._refused("network.default", reason, would_allow)

    def _refused(self, rule: str, reason: str, would_allow: str | None) -> Decision:
        action = Action.SINKHOLED if self.default is NetworkDefault.SINKHOLE else Action.BLOCKED
        return Decision(action=action, rule=rule, reason=reason, would_allow=would_allow)


def _mapping_for(host: str, address: Address, port: int, out_of_reach: str) -> str | None:
    """Give the options that reach an address all the same; none for a metadata service, or loopback by address."""
    plain = plain_address(address)
    if out_of_reach == METADATA or (plain.is_loopback and host == str(plain)):
        return None
    return f"--allow {written(host, port)} --map {written(host, port)}={written(str(plain), port)}"


def _shown(name: str | None, address: Address, port: int) -> str:
    where = written(str(address), port)
    return f"{written(name, port)} at {address}" if name is not None else where


def parse_rules(
    texts: Iterable[str], effect: Effect, *, place: str = "", places: Sequence[str] = ()
) -> tuple[Rule, ...]:
    """Read a list of rules, bundles spelled out, each rule once.

    Args:
        texts: one rule or bundle each.
        effect: of all of them.
        place: of the list; or
        places: of each text.

    Raises:
        PolicyError: its place is that of the text (``network.allow[2]``); it carries the mistakes of others.
    """

    def read_one(index: int, text: str) -> tuple[Rule, ...]:
        at = places[index] if places else f"{place}[{index}]"
        return tuple(parse_rule(one, effect, place=at) for one in _spelled_out(text, at))

    return tuple(dict.fromkeys(rule for rules in read_each(read_one, texts) for rule in rules))


def canonical_rules(
    texts: Iterable[str], effect: Effect, *, place: str = "", places: Sequence[str] = ()
) -> tuple[str, ...]:
    """Give rules in their one spelling, bundles spelled out: what a policy keeps, shows and digests.

    Raises:
        PolicyError: as `parse_rules`.
    """
    return tuple(str(rule) for rule in parse_rules(texts, effect, place=place, places=places))


def parse_rule(text: str, effect: Effect, *, place: str) -> Rule:
    """Read one rule that is no bundle.

    Raises:
        PolicyError: when it is none, or could never allow anything.
    """
    if "://" in text:
        hint = "rules name hosts: write api.example.com, or api.example.com:80 for another port than 443"
        raise PolicyError(f"expected a host, got the URL {text!r}", place=place, hint=hint)
    host, port_text = split_port(text.strip(), place=place)
    port = _rule_port(port_text, effect, place)
    if host == "*":
        message = f"expected a host, got {text!r}"
        raise PolicyError(message, place=place, hint='network.default = "allow" lets everything through')
    if host.startswith("*."):
        return Rule(effect=effect, host=parse_name(host[2:], place=place), port=port, below=True)
    network = _parse_network(host, place)
    if network is None:
        return Rule(effect=effect, host=_outside(parse_name(host, place=place), place), port=port)
    if network.is_loopback:
        _refuse_own(text, place)
    out_of_reach = forbidden_network(network) if effect is Effect.ALLOW else None
    whole = network.prefixlen == network.max_prefixlen
    shown = str(network.network_address) if whole else str(network)
    if out_of_reach is not None and not (whole and port != ANY_PORT):
        message = f"expected addresses within reach, got {text!r}: {out_of_reach} is reached by a mapping only"
        hint = "allow one address and port, and map it: --allow 10.0.0.5:443 --map 10.0.0.5:443=10.0.0.5:443"
        raise PolicyError(message, place=place, hint=hint)
    return Rule(effect=effect, host=shown, port=port, network=network)


def _outside(host: str, place: str) -> str:
    """Refuse what is the trial's own, which the gateway never sees."""
    address = parse_address(host)
    if host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback):
        _refuse_own(host, place)
    return host


def _refuse_own(text: str, place: str) -> NoReturn:
    message = f"expected a host outside the trial, got {text!r}: loopback is the trial's own and needs no rule"
    hint = "to reach a server of this host, map a name: --allow api.test:80 --map api.test:80=127.0.0.1:8080"
    raise PolicyError(message, place=place, hint=hint)


def _rule_port(text: str | None, effect: Effect, place: str) -> int:
    if text is None:
        return DEFAULT_PORT if effect is Effect.ALLOW else ANY_PORT
    return ANY_PORT if text == "*" else parse_port(text, place=place)


def _parse_network(text: str, place: str) -> Network | None:
    """Read an address or a network, in the family that it really means; None for a name."""
    if "/" not in text:
        address = parse_address(text)
        return None if address is None else ip_network(plain_address(address))
    try:
        network = ip_network(text)
    except ValueError as err:
        try:
            meant: Network | None = ip_network(text, strict=False)
        except ValueError:
            meant = None
        message = f"expected a network such as 203.0.113.0/24, got {text!r}"
        raise PolicyError(message, place=place, hint=f"did you mean {meant}?" if meant else None) from err
    return _plain_network(network)


_V4_IN_V6 = 96


def _plain_network(network: Network) -> Network:
    plain = plain_address(network.network_address)
    if isinstance(network, IPv6Network) and plain.version == 4 and network.prefixlen >= _V4_IN_V6:  # noqa: PLR2004
        return IPv4Network((int(plain), network.prefixlen - _V4_IN_V6))
    return network


def parse_mapping(text: str, *, place: str) -> Mapping:
    """Read ``HOST:PORT=ADDR:PORT``.

    Raises:
        PolicyError: when a part is missing, or the target is no address.
    """
    source, equals, target = text.strip().partition("=")
    if not equals:
        message = f"expected HOST:PORT=ADDR:PORT, got {text!r}"
        raise PolicyError(message, place=place)
    return mapping_from_pair(source, target, place=place)


def mapping_from_pair(source: str, target: str, *, place: str) -> Mapping:
    """Read the two sides of a mapping, as a policy's table ``network.map`` has them.

    Raises:
        PolicyError: when a port is missing, or the target is no address.
    """
    host, port = split_port(source.strip(), place=place)
    to, to_port = split_port(target.strip(), place=place)
    if port is None or to_port is None:
        lacking = source if port is None else target
        message = f"expected HOST:PORT=ADDR:PORT, got {lacking!r} without a port"
        raise PolicyError(message, place=place)
    address = parse_address(to)
    if address is None:
        message = f"expected an address to dial, got {to!r}"
        raise PolicyError(message, place=place, hint="write an address, such as 127.0.0.1:8443")
    return Mapping(
        host=_outside(parse_host(host, place=place), place),
        port=parse_port(port, place=place),
        to_address=str(address),
        to_port=parse_port(to_port, place=place),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Hosts that go together, from ``bundles.toml``."""

    name: str
    about: str
    hosts: tuple[str, ...]


@lru_cache(maxsize=1)
def bundles() -> dict[str, Bundle]:
    """Read the data file that comes with the program, once: bundles by name, without the ``@``."""
    import tomllib  # noqa: PLC0415  (only a policy that names a bundle needs it)

    data = tomllib.loads(Path(__file__).with_name("bundles.toml").read_text(encoding="utf-8"))
    return {
        name: Bundle(name=name, about=table["about"], hosts=tuple(table["hosts"]))
        for name, table in data.items()
        if isinstance(table, dict)
    }


def _spelled_out(text: str, place: str) -> tuple[str, ...]:
    if not text.startswith("@"):
        return (text,)
    bundle = bundles().get(text[1:])
    if bundle is None:
        message = f"unknown bundle {text!r}"
        raise PolicyError(message, place=place, hint=f"known are {', '.join(f'@{name}' for name in bundles())}")
    return bundle.hosts
