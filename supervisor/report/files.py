"""The files of a report: what is not allowed, then what changed for good, then what was only there in between.

Laws:
    1. What is not allowed, what the claim names, and what was not compared is never folded into a line with others.
    2. Every file is told in a line, in a line with others, or in the count of what is not shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from posixpath import commonpath

from supervisor.report.lines import Line, Span, Tone, line
from supervisor.report.live import count
from supervisor.report.safe import safe, shorten
from supervisor.report.words import WIDTH, cited, failed_words, path_of
from supervisor.values import dataclass
from supervisor.verdict.completion import Completion
from supervisor.verdict.doings import FileSeen

LIMIT = 12
"""How many lines there are of each sort."""
_FEW = 4
"""How many files of one tree, or that came and went, make one line; fewer have a line each."""
_NAMED = 3
"""How many of those that came and went are named."""
_MADE = frozenset({"__pycache__", "node_modules"})
"""Directories that tools fill, beside the hidden ones."""


def file_lines(completion: Completion) -> Iterator[Line]:
    """Tell of files that changed or should have, but for the trial's own private ones."""
    files = [f for f in completion.effects.files if not is_own(f) and (f.history or failed_words(f))]
    if not files:
        return
    violations = {event for found in completion.scope.violations for event in found.events}
    claim = completion.claim
    sorts = _sort(files, named=bool(claim.outcome or set(claim.scope) - {"**"}))
    yield line()
    yield line(Span(f"files ({len(files):,})", Tone.HEADING))
    left = 0
    for shown, limit in ((sorts.apart, LIMIT), (sorts.changed, LIMIT), (sorts.put_back, _FEW)):
        yield from (_file(file, refused=not violations.isdisjoint(file.events)) for file in shown[:limit])
        left += len(shown[limit:])
    yield from (_tree(name, within) for name, within in sorts.trees[:LIMIT])
    left += sum(len(within) for _, within in sorts.trees[LIMIT:])
    if sorts.scratch:
        yield _scratch(sorts.scratch)
    if left:
        yield line(Span(f"  … {left:,} more not shown: supervise show RUN --format json", Tone.FAINT))


def is_own(file: FileSeen) -> bool:
    """Tell whether a file is in a place of the trial's own, or behind a descriptor that it was given."""
    return file.private or not file.reachable


def came_and_went(file: FileSeen) -> bool:
    """Tell whether a file was made and is not there any more, as before."""
    came = file.restored and file.history[0] == "created" and file.history[-1] in {"deleted", "renamed"}
    return bool(came or (file.history and file.net == "unchanged" and file.restored is False))


# -- which line a file is told in --------------------------------------------------------------------------------------

_Tree = tuple[str, list[FileSeen]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sorts:
    """Files by how they are told.

    Attributes:
        apart: not allowed, or part of what a verdict waits for; then what the claim names.
        changed, put_back: by their lines.
        trees: by directory, those of which there are many.
        scratch: what came and went, in one line.
    """

    apart: list[FileSeen]
    changed: list[FileSeen]
    put_back: list[FileSeen]
    trees: list[_Tree]
    scratch: list[FileSeen]


def _sort(files: Sequence[FileSeen], *, named: bool) -> _Sorts:
    def is_apart(file: FileSeen) -> bool:
        matters = not (file.allowed and file.history and file.net) or file.discarded is True
        return matters or (named and file.in_scope)

    apart = sorted(filter(is_apart, files), key=lambda file: (file.allowed, not file.in_scope))
    others = [file for file in files if not is_apart(file)]
    scratch = [file for file in others if came_and_went(file)]
    rest = [file for file in others if not came_and_went(file)]
    trees = _grouped(rest, _made_by_tool, _FEW)
    rest = _without(rest, trees)
    if len(rest) > LIMIT:
        top = _common(rest)
        large = _grouped(rest, lambda path: _next_directory(path, top), LIMIT)
        rest, trees = _without(rest, large), [*large, *trees]
    if len(scratch) < _FEW:
        rest, scratch = rest + scratch, []
    return _Sorts(
        apart=apart,
        changed=[file for file in rest if file.net != "unchanged"],
        put_back=[file for file in rest if file.net == "unchanged"],
        trees=trees,
        scratch=scratch,
    )


def _text(file: FileSeen) -> str:
    path = path_of(file)
    return path.decode(errors="surrogateescape") if isinstance(path, bytes) else path


def _grouped(files: Sequence[FileSeen], tree_of: Callable[[str], str | None], least: int) -> list[_Tree]:
    trees: dict[str, list[FileSeen]] = {}
    for file in files:
        if (tree := tree_of(_text(file))) is not None:
            trees.setdefault(tree, []).append(file)
    return [(tree, within) for tree, within in trees.items() if len(within) >= least]


def _without(files: Sequence[FileSeen], trees: Sequence[_Tree]) -> list[FileSeen]:
    told = {id(file) for _, within in trees for file in within}
    return [file for file in files if id(file) not in told]


def _made_by_tool(path: str) -> str | None:
    """Give the hidden directory, or the one that tools fill, that a path lies in: ``.git/``."""
    parts = path.split("/")
    for number, part in enumerate(parts[:-1], 1):
        if part in _MADE or (part.startswith(".") and part not in {".", ".."}):
            return "/".join(parts[:number]) + "/"
    return None


def _common(files: Sequence[FileSeen]) -> str:
    """Give the directory that all files lie in, empty for none but the workspace."""
    paths = [path for file in files if not (path := _text(file)).startswith("/")]
    found = commonpath(paths) if paths else ""
    return f"{found}/" if found else ""


def _next_directory(path: str, top: str) -> str | None:
    below, _, rest = path.removeprefix(top).partition("/")
    return f"{top}{below}/" if rest and path.startswith(top) and below else None


# -- the lines ---------------------------------------------------------------------------------------------------------


def _tree(name: str, within: Sequence[FileSeen]) -> Line:
    counted = Counter("put back" if file.net == "unchanged" else str(file.net) for file in within)
    told = ", ".join(f"{number:,} {net}" for net, number in sorted(counted.items()))
    events = sorted(event for file in within for event in file.events[-1:])
    return line(f"  {shorten(safe(name), WIDTH)}: {count(len(within), 'file')}: {told}", cited(events))


def _scratch(files: Sequence[FileSeen]) -> Line:
    names = ", ".join(shorten(safe(path_of(file)), WIDTH) for file in files[:_NAMED])
    more = f" and {len(files) - _NAMED:,} more" if len(files) > _NAMED else ""
    return line(f"  came and went: {names}{more}", cited(sorted(event for file in files for event in file.events[:1])))


def _forbidden(file: FileSeen, *, refused: bool) -> Span | str:
    """Say that a change was not allowed; one outside the workspace that no violation counts was private: it is gone."""
    if file.allowed:
        return Span(", allowed, discarded: outside the workspace", Tone.OPEN) if file.discarded is True else ""
    if refused or path_of(file)[:1] not in {"/", b"/"}:
        return Span(", not allowed", Tone.BAD)
    return Span(", discarded", Tone.FAINT) if file.history else ""


def _file(file: FileSeen, *, refused: bool) -> Line:
    told = ", ".join(dict.fromkeys(file.history))
    what = (file.net or f"{told} (not compared with before)") if file.history else failed_words(file)
    gone = came_and_went(file) if file.history else False
    moved = {True: f", to {safe(file.renamed_to or '')}", False: f", from {safe(file.renamed_from or '')}"}
    away = file.renamed_to is not None and (file.net == "renamed" and file.after is None)
    return line(
        f"  {'came and went' if gone else what}: {shorten(safe(path_of(file)), WIDTH) or '(no name)'}",
        moved[away] if file.net == "renamed" and (file.renamed_to or file.renamed_from) else "",
        ", changed and put back" if file.restored and not gone else "",
        _forbidden(file, refused=refused),
        cited(file.events),
        _kept(file),
    )


def _kept(file: FileSeen) -> Span | str:
    """Say which events hold what a file was in between, when it is not there any more."""
    if not file.kept or not file.restored:
        return ""
    return Span(f", what was in between is kept: {cited(file.kept).text.strip()}", Tone.FAINT)
