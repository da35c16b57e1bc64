"""The history of each path. In: the rows of a path and its states on disk; out: a `FileHistory`.

The laws:

1. ``net`` compares what was before with what is after: kind, content, mode, owner, extended attributes; never times.
2. ``restored`` is True only when something changed it and the end equals the start. A writable mapping, or a change of
   times alone, leaves it open (None): what was stored in between was not seen, or is not compared.
3. Making the parents of an allowed path is allowed; changing them is not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import NamedTuple

from supervisor.events import Kind, ProcessKey
from supervisor.evidence.bounded import bounded
from supervisor.evidence.facts import Change, ChangeKind, FileHistory, FileState, Observed, Timeline
from supervisor.evidence.files import DIRECTORY, VERIFIED, Code, FileFold, code_set
from supervisor.evidence.places import Place
from supervisor.evidence.tree import Tree

KINDS: Mapping[int, ChangeKind] = {
    Code.CREATED: ChangeKind.CREATED,
    Code.MODIFIED: ChangeKind.MODIFIED,
    Code.EMPTIED: ChangeKind.MODIFIED,
    Code.TOTALS: ChangeKind.MODIFIED,
    Code.DELETED: ChangeKind.DELETED,
    Code.RENAMED_AWAY: ChangeKind.RENAMED,
    Code.RENAMED_HERE: ChangeKind.RENAMED,
    Code.EXCHANGED: ChangeKind.RENAMED,
    Code.LINKED_FROM: ChangeKind.LINKED,
    Code.LINKED_HERE: ChangeKind.LINKED,
    Code.ATTRIBUTES: ChangeKind.ATTRIBUTES,
    Code.TIMES: ChangeKind.ATTRIBUTES,
    Code.MAPPED: ChangeKind.MAPPED,
}
_SPANS = 256
_WRITES = code_set(Code.MODIFIED, Code.EMPTIED, Code.TOTALS)
_MAPPED, _TIMES = code_set(Code.MAPPED), code_set(Code.TIMES)
_AWAY, _DELETED = code_set(Code.RENAMED_AWAY), code_set(Code.DELETED)


class Draft(NamedTuple):
    """A history and what `reconcile` needs to check it.

    Attributes:
        codes: every sort of change that succeeded, as a `code_set`.
        expected: whether the name should exist at the end, None when nothing said.
        unverified: a change of the name rests on memory of the trial.
        last_name_changes: time, code and process of the last two changes of the name.
        observed: what was found on disk, None when nobody could look.
    """

    history: FileHistory
    codes: int
    expected: bool | None
    unverified: bool
    last_name_changes: tuple[tuple[int, int, int], ...]
    observed: Observed | None


class Historian:
    """Writes histories, one path at a time.

    Args:
        fold: the changes.
        tree: which rows belong to which path.
        line: for the endpoint, and the boundaries at which the witness begins to count anew.
        mapped_until: until when a process, or one that inherited its mappings, could store into a mapping.
    """

    def __init__(
        self, fold: FileFold, tree: Tree, line: Timeline, mapped_until: Callable[[ProcessKey | None], int]
    ) -> None:
        """Keep what every history needs."""
        self._fold, self._tree, self._endpoint_ns, self._boundaries = fold, tree, line.endpoint_ns, line.boundaries_ns
        self._mapped_until = mapped_until

    def write(self, path: int, place: Place, observed: Observed | None, origin: Observed | None) -> Draft | None:
        """Write the history of one path; None when nothing happened that counts.

        Args:
            path: its number in the fold.
            place: where it lies.
            observed: its states on disk, None when nobody could look.
            origin: the states of the path that the thing was renamed from, if it was.
        """
        changes, attempts, ends = self._sort(path, observed)
        if not changes and not attempts:
            return None
        rows = self._fold.rows
        codes, present = 0, self._tree.present.get(path)
        for row in changes:
            codes |= 1 << rows.code[row]
        net = _net(observed, codes, renamed=self._renamed(path, origin), present=present)
        names = [row for row in changes if not _WRITES >> rows.code[row] & 1]
        return Draft(
            history=self._history(path, place, observed, (net, codes), (changes, attempts, ends)),
            codes=codes,
            expected=present,
            unverified=any(not rows.mark[row] & VERIFIED for row in names),
            last_name_changes=tuple((rows.at[r], rows.code[r], rows.process[r]) for r in names[-2:]),
            observed=observed,
        )

    def _history(
        self,
        path: int,
        place: Place,
        observed: Observed | None,
        end: tuple[str | None, int],
        parts: tuple[list[int], list[int], dict[int, int]],
    ) -> FileHistory:
        changes, attempts, ends = parts
        net, codes = end
        rows = self._fold.rows
        kept = [self._change(row, ends) for row in bounded(changes)]
        tried = [self._change(row, ends) for row in bounded(attempts)]
        writers = {process: None for row in changes if (process := self._fold.processes[rows.process[row]])}
        numbers = bounded(sorted({rows.number[row] for row in (*changes, *attempts)}))
        return FileHistory(
            path=place.shown,
            changes=tuple(kept),
            attempts=tuple(tried),
            writers=tuple(writers),
            before=observed.before if observed else None,
            after=observed.after if observed else None,
            net=net,
            restored=_restored(net, codes),
            in_workspace=place.in_workspace,
            in_scope=place.in_scope,
            allowed=place.allowed or (place.parent_allowed and self._makes_parents(changes)),
            private=place.private,
            events=tuple(numbers),
            changes_total=len(changes),
            attempts_total=len(attempts),
            written_after=self._written_after(path, codes),
            reachable=place.reachable,
        )

    def _sort(self, path: int, observed: Observed | None) -> tuple[list[int], list[int], dict[int, int]]:
        """Part changes from refused attempts, and fold totals into the write that they count again."""
        rows = self._fold.rows
        changes: list[int] = []
        attempts: list[int] = []
        ends: dict[int, int] = {}
        last_write: dict[int, int] = {}
        for row in self._tree.by_path[path]:
            code, process = rows.code[row], rows.process[row]
            if rows.error[row]:
                attempts.append(row)
            elif code == Code.TOTALS and process in last_write:
                ends[last_write[process]] = rows.at[row]
            elif code == Code.EMPTIED and not changes and _was_empty(observed):
                continue
            else:
                changes.append(row)
                if _WRITES >> code & 1:
                    last_write[process] = row
        return changes, attempts, ends

    def _change(self, row: int, ends: Mapping[int, int]) -> Change:
        rows = self._fold.rows
        return Change(
            kind=KINDS[rows.code[row]],
            process=self._fold.processes[rows.process[row]],
            event=rows.number[row],
            at_ns=ends.get(row, rows.at[row]),
            verified=bool(rows.mark[row] & VERIFIED),
            error=rows.error[row] or None,
        )

    def _makes_parents(self, changes: list[int]) -> bool:
        """Tell whether a directory was made here, and nothing else but taking it away again."""
        rows = self._fold.rows
        made = [rows.code[r] == Code.CREATED and bool(rows.mark[r] & DIRECTORY) for r in changes]
        gone = [rows.code[r] == Code.DELETED for r in changes]
        return not changes or (made[0] and all(m or g for m, g in zip(made, gone, strict=True)))

    def _renamed(self, path: int, origin: Observed | None) -> bool:
        return self._tree.origin.get(path, -1) not in {-1, path} and origin is not None and origin.before is not None

    def _written_after(self, path: int, codes: int) -> tuple[tuple[int, int], ...]:
        """Give the spans after the endpoint in which the path was, or may have been, changed."""
        rows, spans = self._fold.rows, []
        last = self._tree.by_path[path][-1]
        if self._endpoint_ns is None or (rows.at[last] <= self._endpoint_ns and not codes & _MAPPED):
            return ()
        written: dict[tuple[int, int], list[int]] = {}
        for row in self._tree.by_path[path]:
            start = end = rows.at[row]
            writer = rows.process[row], rows.file[row]
            if rows.code[row] == Code.MODIFIED:
                written.setdefault(writer, []).append(start)
            elif rows.code[row] == Code.TOTALS:
                start = self._first_counted(written.get(writer, []), end)
            elif rows.code[row] == Code.MAPPED:
                end = max(end, self._mapped_until(self._fold.processes[rows.process[row]]))
            if end > self._endpoint_ns and not rows.error[row]:
                spans.append((max(start, self._endpoint_ns), end))
        return _bounded_spans(sorted(spans))

    def _first_counted(self, writes: list[int], last_ns: int) -> int:
        """Tell since when totals may count: the first write after the last boundary, or that boundary.

        At each boundary of the trial the witness tells first writes anew, so totals never reach back over one. They
        tell only the last of many writes: any moment since the first may have been one.
        """
        place = bisect_left(self._boundaries, last_ns)
        boundary = self._boundaries[place - 1] if place else 0
        since = bisect_right(writes, boundary)
        return min(writes[since] if since < len(writes) else boundary, last_ns)


def _bounded_spans(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Keep a long list short by joining its tail into one span: that can only claim more writes, never fewer."""
    if len(spans) <= _SPANS:
        return tuple(spans)
    tail = spans[_SPANS - 1 :]
    return (*spans[: _SPANS - 1], (tail[0][0], max(end for _, end in tail)))


def same_state(one: FileState | None, two: FileState | None) -> bool | None:
    """Compare two states by law 1; None when the content of one could not be read."""
    if one is None or two is None:
        return one is two
    if _attributes(one) != _attributes(two):
        return False
    if one.problem or two.problem:
        return None
    return one.digest == two.digest


def _attributes(state: FileState) -> tuple[object, ...]:
    return state.kind, state.mode, state.uid, state.gid, tuple(sorted(state.xattrs))


def _was_empty(observed: Observed | None) -> bool:
    before = observed.before if observed else None
    return before is not None and before.kind is Kind.FILE and before.size_bytes == 0


def _net(observed: Observed | None, codes: int, *, renamed: bool, present: bool | None) -> str | None:
    if observed is None:
        return None
    same = same_state(observed.before, observed.after)
    if same is None:
        return None
    if same:  # of a directory only the outside is compared: another one in its place holds other files
        directory = observed.after is not None and observed.after.kind is Kind.DIRECTORY
        return "renamed" if directory and renamed else "unchanged"
    if observed.before is None:
        return "renamed" if renamed else "created"
    if observed.after is None:
        return "renamed" if present is False and codes & _AWAY and not codes & _DELETED else "deleted"
    return "modified"


def _restored(net: str | None, codes: int) -> bool | None:
    if not codes:
        return False
    if net is None or (net == "unchanged" and (codes & _MAPPED or codes == _TIMES)):
        return None
    return net == "unchanged"
