"""Symlinks of an outcome that lead where it must not: to what only its grader should see, or out of what was captured.

A trial can make a symlink to what it cannot open; a grader that follows it would read there what it looks for. They
are found by following, from every symlink that was captured, what the grader would follow.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress

from policies.globs import Globs, compile_globs
from supervisor.launch.disk.tree import Tree, is_below, join

_MOST_LINKS = 40
"""The kernel follows no more."""


def find_outward(
    workspace: bytes, captures: Mapping[bytes, bytes], base: bytes, reference: Iterable[str], outcome: str | None
) -> Iterator[str]:
    """Say of each symlink of an outcome that leads where it must not what is wrong with it.

    Args:
        workspace: absolute, free of symbolic links.
        captures: directories in the form of an upper tree, by the directory of the workspace that each is over; where
            there are none, the symlinks of the base are followed.
        base: what they are laid over.
        reference: globs of what only the grader should see.
        outcome: the path that the claim names, or None.
    """
    material = tuple(reference)
    globs = compile_globs(material, workspace=workspace.rstrip(b"/"))
    with ExitStack() as stack:
        trees = {prefix: stack.enter_context(Tree(place)) for prefix, place in captures.items()}
        lower = stack.enter_context(Tree(base, may_be_gone=True))
        view = _View(workspace.rstrip(b"/"), trees, lower)
        for path in view.symlinks() if material else ():
            real = view.follow(path)
            if real is not None and _leads_to(view.shown(real), globs):
                yield f"{_text(path)} leads to what only the grader should see"
        if outcome is not None and not outcome.startswith("/"):
            named = os.path.normpath(os.fsencode(outcome))
            real = view.follow(named) if view.passes_link(named) else None
            if real is not None and view.shown(real).startswith(b"/"):
                yield f"{_text(named)} leads out of the workspace, to what was not captured"


def _leads_to(shown: bytes, globs: Globs) -> bool:
    parts = shown.split(b"/")
    above = (b"/".join(parts[:count]) for count in range(1, len(parts) + 1))
    holds = shown == b"/" or (shown.startswith(b"/") and globs.may_match_below(shown))
    return holds or any(globs.match(path) for path in above if path)


class _View:
    """The merged tree, as far as symlinks go."""

    def __init__(self, top: bytes, trees: Mapping[bytes, Tree], lower: Tree) -> None:
        self._top, self._trees, self._lower = top, trees, lower

    def symlinks(self) -> Iterator[bytes]:
        for prefix, tree in self._trees.items() or [(b"", self._lower)]:
            for path, found in tree.below(b""):
                if stat.S_ISLNK(found.st_mode):
                    yield join(prefix, path)

    def shown(self, path: bytes) -> bytes:
        """Name a path as globs do: relative to the workspace where it lies in it."""
        return path[len(self._top) + 1 :] or b"." if is_below(path, self._top) else path

    def passes_link(self, path: bytes) -> bool:
        """Tell whether a symlink stands at a path of the workspace or above it."""
        parts = path.split(b"/")
        above = (b"/".join((self._top, *parts[:count])) for count in range(1, len(parts) + 1))
        return any(self._target(place) is not None for place in above)

    def follow(self, path: bytes) -> bytes | None:
        """Give where a path of the workspace leads to, absolute; None when nobody could follow it."""
        waiting = [*(self._top + b"/" + path).split(b"/")][::-1]
        at, followed = b"", 0
        while waiting:
            part = waiting.pop()
            if part in {b"", b"."}:
                continue
            if part == b"..":
                at = at.rpartition(b"/")[0]
                continue
            target = self._target(at + b"/" + part)
            if target is None:
                at += b"/" + part
                continue
            followed += 1
            if followed > _MOST_LINKS:
                return None
            at = b"" if target.startswith(b"/") else at
            waiting += target.split(b"/")[::-1]
        return at or b"/"

    def _target(self, path: bytes) -> bytes | None:
        """Give the text of a symlink; None for whatever else is there, or is not."""
        if not is_below(path, self._top):
            with suppress(OSError, ValueError):
                return os.readlink(path)  # noqa: PTH115 - pathlib takes no bytes
            return None
        inner = path[len(self._top) + 1 :]
        for prefix, tree in sorted(self._trees.items(), reverse=True):
            if inner and is_below(inner, prefix) if prefix else inner:
                name = inner[len(prefix) + 1 :] if prefix else inner
                found = tree.lstat(name) if name else None
                if found is not None:
                    return _read(tree, name) if stat.S_ISLNK(found.st_mode) else None
        return _read(self._lower, inner) if inner else None


def _read(tree: Tree, path: bytes) -> bytes | None:
    with suppress(OSError), tree.parent(path) as (directory, name):
        return os.readlink(name, dir_fd=directory)
    return None


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
