"""Globs over paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.globs import compile_globs, writable_roots

CASES = [
    ("**", ".", True),
    ("**", "a/b/c", True),
    ("**", "/etc", False),
    ("*", "a", True),
    ("*", ".hidden", True),
    ("*", "a/b", False),
    ("*.md", "a.md", True),
    ("*.md", "x/a.md", False),
    ("**/*.md", "a.md", True),
    ("**/*.md", "x/y/a.md", True),
    ("a/**/b", "a/b", True),
    ("a/**/b", "a/x/y/b", True),
    ("a/**/b", "a/xb", False),
    ("a/**", "a", False),
    ("a/**", "a/x/y", True),
    ("a/?", "a/x", True),
    ("a/?", "a/xy", False),
    ("a/?", "a//", False),
    ("src", "src", True),
    ("src", "src/x/y", True),
    ("src", "srcx", False),
    ("src/", "src/x", True),
    ("s*/", "src/x", True),
    ("s*", "src/x", False),
    ("./a", "a", True),
    (".", "x/y", True),
    ("a[b]", "a[b]", True),
    ("a[b]", "ab", False),
    ("a.b", "axb", False),
    ("a\nb", "a\nb", True),
    ("*", "a\nb", True),
    ("/etc/**", "/etc/passwd", True),
    ("/etc/**", "etc/passwd", False),
    ("etc/**", "/etc/passwd", False),
    ("**/x", "/a/x", False),
    ("/ws/a", "a", True),
    ("/ws", "a/b", True),
    ("/wsx/a", "a", False),
]


@pytest.mark.parametrize(("pattern", "path", "matches"), CASES)
def test_a_pattern_matches_what_its_law_says(pattern: str, path: str, matches: bool) -> None:  # noqa: FBT001 - a table
    """Each row is one consequence of the laws."""
    assert compile_globs([pattern], workspace=b"/ws").match(path.encode()) is matches


def test_no_pattern_matches_nothing() -> None:
    """An empty list allows nothing."""
    globs = compile_globs([])
    assert not globs.match(b"a")
    assert not globs.may_match_below(b"a")


COMPONENTS = st.sampled_from([b"a", b"b", b"ab", b"\xff", b"a\n"])
PATTERNS = st.lists(st.sampled_from(["a", "*", "?", "**", "ab", "a*"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(PATTERNS, min_size=1, max_size=3), st.lists(COMPONENTS, min_size=2, max_size=5))
def test_directories_above_a_match_are_never_skipped(patterns: list[str], components: list[bytes]) -> None:
    """Whatever matches lies below directories of which that was said to be possible."""
    globs = compile_globs(patterns)
    if globs.match(b"/".join(components)):
        assert all(globs.may_match_below(b"/".join(components[:depth])) for depth in range(1, len(components)))


@pytest.mark.parametrize(
    ("patterns", "roots"),
    [
        (("**",), [b"/w"]),
        (("notes/**",), [b"/w/notes"]),
        (("notes/",), [b"/w/notes"]),
        (("notes/*.md", "out/a/*"), [b"/w/notes", b"/w/out/a"]),
        (("notes/recovery.md",), [b"/w/notes"]),
        (("draft.md",), [b"/w"]),
        (("there",), [b"/w/there"]),
        (("notes/**", "draft.md"), [b"/w"]),
        (("a*/b",), [b"/w"]),
        (("/var/out/**", "notes/x/**", "notes/**"), [b"/var/out", b"/w/notes"]),
        (("/**",), [b"/"]),
        ((), []),
    ],
)
def test_writable_roots_are_the_directories_before_the_first_wildcard(
    patterns: tuple[str, ...], roots: list[bytes]
) -> None:
    """A file is made, replaced and removed in its directory; none of the roots lies in another one."""
    found = writable_roots(patterns, workspace=b"/w", is_directory=lambda path: path == b"/w/there")
    assert list(found) == roots


def test_a_relative_pattern_never_leads_out_of_the_workspace() -> None:
    """Whatever its wildcards: no directory elsewhere is on the way to what it matches."""
    for pattern in ("**", "**/*.md", "*/x/**", "a*"):
        assert not compile_globs([pattern]).may_match_below(b"/etc")
    assert compile_globs(["**/*.md"]).may_match_below(b"etc/deep")
    assert compile_globs(["/etc/**"]).may_match_below(b"/etc")
