"""Texts with ``*`` and ``?``, and nothing else that is special. In: a text and a pattern; out: whether they agree.

Brackets stand for themselves: in a pattern that is kept they are what stands for a value that was taken out.
"""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches(text: str, pattern: str) -> bool:
    """Tell whether the whole text is what the pattern means: ``*`` is anything, ``?`` one character."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))
