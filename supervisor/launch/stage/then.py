"""What paths were at the moment of a capture, read from what was kept of it.

In: the directory of a capture and paths of the workspace, absolute. Out: one state a path, None where nothing was. A
path that cannot be read is left out. Only paths of the footprint that was captured may be asked for: of others the
capture knows nothing. What is below a stage must not have been applied to yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from supervisor.evidence.file_facts import FileState
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.tree import Tree, is_below
from supervisor.launch.stage.merged import Merged
from supervisor.launch.stage.snapshot import GONE
from supervisor.launch.stage.stage import Stage


def staged_then(stage: Stage, place: Path, paths: Iterable[bytes]) -> dict[bytes, FileState | None]:
    """Read a capture of staged writes: what it does not have is what lies below the stage."""
    observer, found = Observer(), {}
    with ExitStack() as stack:
        views: list[tuple[bytes, Merged | Tree]] = []
        for layer in reversed(stage.layers()):  # mounts in the workspace before the workspace
            upper = (place / layer.base.name if layer.prefix else place) / "upper"
            view: Merged | Tree = Merged.open(layer.point, upper) if upper.is_dir() else Tree(layer.point)
            stack.callback(view.close)
            views.append((layer.point.rstrip(b"/"), view))
        for path in paths:
            top, view = next((top, view) for top, view in views if is_below(path, top))
            with suppress(OSError):
                found[path] = _state(view, path[len(top) + 1 :], observer)
    return found


def _state(view: Merged | Tree, path: bytes, observer: Observer) -> FileState | None:
    if isinstance(view, Tree):
        return observer.state(view, path)
    node = view.find(path)
    return None if node is None else observer.state(*view.place(node))


def written_then(
    workspace: bytes, place: Path, before: Mapping[bytes, FileState | None]
) -> dict[bytes, FileState | None]:
    """Read a capture of what was written in place: what it does not have is what was before the trial.

    Args:
        workspace: absolute.
        place: the directory of the capture.
        before: the paths that are asked for, and what was there before the trial.
    """
    observer, found = Observer(), {}
    gone = set((place / GONE).read_bytes().split(b"\0")) if (place / GONE).exists() else set()
    with Tree(place / "upper") as kept:
        for path, was in before.items():
            inner = path[len(workspace.rstrip(b"/")) + 1 :]
            with suppress(OSError):
                now = observer.state(kept, inner)
                found[path] = None if inner in gone else was if now is None else now
    return found
