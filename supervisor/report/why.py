"""What ``supervise why RUN REF`` prints: what was concluded about one thing, and which events that rests on.

A reference is an event number (``41``), a range (``41-57``), a process id (``412@8123456789``), the id of an open
effect (``o1``), one of the three verdicts, an address, or a path; ``./`` before a path keeps it from being the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import UnsetType

from policies.hosts import written
from supervisor.errors import UsageError
from supervisor.events import CredentialGuarded, Event, Origin, ProcessKey
from supervisor.report.events_json import to_line
from supervisor.report.lines import Line, Span, Tone, line, verdict_span
from supervisor.report.safe import harmless, safe
from supervisor.report.words import address, cited, failed_words, flow_words, path_of, process_of
from supervisor.values import dataclass
from supervisor.verdict.completion import Completion, OpenEffect, Reason
from supervisor.verdict.doings import FileSeen, ProcessSeen
from supervisor.verdict.exchanges import FlowSeen

LIMIT = 200
"""How many events are printed."""

_LISTED = 8
"""How many items of each list of what counts as a credential are printed: they are much the same in every run."""

_DONE = frozenset({Origin.KERNEL, Origin.GATEWAY})
"""Origins of what somebody in the box did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was concluded, and which events to print after it.

    Attributes:
        lines: the conclusion.
        numbers: events it cites.
        span: first and last event of a range, both included, or None.
        process: id of a process whose events are all printed, or None.
    """

    lines: tuple[Line, ...] = ()
    numbers: frozenset[int] = frozenset()
    span: tuple[int, int] | None = None
    process: str | None = None

    def covers(self, event: Event) -> bool:
        """Tell whether an event is to be printed."""
        return (
            event.n in self.numbers
            or (self.span is not None and self.span[0] <= event.n <= self.span[1])
            or (self.process is not None and event.process is not None and str(event.process) == self.process)
        )

    def names(self, event: Event) -> bool:
        """Tell whether an event is cited, or asked for by its own number."""
        return event.n in self.numbers or self.span == (event.n, event.n)


def answer(completion: Completion | None, reference: str) -> Answer:
    """Find what a reference means.

    Args:
        completion: None when the run was never judged; only event numbers and process ids then mean something.
        reference: as typed.

    Raises:
        UsageError: nothing of that name is in the run.
    """
    if found := re.fullmatch(r"(\d+)(?:(?:-|\.\.)(\d+))?", reference):
        return _events_between(int(found[1]), int(found[2] or found[1]))
    if completion is None:
        if re.fullmatch(r"\d+@\d+", reference):
            return Answer(process=reference)
        message = f"expected an event number, a range or a process id, got {reference!r}"
        raise UsageError(message, place="REF", hint="the run was never judged: there are no reasons to ask for")
    return _judged(completion, reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What the beginning of a log tells about all events after it.

    Attributes:
        realtime_offset_ns: what must be added to CLOCK_BOOTTIME to get the time of day, None when it is not known.
        released_ns: when CMD was let go; None when it never was, or that is not known.
        helpers: processes of the box itself.
    """

    realtime_offset_ns: int | None = None
    released_ns: int | None = None
    helpers: frozenset[ProcessKey] = frozenset()

    def builds(self, event: Event) -> bool:
        """Tell whether an event is an act of the box before CMD was let go. Of a CMD that never was, none is taken."""
        done = event.process is not None and event.origin in _DONE
        last_ns = max(event.time_ns, getattr(event, "last_ns", 0))  # many writes may be one event
        return done and self.released_ns is not None and last_ns < self.released_ns


def event_lines(events: Iterable[Event], wanted: Answer, beginning: Beginning) -> Iterator[Line]:
    """Print the events that an answer covers, up to `LIMIT`; the rest is counted.

    What the box did before CMD was let go is counted too, unless it is asked for by its number or cited.
    """
    shown = hidden = built = 0
    for event in events:
        if not wanted.covers(event):
            continue
        if not wanted.names(event) and beginning.builds(event):
            built += 1
            continue
        if shown == LIMIT:
            hidden += 1
            continue
        shown += 1
        yield _event_line(event, beginning)
    if built:
        told = f"  … {built:,} of the box being built, before CMD was let go: supervise events RUN"
        yield line(Span(told, Tone.FAINT))
    if hidden:
        yield line(Span(f"  … {hidden:,} more: supervise events RUN", Tone.FAINT))


def _events_between(first: int, last: int) -> Answer:
    if last < first:
        message = f"expected a range that does not end before it begins, got {first}-{last}"
        raise UsageError(message, place="REF")
    return Answer(span=(first, last))


def _judged(completion: Completion, reference: str) -> Answer:
    if reference in {"finality", "separation", "scope"}:
        return _verdict(completion, reference)
    for effect in completion.open_effects:
        if effect.id == reference:
            return _open_effect(effect)
    for process in completion.effects.processes:
        if process.id == reference:
            return _process(process)
    if files := _files(completion, reference.removeprefix("./")):
        return Answer(lines=tuple(map(_file_line, files)), numbers=_numbers(files))
    return _address(completion, reference)


def _verdict(completion: Completion, name: str) -> Answer:
    verdict, reasons = {
        "finality": (completion.finality.verdict, completion.finality.reasons),
        "separation": (completion.separation.verdict, completion.separation.reasons),
        "scope": (completion.scope.verdict, (*completion.scope.violations, *completion.scope.reasons)),
    }[name]
    head = line(f"{name}: ", verdict_span(verdict))
    return Answer(lines=(head, *map(_reason_line, reasons)), numbers=_numbers(reasons))


def _reason_line(reason: Reason) -> Line:
    return line(f"  {reason.rule}: {harmless(reason.text)}", cited(reason.events))


def _open_effect(effect: OpenEffect) -> Answer:
    proof = effect.proof
    cited_by_it = {*effect.events, *proof.prevented, *proof.checked}
    lines = (
        line(f"{effect.id}: {effect.route}: {harmless(effect.what)}"),
        line(f"  {effect.status}, {effect.handling}, {'settled' if effect.settled else 'not settled'}"),
        *([line(f"  {harmless(effect.bearing)}")] if effect.bearing else []),
        line(f"  could affect: {', '.join(effect.could_affect) or 'nothing'}"),
        line("  prevented by:", cited(proof.prevented) if proof.prevented else _not_prevented(effect)),
        line("  checked by:", cited(proof.checked) if proof.checked else " nothing"),
        line(f"  which supports: {_listed(proof.supports)}"),
    )
    return Answer(lines=lines, numbers=frozenset(cited_by_it))


def _not_prevented(effect: OpenEffect) -> str:
    return " nothing: it was watched, not stopped" if effect.handling == "observed" else " nothing"


def _process(process: ProcessSeen) -> Answer:
    facts = [f"made by {process.parent}" if process.parent else "CMD itself"]
    facts += ["alive at the endpoint"] if process.alive_at_endpoint else []
    facts += ["ran after it"] if process.outlived else []
    head = line(process_of(process))
    return Answer(lines=(head, line(f"  {', '.join(facts)}")), process=process.id)


def _files(completion: Completion, path: str) -> Sequence[FileSeen]:
    wanted = {path, path.encode(errors="surrogateescape")}
    return [file for file in completion.effects.files if path_of(file) in wanted or safe(path_of(file)) == path]


def _file_line(file: FileSeen) -> Line:
    history = ", ".join(file.history) or failed_words(file) or "not changed"
    end = file.net or ("not kept" if file.private or not file.reachable else "not compared with before")
    names = [f"from {safe(file.renamed_from)}"] if file.renamed_from else []
    names += [f"to {safe(file.renamed_to)}"] if file.renamed_to else []
    moved = f" ({', '.join(names)})" if names else ""
    where = f"{'in' if file.in_scope else 'not in'} the claim's scope, {'' if file.allowed else 'not '}allowed"
    put_back = ", put back" if file.restored else ""
    return line(f"{safe(path_of(file))}: {end}{put_back}: {history}{moved}; {where}")


def _address(completion: Completion, reference: str) -> Answer:
    flows = [flow for flow in completion.effects.network if reference in _names(flow)]
    if not flows:
        message = f"nothing in the run is called {reference!r}"
        hint = "an event number, a range, a process id, an effect id, a path, an address, finality, separation or scope"
        raise UsageError(message, place="REF", hint=hint)
    lines = [line(f"{flow_words(flow)}: {flow.decision}") for flow in flows]
    return Answer(lines=tuple(lines), numbers=_numbers(flows))


def _names(flow: FlowSeen) -> Iterator[str]:
    """Give what a flow goes by: host, address and server asked; alone, with the port, and as reports write them."""
    server = "" if isinstance(flow.server, UnsetType) else flow.server
    yield from filter(None, (server, server.rpartition(":")[0].strip("[]")))
    for host in filter(None, (flow.host, flow.ip)):
        yield host
        if flow.port is not None:
            yield written(host, flow.port)
            yield address(host, None, flow.port)
    yield address(flow.host, flow.ip, flow.port)


def _numbers(things: Iterable[Reason | FileSeen | FlowSeen | OpenEffect]) -> frozenset[int]:
    return frozenset(number for thing in things for number in thing.events)


def _listed(words: Sequence[object]) -> str:
    return safe("; ".join(map(str, words))) or "nothing"


def _event_line(event: Event, beginning: Beginning) -> Line:
    found = json.loads(to_line(event, realtime_offset_ns=beginning.realtime_offset_ns))
    head = f"{found.pop('n'):>8}  {found.pop('t') or '-'}  {found.pop('kind')}"
    found.pop("origin")
    most = _LISTED if isinstance(event, CredentialGuarded) else None
    process = found.pop("process", "-")
    whose = " (the box)" if event.origin in _DONE and _is_of_box(event, beginning) else ""
    told = ((name, value) for name, value in found.items() if value not in (False, "", []))
    facts = "  ".join(f"{name}={_value(value, most=most)}" for name, value in told)
    return line(head, Span(f"  {process}{whose}  ", Tone.FAINT), facts)


def _is_of_box(event: Event, beginning: Beginning) -> bool:
    return event.process in beginning.helpers or beginning.builds(event)


def _value(value: object, *, most: int | None) -> str:
    """Write a value of a field; of a list at most so many items, and how many more there are."""
    if isinstance(value, list):
        more = [f"… {len(value) - most} more"] if most is not None and len(value) > most else []
        return f"[{', '.join([*(safe(str(item)) for item in value[:most]), *more])}]"
    return "yes" if value is True else safe(str(value))
