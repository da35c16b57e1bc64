"""The stage: where a trial's writes are until they are committed or discarded, and what they amount to.

The workspace is the lower tree of an overlay whose upper tree is ``<run>/stage/upper``. A mount in the workspace is
staged by itself, a `Layer` each, in ``<run>/stage/nested/<n>``; writes elsewhere go to ``<run>/outside/<n>/upper`` and
are discarded. ``map.json`` in ``nested``, ``outside`` and in a capture says which mount point each ``<n>`` is over.

Paths in events are absolute, as the trial sees them; the workspace lies at the same path inside and outside.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Self

from policies.globs import compile_globs
from supervisor.errors import UsageError
from supervisor.evidence.file_facts import Observed, SharedNames
from supervisor.launch.disk.copying import copy_attributes
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.disk.observe import Observer, link_or_directory, problem
from supervisor.launch.disk.removing import remove_tree
from supervisor.launch.disk.tree import Tree, by_descriptor, is_below, join, split
from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.layer import Layer, Manner
from supervisor.launch.stage.merged import Merged
from supervisor.values import replace

if TYPE_CHECKING:
    from supervisor.launch.stage.commit import CommitResult
    from supervisor.launch.stage.plan import Allowed
    from supervisor.launch.stage.snapshot import Snapshot

PRIVATE = (b"/tmp", b"/dev", b"/run", b"/proc", b"/sys")
"""Places of which the trial has its own: the host's are not what it sees, and its own are gone with it."""


_MAP, _EXISTED = "map.json", "existed.json"


class Stage:
    """The staged writes of one run. Use it in a ``with``, or `close` it."""

    def __init__(self, run: RunDir, workspace: Path | bytes) -> None:
        """Name the stage; nothing is made or opened yet.

        Args:
            run: the run.
            workspace: the host directory that the trial works in, absolute and free of symlinks.
        """
        self.run = run
        self.workspace = os.path.realpath(os.fsencode(workspace))
        self.upper = run.stage / "upper"
        self.work = run.stage / "work"
        self._observer = Observer()
        self._stack = ExitStack()
        self._views: dict[bytes, Merged] = {}
        self._lower: Tree | None = None
        self._known: dict[bytes, Path] | None = None
        self._tops: tuple[tuple[bytes, bytes], ...] | None = None
        self._at_rest = False

    def __enter__(self) -> Self:
        """Give the stage itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened for reading."""
        self.close()

    def close(self) -> None:
        """Close what was opened for reading, and forget what was read.

        Digests are forgotten too: a store through a mapping that is written already changes no time stamp.
        """
        self._views.clear()
        self._lower = None
        self._known = self._tops = None
        if not self._at_rest:
            self._observer = Observer()
        self._stack.close()

    def rest(self) -> None:
        """Note that the trial is over: where nothing of it can write any more, digests need not be forgotten."""
        self._at_rest = not self.untouched() and all(layer.is_let_go() for layer in self.layers())

    def prepare(self) -> None:
        """Make the upper and the work directory, before the overlay is mounted, and record when the trial began.

        The root of the upper tree gets owner, mode, attributes and times of the workspace, because the overlay shows
        those of the upper root as the workspace's.
        """
        for directory in (self.run.stage, self.upper, self.work):
            directory.mkdir(mode=0o700, exist_ok=True)
        with Tree(self.workspace) as tree, tree.directory(b"") as root:
            copy_attributes(by_descriptor(root, b"."), os.fstat(root), os.fsencode(self.upper))
        write_whole(self.run.stage / "began.json", json.dumps({"realtime_ns": time.time_ns()}).encode(), durable=False)

    @property
    def began_ns(self) -> int:
        """CLOCK_REALTIME at `prepare`, ns."""
        return int(json.loads((self.run.stage / "began.json").read_bytes())["realtime_ns"])

    # -- what has changed ------------------------------------------------------------------------------------------

    def observe(self, paths: Iterable[bytes]) -> dict[bytes, Observed]:
        """Read the states of paths before and after the trial, or so far.

        Args:
            paths: absolute, as events have them.

        Returns:
            One entry a path. A path of which nothing can be known has a state with a ``problem``. After a commit the
            state before the trial is no longer to be had: what is then given as `before` is the committed one.
        """
        self.close()  # what was read at an earlier moment says nothing about this one
        return {path: self._observe(path) for path in paths}

    def changed(self) -> Iterator[bytes]:
        """Give every path of the workspace that may show something else than before, absolute: see `Layer.changed`."""
        return chain.from_iterable(layer.changed() for layer in self.layers())

    def beginning(self, path: bytes) -> bytes | None:
        """Tell what was at a path before: the text of a symlink, nothing for a directory, None for all else."""
        place = self._placed(path)
        if place is None:
            return None
        top, relative = place
        if self._lower is None:
            self._lower = self._stack.enter_context(Tree(self.workspace, may_be_gone=True))
        tree, name = (self._lower, relative) if top == self.workspace else (None, path)
        try:
            return link_or_directory(tree, name)
        except OSError:
            return None

    def aliases(self, linked: bool) -> SharedNames:  # noqa: FBT001 - see `supervisor.evidence.collect`
        """Find the names of the workspace that share a file: before, of what was changed; now, where any was linked.

        Args:
            linked: whether the trial gave any file another name.
        """
        from supervisor.launch.stage.linked import find_linked  # noqa: PLC0415 - see this module's docstring

        return find_linked(self.layers(), linked=linked)

    def untouched(self) -> bool:
        """Tell whether nothing is staged at all, the workspace's own attributes included."""
        return all(layer.untouched() for layer in self.layers())

    def digest(self) -> str:
        """Digest everything that is staged: names, kinds, owners, modes, attributes, content. ``sha256:…``."""
        self.close()
        digest = hashlib.sha256()
        for layer in self.layers():
            if layer.prefix and not layer.untouched():
                digest.update(b"%s\0" % layer.prefix)
            for line in layer.describe(self._observer):
                digest.update(line)
        return f"sha256:{digest.hexdigest()}"

    def snapshot(self, globs: Iterable[str], target: Path | None = None) -> Snapshot:
        """Capture what the trial has changed in a footprint, while it is frozen or over.

        Args:
            globs: which paths, see `policies.globs`.
            target: the directory to make, the run's ``snapshot`` when not given.

        Returns:
            Of the workspace; a mount in it is captured beside it, as ``<n>/upper``, and counted.
        """
        from supervisor.launch.stage.snapshot import Below, together  # noqa: PLC0415 - few trials leave something alive

        footprint = compile_globs(globs, workspace=self.workspace)
        place = target or self.run.snapshot
        own, *nested = self.layers()
        captured = own.capture(footprint, place)
        found = {
            layer.prefix: layer.capture(Below(footprint, layer.prefix), place / layer.base.name)
            for layer in nested
            if not layer.untouched()
        }
        if found:
            points = {os.fsdecode(layer.point): layer.base.name for layer in nested if layer.prefix in found}
            write_whole(place / _MAP, json.dumps(points).encode())
        return together(captured, found)

    # -- layers ----------------------------------------------------------------------------------------------------

    def layers(self) -> tuple[Layer, ...]:
        """Give the workspace, and every mount below it of which the writes were staged too."""
        own = Layer(
            run_id=self.run.id, point=self.workspace, prefix=b"", base=self.run.stage, read_began=lambda: self.began_ns
        )
        top = self.workspace.rstrip(b"/") + b"/"
        nested = [
            replace(own, point=point, prefix=point.removeprefix(top), base=base)
            for point, base in sorted(read_map(self.run.nested).items())
            if (base / "upper").is_dir()
        ]
        return own, *nested

    def read(self, path: bytes, at_most: int) -> bytes | None:
        """Read a regular file as the trial left it; None when it is none, is longer, or cannot be read.

        Args:
            path: absolute, as events have it.
            at_most: bytes.
        """
        place = self._placed(path)
        try:
            view = None if place is None else self._view(place[0])
            if place is None or (view is None and place[0] != self.workspace):
                return None
            if view is None:
                with Tree(split(path)[0] or b"/") as tree:
                    return read_regular(tree, split(path)[1], at_most)
            node = view.find(place[1])
            return None if node is None else read_regular(*view.place(node), at_most)
        except OSError:
            return None

    # -- commit or discard -----------------------------------------------------------------------------------------

    def commit(
        self,
        allowed: Allowed,
        *,
        force: bool = False,
        gives: bool = False,
        durable: bool = False,
        fault: Callable[[], None] | None = None,
    ) -> CommitResult:
        """Apply what is staged to the workspace; call it again after an interruption, to the same result.

        Args:
            allowed: whether a path, relative to the workspace (``.`` is the workspace itself), may be written. Parents
                of allowed paths are made. When a commit is resumed, what was decided the first time holds.
            force: see `supervisor.launch.stage.layer.Manner`, as for the rest.
            gives: likewise.
            durable: likewise.
            fault: likewise.

        Raises:
            MachineError: see `supervisor.launch.stage.commit.Executor.run`.
            UsageError: nothing is staged.
        """
        self.close()
        existed = self._existed()
        how = Manner(durable=durable, force=force, gives=gives, existed=existed.__contains__, fault=fault)
        own, *nested = self.layers()
        if not self.upper.is_dir() and not own.committed:
            raise UsageError(f"nothing is staged in run {self.run.id}", place="RUN")
        done = own.commit(allowed, how)
        for layer in nested:
            if layer.committed or not layer.untouched():
                inner = layer.commit(layer.shifted(allowed), how)
                done = done.joined_by(inner, layer.prefix)
        return done

    def note_existed(self, paths: Iterable[bytes]) -> None:
        """Keep which paths, relative to the workspace, the log says were there before the trial, for later commits."""
        if names := [os.fsdecode(path) for path in paths]:
            write_whole(self.run.stage / _EXISTED, json.dumps(names).encode(), durable=False)

    def _existed(self) -> frozenset[bytes]:
        try:
            return frozenset(map(os.fsencode, json.loads((self.run.stage / _EXISTED).read_bytes())))
        except FileNotFoundError:
            return frozenset()

    @property
    def committed(self) -> bool:
        """Whether a commit was carried out, so that another one has nothing to do, unless it overwrites."""
        own, *nested = self.layers()
        return own.committed and all(layer.committed or layer.untouched() for layer in nested)

    def conflicts(self) -> tuple[bytes, ...]:
        """Give the paths that the last commit left alone, though they may be written."""
        return tuple(join(layer.prefix, path) for layer in self.layers() for path in layer.conflicts())

    def discard(self) -> None:
        """Remove what is staged, and what was written outside the workspace.

        Raises:
            UsageError: a commit was interrupted: what is staged is needed to finish it.
        """
        self.close()
        if any(layer.is_in_commit() for layer in self.layers()):
            message = f"commit of run {self.run.id} was interrupted"
            raise UsageError(message, place="RUN", hint=f"supervise commit {self.run.id} finishes it")
        for directory in (self.upper, self.work, self.run.nested, self.run.outside):
            remove_tree(directory)

    # -- looking ---------------------------------------------------------------------------------------------------

    def _observe(self, path: bytes) -> Observed:
        place = self._placed(path)
        if place is None:
            text = problem("place of the trial's own, gone with it")
            return Observed(before=None, after=text)
        top, relative = place
        try:
            view = self._view(top)
            if view is None:
                return self._observe_unstaged(path)
            node = view.find(relative)
            before = self._observer.state(view.lower, relative) if view.had_place_for(relative) else None
            after = None if node is None else self._observer.state(*view.place(node), node.found)
        except OSError as err:
            text = problem(f"cannot be read: {err.strerror}")
            return Observed(before=text, after=text)
        return Observed(before=before, after=after)

    def _observe_unstaged(self, path: bytes) -> Observed:
        """Read a path whose writes were not kept."""
        above, name = split(path)
        with Tree(above or b"/") as tree:
            now = self._observer.state(tree, name)
        return Observed(before=now, after=problem("writes to this place were not kept"))

    def _placed(self, path: bytes) -> tuple[bytes, bytes] | None:
        """Tell over which mount point a path lies, and where below it; None for a private place."""
        if self._tops is None:
            found = sorted({self.workspace, *self._map(), *PRIVATE}, key=len, reverse=True)
            self._tops = tuple((top, top.rstrip(b"/")) for top in found)
        top, prefix = next((one for one in self._tops if is_below(path, one[1])), (b"/", b""))
        if top in PRIVATE and top not in self._map() and top != self.workspace:
            return None
        inner = path[len(prefix) :]
        if b"//" in inner or b"/." in inner or inner[-1:] == b"/":
            return top, b"/".join(part for part in inner.split(b"/") if part not in {b"", b"."})
        return top, inner[1:]

    def _map(self) -> dict[bytes, Path]:
        """Give the directories with the writes to each mount point but the workspace's."""
        if self._known is None:
            self._known = read_map(self.run.outside) | read_map(self.run.nested)
        return self._known

    def _view(self, top: bytes) -> Merged | None:
        """Open the overlay over a mount point, once for an observation; None when there is none."""
        if top not in self._views:
            upper, work = self.upper, self.work
            if top != self.workspace:
                base = self._map().get(top, self.run.outside / "none")
                upper, work = base / "upper", base / "work"
            if not upper.is_dir():
                return None
            self._views[top] = self._stack.enter_context(Merged.open(top, upper, work))
        return self._views[top]


def read_map(place: Path) -> dict[bytes, Path]:
    """Read which mount points have their writes in a directory of their own below one of the run's, and in which."""
    try:
        found = json.loads((place / _MAP).read_bytes())
    except FileNotFoundError:
        return {}
    return {os.fsencode(point): place / str(number) for point, number in found.items()}


def read_regular(tree: Tree, path: bytes, at_most: int) -> bytes | None:
    """Read a regular file of a tree; None when it is none, or longer.

    Raises:
        OSError: it cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with tree.parent(path) as (directory, name):
        descriptor = os.open(name, flags, dir_fd=directory)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - by descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(at_most + 1)
    return content if len(content) <= at_most else None
