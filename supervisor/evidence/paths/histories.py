"""The history of each path. In: the rows of a path and its states on disk; out: a `FileHistory`.

The laws:

1. ``net`` compares what was before with what is after: kind, content, mode, owner, extended attributes; never times.
2. ``restored`` is True only when something changed it and the end equals the start. A writable mapping, or a change of
   times alone, leaves it open (None): what was stored in between was not seen, or is not compared.
3. Nothing is said of a difference to a state that nobody recorded: ``net`` and ``restored`` are then None.
4. A name that had something and has nothing now is ``renamed`` only where what it had still has a name. What came to a
   free name from where it was before the trial, and was deleted or overwritten there, was not put back.
5. Making the parents of an allowed path is allowed; changing them is not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from supervisor.events import Kind, ProcessKey
from supervisor.evidence.bounded import KEPT_FIRST, bounded
from supervisor.evidence.facts import Timeline
from supervisor.evidence.file_facts import Change, ChangeKind, FileHistory, FileState, Observed
from supervisor.evidence.paths.files import BY_NAME, DIRECTORY, VERIFIED, Code, FileFold, code_set
from supervisor.evidence.paths.tree import Tree
from supervisor.evidence.places import Place
from supervisor.evidence.reached import Reached

_KINDS: Mapping[Code, ChangeKind] = {
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
    Code.RESIZED: ChangeKind.MODIFIED,
}
KINDS = tuple(
    _KINDS.get(Code(code), ChangeKind.MODIFIED) if code else ChangeKind.MODIFIED for code in range(len(Code) + 1)
)
"""The word of each `Code`, by its number: asked for every change."""
_SPANS = 256
_TOTALS, _EMPTIED = int(Code.TOTALS), int(Code.EMPTIED)
_WRITES = code_set(Code.MODIFIED, Code.EMPTIED, Code.TOTALS)
_MAPPED, _TIMES = code_set(Code.MAPPED), code_set(Code.TIMES)
_DIRECTIONS: Mapping[int, tuple[bool, ...]] = {
    Code.RENAMED_AWAY: (True,),
    Code.RENAMED_HERE: (False,),
    Code.EXCHANGED: (False, True),
}
_MOVED = code_set(Code.RENAMED_AWAY, Code.RENAMED_HERE, Code.EXCHANGED)
GONE = code_set(Code.DELETED, Code.RENAMED_AWAY)
_MOVING = GONE | code_set(Code.CREATED, Code.LINKED_HERE, Code.RENAMED_HERE)
_NAMED = _MOVING | code_set(Code.EXCHANGED)
_NAMES = code_set(Code.ATTRIBUTES, Code.CREATED, Code.LINKED_HERE, Code.RENAMED_HERE, Code.EXCHANGED)


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A history and what `reconcile` needs to check it.

    Attributes:
        codes: every sort of change that succeeded, as a `code_set`.
        expected: whether the name should exist at the end, None when nothing said.
        unverified: a change of the name rests on memory of the trial.
        unconfirmed: such a change, and nothing on disk shows that it was this name that it changed.
        last_name_changes: time, code and process of the last two changes of the name.
        observed: what was found on disk, None when nobody could look.
    """

    history: FileHistory
    codes: int
    expected: bool | None
    unverified: bool
    unconfirmed: bool
    last_name_changes: tuple[tuple[int, int, int], ...]
    observed: Observed | None


class _Sorted(NamedTuple):
    """The rows of one path: ``all`` in order; ``ends`` moves the time of a write to that of its totals."""

    all: list[int]
    changes: list[int]
    attempts: list[int]
    ends: dict[int, int]
    codes: int


class Historian:
    """Writes histories, one path at a time.

    Args:
        fold: the changes.
        tree: which rows belong to which path.
        line: for the endpoint, and the boundaries at which the witness begins to count anew.
        mapped_until: until when a process, or one that inherited its mappings, could store into a mapping.
        shown: how an absolute path is told.
        reached: since when names read from the memory of a process prove nothing.
    """

    def __init__(
        self,
        fold: FileFold,
        tree: Tree,
        line: Timeline,
        mapped_until: Callable[[ProcessKey | None], int],
        *,
        shown: Callable[[bytes], bytes],
        reached: Reached,
    ) -> None:
        """Keep what every history needs."""
        self._fold, self._tree, self._endpoint_ns, self._boundaries = fold, tree, line.endpoint_ns, line.boundaries_ns
        self._mapped_until, self._shown, self._reached = mapped_until, shown, reached
        self._writers: dict[tuple[int, ...], tuple[ProcessKey, ...]] = {}

    def write(self, path: int, place: Place, observed: Observed | None, origin: Observed | None) -> Draft | None:
        """Write the history of one path; None when nothing happened that counts.

        Args:
            path: its number in the fold.
            place: where it lies.
            observed: its states on disk, None when nobody could look.
            origin: the states of the path that the thing was renamed from, if it was.
        """
        rows = self._fold.rows
        found = self._sort(path, observed)
        if not found.changes and not found.attempts:
            return None
        if observed is not None and observed.before is not None:
            observed = self._with_beginning(observed, found.changes)
        present, codes = self._present(path, origin), found.codes
        gone_on = present is False and self._tree.lives_on(path)
        net = _net(observed, renamed=self._renamed(path, origin), gone_on=gone_on)
        names = [row for row in found.changes if not _WRITES >> rows.code[row] & 1] if codes & ~_WRITES else []
        doubtful = [row for row in names if not self._verified(row)] if names else names
        return Draft(
            history=self._history(path, place, observed, net, found),
            codes=codes,
            expected=present,
            unverified=bool(doubtful),
            unconfirmed=bool(doubtful) and not self._confirmed(found.changes, doubtful, observed),
            last_name_changes=tuple(
                (rows.at[r], rows.code[r], rows.process[r]) for r in _naming(names, rows.code)[-2:]
            ),
            observed=observed,
        )

    def _history(
        self, path: int, place: Place, observed: Observed | None, net: str | None, found: _Sorted
    ) -> FileHistory:
        changes, attempts, codes = found.changes, found.attempts, found.codes
        kept = tuple([self._change(row, found.ends) for row in _bounded(changes)])
        old, new = self._other_names(changes) if codes & _MOVED else (None, None)
        return FileHistory(
            path=place.shown,
            changes=kept,
            attempts=tuple([self._change(row, found.ends) for row in bounded(attempts)]) if attempts else (),
            writers=self._writers_of(changes),
            before=observed.before if observed else None,
            after=observed.after if observed else None,
            net=net,
            restored=_restored(net, codes, lost=_was_free(observed) and self._tree.lost_something(path)),
            in_workspace=place.in_workspace,
            in_scope=place.in_scope,
            allowed=(place.allowed and not self._leads_away(path, codes))
            or (place.parent_allowed and self._makes_parents(changes, attempts)),
            private=place.private,
            events=self._numbers(changes, attempts, kept),
            changes_total=len(changes),
            attempts_total=len(attempts),
            written_after=self._written_after(found.all, codes),
            reachable=place.reachable,
            kept=tuple(bounded(sorted(self._fold.kept[path]))) if path in self._fold.kept else (),
            shared=place.shared,
            renamed_from=old,
            renamed_to=new,
        )

    def _numbers(self, changes: list[int], attempts: list[int], kept: tuple[Change, ...]) -> tuple[int, ...]:
        """Give the event numbers; of a short history, the very integers that its changes hold."""
        if not attempts and len(kept) == len(changes):
            numbers = [change.event for change in kept]
            in_order = sorted(set(numbers))
            return tuple(numbers if numbers == in_order else in_order)
        number = self._fold.rows.number
        return tuple(bounded(sorted({number[row] for row in (*changes, *attempts)})))

    def _writers_of(self, changes: list[int]) -> tuple[ProcessKey, ...]:
        """Give who made the changes; histories of the same writers share one answer."""
        process = self._fold.rows.process
        places = tuple(dict.fromkeys([process[row] for row in changes]))
        writers = self._writers.get(places)
        if writers is None:
            keys = [self._fold.processes[place] for place in places]
            writers = self._writers[places] = tuple(key for key in keys if key)
        return writers

    def _sort(self, path: int, observed: Observed | None) -> _Sorted:
        """Part changes from refused attempts, and fold totals into the write that they count again."""
        rows = self._fold.rows
        codes_of, errors, processes = rows.code, rows.error, rows.process
        found = self._tree.rows_of(path)
        changes: list[int] = []
        attempts: list[int] = []
        ends: dict[int, int] = {}
        last_write: dict[int, int] = {}
        codes = 0
        for row in found:
            code = codes_of[row]
            if errors[row]:
                attempts.append(row)
            elif code == _TOTALS and processes[row] in last_write:
                ends[last_write[processes[row]]] = rows.at[row]
            elif code == _EMPTIED and not changes and _was_empty(observed):
                continue
            else:
                changes.append(row)
                codes |= 1 << code
                if _WRITES >> code & 1:
                    last_write[processes[row]] = row
        return _Sorted(found, changes, attempts, ends, codes)

    def _with_beginning(self, observed: Observed, changes: list[int]) -> Observed:
        """Where the state before was not recorded, a file that the kernel says was created first was not there."""
        if not changes or not unknown(observed.before):
            return observed
        created = self._fold.rows.code[changes[0]] == Code.CREATED and self._verified(changes[0])
        return Observed(before=None, after=observed.after) if created else observed

    def _verified(self, row: int) -> bool:
        """Tell whether a path is the kernel's own, or was read from memory that nobody else could have changed."""
        rows = self._fold.rows
        mark = rows.mark[row]
        if not mark & BY_NAME or self._reached.nobody:
            return bool(mark & VERIFIED)
        since_ns = self._reached.since_ns(self._fold.processes[rows.process[row]])
        return bool(mark & VERIFIED) and rows.at[row] < since_ns

    def _confirmed(self, changes: list[int], doubtful: list[int], observed: Observed | None) -> bool:
        """Tell whether doubtful changes are known to have happened to this name.

        A change is confirmed when what is known without it does not fit: a later call that needs the name to be there,
        or the end that was found. Each such misfit confirms one change. That something was renamed to this name is
        confirmed by the name that it had: there it has to be gone.
        """
        if observed is None or unknown(observed.before) or unknown(observed.after):
            return False
        rows, left, codes = self._fold.rows, set(doubtful), 0
        there = observed.before is not None
        for row in changes:
            if row in left:
                continue
            code = rows.code[row]
            codes |= 1 << code
            needed = self._needs(row)
            if needed is not None and needed != there:
                self._confirm(left, row, there=needed)
            there = not GONE >> code & 1 if _MOVING >> code & 1 else needed if needed is not None else there
        if there != (observed.after is not None):
            self._confirm(left, None, there=not there)
        left = {row for row in left if rows.code[row] != Code.RENAMED_HERE or observed.after is None}
        if len(left) != 1 or not observed.before or not observed.after:
            return not left
        if rows.code[next(iter(left))] == Code.ATTRIBUTES:
            return not codes & _NAMES and _attributes(observed.before) != _attributes(observed.after)
        return not codes and same_state(observed.before, observed.after) is False

    def _needs(self, row: int) -> bool | None:
        """Tell whether a change that happened needs its name to be there, or to be free; None when it says neither."""
        rows = self._fold.rows
        code = rows.code[row]
        if code in {Code.CREATED, Code.LINKED_HERE}:
            return False
        return True if rows.mark[row] & BY_NAME and code != Code.RENAMED_HERE else None

    def _confirm(self, left: set[int], before: int | None, *, there: bool) -> None:
        """Take out the last doubtful change before a row that made the name be there, or be gone."""
        rows = self._fold.rows
        place = None if before is None else (rows.at[before], before)
        fitting = [
            row
            for row in left
            if _MOVING >> rows.code[row] & 1
            and bool(GONE >> rows.code[row] & 1) != there
            and (place is None or (rows.at[row], row) < place)
        ]
        if fitting:
            left.discard(max(fitting, key=lambda row: (rows.at[row], row)))

    def _change(self, row: int, ends: Mapping[int, int]) -> Change:
        rows = self._fold.rows
        return Change(
            kind=KINDS[rows.code[row]],
            process=self._fold.processes[rows.process[row]],
            event=rows.number[row],
            at_ns=ends[row] if row in ends else rows.at[row],
            verified=bool(rows.mark[row] & VERIFIED) if self._reached.nobody else self._verified(row),
            error=rows.error[row] or None,
        )

    def _other_names(self, changes: list[int]) -> tuple[bytes | None, bytes | None]:
        """Give the name that the thing here last came from, and the one that it last went to."""
        rows, paths = self._fold.rows, self._fold.paths
        names: dict[bool, bytes] = {}
        for row in changes:
            code = rows.code[row]
            if _MOVED >> code & 1:
                other = self._shown(paths[rows.other[row]])
                names |= dict.fromkeys(_DIRECTIONS[code], other)
        return names.get(False), names.get(True)

    def _makes_parents(self, changes: list[int], attempts: list[int]) -> bool:
        """Tell whether a directory was made here, or tried to be, and nothing else but taking it away again."""
        rows = self._fold.rows
        made = [rows.code[r] == Code.CREATED and bool(rows.mark[r] & DIRECTORY) for r in changes or attempts]
        if not changes:
            return all(made)
        gone = [rows.code[r] == Code.DELETED for r in changes]
        return made[0] and all(m or g for m, g in zip(made, gone, strict=True))

    def _leads_away(self, path: int, codes: int) -> bool:
        """Tell whether a name in /proc was made, moved or removed: there is none, it led to where a process is.

        By ``fd``, ``cwd`` and ``root`` a name goes on at a place that it does not say, so no glob allows it.
        """
        return bool(codes & _NAMED) and self._fold.paths[path].startswith(b"/proc/")

    def _present(self, path: int, origin: Observed | None) -> bool | None:
        """Tell whether a name should exist at the end; a directory brings only what was there before."""
        present = self._tree.present(path)
        moved = path in self._tree.brought and self._tree.origin(path) not in {None, -1}
        return None if present and moved and (origin is None or origin.before is None) else present

    def _renamed(self, path: int, origin: Observed | None) -> bool:
        return origin is not None and origin.before is not None and self._tree.origin(path) not in {None, -1, path}

    def _written_after(self, found: list[int], codes: int) -> tuple[tuple[int, int], ...]:
        """Give the spans after the endpoint in which the path was, or may have been, changed."""
        rows, spans = self._fold.rows, []
        if self._endpoint_ns is None or (rows.at[found[-1]] <= self._endpoint_ns and not codes & _MAPPED):
            return ()
        written: dict[tuple[int, int], list[int]] = {}
        for row in found:
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


def _naming(rows: list[int], codes: Sequence[int]) -> list[int]:
    return [row for row in rows if codes[row] != Code.RESIZED]


def _bounded(rows: list[int]) -> list[int]:
    """Keep the first and the last of a long list; nearly all are short."""
    return rows if len(rows) < KEPT_FIRST else bounded(rows)


def _bounded_spans(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Keep a long list short by joining its tail into one span: that can only claim more writes, never fewer."""
    if len(spans) <= _SPANS:
        return tuple(spans)
    tail = spans[_SPANS - 1 :]
    return (*spans[: _SPANS - 1], (tail[0][0], max(end for _, end in tail)))


def same_state(one: FileState | None, two: FileState | None) -> bool | None:
    """Compare two states by law 1; None when one of them, or its content, is not known."""
    if unknown(one) or unknown(two):
        return None
    if one is None or two is None:
        return one is two
    if _attributes(one) != _attributes(two):
        return False
    if one.problem or two.problem:
        return False if one.size_bytes != two.size_bytes else None
    return one.digest == two.digest


def unknown(state: FileState | None) -> bool:
    """Tell whether nothing is known of a state, not even whether there was anything."""
    return state is not None and state.problem is not None and state.kind is Kind.UNKNOWN


def _attributes(state: FileState) -> tuple[object, ...]:
    return state.kind, state.mode, state.uid, state.gid, tuple(sorted(state.xattrs))


def _was_free(observed: Observed | None) -> bool:
    """Tell whether nothing was there before."""
    return observed is not None and observed.before is None


def _was_empty(observed: Observed | None) -> bool:
    before = observed.before if observed else None
    return before is not None and before.kind is Kind.FILE and before.size_bytes == 0


def _net(observed: Observed | None, *, renamed: bool, gone_on: bool) -> str | None:
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
        return "renamed" if gone_on else "deleted"
    return "modified"


def _restored(net: str | None, codes: int, *, lost: bool) -> bool | None:
    if not codes or lost:
        return False
    if net is None or (net == "unchanged" and (codes & _MAPPED or codes == _TIMES)):
        return None
    return net == "unchanged"
