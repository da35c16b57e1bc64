"""How single things of a completion argument are named in text: commands, paths, addresses, cited events."""

from __future__ import annotations

import errno
from base64 import b64decode
from collections.abc import Sequence

from msgspec import UnsetType

from policies.amounts import format_size
from supervisor.evidence.naming import listed
from supervisor.report.lines import Span, Tone
from supervisor.report.live import count
from supervisor.report.safe import harmless, safe, safe_command, shorten, trim
from supervisor.verdict.completion import NEVER, Completion, LimitSeen, OutcomeState, Reason, StageSeen
from supervisor.verdict.doings import FileSeen, ProcessSeen
from supervisor.verdict.exchanges import FlowSeen

WIDTH = 100
"""How long a command line or a path may be before its middle is left out."""

CITED = 6
"""How many event numbers are written after one sentence."""


QUOTED = 6
"""How many lines are quoted of what a grader or validator wrote."""


def cited(events: Sequence[int | str]) -> Span:
    """Give the event numbers that something rests on: `` [41, 57]``."""
    if not events:
        return Span("")
    more = f", … {len(events) - CITED} more" if len(events) > CITED else ""
    return Span(f" [{', '.join(map(str, events[:CITED]))}{more}]", Tone.FAINT)


def brief(reason: Reason, width: int) -> str:
    """Give the sentence of a reason, without the names that it ends with where it is too long; then its beginning."""
    text = harmless(reason.text)
    head = text.partition(": ")[0]
    if len(text) > width and reason.rule == "open-route" and len(head) <= width and ", " in head:
        return head
    return trim(text, width)


def command_of(completion: Completion) -> str:
    """Give CMD as a shell would need it, harmlessly."""
    return safe_command(_words(completion.command, completion.command_b64))


def name_of(process: ProcessSeen) -> str:
    """Give the command line of a process, harmlessly; the end of one that the witness could not keep is marked."""
    words = safe_command(_words(process.argv, process.argv_b64))
    return f"{words} …" if process.argv_truncated else words


def process_of(process: ProcessSeen) -> str:
    """Name a process as the reasons do, with the id that ``supervise why`` takes."""
    name = name_of(process) or ("CMD's process" if process.parent is None else "a process")
    return f"{shorten(name, WIDTH)} (pid {process.pid}, {process.id})"


def path_of(file: FileSeen) -> str | bytes:
    """Give the path of a file entry, as bytes where it is no text."""
    if not isinstance(file.path, UnsetType):
        return file.path
    return b"" if isinstance(file.path_b64, UnsetType) else b64decode(file.path_b64)


def address(host: str | None, ip: str | None, port: int | None) -> str:
    """Write where a flow went: ``example.com (203.0.113.7) port 443``."""
    where = f"{safe(host)} ({ip})" if host and ip else host or ip or "unknown address"
    return where if port is None else f"{where} port {port}"


def flow_words(flow: FlowSeen) -> str:
    """Say what a flow was and where it went, a question with whom it asked."""
    if not isinstance(flow.unread, UnsetType):
        named = f", with the name {harmless(flow.host)}" if flow.host else ""
        what = "a datagram that is" if flow.unread == "udp" else "bytes that are"
        return f"{flow.protocol} {address(None, flow.ip, flow.port)}, {what} no question{named}"
    asked = "" if isinstance(flow.server, UnsetType) else f", asked of {flow.server}"
    return f"{flow.protocol} {safe(address(flow.host, flow.ip, flow.port))}{asked}"


REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})
"""Errors of a change that was refused."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def failed_words(file: FileSeen) -> str | None:
    """Say how changes of a file that never happened failed: ``refused (EACCES)``.

    None when they asked for nothing that could happen: the name was there already, or was not.
    """
    for word, errors in (("refused", REFUSALS), ("failed", _NO_ROOM)):
        names = dict.fromkeys(errno.errorcode[a.errno] for a in file.attempts if a.errno in errors)
        if names:
            return f"{word} ({', '.join(names)})"
    return None


def stage_words(completion: Completion) -> tuple[str, str | None]:
    """Say what became of the staged writes, and what is to be done about it, if anything is."""
    stage = completion.stage
    if stage is None or stage.state == "unknown":
        return "what became of the writes is not known", None
    changes = count(stage.changes, "change")
    match stage.state:
        case "direct":
            return f"written in place ({changes})", None
        case "kept" | "applied" if not stage.changes and not stage.left_out and not _is_withheld(completion):
            return "nothing was changed", None
        case "kept":
            told = f"{changes} kept in the stage, not applied: {harmless(stage.why or 'no reason is known')}"
            return told, _of_kept(completion)
        case "applied" | "discarded":
            why = f": {harmless(stage.why or 'no reason is known')}" if stage.state == "discarded" else ""
            kept = stage.state == "applied" and stage.left_out
            todo = f"`supervise diff {completion.run}` shows that, `supervise discard {completion.run}` drops it"
            return f"{changes} {stage.state}{why}{_left_out(stage)}", todo if kept else None
        case _:
            part = (
                f"{changes} not applied" if len(stage.conflicts) >= stage.changes else f"not all of {changes} applied"
            )
            goes_on = f"`supervise commit {completion.run}` goes on with it"
            todo = _after_conflict(completion.run) if stage.conflicts else goes_on
            return f"{part}: {harmless(stage.why or 'no reason is known')}{_left_out(stage)}", todo


def _is_withheld(completion: Completion) -> bool:
    """Tell whether staged writes were kept although nobody asked for that: the verdict is about another state."""
    stage, differs = completion.stage, completion.finality.observed.differs
    return stage is not None and stage.state == "kept" and stage.why != NEVER and bool(differs)


def _of_kept(completion: Completion) -> str:
    """Say what can be done with what is kept; where the verdict is about another state, also how to have them agree."""
    run = completion.run
    todo = f"`supervise commit {run}` applies them, `supervise discard {run}` drops them"
    if not _is_withheld(completion):
        return todo
    next_time = "with `--at-endpoint cancel` nothing changes after the endpoint, `--period eventually` judges the end"
    return f"`supervise diff {run}` shows them, {todo}; {next_time}"


def _left_out(stage: StageSeen) -> str:
    return f"; not allowed, so left out: {harmless(listed(stage.left_out))}" if stage.left_out else ""


def _after_conflict(run: str) -> str:
    kept = "what the trial wrote is below stage/upper in the directory of the run, and what the host has was left alone"
    choice = f"`supervise discard {run}` keeps the host's, `supervise commit --force {run}` the trial's"
    return f"{kept}: `supervise diff {run}` compares the two, {choice}"


def endpoint_words(completion: Completion) -> str:
    """Say what ended the trial, and how its command ended."""
    endpoint = completion.endpoint
    if endpoint.signal is not None:
        how = f"signal {endpoint.signal}"
    else:
        how = "no exit witnessed" if endpoint.exit_code is None else f"exit code {endpoint.exit_code}"
    return f"{endpoint.reason}{_spent(completion)}, {how}"


def ended_words(exit_code: int | None, signal: int | None) -> str:
    """Say how something that we ran ended."""
    if signal is not None:
        return f"ended by signal {signal}"
    return "how it ended is not known" if exit_code is None else f"exit code {exit_code}"


def last_lines(text: str) -> list[str]:
    """Give the last lines of a text that have anything in them."""
    return [one for one in text.splitlines() if one.strip()][-QUOTED:]


def _spent(completion: Completion) -> str:
    """Say which budget ended the trial, and who counted."""
    reached = completion.usage.reached if completion.usage is not None else None
    if reached is None:
        return ""
    by = "as the trial says of itself" if reached.claimed else "as was counted outside the box"
    return f" of {reached.limit:,} {safe(reached.name).replace('_', ' ')}, {by}"


def never_executed(completion: Completion) -> str | None:
    """Say that CMD was never executed, and why; None when it was, or that is not known."""
    if completion.endpoint.executed is not False:
        return None
    error = completion.endpoint.exec_error
    return f"CMD was never executed: {_WHY_NOT.get(error or '') or error or 'it ended before that'}"


_WHY_NOT = {"ENOENT": "not found (ENOENT)", "EACCES": "permission denied (EACCES)"}


def captured_words(completion: Completion) -> str | None:
    """Say that the outcome went on changing after it was captured, and where the captured state is kept."""
    observed = completion.finality.observed
    if not observed.changed_since:
        return None
    kept = f"; the captured state is kept in {observed.kept_in} of the run" if observed.kept_in else ""
    names = harmless(listed(observed.changed_since))
    if not observed.differs:
        return f"changed after it was captured, and put back: {names}{kept}"
    later = _LATER.get(completion.stage.state if completion.stage is not None else "", "what there is now")
    return f"changed after it was captured: {names}{kept}, and is what the verdict is about, not {later}"


_LATER = {
    "applied": "what was applied",
    "failed": "what was applied",
    "kept": "what is staged",
    "direct": "what is there now",
}
"""What the verdict is not about, where the outcome is not what was captured."""


def outcome_words(state: OutcomeState, period: str) -> str:
    """Say what lies at the path that the claim names, and when.

    Args:
        state: of it.
        period: of the claim.
    """
    path = harmless(state.path)
    if state.exists is None:
        return f"{path}: could not be looked at"
    if not state.exists:
        return f"{path}: does not exist{'' if not state.existed_before else ' any more'}{_when(state, period)}"
    size = f", {count(state.size_bytes, 'byte')}" if state.size_bytes is not None and state.kind == "file" else ""
    digest = f", {state.digest}" if state.digest else ""
    return f"{path}: {state.kind}{size}{digest}{_when(state, period) or ', at the end'}"


def _when(state: OutcomeState, period: str) -> str:
    """Say at which moment a captured state was; nothing of any other."""
    if state.as_of != "captured":
        return ""
    return ", at the endpoint" if period == "endpoint" else ", as captured when the period ended"


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
