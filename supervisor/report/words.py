"""How single things of a completion argument are named in text: commands, paths, addresses, cited events."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from supervisor.report.lines import Span, Tone
from supervisor.report.safe import safe, safe_command

if TYPE_CHECKING:
    from supervisor.verdict.completion import Completion, File, Process

CITED = 6
"""How many event numbers are written after one sentence."""


def cited(events: Sequence[int | str]) -> Span:
    """Give the event numbers that something rests on: `` [41, 57]``."""
    if not events:
        return Span("")
    more = f", … {len(events) - CITED} more" if len(events) > CITED else ""
    return Span(f" [{', '.join(map(str, events[:CITED]))}{more}]", Tone.FAINT)


def command_of(completion: Completion) -> str:
    """Give CMD as a shell would need it, harmlessly."""
    return safe_command(completion.command)


def argv_of(process: Process) -> list[str | bytes]:
    """Give the argument list of a process, as bytes where it is no text."""
    if process.argv_b64 is not None:
        return [b64decode(word) for word in process.argv_b64]
    return list(process.argv or ())


def process_names(processes: Iterable[Process]) -> dict[str, str]:
    """Give the command line of each process by its id, harmlessly."""
    return {process.id: safe_command(argv_of(process)) for process in processes}


def path_of(file: File) -> str | bytes:
    """Give the path of a file entry, as bytes where it is no text."""
    return file.path if file.path is not None else b64decode(file.path_b64 or "")


def address(host: str | None, ip: str | None, port: int | None) -> str:
    """Write where a flow went: ``example.com (203.0.113.7) port 443``."""
    where = f"{safe(host)} ({ip})" if host and ip else host or ip or "unknown address"
    return where if port is None else f"{where} port {port}"
