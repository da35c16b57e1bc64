"""Which names an address was an answer for, and the addresses that stand for names which lead nowhere by themselves.

Pure. The laws:

1. A connection by name is allowed only to an address that was an answer for that name, in this trial.
2. A name that is mapped, or swallowed, gets one synthetic address per family, out of ranges that belong to nobody
   (RFC 2544, RFC 5180); it keeps them, and no other name gets them while it has them.
3. Memory is bounded: beyond `MAX_NAMES` the names that were asked for longest ago are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Address

from policies.addresses import Address, plain_address

MAX_NAMES = 65_536
MAX_NAMES_AT = 64
"""How many names one address may have been an answer for."""
_FIRST4 = int(IPv4Address("198.18.0.1"))
_FIRST6 = int(IPv6Address("2001:2::1"))


class Answers:
    """What was answered so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._names: OrderedDict[Address, OrderedDict[str, None]] = OrderedDict()
        self._synthetic: OrderedDict[str, int] = OrderedDict()
        self._next = 0
        self._free: list[int] = []
        self.changes = 0  # how often what `names_at` gives has changed

    def note(self, name: str, addresses: tuple[Address, ...]) -> None:
        """Remember that these were answers for a name."""
        for address in addresses:
            names = self._names.setdefault(address, OrderedDict())
            self._names.move_to_end(address)
            if names and next(reversed(names)) == name:
                continue
            self.changes += 1
            names[name] = None
            names.move_to_end(name)
            while len(names) > MAX_NAMES_AT:
                names.popitem(last=False)
        while len(self._names) > 2 * MAX_NAMES:
            self._names.popitem(last=False)
            self.changes += 1

    def synthetic(self, name: str) -> tuple[IPv4Address, IPv6Address]:
        """Give the addresses that stand for a name, and remember them as its answers."""
        if name not in self._synthetic:
            if len(self._synthetic) >= MAX_NAMES:
                _, freed = self._synthetic.popitem(last=False)
                self._forget(freed)
            self._synthetic[name] = self._free.pop() if self._free else self._next
            self._next += 0 if self._next != self._synthetic[name] else 1
        self._synthetic.move_to_end(name)
        pair = _pair(self._synthetic[name])
        self.note(name, pair)
        return pair

    def _forget(self, number: int) -> None:
        for address in _pair(number):
            self._names.pop(address, None)
        self._free.append(number)
        self.changes += 1

    def names_at(self, address: Address) -> tuple[str, ...]:
        """Give the names that an address was an answer for, the latest first."""
        names = self._names.get(address) or self._names.get(plain_address(address)) or ()
        return tuple(reversed(names))

    def is_synthetic(self, address: Address) -> bool:
        """Tell whether an address stands for a name, and leads nowhere by itself."""
        first, count = (_FIRST4, self._next) if address.version == 4 else (_FIRST6, self._next)  # noqa: PLR2004
        return first <= int(address) < first + count


def _pair(number: int) -> tuple[IPv4Address, IPv6Address]:
    return IPv4Address(_FIRST4 + number), IPv6Address(_FIRST6 + number)
