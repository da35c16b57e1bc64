"""What was found on disk when a trial was judged, kept so that it can be judged again from the log alone.

``observed.jsonl`` has a line for each look: ``{"path", "before", "after"}`` for the states of a path, ``{"changed"}``
for a path that the stage holds, ``{"link", "text"}`` for a symlink of the host, ``{"beginning", "text"}`` for what was
there before, ``{"aliases"}`` for names of one file. Paths are base64. Its digest is in the log (``states.recorded``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from supervisor.errors import LogError, LogUnreadableError
from supervisor.evidence.collect import FindAliases, no_aliases
from supervisor.evidence.file_facts import FileState, Observed, SharedNames
from supervisor.evidence.paths.followed import Beginning
from supervisor.evidence.paths.leading import ReadLinks, no_links

NAME = "observed.jsonl"

_ENCODER = msgspec.json.Encoder()

Observe = Callable[[Sequence[bytes]], Mapping[bytes, Observed]]


class _Line(msgspec.Struct, omit_defaults=True):
    path: bytes | None = None
    before: FileState | None = None
    after: FileState | None = None
    changed: bytes | None = None
    link: bytes | None = None
    text: bytes | None = None
    beginning: bytes | None = None
    aliases: SharedNames | None = None


class Recorder:
    """Passes looks at the disk on, and keeps what they found."""

    def __init__(
        self,
        path: Path,
        observe: Observe,
        changed: Callable[[], Iterable[bytes]],
        *,
        links: ReadLinks = no_links,
        aliases: FindAliases = no_aliases,
        beginning: Beginning = lambda _: None,
    ) -> None:
        """Begin the file anew."""
        self._observe, self._changed, self._links = observe, changed, links
        self._aliases, self._beginning = aliases, beginning
        self._file: BinaryIO = path.open("wb")
        self._digest = hashlib.sha256()
        self.lines = 0

    def observe(self, paths: Sequence[bytes]) -> Mapping[bytes, Observed]:
        """Look at paths."""
        found = self._observe(paths)
        for path, state in found.items():
            self._keep(_Line(path=path, before=state.before, after=state.after))
        return found

    def changed(self) -> Iterator[bytes]:
        """Give what the stage holds."""
        for path in self._changed():
            self._keep(_Line(changed=path))
            yield path

    def links(self, paths: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Give the texts of those paths that are symlinks."""
        found = self._links(paths)
        for path, text in found.items():
            self._keep(_Line(link=path, text=text))
        return found

    def aliases(self, linked: bool) -> SharedNames:  # noqa: FBT001 - see `supervisor.evidence.collect`
        """Give the names that share a file."""
        found = self._aliases(linked)
        self._keep(_Line(aliases=found))
        return found

    def beginning(self, path: bytes) -> bytes | None:
        """Tell what was at a path before."""
        text = self._beginning(path)
        if text is not None:
            self._keep(_Line(beginning=path, text=text))
        return text

    def close(self) -> str:
        """End the file; gives its digest."""
        self._file.close()
        return f"sha256:{self._digest.hexdigest()}"

    def _keep(self, line: _Line) -> None:
        data = _ENCODER.encode(line) + b"\n"
        self._digest.update(data)
        self._file.write(data)
        self.lines += 1


class Recorded:
    """What a `Recorder` kept, in the place of the disk."""

    def __init__(self, lines: Iterable[_Line]) -> None:
        """Use `Recorded.read`."""
        self._states: dict[bytes, Observed] = {}
        self._changed: list[bytes] = []
        self._links: dict[bytes, bytes] = {}
        self._beginnings: dict[bytes, bytes] = {}
        self._aliases = SharedNames()
        for line in lines:
            self._take(line)

    def _take(self, line: _Line) -> None:
        if line.path is not None:
            self._states[line.path] = Observed(before=line.before, after=line.after)
        elif line.changed is not None:
            self._changed.append(line.changed)
        elif line.link is not None:
            self._links[line.link] = line.text or b""
        elif line.beginning is not None:
            self._beginnings[line.beginning] = line.text or b""
        elif line.aliases is not None:
            self._aliases = line.aliases

    @classmethod
    def read(cls, path: Path, *, digest: str) -> Recorded:
        """Read what was kept.

        Args:
            path: of the file.
            digest: that the log says it has.

        Raises:
            LogUnreadableError: it is not there, or is no such file.
            LogError: it was changed.
        """
        try:
            data = path.read_bytes()
            lines = [msgspec.json.decode(line, type=_Line) for line in data.splitlines()]
        except (OSError, msgspec.MsgspecError) as err:
            message = f"expected the states that were found on disk, got: {err}"
            raise LogUnreadableError(message, place=str(path)) from err
        if (got := f"sha256:{hashlib.sha256(data).hexdigest()}") != digest:
            message = f"expected {digest} (the log says so), got {got}"
            raise LogError(message, place=str(path))
        return cls(lines)

    def observe(self, paths: Sequence[bytes]) -> Mapping[bytes, Observed]:
        """Give the states of paths; one that was not looked at then is left out."""
        return {path: self._states[path] for path in paths if path in self._states}

    def changed(self) -> tuple[bytes, ...]:
        """Give what the stage held."""
        return tuple(self._changed)

    def aliases(self, _linked: bool) -> SharedNames:  # noqa: FBT001 - see `supervisor.evidence.collect`
        """Give the names that shared a file."""
        return self._aliases

    def beginning(self, path: bytes) -> bytes | None:
        """Tell what was at a path before."""
        return self._beginnings.get(path)

    def links(self, paths: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Give the texts of those paths that were symlinks."""
        return {path: self._links[path] for path in paths if path in self._links}
