"""One layer of a stage: the staged writes to one mount point, what they amount to, and their commit.

A workspace is one layer; each file system that is mounted below it is another one. Nothing is mounted here: the upper
and the lower tree are read as they are on disk, also while the trial runs or is frozen.

Paths are relative to the mount point, but for `Layer.changed`. What commits and captures is imported where it is used:
a trial that writes nothing needs none of it, and starts sooner.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.errors import MachineError
from supervisor.launch.disk.observe import Observer, read_xattrs
from supervisor.launch.disk.removing import remove_tree
from supervisor.launch.disk.tree import Tree, is_below, join
from supervisor.launch.stage.merged import Merged
from supervisor.values import dataclass, replace

if TYPE_CHECKING:
    from supervisor.launch.stage.commit import CommitResult
    from supervisor.launch.stage.journal import Journal, Plan
    from supervisor.launch.stage.plan import Allowed
    from supervisor.launch.stage.snapshot import Footprint, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a commit is done.

    Attributes:
        durable: also survive a power cut, at the price of a few syncs of the file system.
        force: also where the host was changed meanwhile; after a commit that left such paths alone, only there.
        gives: files of the stage may become the workspace's as they are, instead of being copied: what is applied is
            no longer in the stage then. Nothing is given that somebody could still write.
        existed: whether the log says of a path, relative to the workspace, that something was there before the trial.
        fault: called before every step, for tests.
    """

    durable: bool = False
    force: bool = False
    gives: bool = False
    existed: Allowed = lambda _: False
    fault: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The staged writes to one mount point.

    Attributes:
        run_id: of the run, for hints and names.
        point: the host directory that is the lower tree, absolute and free of symlinks.
        prefix: the same relative to the workspace; empty for the workspace itself.
        base: directory of the run with ``upper`` and ``work``, and the record of a commit.
        read_began: gives CLOCK_REALTIME in ns of when the trial began.
    """

    run_id: str
    point: bytes
    prefix: bytes
    base: Path
    read_began: Callable[[], int]

    @property
    def upper(self) -> Path:
        """Where the writes are."""
        return self.base / "upper"

    @property
    def work(self) -> Path:
        """The overlay's own directory beside it."""
        return self.base / "work"

    def view(self) -> Merged:
        """Open the merged view; the caller closes it."""
        return Merged.open(self.point, self.upper, self.work)

    def changed(self) -> Iterator[bytes]:
        """Give every path that may show something else than before, absolute, each once.

        That is: every entry of the upper tree; what whiteouts, opaque directories and replaced directories hide, path
        by path; what lies in directories that were moved, at the old and at the new place; and further names of copied
        inodes.
        """
        if not self.upper.is_dir():
            return iter(())
        with self.view() as view:
            paths = dict.fromkeys(_touched(view))
        return (join(self.point.rstrip(b"/"), path) for path in paths)

    def untouched(self) -> bool:
        """Tell whether nothing is staged at all, the mount point's own attributes included."""
        if self.is_in_commit():
            return False
        try:
            with os.scandir(self.upper) as entries:
                if next(entries, None) is not None:
                    return False
            upper, workspace = self.upper.stat(), Path(os.fsdecode(self.point)).stat()
            return _attributes(upper) == _attributes(workspace) and read_xattrs(bytes(self.upper)) == read_xattrs(
                self.point
            )
        except OSError:
            return False

    def describe(self, observer: Observer) -> Iterator[bytes]:
        """Describe everything that is staged: names, kinds, owners, modes, attributes, content; in a fixed order."""
        from supervisor.launch.stage.snapshot import describe  # noqa: PLC0415 - see this module's docstring

        if self.upper.is_dir():
            with self.view() as view:
                yield from describe(view, observer)

    def capture(self, footprint: Footprint, target: Path) -> Snapshot:
        """Capture what the trial has changed in a footprint, while it is frozen.

        Args:
            footprint: which paths.
            target: directory to make.
        """
        from supervisor.launch.stage.snapshot import capture  # noqa: PLC0415 - see this module's docstring

        if not self.upper.is_dir():
            message = "nothing is staged"
            raise MachineError(message, place=str(self.upper))
        with self.view() as view:
            return capture(view, footprint, Observer(), target)

    # -- commit ----------------------------------------------------------------------------------------------------

    def commit(self, allowed: Allowed, how: Manner) -> CommitResult:
        """Apply what is staged to the mount point; call it again after an interruption, to the same result.

        Args:
            allowed: whether a path, relative to the mount point (``.`` is itself), may be written. Parents
                of allowed paths are made. When a commit is resumed, what was decided the first time holds.
            how: see there.

        Raises:
            MachineError: see `supervisor.launch.stage.commit.Executor.run`.
        """
        from supervisor.launch.stage.journal import Phase  # noqa: PLC0415 - see this module's docstring

        journal = self._journal(durable=how.durable)
        resumed, force = journal.exists, how.force
        done = _result(journal.plan(), journal, resumed=True) if resumed and journal.phase() is Phase.DONE else None
        if done is not None and not (force and done.against):
            return done
        try:
            if done is None:
                done = self._commit(allowed, journal, how, resumed=resumed)
            if force and done.against and resumed:
                return self._overwrite(allowed, done, how)
        except OSError as err:
            message = f"commit was interrupted: {(err.strerror or str(err)).lower()}"
            hint = f"supervise commit {self.run_id} goes on with it"
            raise MachineError(message, place=os.fsdecode(self.point), hint=hint) from err
        return done

    def _overwrite(self, allowed: Allowed, done: CommitResult, how: Manner) -> CommitResult:
        """Apply what a commit left alone because the host stood against it, and nothing else, by a plan of its own."""
        from supervisor.launch.stage.journal import Journal  # noqa: PLC0415 - see this module's docstring
        from supervisor.launch.stage.plan import REFUSED  # noqa: PLC0415 - likewise

        paths = {left.path for left in done.against}
        whole = self._hiding(paths)

        def wanted(path: bytes) -> bool:
            near = any(is_below(one, path) for one in paths) or any(is_below(path, one) for one in whole)
            return near and allowed(path)

        remove_tree(self._forced)
        self._forced.mkdir(mode=0o700)
        found = self._commit(wanted, Journal(self._forced, durable=how.durable), how, resumed=False)
        kept = [left for left in found.left if left.why != REFUSED]
        return replace(found, left=(*(left for left in done.left if left.why == REFUSED), *kept))

    def _hiding(self, paths: Iterable[bytes]) -> tuple[bytes, ...]:
        """Give the paths that stand for all that is below: not directories of which only attributes differ."""
        with self.view() as view:
            found = [(path, view.find(path)) for path in paths if path != b"."]
        return tuple(path for path, node in found if node is None or not node.directory or node.lower != path)

    @property
    def _forced(self) -> Path:
        """Where the record of a commit lies that overwrites what the first one left alone."""
        return self.base / "forced"

    def _journal(self, *, durable: bool) -> Journal:
        """Give the record of the last commit that was begun; of the first one, when none was."""
        from supervisor.launch.stage.journal import Journal  # noqa: PLC0415 - see this module's docstring

        forced = Journal(self._forced, durable=durable)
        return forced if forced.exists else Journal(self.base, durable=durable)

    def _commit(self, allowed: Allowed, journal: Journal, how: Manner, *, resumed: bool) -> CommitResult:
        from supervisor.launch.stage.commit import Executor, no_fault, take_turn  # noqa: PLC0415 - see this module's docstring
        from supervisor.launch.stage.giving import is_near  # noqa: PLC0415 - likewise
        from supervisor.launch.stage.journal import Phase, Source  # noqa: PLC0415 - likewise
        from supervisor.launch.stage.plan import make_plan  # noqa: PLC0415 - likewise

        with self.view() as view, Tree(self.point, may_be_gone=True) as host:
            take_turn(host)
            if not resumed:
                plan = make_plan(
                    view,
                    allowed=allowed,
                    began_ns=None if how.force else self.read_began(),
                    quarantine=self._free(view),
                    existed=self.shifted(how.existed),
                    gives=how.gives and is_near(view.upper, view.lower) and self.is_let_go(),
                )
                journal.begin(plan)
            plan = journal.plan()
            trees = {Source.UPPER: view.upper, Source.LOWER: view.lower}
            if view.work is not None:
                trees[Source.WORK] = view.work
            if plan.entries or journal.phase() is not Phase.PREPARE:
                Executor(plan, trees, host, journal, how.fault or no_fault, where=self.point).run()
            else:
                journal.advance(Phase.DONE)
        return _result(plan, journal, resumed=resumed)

    def is_let_go(self) -> bool:
        """Tell whether nothing of the trial can write into the layer any more: see `supervisor.launch.stage.giving`."""
        from supervisor.launch.stage.giving import is_let_go  # noqa: PLC0415 - see this module's docstring

        return is_let_go(self.point, self.base)

    def shifted(self, asked: Allowed) -> Allowed:
        """Ask for paths of this mount by their place in the workspace."""
        prefix = self.prefix
        return (lambda path: asked(prefix if path in {b"", b"."} else join(prefix, path))) if prefix else asked

    @property
    def committed(self) -> bool:
        """Whether a commit was carried out, so that another one has nothing to do, unless it overwrites."""
        from supervisor.launch.stage.journal import Phase  # noqa: PLC0415 - see this module's docstring

        journal = self._journal(durable=False)
        return journal.exists and journal.phase() is Phase.DONE

    def conflicts(self) -> tuple[bytes, ...]:
        """Give the paths that the last commit left alone, though they may be written."""
        if not self.committed:
            return ()
        journal = self._journal(durable=False)
        return tuple(left.path for left in _result(journal.plan(), journal, resumed=True).against)

    def is_begun(self) -> bool:
        """Tell whether a commit was begun, however far it came: from then on what has come to its place is marked."""
        return self._journal(durable=False).exists

    def is_in_commit(self) -> bool:
        """Tell whether a commit was interrupted in the middle."""
        if not (self.base / "commit.phase").exists():
            return False
        from supervisor.launch.stage.journal import Phase  # noqa: PLC0415 - see this module's docstring

        journal = self._journal(durable=False)
        return journal.exists and journal.phase() not in {Phase.PREPARE, Phase.DONE}

    def _free(self, view: Merged) -> str:
        """Choose a name for the quarantine that nothing in the workspace has."""
        taken = {*view.upper.names(b""), *view.lower.names(b"")}
        names = (f".supervise-{self.run_id}-{number}" for number in range(len(taken) + 1))
        return next(name for name in names if name.encode() not in taken)


def _attributes(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns


def _result(plan: Plan, journal: Journal, *, resumed: bool) -> CommitResult:
    from supervisor.launch.stage.commit import CommitResult  # noqa: PLC0415 - see this module's docstring

    refused = journal.left()
    left = dict.fromkeys((*plan.left, *refused))
    changes = plan.changes_without(refused)
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
            if node is None or not node.directory:
                continue
            if node.lower is None:
                yield from view.upper.paths_below(path)
            else:
                yield from (inner.path for inner in view.below(node))
    if view.copied_inodes:
        yield from (node.path for node in view.below(view.root) if node.copy is not None)


def _host_below(view: Merged, path: bytes) -> Iterator[bytes]:
    if view.lower.is_directory(path):
        yield from (inner for inner, _ in view.lower.below(path))
