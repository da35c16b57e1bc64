"""How single things of a completion argument are named in text: commands, paths, addresses, cited events."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence

from msgspec import UnsetType

from policies.amounts import format_size
from supervisor.report.lines import Span, Tone
from supervisor.report.live import count
from supervisor.report.safe import safe, safe_command
from supervisor.verdict.completion import Completion, FileSeen, LimitSeen, ProcessSeen

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
    return safe_command(_words(completion.command, completion.command_b64))


def name_of(process: ProcessSeen) -> str:
    """Give the command line of a process, harmlessly; the end of one that the witness could not keep is marked."""
    words = safe_command(_words(process.argv, process.argv_b64))
    return f"{words} …" if process.argv_truncated else words


def path_of(file: FileSeen) -> str | bytes:
    """Give the path of a file entry, as bytes where it is no text."""
    if not isinstance(file.path, UnsetType):
        return file.path
    return b"" if isinstance(file.path_b64, UnsetType) else b64decode(file.path_b64)


def address(host: str | None, ip: str | None, port: int | None) -> str:
    """Write where a flow went: ``example.com (203.0.113.7) port 443``."""
    where = f"{safe(host)} ({ip})" if host and ip else host or ip or "unknown address"
    return where if port is None else f"{where} port {port}"


def limit_of(met: LimitSeen) -> str:
    """Name a limit with its amount: ``memory limit of 512MiB``."""
    amount = format_size(int(met.limit)) if met.resource == "memory" else f"{met.limit:,g}"
    return f"{met.resource} limit of {amount}"


def effect_of(met: LimitSeen) -> str:
    """Say what a limit did, and how often: ``3 processes were killed``."""
    match met.effect:
        case "killed":
            return "1 process was killed" if met.times == 1 else f"{met.times:,} processes were killed"
        case "refused":
            return f"{count(met.times, 'fork')} refused"
        case "reclaimed":
            return f"caches were given up {count(met.times, 'time')}"
        case "throttled":
            return f"made to wait in {count(met.times, 'period')}"
        case _:
            return f"{safe(met.effect)} {count(met.times, 'time')}"


def _words(words: tuple[str, ...] | UnsetType, raw: tuple[str, ...] | UnsetType) -> list[str | bytes]:
    if not isinstance(words, UnsetType):
        return list(words)
    return [] if isinstance(raw, UnsetType) else [b64decode(word) for word in raw]
