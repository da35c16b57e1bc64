"""The stage: where a trial's writes are until they are committed or discarded, and what they amount to.

The workspace is the lower tree of an overlay whose upper tree is ``<run>/stage/upper``; writes elsewhere go to
``<run>/outside/<n>/upper`` and are discarded (``<run>/outside/map.json`` says which mount point each ``<n>`` is over).
Nothing is mounted here: both trees are read as they are on disk, also while the trial runs or is frozen.

Paths in events are absolute, as the trial sees them; the workspace lies at the same path inside and outside.

What commits and captures is imported where it is used: a trial that writes nothing needs none of it, and starts sooner.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from supervisor.errors import MachineError, UsageError
from supervisor.evidence.facts import Observed
from supervisor.launch.copying import copy_attributes
from supervisor.launch.durable import write_whole
from supervisor.launch.merged import Merged
from supervisor.launch.observe import Observer, problem, read_xattrs
from supervisor.launch.state import RunDir
from supervisor.launch.tree import Tree, by_descriptor, is_below, join, split

if TYPE_CHECKING:
    from supervisor.launch.commit import CommitResult
    from supervisor.launch.journal import Journal, Plan
    from supervisor.launch.plan import Allowed
    from supervisor.launch.snapshot import Snapshot

PRIVATE = (b"/tmp", b"/dev", b"/run", b"/proc", b"/sys")
"""Places of which the trial has its own: the host's are not what it sees, and its own are gone with it."""


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
        self._observer = Observer()
        self._stack.close()

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
        """Give every path of the workspace that may show something else than before, absolute, each once.

        That is: every entry of the upper tree; what whiteouts, opaque directories and replaced directories hide, path
        by path; what lies in directories that were moved, at the old and at the new place; and further names of copied
        inodes.
        """
        if not self.upper.is_dir():
            return iter(())
        with Merged.open(self.workspace, self.upper, self.work) as view:
            paths = dict.fromkeys(_touched(view))
        return (join(self.workspace, path) for path in paths)

    def untouched(self) -> bool:
        """Tell whether nothing is staged at all, the workspace's own attributes included."""
        try:
            with os.scandir(self.upper) as entries:
                if next(entries, None) is not None:
                    return False
            upper, workspace = self.upper.stat(), Path(os.fsdecode(self.workspace)).stat()
            return _attributes(upper) == _attributes(workspace) and read_xattrs(bytes(self.upper)) == read_xattrs(
                self.workspace
            )
        except OSError:
            return False

    def digest(self) -> str:
        """Digest everything that is staged: names, kinds, owners, modes, attributes, content. ``sha256:…``."""
        from supervisor.launch.snapshot import describe  # noqa: PLC0415 - see this module's docstring

        digest = hashlib.sha256()
        if self.upper.is_dir():
            with Merged.open(self.workspace, self.upper, self.work) as view:
                for line in describe(view, Observer()):
                    digest.update(line)
        return f"sha256:{digest.hexdigest()}"

    def snapshot(self, globs: Iterable[str], target: Path | None = None) -> Snapshot:
        """Capture what the trial has changed in a footprint, while it is frozen or over.

        Args:
            globs: which paths, see `policies.globs`.
            target: the directory to make, the run's ``snapshot`` when not given.
        """
        from supervisor.launch.snapshot import capture  # noqa: PLC0415 - see this module's docstring

        if not self.upper.is_dir():
            message = "nothing is staged: writes went to the workspace directly"
            raise MachineError(message)
        with Merged.open(self.workspace, self.upper, self.work) as view:
            return capture(view, globs, Observer(), target or self.run.snapshot)

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
                    return _read(tree, split(path)[1], at_most)
            node = view.find(place[1])
            return None if node is None else _read(*view.place(node), at_most)
        except OSError:
            return None

    # -- commit or discard -----------------------------------------------------------------------------------------

    def commit(
        self, allowed: Allowed, *, durable: bool = False, fault: Callable[[], None] | None = None
    ) -> CommitResult:
        """Apply what is staged to the workspace; call it again after an interruption, to the same result.

        Args:
            allowed: whether a path, relative to the workspace (``.`` is the workspace itself), may be written. Parents
                of allowed paths are made. When a commit is resumed, what was decided the first time holds.
            durable: also survive a power cut, at the price of a few syncs of the file system.
            fault: called before every step, for tests.

        Raises:
            MachineError: see `supervisor.launch.commit.Executor.run`.
        """
        from supervisor.launch.journal import Journal, Phase  # noqa: PLC0415 - see this module's docstring

        journal = Journal(self.run.stage, durable=durable)
        resumed = journal.exists
        self.close()
        if resumed and journal.phase() is Phase.DONE:
            return _result(journal.plan(), journal, resumed=True)
        if not self.upper.is_dir():
            message = f"nothing is staged in run {self.run.id}"
            raise UsageError(message, place="RUN")
        try:
            return self._commit(allowed, journal, fault, resumed=resumed)
        except OSError as err:
            message = f"commit was interrupted: {err}"
            raise MachineError(message, hint=f"supervise commit {self.run.id} goes on with it") from err

    def _commit(
        self, allowed: Allowed, journal: Journal, fault: Callable[[], None] | None, *, resumed: bool
    ) -> CommitResult:
        from supervisor.launch.commit import Executor, no_fault  # noqa: PLC0415 - see this module's docstring
        from supervisor.launch.journal import Phase, Source  # noqa: PLC0415 - likewise
        from supervisor.launch.plan import make_plan  # noqa: PLC0415 - likewise

        with Merged.open(self.workspace, self.upper, self.work) as view:
            if not resumed:
                journal.begin(make_plan(view, allowed=allowed, began_ns=self.began_ns, quarantine=self._free(view)))
            plan = journal.plan()
            trees = {Source.UPPER: view.upper, Source.LOWER: view.lower}
            if view.work is not None:
                trees[Source.WORK] = view.work
            with Tree(self.workspace) as host:
                if plan.entries or journal.phase() is not Phase.PREPARE:
                    Executor(plan, trees, host, journal, fault or no_fault).run()
                else:
                    journal.advance(Phase.DONE)
        return _result(plan, journal, resumed=resumed)

    @property
    def committed(self) -> bool:
        """Whether a commit was carried out, so that another one has nothing to do."""
        from supervisor.launch.journal import Journal, Phase  # noqa: PLC0415 - see this module's docstring

        journal = Journal(self.run.stage, durable=False)
        return journal.exists and journal.phase() is Phase.DONE

    def discard(self) -> None:
        """Remove what is staged, and what was written outside the workspace.

        Raises:
            UsageError: a commit was interrupted: what is staged is needed to finish it.
        """
        self.close()
        if self._is_in_commit():
            message = f"commit of run {self.run.id} was interrupted"
            raise UsageError(message, place="RUN", hint=f"supervise commit {self.run.id} finishes it")
        for directory in (self.upper, self.work, self.run.outside):
            shutil.rmtree(directory, ignore_errors=True)

    def _is_in_commit(self) -> bool:
        if self.untouched():
            return False
        from supervisor.launch.journal import Journal, Phase  # noqa: PLC0415 - see this module's docstring

        journal = Journal(self.run.stage, durable=False)
        return journal.exists and journal.phase() not in {Phase.PREPARE, Phase.DONE}

    def _free(self, view: Merged) -> str:
        """Choose a name for the quarantine that nothing in the workspace has."""
        taken = {*view.upper.names(b""), *view.lower.names(b"")}
        names = (f".supervise-{self.run.id}-{number}" for number in range(len(taken) + 1))
        return next(name for name in names if name.encode() not in taken)

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
                return self._observe_unstaged(path, in_workspace=top == self.workspace)
            node = view.find(relative)
            before = self._observer.state(view.lower, relative)
            after = self._observer.state(*view.place(node)) if node is not None else None
        except OSError as err:
            text = problem(f"cannot be read: {err.strerror}")
            return Observed(before=text, after=text)
        return Observed(before=before, after=after)

    def _observe_unstaged(self, path: bytes, *, in_workspace: bool) -> Observed:
        """Read a path without an overlay: one of a workspace that is written directly, or one whose writes are gone."""
        above, name = split(path)
        with Tree(above or b"/") as tree:
            now = self._observer.state(tree, name)
        if in_workspace:
            return Observed(before=problem("was not recorded before the trial"), after=now)
        return Observed(before=now, after=problem("writes to this place were not kept"))

    def _placed(self, path: bytes) -> tuple[bytes, bytes] | None:
        """Tell over which mount point a path lies, and where below it; None for a private place."""
        tops = [self.workspace, *self._map(), *PRIVATE]
        top = max((top for top in tops if is_below(path, top.rstrip(b"/"))), key=len, default=b"/")
        if top in PRIVATE and top not in self._map() and top != self.workspace:
            return None
        parts = [part for part in path[len(top.rstrip(b"/")) :].split(b"/") if part not in {b"", b"."}]
        return top, b"/".join(parts)

    def _map(self) -> dict[bytes, str]:
        """Read which mount points had their writes kept."""
        try:
            found = json.loads((self.run.outside / "map.json").read_bytes())
        except FileNotFoundError:
            return {}
        return {os.fsencode(point): str(number) for point, number in found.items()}

    def _view(self, top: bytes) -> Merged | None:
        """Open the overlay over a mount point, once for an observation; None when there is none."""
        if top not in self._views:
            upper, work = self.upper, self.work
            if top != self.workspace:
                base = self.run.outside / self._map().get(top, "none")
                upper, work = base / "upper", base / "work"
            if not upper.is_dir():
                return None
            self._views[top] = self._stack.enter_context(Merged.open(top, upper, work))
        return self._views[top]


def _read(tree: Tree, path: bytes, at_most: int) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with tree.parent(path) as (directory, name):
        descriptor = os.open(name, flags, dir_fd=directory)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - by descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(at_most + 1)
    return content if len(content) <= at_most else None


def _attributes(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns


def _result(plan: Plan, journal: Journal, *, resumed: bool) -> CommitResult:
    from supervisor.launch.commit import CommitResult  # noqa: PLC0415 - see this module's docstring

    refused = journal.left()
    left = dict.fromkeys((*plan.left, *refused))
    changes = max(0, plan.changes - len({entry.path for entry in refused}))
    return CommitResult(entries=plan.entries, changes=changes, left=tuple(left), resumed=resumed)


def _touched(view: Merged) -> Iterator[bytes]:
    """Give the paths that may show something else than before; some more than once."""
    waiting = [view.root]
    while waiting:
        above = waiting.pop()
        for name in view.upper.names(above.path):
            path = join(above.path, name)
            node = view.child(above, name)
            yield path
            if node is not None and node.directory and not node.moved and node.lower is not None:
                waiting.append(node)
                continue
            yield from _host_below(view, path)
            if node is not None and node.directory:
                yield from (inner.path for inner in view.below(node))
    if view.copied_inodes:
        yield from (node.path for node in view.below(view.root) if node.copy is not None)


def _host_below(view: Merged, path: bytes) -> Iterator[bytes]:
    if view.lower.is_directory(path):
        yield from (inner for inner, _ in view.lower.below(path))
