"""What makes something run later: the data of ``triggers.toml``, asked path by path.

The rule: a path is judged by where it lies alone, so that the answer is the same in every run; whether the file stays
there is somebody else's question.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from policies.globs import Globs, compile_globs
from supervisor.values import dataclass


class When(StrEnum):
    """Who starts what a trigger names: a clock or daemon by itself, or only somebody who does something."""

    AUTONOMOUS = "autonomous"
    DORMANT = "dormant"


class Reads(StrEnum):
    """How the moment at which it next runs is written in it; ``NOTHING`` when it says none that we can read."""

    CRONTAB = "crontab"
    SYSTEM_CRONTAB = "system-crontab"
    AT_JOB = "at-job"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One kind of trigger.

    Attributes:
        what: for people, in the singular.
        route: ``schedule`` or ``container``.
        executable: only a file that may be executed counts.
        paths, exceptions: absolute globs.
    """

    what: str
    when: When
    reads: Reads
    route: str
    executable: bool
    paths: tuple[str, ...]
    exceptions: tuple[str, ...]

    def takes(self, path: bytes, mode: int) -> bool:
        """Tell whether a file at an absolute path, of this mode, is such a trigger."""
        if self.executable and not mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
            return False
        return _compiled(self.paths).match(path) and not _compiled(self.exceptions).match(path)


class Triggers:
    """All kinds; the first that takes a path says what it is.

    A trial may have changed a hundred thousand files: each glob is filed under its first component without wildcards,
    and only paths with such a component are matched at all. Compiling everything would cost more than most runs need.
    """

    def __init__(self, kinds: Iterable[Trigger]) -> None:
        """File every glob.

        Raises:
            ValueError: a glob has no component without wildcards.
        """
        self.kinds = tuple(kinds)
        self._by_component: dict[bytes, set[int]] = {}
        for place, kind in enumerate(self.kinds):
            for glob in kind.paths:
                self._by_component.setdefault(_literal_component(glob), set()).add(place)

    def find(self, path: bytes, mode: int) -> Trigger | None:
        """Give what a file at an absolute path would start, or None; ``mode`` has its permission bits."""
        filed = self._by_component
        places = {place for part in path.split(b"/") if part in filed for place in filed[part]}
        return next((self.kinds[place] for place in sorted(places) if self.kinds[place].takes(path, mode)), None)


@lru_cache(maxsize=1)
def triggers() -> Triggers:
    """Read the data file that comes with the program, once."""
    import tomllib  # noqa: PLC0415  (only what changed files needs it)

    data = tomllib.loads(Path(__file__).with_name("triggers.toml").read_text(encoding="utf-8"))
    return parse_triggers(data["trigger"])


def parse_triggers(entries: Iterable[Mapping[str, Any]]) -> Triggers:
    """Make the kinds from the tables of the file.

    Raises:
        KeyError: an entry lacks a key.
        ValueError: a word of it is none of the known ones.
    """
    return Triggers(
        Trigger(
            what=entry["what"],
            when=When(entry["when"]),
            reads=Reads(entry.get("reads", Reads.NOTHING)),
            route=entry.get("route", "schedule"),
            executable=bool(entry.get("executable", False)),
            paths=_anywhere(entry["paths"]),
            exceptions=_anywhere(entry.get("except", ())),
        )
        for entry in entries
    )


@cache
def _compiled(globs: tuple[str, ...]) -> Globs:
    return compile_globs(globs)


def _literal_component(glob: str) -> bytes:
    for part in glob.split("/"):
        if part and not set(part) & {"*", "?"}:
            return part.encode()
    message = f"expected a component without wildcards, got {glob!r}"
    raise ValueError(message)


def _anywhere(globs: Iterable[str]) -> tuple[str, ...]:
    """Make every glob absolute: ``~/`` and ``**/`` begin in any directory."""
    return tuple(f"/**/{glob.partition('/')[2]}" if glob.startswith(("~/", "**/")) else glob for glob in globs)
