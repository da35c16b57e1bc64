"""What acts on a terminal is escaped in JSON, and nothing else is changed."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from supervisor.evidence.acting import escape_acting

ACTING = "".join(map(chr, range(0x110000)))
ACTING = "".join(letter for letter in ACTING if unicodedata.category(letter) in {"Cc", "Cf", "Zl", "Zp"})


def test_no_acting_character_is_left_and_each_comes_back() -> None:
    """All that Unicode has of them, in one string."""
    escaped = escape_acting(json.dumps(ACTING, ensure_ascii=False).encode())
    assert {letter for letter in escaped.decode() if letter in ACTING} == set()
    assert json.loads(escaped) == ACTING


@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp"))))
def test_other_text_stays_as_it_is(text: str) -> None:
    """Letters, marks, symbols and spaces of any language."""
    encoded = json.dumps(text, ensure_ascii=False).encode()
    assert escape_acting(encoded) == encoded
