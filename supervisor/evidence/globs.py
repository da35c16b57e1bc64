"""Globs of a policy against paths of the trial. In: globs as text; out: tests on absolute ``bytes`` paths.

The rules, in this order:

* A glob is relative to the workspace unless it begins with ``/``; ``.`` is the workspace itself.
* ``*`` and ``?`` stay within one name, ``**`` crosses directories, ``[…]`` is a class of characters.
* A glob whose last name has no wildcard covers what is below it too: ``notes`` covers ``notes/a/b``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

PathTest = Callable[[bytes], bool]

_WILD = re.compile(rb"[*?\[]")


def match_globs(globs: Iterable[str], workspace: bytes) -> PathTest:
    """Give a test that says whether an absolute path is covered by one of the globs."""
    wanted = tuple(globs)
    if wanted == ("**",):
        return lambda path: path.startswith(workspace) and path[len(workspace) : len(workspace) + 1] in {b"", b"/"}
    return _test([_whole(_absolute(glob, workspace)) for glob in wanted])


def match_parents(globs: Iterable[str], workspace: bytes) -> PathTest:
    """Give a test that says whether an absolute path can be a parent directory of a covered one."""
    parts: list[bytes] = []
    for glob in globs:
        names = _names(_absolute(glob, workspace))
        for depth in range(1, len(names)):
            if names[depth - 1] == b"**":
                break
            parts.append(_regex(names[:depth]))
        if b"**" in names:
            parts.append(_regex(names[: names.index(b"**")]) + rb"(?:/.*)?")
    return _test(parts)


def _absolute(glob: str, workspace: bytes) -> bytes:
    raw = glob.encode("utf-8", "surrogateescape")
    if not raw.startswith(b"/"):
        raw = _escape(workspace) + b"/" + raw
    return raw


def _escape(path: bytes) -> bytes:
    """Take the wildcards out of a path that is meant literally."""
    return re.sub(rb"([*?\[])", rb"[\1]", path)


def _names(glob: bytes) -> list[bytes]:
    return [name for name in glob.split(b"/") if name not in {b"", b"."}]


def _whole(glob: bytes) -> bytes:
    names = _names(glob)
    literal = not names or not _WILD.search(names[-1].replace(b"[*]", b"").replace(b"[?]", b"").replace(b"[[]", b""))
    return _regex(names) + (rb"(?:/.*)?" if literal else b"")


def _regex(names: list[bytes]) -> bytes:
    out = b""
    for place, name in enumerate(names):
        if name == b"**":
            out += rb"(?:/.*)?" if place == len(names) - 1 else rb"(?:/[^/]+)*"
        else:
            out += b"/" + _name(name)
    return out


def _name(name: bytes) -> bytes:
    """Translate one name of a glob."""
    out, place = b"", 0
    while place < len(name):
        char = name[place : place + 1]
        end = name.find(b"]", place + 2) if char == b"[" else -1
        if end > 0:
            inner = name[place + 1 : end]
            negate = b"^" if inner[:1] in {b"!", b"^"} else b""
            out += b"[" + negate + re.sub(rb"([\\\]\[^])", rb"\\\1", inner[len(negate) :]) + b"]"
            place = end + 1
            continue
        out += {b"*": b"[^/]*", b"?": b"[^/]"}.get(char) or re.escape(char)
        place += 1
    return out


def _test(parts: list[bytes]) -> PathTest:
    if not parts:
        return _nothing
    pattern = re.compile(b"|".join(b"(?:" + part + b")" for part in parts), re.DOTALL)
    # "/" itself is the empty string here, so that "/**" covers it.
    return lambda path: pattern.fullmatch(b"" if path == b"/" else path) is not None


def _nothing(_path: bytes) -> bool:
    return False
