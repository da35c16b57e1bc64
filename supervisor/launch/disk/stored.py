"""Whether what a grader looks at later is still what the outcome was.

The capture holds what the trial had changed; the rest lies in the workspace, where anybody may have changed it since.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from supervisor.evidence.file_facts import FileHistory
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.tree import Tree


def find_changed(
    footprint: Iterable[bytes],
    listed: Iterable[bytes],
    captures: Mapping[bytes, bytes],
    base: bytes,
    histories: Iterable[FileHistory],
    since_ns: int,
    *,
    early: bool,
) -> tuple[bytes, ...]:
    """Give what was looked at and is no longer as it was.

    Args:
        footprint: paths that the grader looked at, relative to the workspace.
        listed: directories whose names it read.
        captures: the upper trees of the capture, by the directory of the workspace that each is over (``b""`` is all).
        base: the workspace as it is now.
        histories: of the trial.
        since_ns: what was changed after it is not as it was, CLOCK_REALTIME; the trial's own changes are told apart.
        early: the capture is of a moment before the end: what the trial wrote later may have been applied since.
    """
    known = {history.path: history for history in histories if history.in_workspace and history.changes}
    with ExitStack() as stack:
        kept = {prefix: stack.enter_context(Tree(upper)) for prefix, upper in captures.items()}
        tree, observer = stack.enter_context(Tree(base)), Observer()
        paths = [path for path in _looked_at(footprint, listed, known) if not _is_kept(path, kept)]
        return tuple(path for path in paths if _differs(tree, observer, path, known, since_ns, early=early))


def _looked_at(footprint: Iterable[bytes], listed: Iterable[bytes], known: Iterable[bytes]) -> Iterable[bytes]:
    """Give the paths themselves, and of the directories those names that the trial changed."""
    directories = frozenset(listed)
    return dict.fromkeys((*footprint, *(path for path in known if (path.rpartition(b"/")[0] or b".") in directories)))


def _is_kept(path: bytes, captures: Mapping[bytes, Tree]) -> bool:
    """Tell whether a capture decides what a path shows."""
    for prefix, tree in captures.items():
        inner = path if not prefix else path.removeprefix(prefix + b"/")
        if (not prefix or inner != path) and tree.lstat(inner) is not None:
            return True
    return False


def _differs(
    tree: Tree, observer: Observer, path: bytes, known: Mapping[bytes, FileHistory], since_ns: int, *, early: bool
) -> bool:
    relative = b"" if path == b"." else path
    found = tree.lstat(relative)
    history = known.get(path)
    if history is not None:
        if early and history.written_after:
            return True
        now = observer.state(tree, relative) if found is not None else None
        after = history.after
        if now is None or after is None:
            return now is not after
        return now.digest != after.digest
    return found is not None and not stat.S_ISDIR(found.st_mode) and found.st_ctime_ns > since_ns
