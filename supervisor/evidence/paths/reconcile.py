"""The log against the disk, both ways. In: histories, and every path that changed on disk; out: gaps.

Every path found changed needs events that explain how, and every change that the events predict must be there. What
does not fit is a gap on the file route. It costs scope and separation; it costs finality too when the path is in the
footprint, because then somebody whom nobody saw may have written the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

from supervisor.events import Kind
from supervisor.evidence.facts import Gap, Route
from supervisor.evidence.file_facts import FileHistory, FileState, Observed, SharedNames
from supervisor.evidence.naming import listed, show
from supervisor.evidence.paths.files import Code, code_set
from supervisor.evidence.paths.histories import Draft, same_state, unknown
from supervisor.evidence.paths.symlinks import Symlinks
from supervisor.evidence.paths.tree import Tree
from supervisor.evidence.places import Place, Places

RACE_NS = 50_000_000
"""Overlapping calls may be told in the other order: that close together, from two processes, either may be last."""

MOST_GAPS = 500
"""So many differences are told one by one: beyond that, the log and the disk plainly do not belong together."""

BATCH = 2000
"""How many paths are looked at in one go, so that states are not all in memory twice."""

Found = tuple[bytes, Gap]
"""A path that does not fit, and its gap."""

Observe = Callable[[Sequence[bytes]], Mapping[bytes, Observed]]

_CONTENT = code_set(*(code for code in Code if code not in {Code.ATTRIBUTES, Code.TIMES}))
_NAMES = (
    _CONTENT + code_set(Code.ATTRIBUTES) - code_set(Code.MODIFIED, Code.EMPTIED, Code.TOTALS, Code.MAPPED, Code.RESIZED)
)
_FOR_EVER = 1 << 62
_REWRITTEN = "its modification time moved, and no event tells of a write"
_GONE = frozenset({Code.DELETED, Code.RENAMED_AWAY})
_SET_ID = 0o6000


def check_history(path: bytes, draft: Draft, moves: Moves, observe: Observe) -> Gap | None:
    """Check one history against what was found at its path.

    Args:
        path: absolute.
        draft: its history.
        moves: what was renamed: a name that was given up may be had by what nobody touched, and came with its parent.
        observe: gives states on disk.
    """
    if draft.observed is None or not draft.codes:
        return None
    problem = _problem(draft, draft.observed)
    if problem is None or (draft.expected is False and moves.brought(path, draft.observed, observe)):
        return None
    rule, text = problem
    history = draft.history
    return _gap(rule, f"{show(history.path)}: {text}", history.events, in_footprint=history.in_scope)


def _problem(draft: Draft, observed: Observed) -> tuple[str, str] | None:
    if unknown(observed.after) or (draft.expected is None and unknown(observed.before)):
        return None
    there = observed.after is not None
    expected = draft.expected if draft.expected is not None else observed.before is not None
    if expected != there:
        if _raced(draft):
            return None
        rule = "unconfirmed-name" if draft.unverified else "unexplained-change"
        return rule, f"expected {_word(expected)} at the end, found {_word(there)}"
    if not observed.before or not observed.after:
        return None
    if same_state(observed.before, observed.after) is not False:
        unseen = _rewritten(observed) and not draft.codes & (_CONTENT | code_set(Code.TIMES))
        return ("unexplained-change", _REWRITTEN) if unseen else None
    return _explain(observed.before, observed.after, draft.codes)


def _rewritten(observed: Observed) -> bool:
    """Tell whether a file that looks the same was written meanwhile.

    To open a file for writing copies it with its times, so only a write, or setting the times, moves them. An empty
    file is left out: to empty it again, as ``open`` does, is no change.
    """
    before, after = observed.before, observed.after
    if before is None or after is None or after.kind is not Kind.FILE or not after.size_bytes:
        return False
    return None not in {before.modified_ns, after.modified_ns} and before.modified_ns != after.modified_ns


def _raced(draft: Draft) -> bool:
    """Tell whether the last two changes of a name were so close that their order is not known."""
    if len(draft.last_name_changes) < 2:  # noqa: PLR2004 - two are needed for a race
        return False
    (one_ns, one, first), (two_ns, two, second) = draft.last_name_changes
    return first != second and two_ns - one_ns < RACE_NS and (one in _GONE) != (two in _GONE)


def _explain(before: FileState, after: FileState, codes: int) -> tuple[str, str] | None:
    content = (before.kind, before.digest) != (after.kind, after.digest)
    if content and not codes & _CONTENT:
        return "unexplained-change", "its content changed, only its attributes were seen to change"
    # The kernel itself takes set-id bits and capabilities away from a file that is written or given away.
    mode = (before.mode ^ after.mode) & ~(_SET_ID if codes & _CONTENT else 0)
    if (mode or (before.uid, before.gid) != (after.uid, after.gid)) and not codes & _NAMES:
        return "unexplained-change", "its mode or owner changed, only writes were seen"
    return None


class Explained:
    """What the histories account for: paths, and the pairs of states that further names of a file must share.

    A file that had two names before the trial is written through one, and the other changes with it. Events name one
    path; the other is explained when both its states are those of a path that was written.
    """

    def __init__(self, boxed: Iterable[bytes]) -> None:
        """Begin with what the box itself touched."""
        self._paths = set(boxed)
        self._states: set[tuple[object, ...]] = set()

    def add(self, path: bytes, draft: Draft) -> None:
        """Add a path that has a history."""
        if not draft.codes:
            return
        self._paths.add(path)
        if draft.observed is not None and (passage := _passage(draft.observed)) is not None:
            self._states.add(passage)

    def __contains__(self, path: bytes) -> bool:
        """Tell whether a path has a history, or is the box's."""
        return path in self._paths

    def paths(self) -> Iterable[bytes]:
        """Give every path that has a history, or is the box's."""
        return self._paths

    def is_other_name(self, state: Observed) -> bool:
        """Tell whether a path went from and to the same states as one that was written."""
        return _passage(state) in self._states


def _passage(state: Observed) -> tuple[object, ...] | None:
    """Give what all names of one file share, when something of it moved; None when nothing did."""
    before, after = state.before, state.after
    if before is None or after is None or (before == after and before.modified_ns == after.modified_ns):
        return None
    return before, after, before.modified_ns, after.modified_ns


def check_changed(
    changed: Iterable[bytes], explained: Explained, copied: Copied, places: Places, observe: Observe
) -> Iterator[Found]:
    """Check every path that changed on disk and has no history.

    Args:
        changed: absolute paths present in the stage; parents that were only copied up are among them.
        explained: what the histories account for.
        copied: for what came along with a rename, or was copied without a change.
        places: for where a path lies.
        observe: gives states on disk.
    """
    moves = copied.moves
    rest = (path for path in changed if path not in explained)
    while batch := sorted(islice(rest, BATCH)):
        states = observe(batch)
        for path in batch:
            state, place = states.get(path), places.locate(path)
            if state is None or not place.observable:
                continue
            same = same_state(state.before, state.after) is not False
            if same and not _rewritten(state):
                if places.forbids(path) and not copied.explains(path, state):
                    yield path, _copied_unseen(place)
                continue
            if not explained.is_other_name(state) and not moves.brought(path, state, observe):
                text = f"{show(place.shown)}: {_REWRITTEN if same else 'changed on disk, and no event tells of it'}"
                yield path, _gap("unexplained-change", text, (), in_footprint=place.in_scope)


class Copied:
    """What explains that a stage has a copy of something that is as it was.

    Nothing is copied into a stage but by a call that could change it, or something below it. Whoever changed a file by
    a name that nobody was told, and put it back, leaves the copy.
    """

    def __init__(self, tree: Tree, touched: Callable[[], Iterable[bytes]], shared: SharedNames) -> None:
        """Take what is known of names.

        Args:
            tree: for what was renamed.
            touched: gives every path to which anything happened, or was tried, or that was opened for writing.
            shared: names that share a file: a copy of one is a copy of all.
        """
        self.moves = Moves(tree.moves())
        self._find_touched, self._shared = touched, shared

    @cached_property
    def _touched(self) -> set[bytes]:
        touched = {*self._find_touched()}
        for names in self._shared.before:
            if not touched.isdisjoint(names):
                touched.update(names)
        return touched

    @cached_property
    def _above(self) -> set[bytes]:
        return {parent for path in self._touched for parent in parents(path)}

    def explains(self, path: bytes, state: Observed) -> bool:
        """Tell whether something is known to have been done to a path or below it."""
        directory = state.after is not None and state.after.kind is Kind.DIRECTORY
        return path in self._touched or (directory and path in self._above)


def _copied_unseen(place: Place) -> Gap:
    text = f"{show(place.shown)}: it was copied to be changed, and no event tells what was done to it"
    return Gap(route=Route.FILE, rule="unexplained-copy", text=text, events=(), costs=frozenset({"scope"}))


def without_symlinks(found: Iterable[Found], explained: Explained, places: Places, observe: Observe) -> Iterator[Gap]:
    """Leave out differences that a name through a symlink explains.

    Where the real path may not be written, the gap stays: the name that was allowed did not say what would change.
    """
    links = Symlinks(observe, explained.paths)
    rest, told = iter(found), 0
    for path, gap in rest:
        allowed = places.locate(path).allowed
        if not (allowed and (links.crosses(path) or links.explain(path))):
            yield gap
            told += 1
        if told >= MOST_GAPS:
            break
    yield from _sum_up([gap for _, gap in rest])


def _sum_up(rest: Sequence[Gap]) -> Iterator[Gap]:
    """Tell of many more differences at once; it costs what each of them costs."""
    if rest:
        costs = frozenset(cost for gap in rest for cost in gap.costs)
        text = f"{len(rest)} more paths do not fit what the events say"
        yield Gap(route=Route.FILE, rule="unexplained-change", text=text, events=(), costs=costs)


class Moves:
    """Renamed directories, and what came along below them without an event of its own."""

    def __init__(self, moved: Mapping[bytes, tuple[tuple[bytes, int], ...]]) -> None:
        """Take what `Tree.moves` gives."""
        self._moved = moved
        self._sources = frozenset(old for came in moved.values() for old, _ in came)

    def brought(self, path: bytes, state: Observed, observe: Observe) -> bool:
        """Tell whether a path is what it was at its old name, or was left empty by the rename of a parent."""
        if state.after is None:
            return _above(path, self._sources) is not None
        old = self._old_name(path)
        if old == path:
            return False
        origin = observe([old]).get(old)
        return origin is not None and same_state(origin.before, state.after) is not False

    def _old_name(self, path: bytes) -> bytes:
        """Follow renames of parents backwards in time: the last of all of them, then the last before that."""
        before = _FOR_EVER
        while (last := self._last_above(path, before)) is not None:
            before, target, old = last
            path = old + path[len(target) :]
        return path

    def _last_above(self, path: bytes, before: int) -> tuple[int, bytes, bytes] | None:
        """Give when a parent was last renamed before a moment, its name then, and the one that it had."""
        found = [
            (turn, parent, old)
            for parent in parents(path)
            for old, turn in self._moved.get(parent, ())
            if turn < before
        ]
        return max(found, default=None)


def parents(path: bytes) -> Iterator[bytes]:
    """Give every directory above a path, from below."""
    while path := path.rpartition(b"/")[0]:
        yield path


def _above(path: bytes, names: Collection[bytes]) -> bytes | None:
    """Give the nearest parent of a path that is among some names."""
    parent = path.rpartition(b"/")[0]
    while parent and parent not in names:
        parent = parent.rpartition(b"/")[0]
    return parent or None


def doubt_gap(drafts: Collection[tuple[bytes, tuple[int, ...]]]) -> Iterator[Gap]:
    """Say which names were told from memory that the trial could change, and are confirmed by nothing on disk.

    Args:
        drafts: path and events of each.
    """
    if drafts:
        names = listed([show(path) for path, _ in drafts])
        text = f"changes of names were read from memory that the trial could change, and no final state shows: {names}"
        events = tuple(sorted(number for _, numbers in drafts for number in numbers)[:MOST_GAPS])
        yield Gap(route=Route.FILE, rule="unconfirmed-names", text=text, events=events, costs=frozenset({"scope"}))


def before_gap(histories: Collection[FileHistory]) -> Iterator[Gap]:
    """Say which files were changed of which nobody knows what they were: that they were put back cannot be told."""
    if histories:
        whys = sorted({h.before.problem for h in histories if h.before and h.before.problem})
        names = listed([show(history.path) for history in histories])
        text = (
            f"what they were before is not known, so neither is whether they were put back: {names} ({'; '.join(whys)})"
        )
        events = tuple(sorted(number for history in histories for number in history.events)[:MOST_GAPS])
        yield Gap(route=Route.FILE, rule="unknown-before", text=text, events=events, costs=frozenset({"scope"}))


def elsewhere_gap(tree: Tree, places: Places) -> Iterator[Gap]:
    """Say which files were changed that have names outside of what was looked at: there they changed too."""
    if found := sorted(tree.changed_elsewhere()):
        names = listed([show(places.locate(path).shown) for path, _ in found])
        text = f"what was done to a file was done to all its names, and some of these lie nobody knows where: {names}"
        events = tuple(sorted({number for _, numbers in found for number in numbers})[:MOST_GAPS])
        costs = frozenset({"scope", "separation"})
        yield Gap(route=Route.FILE, rule="names-elsewhere", text=text, events=events, costs=costs)


def overflow_gap(tree: Tree) -> Iterator[Gap]:
    """Say so when children of renamed directories were left out of the histories."""
    if tree.overflowed:
        text = "so many renames of directories that not every name below them could be followed"
        yield _gap("unfollowed-renames", text, (), in_footprint=False)


def _gap(rule: str, text: str, events: tuple[int, ...], *, in_footprint: bool) -> Gap:
    costs = {"scope", "separation", "finality"} if in_footprint else {"scope", "separation"}
    return Gap(route=Route.FILE, rule=rule, text=text, events=events, costs=frozenset(costs))


def _word(present: bool) -> str:  # noqa: FBT001 - private, turns the flag into its word
    return "it" if present else "nothing"
