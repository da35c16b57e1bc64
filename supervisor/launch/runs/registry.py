"""The registry: every trial that was ever started here, one line each, each line with the digest of the one before.

A run that is thrown away, or that ended without a seal, is still in it: whoever counts runs can see what is not shown.
The digest of the newest line is in the log of each run, so that the beginning of the registry cannot be rewritten
without contradicting logs that are signed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from supervisor.errors import MachineError
from supervisor.launch.disk.durable import write_all
from supervisor.values import dataclass

NAME = "registry"

_BEGINNING = "sha256:" + "0" * 64
_LINE_BYTES = 4096
"""Longer than any line: the last one is found by reading so much from the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One line. ``number`` counts from 0, ``digest`` is that of the whole line, as the next one states it."""

    number: int
    run: str
    at: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """All lines, and what is wrong with them: a sentence for each place where the chain is broken."""

    entries: tuple[Registered, ...]
    problems: tuple[str, ...] = ()


def register(home: Path, run: str, *, at: str, manifest: str) -> Registered:
    """Append a run that is about to be released.

    Args:
        home: the state directory.
        run: its id.
        at: RFC 3339.
        manifest: digest of its manifest.

    Raises:
        MachineError: it cannot be written: what is not registered is not released.
    """
    path = home / NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            last, whole = _last_line(descriptor)
            number, previous = _after(last)
            entry = {"number": number, "run": run, "at": at, "manifest": manifest, "previous": previous}
            line = json.dumps(entry, separators=(",", ":")).encode()
            # A line that was cut by a crash is ended, not mended: its digest is stated like that of any other.
            write_all(descriptor, (b"" if whole else b"\n") + line + b"\n")
        finally:
            os.close(descriptor)
    except OSError as err:
        message = f"the registry of runs cannot be written: {err.strerror}"
        raise MachineError(message, place=str(path)) from err
    return Registered(number=number, run=run, at=at, digest=_digest(line))


def began_ns(home: Path) -> int:
    """Tell when the first run was registered, ns of the wall clock; 0 where that cannot be told."""
    for line in _lines(home / NAME):
        try:
            return int(datetime.fromisoformat(json.loads(line)["at"]).timestamp()) * 1_000_000_000
        except (ValueError, KeyError, TypeError):
            break
    return 0


def read_registry(home: Path) -> Registry:
    """Read every line and check the chain. A home without a registry has none of either."""
    entries: list[Registered] = []
    problems: list[str] = []
    previous = _BEGINNING
    for place, line in enumerate(_lines(home / NAME), start=1):
        try:
            found = json.loads(line)
            entry = Registered(
                number=int(found["number"]), run=str(found["run"]), at=str(found["at"]), digest=_digest(line)
            )
            stated = found["previous"]
        except (ValueError, KeyError, TypeError):
            problems.append(f"line {place} of the registry is no entry")
            previous = _digest(line)
            continue
        if stated != previous:
            problems.append(f"line {place} of the registry ({entry.run}) does not follow from the one before it")
        previous = entry.digest
        entries.append(entry)
    return Registry(entries=tuple(entries), problems=tuple(problems))


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from (line.rstrip(b"\n") for line in file)
    except FileNotFoundError:
        return


def _last_line(descriptor: int) -> tuple[bytes, bool]:
    """Give the last line, and whether it is ended."""
    size_bytes = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _LINE_BYTES, max(0, size_bytes - _LINE_BYTES))
    return tail.removesuffix(b"\n").rpartition(b"\n")[2], not tail or tail.endswith(b"\n")


def _after(last: bytes) -> tuple[int, str]:
    """Give the number of the next line, and what it states of the last one."""
    if not last:
        return 0, _BEGINNING
    try:
        return int(json.loads(last)["number"]) + 1, _digest(last)
    except (ValueError, KeyError, TypeError):
        return 0, _digest(last)


def _digest(line: bytes) -> str:
    return f"sha256:{sha256(line).hexdigest()}"
