"""Globs over paths, as policies and claims use them.

Laws:
    * A path is bytes relative to the workspace, without ``./`` and without a ``/`` at its end; the workspace itself is
      ``.``. An absolute path is matched by absolute patterns only, and a relative one by relative patterns only.
    * ``?`` is one byte and ``*`` any number of bytes inside one component; both match a leading dot too.
    * ``**`` as a whole component is any number of components, none included: ``a/**/b`` matches ``a/b``; ``a/**``
      matches what is below ``a`` but not ``a``; ``**`` alone matches everything, the workspace included.
    * A pattern without wildcards, or with a ``/`` at its end, names a file or a whole directory: it also covers
      everything below. One with wildcards covers only what it matches, so that ``*`` stays on the top level.
    * Every other byte stands for itself: there are no character classes and no escapes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable

from supervisor.values import dataclass

_NEVER = rb"(?!)"
_WILDCARDS = frozenset(b"*?")


@dataclass(frozen=True, slots=True)
class Globs:
    """Compiled patterns. ``None`` of them match nothing."""

    _whole: re.Pattern[bytes]
    _above: re.Pattern[bytes]

    def match(self, path: bytes) -> bool:
        """Tell whether one of the patterns matches the path."""
        return self._whole.fullmatch(path) is not None

    def may_match_below(self, directory: bytes) -> bool:
        """Tell whether something below this directory could match; True may be wrong, False never is."""
        return directory == b"." or self._above.fullmatch(directory) is not None


def compile_globs(patterns: Iterable[str], *, workspace: bytes | None = None) -> Globs:
    """Compile patterns.

    Args:
        patterns: as in the laws above.
        workspace: when given, absolute patterns that begin with it become relative ones.
    """
    split = [_components(pattern.encode("utf-8", "surrogateescape"), workspace) for pattern in patterns]
    whole = b"|".join(_whole(components) for components in split) or _NEVER
    above = b"|".join(_above(components) for components in split) or _NEVER
    return Globs(re.compile(whole, re.DOTALL), re.compile(above, re.DOTALL))


def literal(pattern: str) -> str:
    """Give a pattern as one of Python's `glob`, which has classes: ``[`` stands for itself."""
    return pattern.replace("[", "[[]")


def writable_roots(
    patterns: Iterable[str], *, workspace: bytes, is_directory: Callable[[bytes], bool]
) -> tuple[bytes, ...]:
    """Give the directories that must be open to writes so that all that matches can be made, replaced and removed.

    That is the part of a pattern before its first wildcard; without its last name where that may be a file's.
    Absolute, none below another.

    Args:
        patterns: as in the laws above.
        workspace: absolute; what relative patterns begin at.
        is_directory: tells whether there is a directory at an absolute path.
    """
    found = set()
    for pattern in patterns:
        root = workspace.rstrip(b"/") if not pattern.startswith("/") else b""
        parts = [part for part in pattern.encode("utf-8", "surrogateescape").split(b"/") if part not in {b"", b"."}]
        names = list(itertools.takewhile(lambda part: not _WILDCARDS.intersection(part), parts))
        covers = pattern.endswith("/") or len(names) < len(parts) or is_directory(b"/".join((root, *names)) or b"/")
        kept = names if covers or not parts else names[:-1]
        found.add(b"/".join((root, *kept)) or b"/")
    return tuple(sorted(path for path in found if not any(_is_above(other, path) for other in found)))


def _is_above(one: bytes, other: bytes) -> bool:
    return one != other and other.startswith(one.rstrip(b"/") + b"/")


def _components(pattern: bytes, workspace: bytes | None) -> list[bytes]:
    """Split a pattern; an absolute one begins with an empty component. Adds the ``**`` that covers a directory."""
    if workspace is not None and (pattern + b"/").startswith(workspace.rstrip(b"/") + b"/"):
        pattern = pattern[len(workspace.rstrip(b"/")) :].lstrip(b"/") or b"."
    parts = [part for part in pattern.split(b"/") if part not in {b"", b"."}]
    absolute = [b""] if pattern.startswith(b"/") else []
    if not parts and not absolute:
        return [b"**"]
    covers = pattern.endswith(b"/") or not _WILDCARDS.intersection(pattern)
    return [*absolute, *parts, *([b"/**"] if covers else [])]


def _whole(components: list[bytes]) -> bytes:
    """Give the expression of a whole pattern. ``/**`` among the components: the directory itself and all below."""
    expression = b""
    for number, part in enumerate(components):
        last = number == len(components) - 1
        if part == b"/**":
            expression = expression.removesuffix(b"/") + b"(?:/.*)?"
        elif part == b"**":
            expression += (b"(?!/).*" if number == 0 else b".+") if last else b"(?:[^/]+/)*"
        else:
            expression += _component(part) + (b"" if last else b"/")
    return expression


def _above(components: list[bytes]) -> bytes:
    """Give the expression of the directories that lead to a match: the beginnings of the pattern, each optional."""
    expression = b""
    for part in reversed(components[:-1] if components[-1] not in {b"**", b"/**"} else components):
        here = b".*" if part in {b"**", b"/**"} else _component(part)
        expression = here if part == b"**" or not expression else here + b"(?:/" + expression + b")?"
    if expression and components[0]:
        return b"(?!/)(?:" + expression + b")"
    return expression or _NEVER


def _component(part: bytes) -> bytes:
    return b"".join(
        {b"*": b"[^/]*", b"?": b"[^/]"}.get(piece, re.escape(piece)) for piece in re.split(rb"([*?])", part)
    )
