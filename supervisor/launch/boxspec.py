"""What is wanted of a box, and the form in which its init reads it."""

from __future__ import annotations

from pathlib import Path

from supervisor.launch.view.view import ViewSpec
from supervisor.values import dataclass

STDIO_PTY = -1
STDIO_CLOSED = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSpec:
    """What is wanted.

    Attributes:
        argv: CMD, verbatim.
        environ: the whole environment of CMD, already filtered.
        cwd: absolute path, as the trial sees it.
        view: what the trial sees of the files.
        log_canary: host path that must not be reachable.
        marker_canary: path outside every scope, made and removed.
        uid, gid, groups: the run user.
        stdio: our descriptors for CMD's 0, 1 and 2; None is closed.
        ttys: which of 0, 1, 2 are replaced by a terminal of the box's own.
        foreground: CMD owns that terminal from the start; else once `Box.give_terminal` was called.
        rows, columns: the terminal's size.
        cache: a directory only we can write, for the compiled system call filter, or None.
        plain_copies: content that is copied passes through the memory of who copies it.
        timeout_s: patience until CMD is held.
    """

    argv: tuple[bytes, ...]
    environ: tuple[tuple[bytes, bytes], ...]
    cwd: bytes
    view: ViewSpec
    log_canary: bytes
    marker_canary: bytes
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    stdio: tuple[int | None, int | None, int | None] = (0, 1, 2)
    ttys: frozenset[int] = frozenset()
    foreground: bool = True
    rows: int = 24
    columns: int = 80
    cache: Path | None = None
    plain_copies: bool = False
    timeout_s: float = 20.0


def encode_config(
    spec: BoxSpec, *, init_socket: int, main_socket: int, stdio: tuple[int, int, int], cwd: bytes
) -> bytes:
    """Give the configuration of boxinit.c: NUL-terminated words in the order of its ``read_config``.

    Args:
        spec: of the box.
        init_socket: number of init's socket in the child.
        main_socket: likewise of the socket of CMD's process.
        stdio: numbers in the child, or `STDIO_PTY` or `STDIO_CLOSED`.
        cwd: where CMD starts.
    """
    assignments = [name + b"=" + value for name, value in spec.environ]
    words: list[bytes | int] = [
        init_socket, main_socket, *stdio,
        spec.uid, spec.gid, len(spec.groups), *spec.groups,
        int(spec.foreground), spec.rows, spec.columns,
        cwd, spec.log_canary, spec.marker_canary,
        len(spec.argv), *spec.argv,
        len(assignments), *assignments,
    ]  # fmt: skip
    return b"".join((b"%d" % word if isinstance(word, int) else word) + b"\0" for word in words)
