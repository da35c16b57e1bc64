"""Texts with wildcards, as patterns of events and possible states have them."""

from __future__ import annotations

import pytest

from policies.wildcards import matches


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("git push -f", "git *", True),
        ("git push", "git pus?", True),
        ("echo hello", "*[redacted]*", False),
        ("echo [redacted]", "*[redacted]*", True),
        ("echo [redacted MY_TOKEN]**", "echo [redacted MY_TOKEN]**", True),
        ("a]", "[a]]", False),
    ],
)
def test_only_stars_and_question_marks_are_special(text: str, pattern: str, expected: object) -> None:
    """A value that was taken out of a pattern stands in brackets there, and means only itself."""
    assert matches(text, pattern) is expected
