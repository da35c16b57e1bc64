r"""Text of the trial made harmless before it is shown: names and arguments may hold anything.

The rule: what comes out has no character that moves a cursor, changes a colour, hides, reorders or ends a line, and two
different texts never look the same (backslashes are doubled). Sources: ECMA-48 control sequences; Unicode UAX 9 for
bidirectional controls; CVE-2021-42574.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence

_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_PLAIN = re.compile(r"[ -\[\]-~]*")
_PLAIN_SENTENCE = re.compile(r"[ -~]*")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def safe(text: str | bytes) -> str:
    r"""Escape what could act on a terminal or mislead a reader: ``\n``, ``\x1b``, ``\u202e``; bad bytes as ``\xff``."""
    decoded = text.decode(errors="surrogateescape") if isinstance(text, bytes) else text
    if _PLAIN.fullmatch(decoded):  # nearly everything, and without a look at each character
        return decoded
    return "".join(_escape(character) for character in decoded)


def harmless(text: str) -> str:
    r"""Escape like `safe`, but leave backslashes: for sentences of ours, in which names were made visible before."""
    if _PLAIN_SENTENCE.fullmatch(text):
        return text
    return "".join(character if character == "\\" else _escape(character) for character in text)


def safe_command(argv: Sequence[str | bytes]) -> str:
    """Write an argument list as bash reads it back, harmlessly: what could act stands in ``$'…'`` with escapes."""
    return " ".join(map(_quoted, argv))


def shorten(text: str, width: int) -> str:
    """Cut the middle out of a text that is longer than ``width`` characters: both ends of a path tell something."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def trim(text: str, width: int) -> str:
    """Cut the end off a sentence that is longer than ``width`` characters, never inside a word or a name."""
    if len(text) <= width:
        return text
    kept = text[: width - 1]
    place = max(kept.rfind(" "), kept.rfind(", ") + 1)
    return f"{kept[:place].rstrip(' ,;:') if place > 0 else kept} …"


def _quoted(word: str | bytes) -> str:
    shown, word = safe(word), word.decode(errors="surrogateescape") if isinstance(word, bytes) else word
    # A backslash alone needs no escaping here: quotes keep it, and the reader can paste the line.
    if shown.replace("\\\\", "\\") == word:
        return shlex.quote(word)
    return "$'" + shown.replace("'", "\\'") + "'"


def _escape(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) not in _HARMFUL:
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  (a byte that was no UTF-8, PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:  # noqa: PLR2004  (above it, \x is for bytes alone)
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004  (the length of the escape)
