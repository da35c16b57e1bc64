"""Small trials that doctor makes: a program is run, its answer is taken, and nothing is left behind.

Mounts and tables are tried inside namespaces of their own (``unshare``), so that the kernel takes them away again
whatever happens to us.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/bin", "/bin"))
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """How one program ended: ``output`` is what it said, stdout before stderr, in one line."""

    worked: bool
    output: str


def find_program(name: str) -> str | None:
    """Find a program, also in the places that only root's PATH names."""
    return shutil.which(name, path=SEARCH_PATH)


def try_program(*argv: str) -> Tried | None:
    """Run one program to its end.

    Returns:
        How it ended, or None when there is no such program.
    """
    program = find_program(argv[0])
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            env={**os.environ, "PATH": SEARCH_PATH, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return Tried(worked=False, output=f"no answer within {PATIENCE_S:g} s")
    words = (done.stdout + b" " + done.stderr).decode(errors="replace").split()
    return Tried(worked=done.returncode == 0, output=" ".join(words)[:300])


def try_script(script: str, *arguments: str, namespaces: tuple[str, ...] = ("--mount",)) -> Tried | None:
    """Run a shell script in namespaces of its own; ``arguments`` are its ``$1`` and so on.

    Returns:
        How it ended, or None when there is no ``unshare`` here.
    """
    return try_program("unshare", *namespaces, "--", "sh", "-euc", script, "sh", *arguments)


@contextmanager
def waiting_program(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a shell that waits, and let it run its script when the block is left; then wait for its end."""
    argv = ["sh", "-c", f"read -r go; {script}"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
            process.communicate(b"go\n", timeout=PATIENCE_S)
        finally:
            process.kill()
