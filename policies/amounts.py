"""How much a trial may use, as people write it: ``4096``, ``1.5``, ``512MiB``, ``80%``, ``none``.

The rule: what `plain_amount` gives is what the readers read back as the same value. A bare number of bytes is refused:
``--memory 2`` could mean two of anything.
"""

from __future__ import annotations

import math
import re

from policies.types import Memory
from supervisor.errors import PolicyError

NONE = "none"
"""The word that lifts a limit."""

UNITS_BYTES = {
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
"""Bytes in each unit; a lone letter is a power of two, as systemd and docker read it."""

SIZE_PATTERN = r"([0-9]+(\.[0-9]+)?([KMGT](iB)?|[kMGT]B)|[1-9][0-9]?%|100%|none)"
"""What an amount of memory looks like, whole; also given to the JSON Schema."""

BYTES_PATTERN = r"(0|[0-9]+(\.[0-9]+)?([KMGT](iB)?|[kMGT]B)|none)"
"""What an amount of content looks like, whole."""

LEAST_BYTES = 16 << 20
"""Below this not even the box could be built."""

LEAST_CPUS = 0.01
"""The kernel's least quota: 1 ms in a period of 100 ms."""


def parse_count(value: object, *, place: str) -> int | None:
    """Read a number of processes, from a file (an integer) or an option (a text); None for ``none``.

    Raises:
        PolicyError: it is no whole number above zero.
    """
    if value == NONE:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    message = f"expected a whole number above 0, or none, got {value!r}"
    raise PolicyError(message, place=place)


def parse_cpus(value: object, *, place: str) -> float | None:
    """Read a number of processors, from a file (a number) or an option (a text); None for ``none``.

    Raises:
        PolicyError: it is no number from `LEAST_CPUS` on.
    """
    if value == NONE:
        return None
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= LEAST_CPUS:
        return float(value)
    message = f"expected a number of processors such as 0.5 or 2, or none, got {value!r}"
    raise PolicyError(message, place=place)


def parse_memory(value: object, *, place: str) -> Memory | None:
    """Read an amount of memory: a size, or a share of the machine's; None for ``none``.

    Raises:
        PolicyError: it is neither, or too little to build a box in.
    """
    if value == NONE:
        return None
    if not isinstance(value, str) or not re.fullmatch(SIZE_PATTERN, value):
        message = f"expected a size such as 512MiB or 2GB, a share such as 80%, or none, got {value!r}"
        raise PolicyError(message, place=place)
    if value.endswith("%"):
        return Memory(percent=int(value[:-1]))
    size_bytes = _size(value)
    if size_bytes < LEAST_BYTES:
        message = f"expected 16MiB or more, got {value}"
        raise PolicyError(message, place=place)
    return Memory(size_bytes=size_bytes)


def parse_bytes(value: object, *, place: str) -> int | None:
    """Read an amount of content, in bytes; None for ``none``.

    Raises:
        PolicyError: it is no size.
    """
    if value == NONE:
        return None
    if not isinstance(value, str) or not re.fullmatch(BYTES_PATTERN, value):
        message = f"expected a size such as 256MiB or 2GB, 0, or none, got {value!r}"
        raise PolicyError(message, place=place)
    return 0 if value == "0" else _size(value)


def plain_bytes(size_bytes: int | None) -> str:
    """Give the form of an amount of content that is written into a policy."""
    if not size_bytes:
        return NONE if size_bytes is None else "0"
    return format_size(size_bytes)


def _size(text: str) -> int:
    number, unit = re.split(r"(?<=[0-9])(?=[a-zA-Z])", text)
    return round(float(number) * UNITS_BYTES[unit])


def plain_amount(amount: Memory | float | None) -> str | float:
    """Give the form that is written into a policy."""
    match amount:
        case None:
            return NONE
        case Memory(percent=None):
            return format_size(amount.size_bytes)
        case Memory():
            return f"{amount.percent}%"
        case _:
            return amount


def format_size(size_bytes: int) -> str:
    """Write a size exactly, in the largest unit that divides it: ``512MiB``, else ``100MB``, else in kB.

    Sizes come from one of the units, so nearly every one has a short form.
    """
    for unit in ("TiB", "GiB", "MiB", "TB", "GB", "MB", "KiB", "kB"):
        if size_bytes % UNITS_BYTES[unit] == 0:
            return f"{size_bytes // UNITS_BYTES[unit]}{unit}"
    return f"{size_bytes // 1000}.{size_bytes % 1000:03}kB"
