"""What a trial made of the workspace beside what the workspace has, or had, as unified diffs for people.

In: a stage, or a workspace that was written in place with what was recorded before. Out: one `FileDiff` a path that
differs, in order of names, made one at a time; content is read only up to `MAX_BYTES` a file. Everything is read by
descriptor (`supervisor.launch.disk.tree`), so nothing that a trial named is followed. The lines are for reading: what
could act on a terminal is escaped, so `patch` may not take them.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from supervisor.events import Kind
from supervisor.evidence.file_facts import FileState
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.tree import Tree, join
from supervisor.launch.stage.merged import Merged
from supervisor.launch.stage.stage import Stage
from supervisor.report.live import count
from supervisor.report.safe import harmless, safe
from supervisor.values import dataclass

if TYPE_CHECKING:
    from supervisor.launch.stage.inplace import InPlace

MAX_BYTES = 1 << 20
"""Of a side that is longer only the size is told: the time of a comparison grows with the square."""

MAX_LINES = 20_000
_CONTEXT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """How one path differs.

    Attributes:
        path: harmless, relative to the workspace.
        change: ``created``, ``deleted`` or ``modified``.
        about: sizes, kinds and modes, as far as they tell something.
        lines: of the unified diff, harmless, without line ends; empty for what is no text.
        added, removed: lines.
        allowed: whether a commit would apply it.
    """

    path: str
    change: str
    about: str
    lines: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    allowed: bool = True


def diff_stage(stage: Stage, allowed: Callable[[bytes], bool]) -> Iterator[FileDiff]:
    """Compare, path by path.

    Args:
        stage: with an upper tree.
        allowed: whether a path, relative to the workspace, may be written.
    """
    observer = Observer()
    for layer in stage.layers():
        top = layer.point.rstrip(b"/") + b"/"
        paths = sorted(path.removeprefix(top) for path in layer.changed())
        with layer.view() as view:
            for path in paths:
                name = join(layer.prefix, path)
                found = _diff(view, path, name, observer, allowed=allowed(name or b"."))
                if found is not None:
                    yield found


def diff_in_place(writes: InPlace, allowed: Callable[[bytes], bool]) -> Iterator[FileDiff]:
    """Compare what was recorded before a trial that wrote in place with what is there now, path by path.

    Args:
        writes: of a run that has ended.
        allowed: whether a path, relative to the workspace, may be written.
    """
    top = writes.workspace.rstrip(b"/") + b"/"
    for path in writes.compared():
        name = b"" if path == writes.workspace else path.removeprefix(top)
        state = writes.state(path)
        before = _Side(state.before, partial(_recorded, writes, path))
        after = _Side(state.after, partial(_read, *writes.place(path)))
        found = _compare(name, before, after, allowed=allowed(name or b"."))
        if found is not None:
            yield found


def _recorded(writes: InPlace, path: bytes) -> bytes:
    return b"".join(writes.inventory.read(writes.inventory.entries[path]))


def diff_lines(diff: FileDiff) -> Iterator[str]:
    """Give one difference as ``supervise diff`` prints it."""
    yield _head(diff)
    yield from diff.lines


def stat_line(diff: FileDiff) -> str:
    """Give one difference as ``supervise diff --stat`` prints it."""
    counted = f", +{diff.added} -{diff.removed}" if diff.lines else ""
    return f"{_head(diff)}{counted}"


def total_line(files: int, added: int, removed: int) -> str:
    """Give the last line of ``--stat``."""
    return f"{count(files, 'path')}, +{added} -{removed} lines"


def _head(diff: FileDiff) -> str:
    about = f" ({diff.about})" if diff.about else ""
    return f"{diff.change:<8}  {diff.path}{about}{'' if diff.allowed else ', not allowed: a commit leaves it out'}"


class _Side(NamedTuple):
    """One side of a path: its state, None when nothing is there, and how its content is read."""

    state: FileState | None
    read: Callable[[], bytes]


def _diff(view: Merged, path: bytes, name: bytes, observer: Observer, *, allowed: bool) -> FileDiff | None:
    node = view.find(path)
    before = _Side(observer.state(view.lower, path), partial(_read, view.lower, path))
    place = (view.lower, path) if node is None else view.place(node)
    after = _Side(None if node is None else observer.state(*place), partial(_read, *place))
    return _compare(name, before, after, allowed=allowed)


def _compare(path: bytes, one: _Side, two: _Side, *, allowed: bool) -> FileDiff | None:
    before, after = one.state, two.state
    if before == after:
        return None
    sides = _text(one), _text(two)
    lines = _unified(path, *sides) if None not in sides else ()
    return FileDiff(
        path=safe(path) or ".",
        change="created" if before is None else "deleted" if after is None else "modified",
        about=_about(before, after, shown=bool(lines)),
        lines=lines,
        added=sum(1 for line in lines[2:] if line.startswith("+")),
        removed=sum(1 for line in lines[2:] if line.startswith("-")),
        allowed=allowed,
    )


def _text(side: _Side) -> Sequence[str] | None:
    """Read the lines of a text; none of what is not there, and None for what is no text or too long."""
    state = side.state
    if state is None:
        return []
    if state.kind is not Kind.FILE or state.problem is not None or state.size_bytes > MAX_BYTES:
        return None
    content = side.read()
    lines = content.split(b"\n")
    if b"\0" in content or len(lines) > MAX_LINES:
        return None
    last = lines.pop()
    shown = [_shown(line) for line in lines]
    return [*shown, f"{_shown(last)}\n\\ no line end"] if last else shown


def _shown(line: bytes) -> str:
    return "\t".join(harmless(part.decode(errors="surrogateescape")) for part in line.split(b"\t"))


def _read(tree: Tree, path: bytes) -> bytes:
    """Read a regular file, not more than is compared."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with tree.parent(path) as (directory, name):
        descriptor = os.open(name, flags, dir_fd=directory)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - by descriptor
        return file.read(MAX_BYTES + 1)


def _unified(path: bytes, before: Sequence[str] | None, after: Sequence[str] | None) -> tuple[str, ...]:
    name = safe(path)
    found = difflib.unified_diff(before or [], after or [], f"a/{name}", f"b/{name}", n=_CONTEXT, lineterm="")
    return tuple(part for line in found for part in line.split("\n"))


def _about(before: FileState | None, after: FileState | None, *, shown: bool) -> str:
    """Say what the lines do not: another kind, owner, mode or attributes, and the sizes of what is no text."""
    told = []
    if before is not None and after is not None:
        for name, old, new in (
            ("kind", before.kind, after.kind),
            ("owner", f"{before.uid}:{before.gid}", f"{after.uid}:{after.gid}"),
            ("mode", f"{before.mode:04o}", f"{after.mode:04o}"),
        ):
            told += [f"{name} {old} → {new}"] if old != new else []
        told += ["other attributes"] if before.xattrs != after.xattrs else []
        if not shown and not before.problem and (before.digest, before.size_bytes) != (after.digest, after.size_bytes):
            told.append(f"{before.size_bytes:,} → {count(after.size_bytes, 'byte')}")
        told += [f"before: {before.problem}"] if before.problem else []
    else:
        state = before or after
        if state is not None and not shown:
            size = f", {count(state.size_bytes, 'byte')}" if state.kind is Kind.FILE else ""
            told.append(f"{state.kind}{size}")
    return ", ".join(told)
