"""What the caller names and CMD will not find: files of the host below places that are private to every trial.

Without a word about it, a program of a virtual environment in ``/tmp`` would silently be another one of that name,
found further on in PATH. In: a request. Out: sentences, before anything runs. Whether the run user may execute a file
is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from supervisor.request import RunRequest

_PRIVATE = ("/tmp", "/run", "/dev/shm")  # noqa: S108 - these are the names of the places, nothing is made there
_HEAD_BYTES = 256


def unseen(request: RunRequest) -> Iterator[str]:
    """Say which program CMD will be, if not the one outside, and which file it is given that is not there."""
    sees = _Sight(request)
    command = os.fsdecode(request.argv[0])
    yield from _program(command, sees, request.environ.get("PATH", ""))
    lost = [(word, path) for word in map(os.fsdecode, request.argv[1:]) if (path := sees.names(word)) is not None]
    if lost:
        word, path = lost[0]
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        yield f"{word}{more}: {_why(path)}{_remedy(path)}"


class _Sight:
    """Tells whether a trial sees a file of the host."""

    def __init__(self, request: RunRequest) -> None:
        named = os.path.normpath(request.cwd / (request.policy.files.workspace or "."))
        self.cwd = str(request.cwd)
        self._workspaces = (named, os.path.realpath(named))
        within = _is_below(os.path.realpath(self.cwd), self._workspaces[1])
        self._start = self.cwd if within else named

    def shows(self, path: str) -> bool:
        """Tell whether a path leads to the same file inside: neither its name nor what it leads to is private."""
        return not any(self._is_hidden(found) for found in (os.path.normpath(path), os.path.realpath(path)))

    def loses(self, path: str) -> bool:
        """Tell whether an absolute path names something outside that is not there inside."""
        return path.startswith("/") and path not in _PRIVATE and os.path.lexists(path) and not self.shows(path)

    def names(self, word: str) -> str | None:
        """Give the file outside that a word of the command line names and that is not there inside, None for others.

        What the workspace lies in is there, if only with the workspace in it.
        """
        if word.startswith("/"):
            return word if self.loses(word) else None
        path = os.path.normpath(f"{self._start}/{word}")
        around = any(_is_below(workspace, path) for workspace in self._workspaces)
        return path if word and not around and self.loses(path) else None

    def _is_hidden(self, path: str) -> bool:
        if any(_is_below(path, workspace) for workspace in self._workspaces):
            return False
        return any(_is_below(path, private) for private in _PRIVATE)


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _program(command: str, sees: _Sight, search: str) -> Iterator[str]:
    if not command:
        return
    places = [command] if "/" in command else [f"{place or '.'}/{command}" for place in search.split(os.pathsep)]
    found = [path for place in places if _is_program(path := os.path.join(sees.cwd, place))]  # noqa: PTH118 - absolute wins
    if not found:
        return
    if not sees.shows(found[0]):
        inside = next((path for path in found if sees.shows(path)), None)
        yield f"{found[0]}: {_why(found[0])}; {command} is {inside or 'not found'} there{_remedy(found[0])}"
    elif (interpreter := _interpreter(found[0])) is not None and sees.loses(interpreter):
        script, remedy = os.path.normpath(found[0]), _remedy(interpreter)
        yield f"{interpreter}, which runs {script}: {_why(interpreter)}; it cannot run there{remedy}"


def _why(path: str) -> str:
    return f"not in the box, whose {_private(path)} is its own and empty"


def _remedy(path: str) -> str:
    return f"; what lies outside of {_private(path)}, or in the workspace, is there"


def _private(path: str) -> str:
    """Give the private place that a path, or what it leads to, lies in."""
    real = os.path.realpath(path)
    return next((place for place in _PRIVATE for found in (path, real) if _is_below(found, place)), path)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - as shutil.which does it


def _interpreter(path: str) -> str | None:
    """Give the program that a script names in its first line."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - paths are texts in here
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    words: Sequence[bytes] = head[2:].split(b"\n")[0].split() if head.startswith(b"#!") else ()
    return os.fsdecode(words[0]) if words else None
