"""Globs of a policy against paths of the trial."""

from __future__ import annotations

import pytest

from supervisor.evidence.globs import match_globs, match_parents

WORK = b"/w[1]"


@pytest.mark.parametrize(
    ("glob", "path", "covered"),
    [
        ("**", b"a/b", True),
        ("**", b"", True),
        (".", b"a/b", True),
        ("notes/*.md", b"notes/a.md", True),
        ("notes/*.md", b"notes/x/a.md", False),
        ("notes/*.md", b"notes/a.md/below", False),
        ("notes", b"notes/deep/er", True),
        ("notes/", b"notes/deep", True),
        ("notes", b"notes2", False),
        ("**/*.md", b"a.md", True),
        ("**/*.md", b"x/y/a.md", True),
        ("a/**/z", b"a/z", True),
        ("a/**/z", b"a/b/c/z", True),
        ("?.[ch]", b"x.c", True),
        ("?.[!ch]", b"x.c", False),
        ("new\nline", b"new\nline", True),
    ],
)
def test_a_glob_covers_what_its_rules_say(glob: str, path: bytes, covered: bool) -> None:  # noqa: FBT001 - a parameter
    """Names are relative to the workspace, whose own name is meant literally."""
    absolute = WORK + b"/" + path if path else WORK
    assert match_globs([glob], WORK)(absolute) is covered


def test_absolute_globs_leave_the_workspace() -> None:
    """A leading slash is the root of the trial's file system."""
    test = match_globs(["/etc/*.conf"], WORK)
    assert test(b"/etc/a.conf")
    assert not test(WORK + b"/etc/a.conf")


def test_no_glob_covers_nothing() -> None:
    """An empty list is no permission."""
    assert not match_globs([], WORK)(WORK + b"/a")


@pytest.mark.parametrize(
    ("path", "parent"), [(b"notes", True), (b"notes/sub", True), (b"notes/sub/x.md", False), (b"other", False)]
)
def test_parents_of_a_glob(path: bytes, parent: bool) -> None:  # noqa: FBT001 - a parameter
    """Every directory above a possible match, wildcards of directories included."""
    assert match_parents(["notes/*/x.md"], WORK)(WORK + b"/" + path) is parent
