"""What a trial wrote, as the fewest and narrowest globs under which the same command would write the same.

In: what happened to files. Out: globs, and how many paths each covers. The rules, for each directory:

1. A name is allowed as it is. `MANY` or more of one directory are not listed: three or more that end alike become
   ``*.txt``, or ``part-*.txt`` where they begin alike; what then is left of `MANY` or more is ``*``.
2. A name that came and went is another one the next time. Beside a name that stayed, which it holds
   (``.out.txt.swp``), it is that one with ``*``; else what it begins with, where that is no part of what was drawn
   (``tmp*``, ``work.*``), and its ending (``*.lock``).
3. A name that was made and holds a digest or a UUID has ``*`` instead; directories above it that part digests
   (``objects/3f``) are written by their length (``objects/??``).
4. A directory is allowed whole when the trial made it and put `MADE_WITH` things into it, and when it was changed,
   moved or removed itself: making the parents of what may be written is all that is allowed anyway.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from supervisor.values import dataclass
from supervisor.verdict.doings import FileSeen

MANY = 8
"""So many names in one directory are not listed one by one."""
MADE_WITH = 3
"""A directory that the trial made, with so many things in it, is allowed whole."""
_ALIKE = 3
_DIGEST = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{16,}")
_PART = re.compile(rb"[0-9a-f]{1,3}")
"""A directory that parts digests, by their first digits."""
_ENDING = re.compile(rb"(?<=[^.])\.[A-Za-z0-9_]{1,8}$")
_FIXED_ENDING = re.compile(rb"(?<=[^.])\.[A-Za-z]{1,4}$")
"""An ending that is not drawn: who draws letters draws six or more (mkstemp(3))."""
_DRAWN_AFTER = re.compile(rb"\.*(?:(?:tmp|temp|sed)|[A-Z]?[a-z]+(?:[.-]|_(?=.{8})))")
"""What a drawn name begins with; a ``_`` near the end may have been drawn itself (Python's tempfile)."""
_WORD = rb"[A-Za-z0-9]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """One path that was written.

    Attributes:
        passing: it was there only for a while.
        made: the trial made it.
        itself: more happened to it than making and removing, which is allowed to a parent.
        directory: it is one that was changed, moved or removed: what lies in it needs not have been told one by one.
    """

    path: bytes
    passing: bool
    made: bool
    itself: bool
    directory: bool


def learn_globs(files: Iterable[tuple[bytes, FileSeen]]) -> dict[str, str]:
    """Give globs that cover every path, and how many each covers.

    Args:
        files: paths with what happened to them; what is private, unreachable or the workspace itself left out.
    """
    found = {path: _written(path, one) for path, one in files}
    below = Counter(above for path in found for above in _above(path))
    digests = _Digests(found.values())
    covered: Counter[str] = Counter()
    left: defaultdict[str, list[_Written]] = defaultdict(list)
    for one in found.values():
        whole = next((above for above in _from_top(one.path) if _is_whole(found.get(above), below, digests)), None)
        if whole is not None:
            covered.update(_whole_globs(found[whole], digests))
        elif not below[one.path]:
            left[digests.directory(one.path)].append(one)
    for directory, leaves in left.items():
        for glob, count in _names(leaves).items():
            covered[directory + glob] += count
    return {glob: f"{count} path{'' if count == 1 else 's'}" for glob, count in sorted(covered.items())}


def _written(path: bytes, one: FileSeen) -> _Written:
    gone = one.net == "unchanged" or (one.net is None and (one.history[-1] == "deleted" or one.renamed_to is not None))
    fresh = one.history[0] == "created" and one.before is None
    passing = fresh and gone and one.after is None
    itself = one.history[0] != "created" or not {"created", "deleted"}.issuperset(one.history)
    return _Written(
        path=path,
        passing=passing,
        made="created" in one.history or (one.net in {"created", "renamed"} and one.renamed_to is None),
        itself=itself,
        directory=itself and not passing and one.before is None and one.after is None,  # files have digests
    )


def _is_whole(one: _Written | None, below: Mapping[bytes, int], digests: _Digests) -> bool:
    """Tell whether a directory is allowed with all that is in it."""
    if one is None or not below[one.path] or digests.parts(one.path):
        return False
    return one.itself or one.passing or (one.made and below[one.path] >= MADE_WITH)


def _whole_globs(one: _Written, digests: _Digests) -> tuple[str, ...]:
    """Write a directory with all that is in it, which a glob with wildcards does not cover by itself."""
    name = _drawn(_name(one.path)) if one.passing else _undigested(_name(one.path), made=one.made)
    glob = digests.directory(one.path) + name
    if "?" not in glob and "*" not in glob:
        return (glob,)
    return (glob, f"{glob}/**") if one.itself else (f"{glob}/**",)


class _Digests:
    """Which directories part digests: those above a name that was made and is one, with a few digits of one each.

    Such a directory was made with it, has a digit, or lies beside one that was or has: a word such as ``db`` is none.
    """

    def __init__(self, found: Iterable[_Written]) -> None:
        made = [one.path for one in found if one.made]
        self._made = set(made)
        candidates = {above for path in made if _DIGEST.search(_name(path)) for above in _parts_above(path)}
        sure = {_parent(path) for path in candidates if path in self._made or re.search(rb"[0-9]", _name(path))}
        self._parts = {path for path in candidates if _parent(path) in sure}

    def parts(self, path: bytes) -> bool:
        return path in self._parts

    def directory(self, path: bytes) -> str:
        """Write the directory of a path as a glob with its slash; nothing for the top of the workspace."""
        steps = [*_from_top(path)][:-1]
        written = (self._step(step) for step in steps)
        return "".join(f"{step}/" for step in (*[""] * path.startswith(b"/"), *written))

    def _step(self, path: bytes) -> str:
        name = _name(path)
        return "?" * len(name) if path in self._parts else _undigested(name, made=path in self._made)


def _parts_above(path: bytes) -> Iterator[bytes]:
    """Give the directories directly above a path that could part digests."""
    return itertools.takewhile(lambda above: _PART.fullmatch(_name(above)), reversed([*_above(path)]))


def _names(leaves: list[_Written]) -> Counter[str]:
    """Give globs of the names in one directory; see the rules above."""
    alone = Counter(_escape(_name(one.path)) for one in leaves if one.directory)
    files = [one for one in leaves if not one.directory]
    kept = {_name(one.path): _undigested(_name(one.path), made=one.made) for one in files if not one.passing}
    staying = _grouped(kept)
    covered = Counter(staying.values())
    beside: Counter[str] = Counter(
        _beside(_name(one.path), staying) or _drawn(_name(one.path)) for one in files if one.passing
    )
    if len(beside) >= MANY:
        beside = Counter({"*": sum(beside.values())})
    covered += beside
    # What is covered by another one of them, with ``*`` after it, needs no line of its own.
    for glob in [one for one in covered if one.endswith("*") and one != "*"]:
        covered[glob] += covered.pop(glob[:-1], 0)
    return alone + (Counter({"*": sum(covered.values())}) if "*" in covered else covered)


def _grouped(kept: Mapping[bytes, str]) -> dict[bytes, str]:
    """Give a glob to each name: itself, or where there are many what it has in common with others."""
    if len(set(kept.values())) < MANY:
        return dict(kept)
    alike: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for name in (name for name, glob in kept.items() if glob == _escape(name)):
        found = _ENDING.search(name)
        alike[found[0] if found else b""].append(name)
    globs = dict(kept)
    for ending, names in alike.items():
        if len(names) >= _ALIKE:
            globs |= dict.fromkeys(names, f"{_escape(_beginning(names))}*{_escape(ending)}")
    single = [name for name in kept if globs[name] == kept[name]]
    return globs | dict.fromkeys(single if len(single) >= MANY else (), "*")


def _beginning(names: list[bytes]) -> bytes:
    """Give what all names begin with, without digits at its end: they count."""
    first, last = min(names), max(names)
    same = next(
        (place for place, letter in enumerate(first) if last[place : place + 1] != bytes((letter,))), len(first)
    )
    return first[:same].rstrip(b"0123456789")


def _beside(name: bytes, staying: Mapping[bytes, str]) -> str | None:
    """Write a name that came and went by the longest name beside it that stayed and that it holds."""
    for other in sorted(staying, key=len, reverse=True):
        if found := re.search(rb"(?<!" + _WORD + rb")" + re.escape(other) + rb"(?!" + _WORD + rb")", name):
            head = name[: found.start()]
            return _joined("*" if re.search(_WORD, head) else _escape(head), staying[other], "*")
    return None


def _drawn(name: bytes) -> str:
    """Write a name that is another one the next time."""
    ending = _FIXED_ENDING.search(name)
    stem = name[: ending.start()] if ending else name
    head = _DRAWN_AFTER.match(stem)
    return f"{_escape(head[0] if head else b'')}*{_escape(ending[0] if ending else b'')}"


def _undigested(name: bytes, *, made: bool) -> str:
    """Write a name; what is a digest in one that was made is another one the next time."""
    return _joined("*".join(map(_escape, _DIGEST.split(name)))) if made else _escape(name)


def _joined(*parts: str) -> str:
    """Put a glob together; two ``*`` on end would be another one."""
    return re.sub(r"\*+", "*", "".join(parts))


def _from_top(path: bytes) -> Iterator[bytes]:
    """Give every directory above a path, the outermost first, then the path."""
    place = path.find(b"/", 1)
    while place > 0:
        yield path[:place]
        place = path.find(b"/", place + 1)
    yield path


def _above(path: bytes) -> Iterator[bytes]:
    return (above for above in _from_top(path) if above != path)


def _parent(path: bytes) -> bytes:
    return path[: path.rfind(b"/") + 1]


def _name(path: bytes) -> bytes:
    return path[path.rfind(b"/") + 1 :]


def _escape(name: bytes) -> str:
    """Write a name as a glob; what a glob or TOML cannot spell becomes ``?``, which is one byte."""
    text = name.replace(b"*", b"?").decode("utf-8", "surrogateescape")
    return "".join(letter if letter.isprintable() else "?" * _size_bytes(letter) for letter in text)


def _size_bytes(letter: str) -> int:
    return len(letter.encode("utf-8", "surrogateescape"))
