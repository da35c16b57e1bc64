"""The forms in which a value travels: as it is, as base64, base32, hex and URL-encoding write it, or two of them.

Base64 and base32 write the same bytes differently by where they begin in what is encoded, so each alignment is a form
of its own, without the letters at its ends that also depend on what stands beside the value.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from enum import StrEnum

BASE64_STEP, BASE32_STEP = 3, 5
"""After how many bytes the letters repeat their alignment."""


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


class Encoding(StrEnum):
    """How a value was written where it was seen."""

    PLAIN = "plain"
    BASE64 = "base64"
    BASE32 = "base32"
    HEX = "hex"
    URL = "url"
    TWICE = "twice"


def base64_forms(value: bytes) -> tuple[bytes, ...]:
    """Give the standard letters of all three alignments."""
    return tuple(_inner(base64.b64encode, value, before, bits=6) for before in range(BASE64_STEP))


def base32_forms(value: bytes) -> tuple[bytes, ...]:
    """Give the lower-case letters of all five alignments."""
    return tuple(_inner(base64.b32encode, value, before, bits=5).lower() for before in range(BASE32_STEP))


def base64_twice(value: bytes) -> tuple[bytes, ...]:
    """Give what base64 writes of a value that is written otherwise already: base64, hex, URL-encoding, UTF-16."""
    wide = b"".join(bytes((byte, 0)) for byte in value)
    once = (*_both_alphabets(value), value.hex().encode(), value.hex().upper().encode(), wide, b"\0" + wide[:-1])
    escaped = url_encoded(value)
    return tuple(form for text in (*once, *([escaped] if escaped != value else [])) for form in base64_forms(text))


def hex_twice(value: bytes) -> tuple[bytes, ...]:
    """Give what hex, in lower case, writes of the base64 of a value."""
    return tuple(text.hex().encode() for text in _both_alphabets(value))


def _both_alphabets(value: bytes) -> tuple[bytes, ...]:
    forms = base64_forms(value)
    return tuple(dict.fromkeys((*forms, *(form.translate(_URL_SAFE) for form in forms))))


def _inner(encode: Callable[[bytes], bytes], value: bytes, before: int, *, bits: int) -> bytes:
    written = encode(bytes(before) + value)
    first = -(-before * 8 // bits)
    return written[first : (before + len(value)) * 8 // bits]


def url_encoded(value: bytes) -> bytes:
    """Give the form in which everything but letters, digits and ``_.-~`` is escaped, in upper case."""
    return b"".join(bytes((byte,)) if byte in _UNRESERVED else b"%%%02X" % byte for byte in value)


def url_decoded(text: bytes) -> bytes:
    """Undo URL-encoding, whatever was escaped; what is no escape stays."""
    from urllib.parse import unquote_to_bytes  # noqa: PLC0415 - 10 ms that most runs do without

    return unquote_to_bytes(text)
