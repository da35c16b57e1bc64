"""Names of the trial on a terminal: nothing acts, nothing is hidden, nothing is confused."""

from __future__ import annotations

import shlex
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.report.safe import safe, safe_command, shorten


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        (b"a\x1b[2Jb", r"a\x1b[2Jb"),
        (b"a\x1b]0;title\x07", r"a\x1b]0;title\x07"),
        ("a\x9b31mb", r"a\u009b31mb"),
        (b"a\x9b31mb", r"a\x9b31mb"),
        ("a\nfinality final", r"a\nfinality final"),
        ("a\rb\tc\x00d\x7f", r"a\rb\tc\x00d\x7f"),
        ("exe\u202etxt.sh", r"exe\u202etxt.sh"),
        ("a\u2028b\u200bc\ufeff", r"a\u2028b\u200bc\ufeff"),
        ("a\U000e0041b", r"a\U000e0041b"),
        (b"\xffbad", r"\xffbad"),
        ("\ud800", r"\ud800"),
        ("a\\x1b", r"a\\x1b"),
        ("é ü 名 🙂 [red]x[/red]", "é ü 名 🙂 [red]x[/red]"),
    ],
)
def test_what_could_act_is_escaped_and_what_cannot_is_left(hostile: str | bytes, shown: str) -> None:
    """Control sequences, line ends, reordering, invisible characters and bad bytes."""
    assert safe(hostile) == shown


@given(st.text() | st.binary())
def test_no_harmful_character_survives(text: str | bytes) -> None:
    """Whatever goes in, no control, format, surrogate or separator character comes out."""
    assert not {unicodedata.category(character) for character in safe(text)} & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@given(st.text(), st.text())
def test_two_texts_never_look_the_same(one: str, other: str) -> None:
    """Escaping is one to one, so a name cannot pose as the escape of another."""
    assert (safe(one) == safe(other)) == (one == other)


def test_a_command_is_one_line_with_its_words_apart() -> None:
    """Words with spaces, quotes and line ends stay single words."""
    assert safe_command(["a b", b"c\nd", "", "e'\x1bf"]) == r"""'a b' $'c\nd' '' $'e\'\x1bf'"""
    assert shlex.split(safe_command(["a b", "", "e'f", "$x", r"\x1b"])) == ["a b", "", "e'f", "$x", r"\x1b"]


@given(st.lists(st.text()), st.lists(st.text()))
def test_two_commands_never_look_the_same(one: list[str], other: list[str]) -> None:
    """Where one word ends and the next begins is as plain as what is in them, and all of it is harmless."""
    assert (safe_command(one) == safe_command(other)) == (one == other)
    assert not {unicodedata.category(character) for character in safe_command(one)} & {"Cc", "Cf", "Cs", "Co"}


def test_both_ends_of_a_long_text_are_kept() -> None:
    """The middle is what is left out, and the width is kept."""
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert shorten("abcde", 5) == "abcde"
    assert len(shorten("x" * 500, 60)) == 60
