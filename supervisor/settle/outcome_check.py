"""Whether the files that a claim is about are still what a run left, long after it was sealed.

In: the facts of the run and the place of the outcome. Out: what was touched since, or why that cannot be told. The rule
it keeps: a file counts as touched when its inode changed after the run had written it, also when its content is as
before: somebody may have changed it and put it back, and what it was at some moment in between is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from policies.globs import Globs, compile_globs
from policies.types import FilesMode, Policy
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import EVERYTHING, FileHistory
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.tree import Tree, join
from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.stage import Stage
from supervisor.values import dataclass

MOST = 200_000
"""Entries of the workspace that are looked at."""
_TOLD = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found: see `supervisor.events.OutcomeChecked`."""

    changed: tuple[bytes, ...] = ()
    problem: str | None = None


def check_outcome(
    run: RunDir, facts: Facts, policy: Policy, *, workspace: bytes, stage: str, written_ns: int
) -> Checked:
    """Look at everything that the claim, or its grader, is about.

    Args:
        run: sealed.
        facts: of it.
        policy: of it.
        workspace: absolute.
        stage: digest of what was staged when it was sealed.
        written_ns: when the run had written its last file there, CLOCK_REALTIME.
    """
    footprint = policy.claim.footprint
    if any(glob.startswith("/") for glob in footprint):
        return Checked(problem="the claim is about places outside of the workspace, which nobody watches")
    captured: dict[bytes, bytes] = {}
    line = facts.timeline
    staged = policy.files.mode is FilesMode.STAGED
    if staged and (line.committed is None or line.committed.state != "applied"):
        if not (run.stage / "upper").is_dir():
            return Checked(problem="what was staged is not there any more")
        with Stage(run, workspace) as kept:
            if kept.digest() != stage:
                return Checked(changed=(b"stage",))
            captured = {layer.prefix: os.fsencode(layer.base / "upper") for layer in kept.layers()}
    if not Path(os.fsdecode(workspace)).is_dir():
        return Checked(problem="the workspace is not there any more")
    looked_at = {path for graded in facts.grades for path in graded.footprint}
    listed = frozenset(path for graded in facts.grades for path in graded.listed)
    globs = compile_globs(("**",) if EVERYTHING in looked_at else footprint, workspace=workspace)
    left = {one.path: one for one in facts.files if one.in_workspace and (one.in_scope or one.path in looked_at)}
    with Tree(workspace) as tree:
        search = _Search(tree, captured, listed, written_ns)
        found = list(search.touched(globs, looked_at - {EVERYTHING}, left))
    if search.seen > MOST:
        return Checked(problem=f"there are more than {MOST} files to look at")
    return Checked(changed=tuple(dict.fromkeys(found))[:_TOLD])


class _Search:
    def __init__(self, tree: Tree, captured: Mapping[bytes, bytes], listed: frozenset[bytes], written_ns: int) -> None:
        self._tree, self._captured, self._listed, self._written_ns = tree, captured, listed, written_ns
        self._observer = Observer()
        self.seen = 0

    def touched(self, globs: Globs, looked_at: Iterable[bytes], left: Mapping[bytes, FileHistory]) -> Iterator[bytes]:
        """Give what was touched since, or is gone."""
        yield from (path for path in self._matching(globs) if self._changed(path) and not self._is_captured(path))
        for path in sorted({*looked_at, *left}):
            if self._is_captured(path):
                continue
            history = left.get(path)
            if self._tree.lstat(path) is None:
                gone = history.after is not None if history is not None else self._parent_changed(path)
                if gone:
                    yield path
            elif self._is_passed(path):
                continue  # what lies in it is looked at by itself
            elif self._changed(path) or (history is not None and self._differs(path, history)):
                yield path

    def _matching(self, globs: Globs) -> Iterator[bytes]:
        waiting = [b""]
        while waiting and self.seen <= MOST:
            above = waiting.pop()
            for name in self._tree.names(above):
                self.seen += 1
                path = join(above, name)
                if globs.match(path):
                    yield path
                if globs.may_match_below(path) and self._tree.is_directory(path):
                    waiting.append(path)

    def _changed(self, path: bytes) -> bool:
        found = self._tree.lstat(path)
        return found is not None and found.st_ctime_ns > self._written_ns

    def _differs(self, path: bytes, history: FileHistory) -> bool:
        """Compare with what the run left: the clock of inodes is a few milliseconds behind that of events."""
        now, after = self._observer.state(self._tree, path), history.after
        return after is None or now is None or now.digest != after.digest

    def _is_passed(self, path: bytes) -> bool:
        """Tell whether it is a directory that the grader only passed through: its names are no part of the outcome."""
        relative = b"" if path == b"." else path
        return self._tree.is_directory(relative) and path not in self._listed

    def _parent_changed(self, path: bytes) -> bool:
        """Tell whether a name that is not there may have been there: whatever it was in was changed since."""
        while path:
            path = path.rpartition(b"/")[0]
            if self._tree.lstat(path) is not None:
                return self._changed(path)
        return False

    def _is_captured(self, path: bytes) -> bool:
        """Tell whether what was staged decides what a path shows: its digest was compared."""
        for prefix, upper in self._captured.items():
            inner = path if not prefix else path.removeprefix(prefix + b"/")
            if not prefix or inner != path:
                with Tree(upper) as tree:
                    if tree.lstat(inner) is not None:
                        return True
        return False
