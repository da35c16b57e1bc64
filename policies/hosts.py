"""Names of hosts, and how a host with a port is written.

What goes out is one spelling for each thing: names in lower case, in ASCII, without the final dot; IPv6 addresses in
brackets. Text that people wrote raises when it is wrong; a name off the wire that is none gives None.
"""

from __future__ import annotations

import re

from policies.addresses import Address, parse_address, plain_address
from supervisor.errors import PolicyError

ANY_PORT = 0
"""Stands for every port in a rule; written ``*``."""

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME = 253
_MAX_PORT = 65535
_PORT_DIGITS = 5
_TWO_READINGS = "ßς\u200c\u200d"
"""IDNA 2003 and 2008 make different names of these (RFC 5894, 7.2): a rule must not mean somebody else's host."""


def normal_name(text: str | bytes) -> str | None:
    """Give the one spelling of a name as it is on the wire; None for what is no name of a host, or is an address.

    A last label that is a number is an address in disguise to many resolvers (``127.1``, ``0x7f.1``), never a name.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("ascii")
        except UnicodeDecodeError:
            return None
    name = text.lower().removesuffix(".") if text.isascii() else ""
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name) or _NUMERIC.fullmatch(name.rpartition(".")[2]):
        return None
    return name


def parse_name(text: str, *, place: str) -> str:
    """Read a name that a person wrote, in any script.

    Raises:
        PolicyError: when it is no name of a host.
    """
    name = normal_name(text if text.isascii() else _in_ascii(text, place))
    if name is None:
        message = f"expected a host name or an address, got {text!r}"
        raise PolicyError(message, place=place)
    return name


def _in_ascii(text: str, place: str) -> str:
    if any(letter in text.lower() for letter in _TWO_READINGS):
        message = f"expected a name with one reading, got {text!r}"
        raise PolicyError(message, place=place, hint="write the name in its ASCII form, xn--…")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError as err:
        message = f"expected a host name or an address, got {text!r}"
        raise PolicyError(message, place=place, hint="write the name in its ASCII form, xn--…") from err


def parse_port(text: str, *, place: str) -> int:
    """Read a port: 1 to 65535.

    Raises:
        PolicyError: when it is none.
    """
    if text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS and 0 < int(text) <= _MAX_PORT:
        return int(text)
    message = f"expected a port from 1 to {_MAX_PORT}, got {text!r}"
    raise PolicyError(message, place=place)


def split_port(text: str, *, place: str) -> tuple[str, str | None]:
    """Part ``HOST:PORT``, ``[V6]:PORT``, ``V6`` and ``NET/LEN:PORT`` into host (without brackets) and port, or None.

    An IPv6 address without brackets is a whole address: its last group is never a port.

    Raises:
        PolicyError: for a bracket that is not closed, or text after it that is no port.
    """
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            message = f"expected [ADDRESS] or [ADDRESS]:PORT, got {text!r}"
            raise PolicyError(message, place=place)
        return host, rest[1:] if rest else None
    network, slash, rest = text.partition("/")
    if slash:
        length, colon, port = rest.partition(":")
        return f"{network}/{length}", port if colon else None
    if text.count(":") > 1:
        return text, None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def parse_host(text: str, *, place: str) -> str:
    """Read a name or an address, without a port; the address in the form that it really means, without brackets.

    Raises:
        PolicyError: when it is neither.
    """
    address = parse_address(text)
    return str(plain_address(address)) if address is not None else parse_name(text, place=place)


def written(host: str, port: int) -> str:
    """Write a host (a name, an address, a network) with a port, addresses of IPv6 in brackets."""
    shown = "*" if port == ANY_PORT else str(port)
    return f"[{host}]:{shown}" if ":" in host else f"{host}:{shown}"


def written_address(address: Address, port: int) -> str:
    """Write an address with a port."""
    return written(str(address), port)
