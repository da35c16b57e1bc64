"""What the host did to a workspace since a trial began, as far as a commit could undo it.

Laws:
    * Every change of a file moves its change time, and so does every rename of a file or directory; nobody can set it.
    * An upper entry says which lower entry it was copied from, by file handle (`supervisor.launch.disk.whiteouts`).
      Whatever the host calls it now, that one must still be there; a directory must be what the upper one is merged
      with.
    * A directory that was changed is not emptied: what was moved into it has no newer time. It is told as one.
    * Where the trial put a new file in the place of an old one, only the log knows that there was one.
    * Where the kernel cannot tell what was copied from what (a lower file system without handles), times alone decide.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from supervisor.launch.disk.whiteouts import read_origin
from supervisor.launch.stage.merged import Merged, Node
from supervisor.values import dataclass

_GONE = frozenset({errno.ESTALE, errno.ENOENT})


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """Answers about the host.

    Attributes:
        view: the overlay; its lower tree is the workspace.
        began_ns: CLOCK_REALTIME when the trial began; None when it does not matter what the host did.
        existed: whether the log says of a path that something was there then.
    """

    view: Merged
    began_ns: int | None
    existed: Callable[[bytes], bool]

    def is_changed(self, host: os.stat_result) -> bool:
        """Tell whether something was done to an entry of the host: it was moved, for one."""
        return self.began_ns is not None and host.st_ctime_ns > self.began_ns

    def has_lost(self, host: bytes) -> bool:
        """Tell whether the host has nothing at one of its paths, and had something there when the trial began."""
        return self.began_ns is not None and self.existed(host) and self.view.lower.lstat(host) is None

    def has_original(self, path: bytes) -> bool:
        """Tell whether what an upper entry is a copy of is as it was, wherever it lies; a copy of nothing has that."""
        found, known = self._original(path)
        return not known or (found is not None and found.st_nlink > 0 and not self.is_changed(found))

    def is_merged_as_before(self, node: Node) -> bool:
        """Tell whether an upper directory is merged with the directory that it was copied from, if it was."""
        found, known = self._original(node.path)
        if not known:
            return True
        lower = None if node.lower is None else self.view.lower.lstat(node.lower)
        return found is not None and lower is not None and lower.st_ino == found.st_ino

    def _original(self, path: bytes) -> tuple[os.stat_result | None, bool]:
        """Find what an upper entry was copied from, None when that is gone; and tell whether anybody can know."""
        if self.began_ns is None or (origin := read_origin(self.view.upper, path)) is None:
            return None, False
        try:
            return self.view.lower.stat_of(origin), True
        except OSError as err:
            return None, err.errno in _GONE
