"""What is printed, and where to: stdout for what was asked for, stderr for our words. Only the command line uses it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.errors import MachineError, PolicyError, SuperviseError, UsageError

if TYPE_CHECKING:
    from supervisor.report.lines import Line


def complain(err: SuperviseError) -> None:
    """Say what was wrong, and what may help."""
    from supervisor.report.safe import safe  # noqa: PLC0415

    errors = (err, *err.others) if isinstance(err, PolicyError | UsageError) else (err,)
    for one in errors:
        tell([f"supervise: {safe(str(one))}", *([f"  {safe(one.hint)}"] if one.hint else [])])


def tell(lines: Iterable[str]) -> None:
    """Write to stderr, in one go so that lines of the child do not get between."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return  # nobody listens; the exit code still tells


def notice(lines: Sequence[str]) -> None:
    """Tell what cannot wait. CMD's terminal may be raw, where a line feed alone is no new line."""
    from supervisor.report.safe import safe  # noqa: PLC0415

    tell(f"{safe(one)}\r" if sys.stderr.isatty() else safe(one) for one in lines)


def warn(sentences: Iterable[str]) -> None:
    """Tell sentences of ours on stderr, whatever names they hold."""
    for sentence in sentences:
        from supervisor.report.safe import harmless  # noqa: PLC0415  (a run that warns of nothing needs none of it)

        tell([f"supervise: {harmless(sentence)}"])


def let_nothing_be_flushed() -> None:
    """Keep Python from writing at exit to where nothing can be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def coloured() -> bool:
    """Tell whether stdout takes colour: a terminal that is not dumb, and no NO_COLOR (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines, coloured where the terminal takes it."""
    from supervisor.report.lines import plain  # noqa: PLC0415

    if not coloured():
        print_text(plain(lines), end="")
        return
    from supervisor.report.colour import print_coloured  # noqa: PLC0415

    with writing():
        print_coloured(lines, sys.stdout)


def print_text(text: str, end: str = "\n") -> None:
    """Print text."""
    with writing():
        sys.stdout.write(text + end)


def write_bytes(chunks: Iterable[bytes]) -> None:
    """Write bytes as they are."""
    with writing():
        sys.stdout.flush()
    for chunk in chunks:
        with writing():
            sys.stdout.buffer.write(chunk)
    with writing():
        sys.stdout.buffer.flush()


def write_file(name: str, data: bytes) -> None:
    """Write a file that the caller named.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        Path(name).write_bytes(data)
    except OSError as err:
        message = f"cannot be written: {err.strerror}"
        raise MachineError(message, place=name) from err


@contextmanager
def writing() -> Iterator[None]:
    """Tell a full disk as what it is; that a reader has gone is told by no word."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as err:
        let_nothing_be_flushed()
        message = f"cannot be written: {err.strerror}"
        raise MachineError(message, place="standard output") from err
