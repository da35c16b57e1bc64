"""The text report: the three verdicts, then why, then what the verdicts are about, then everything else, shortened.

Laws:
    1. The verdicts are the first three lines, whatever else there is to say, but for a warning that they do not hold.
    2. What is left out is counted, and the report says how to see it.
    3. No text of the trial reaches the reader unescaped (`supervisor.report.safe`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from supervisor.report.files import file_lines, is_own
from supervisor.report.lines import Line, Span, Tone, line, plain, verdict_span
from supervisor.report.live import count
from supervisor.report.processes import process_lines
from supervisor.report.safe import harmless, safe, shorten, trim
from supervisor.report.since import Since, separation_since
from supervisor.report.words import (
    WIDTH,
    address,
    brief,
    captured_words,
    cited,
    command_of,
    effect_of,
    ended_words,
    endpoint_words,
    flow_words,
    last_lines,
    limit_of,
    never_executed,
    outcome_words,
    path_of,
    stage_words,
)
from supervisor.verdict.completion import Completion, CredentialSeen, GraderSaid, OpenEffect
from supervisor.verdict.doings import FileSeen
from supervisor.verdict.exchanges import FlowSeen, RequestMade

T = TypeVar("T")

LIMIT = 12
"""How much of each list is shown."""

_REASON_WIDTH = 120
"""How much of a reason is told beside a verdict; it is told whole below."""

_NO_LONGER = ": separate when it was sealed; what was applied since can be met by other runs"
_LEAVING = frozenset({"forbidden-lookup", "blocked-connection", "sinkholed-connection"})
_OF_THEIR_OWN_ACCORD = (
    "many tools look for updates or send statistics of their own accord; most have a variable against it, which "
    "`--env NAME=VALUE` sets"
)

NOT_SAFE = "Final and clean do not mean safe: they say what was claimed, witnessed and allowed, nothing else."


def render_text(completion: Completion) -> str:
    """Give the report of a run whose log verifies, as plain text."""
    return plain(report_lines(completion, run=completion.run))


def report_lines(
    completion: Completion | None,
    *,
    run: str,
    problem: str | None = None,
    unread: str | None = None,
    since: Since | None = None,
) -> Iterator[Line]:
    """Give the report, line by line.

    Args:
        completion: what was concluded, or None when the run was never judged, or what was concluded cannot be read.
        run: id.
        problem: why the log does not vouch for it, or None.
        unread: why what was concluded cannot be read, or None.
        since: what was done with its staged writes after that.
    """
    if problem is not None:
        yield line(Span(f"unverified  {safe(problem)}", Tone.BAD))
    if completion is None:
        yield from _not_concluded(run, f"not shown: {unread}" if unread else "never judged: the run was not sealed")
        return
    since = since or Since()
    yield from _verdicts(completion, since, trusted=problem is None)
    yield from _what_was_run(completion, since)
    for section in _SECTIONS:
        yield from section(completion)
    yield from _log(completion, problem)


def _not_concluded(run: str, why: str) -> Iterator[Line]:
    for name in ("finality", "separation", "scope"):
        yield line(f"{name:<12}", verdict_span("unresolved"), f" ({why})")
    yield line(f"{'run':<12}{safe(run)}")
    yield line(Span(f"what was logged is shown by: supervise events {safe(run)}", Tone.FAINT))


def _verdicts(completion: Completion, since: Since, *, trusted: bool) -> Iterator[Line]:
    doubt = "" if trusted else " (unverified)"
    yield line(f"{'finality':<12}", verdict_span(completion.finality.verdict), doubt, _label(completion))
    separation = separation_since(completion.separation.verdict, since)
    rests_on = _rests_on(completion) if separation == completion.separation.verdict else _NO_LONGER
    yield line(f"{'separation':<12}", verdict_span(separation), doubt, rests_on)
    violations = completion.scope.violations
    about = f": {count(len(violations), 'violation')}" if violations else ""
    yield line(f"{'scope':<12}", verdict_span(completion.scope.verdict), doubt, about)


def _label(completion: Completion) -> str:
    finality = completion.finality
    words = [f"label {finality.label}"] if finality.label else []
    if finality.observed is not None and finality.observed.label and not finality.label:
        words.append(f"observed: {finality.observed.label}")
    if finality.intervened:
        words.append("we intervened")
    return f": {', '.join(words)}" if words else ""


def _rests_on(completion: Completion) -> str:
    """Name what leaves it open, which no assumption does, before the assumptions are counted."""
    separation = completion.separation
    reasons = separation.reasons[:1] if separation.verdict != "separate" else ()
    words = [brief(reason, _REASON_WIDTH) for reason in reasons]
    if separation.assumptions:
        words.append(f"with {count(len(separation.assumptions), 'assumption')}, listed below")
    return f": {'; '.join(words)}" if words else ""


def _what_was_run(completion: Completion, since: Since) -> Iterator[Line]:
    claim = completion.claim
    about = claim.outcome if claim.outcome is not None else "the exit code and the workspace"
    yield line(f"{'claim':<12}{safe(about)}, {safe(claim.period)}, unit {safe(claim.unit)}")
    yield from _outcome(completion)
    yield line(f"{'endpoint':<12}{endpoint_words(completion)}")
    if (never := never_executed(completion)) is not None:
        yield line(f"{'':<12}", Span(f"{never}; the exit code and the message are ours", Tone.OPEN))
    yield from _usage(completion)
    yield from _result(completion)
    yield from _stage(completion, since)
    yield from _validation(completion)
    yield line(f"{'command':<12}{shorten(command_of(completion), WIDTH)}")
    name = f" ({harmless(completion.name)})" if completion.name else ""
    yield line(f"{'run':<12}{completion.run}{name}, policy {safe(completion.policy.name)}")
    yield line(Span(NOT_SAFE, Tone.FAINT))


def _outcome(completion: Completion) -> Iterator[Line]:
    """What lies where the claim points: a name that was mistyped, or an outcome that went on changing, shows here."""
    state, captured = completion.finality.observed.state, captured_words(completion)
    if state is not None:
        tone = Tone.PLAIN if state.exists else Tone.OPEN
        yield line(f"{'outcome':<12}", Span(outcome_words(state, completion.claim.period), tone))
    if captured is not None:
        yield line(f"{'' if state is not None else 'outcome':<12}", Span(captured, Tone.OPEN))


def _result(completion: Completion) -> Iterator[Line]:
    result, finality = completion.result, completion.finality
    if result.passed is None and finality.label is None and finality.observed.label is None and finality.cause is None:
        yield line(f"{'result':<12}not graded")
        return
    passed = {True: "passed", False: "not passed", None: "not known"}[result.passed]
    yield line(f"{'result':<12}{passed}", f": {harmless('; '.join(result.because))}" if result.because else "")
    if isinstance(finality.grader, GraderSaid):
        said = finality.grader
        yield line(f"{'grader':<12}{ended_words(said.exit_code, said.signal)}; it wrote", cited(said.events))
        yield from _words(said.output)


def _words(text: str) -> Iterator[Line]:
    """Quote the last lines of what was written for people."""
    yield from (line(f"{'':<12}{trim(safe(said), WIDTH)}") for said in last_lines(text))


def _stage(completion: Completion, since: Since) -> Iterator[Line]:
    stage, done, todo = completion.stage, since.told(), None
    if stage is not None:
        told, todo = stage_words(completion)
        good = stage.state in {"applied", "direct"} and not stage.left_out
        yield line(f"{'changes':<12}", Span(told, Tone.PLAIN if good or not stage.changes else Tone.OPEN))
    yield from (line(f"{'':<12}", Span(words, Tone.OPEN)) for words in done)
    if todo is not None and not done:
        yield line(f"{'':<12}{todo}")


def _validation(completion: Completion) -> Iterator[Line]:
    seen = completion.validation
    if seen is None:
        return
    decided = {True: "accepted", False: "not accepted", None: "not known"}[seen.accepted]
    why = f": {seen.problem}" if seen.problem else "" if seen.accepted else f" (exit code {seen.exit_code})"
    sent = f"; {count(seen.released, 'held connection')} sent, {seen.discarded} discarded"
    tone = Tone.PLAIN if seen.accepted else Tone.OPEN
    yield line(
        f"{'validator':<12}",
        Span(decided + harmless(why), tone),
        sent if seen.released or seen.discarded else "",
        cited(seen.events),
    )
    if not seen.accepted:
        yield from _words(seen.said)


def _usage(completion: Completion) -> Iterator[Line]:
    """Say what was used of budgets, retries and unfinished calls among it."""
    usage = completion.usage
    if usage is None:
        return
    retries = count(usage.retries, "retry", "retries")
    counted = f"{count(usage.tool_calls, 'tool call')} ({usage.failed} failed, {retries}, {usage.refused} refused)"
    of_itself = f"{count(usage.claimed_tool_calls, 'tool call')}, {count(usage.claimed_tokens, 'token')}"
    claimed = f"it says of itself: {of_itself}"
    yield line(f"{'used':<12}{counted}; {claimed}")
    if usage.unanswered:
        yield line(f"{'':<12}", Span(f"unanswered: {shorten(', '.join(usage.unanswered), WIDTH)}", Tone.OPEN))


def _section(title: str, found: Sequence[T], show: Callable[[T], Line], hidden: int = 0) -> Iterator[Line]:
    """Give a heading and its entries; ``hidden`` were left out before, as the less telling ones."""
    if not found and not hidden:
        return
    yield line()
    yield line(Span(f"{title} ({len(found) + hidden:,})", Tone.HEADING))
    yield from (show(entry) for entry in found[:LIMIT])
    if left := len(found[LIMIT:]) + hidden:
        yield line(Span(f"  … {left:,} more not shown: supervise show RUN --format json", Tone.FAINT))


def _why(completion: Completion) -> Iterator[Line]:
    told = [("finality", reason.text, reason.events) for reason in completion.finality.reasons]
    told += [("separation", reason.text, reason.events) for reason in completion.separation.reasons]
    told += [("scope", reason.text, reason.events) for reason in completion.scope.reasons]
    yield from _section("why", told, lambda entry: line(f"  {entry[0]}: {harmless(entry[1])}", cited(entry[2])))


def _violations(completion: Completion) -> Iterator[Line]:
    violations = completion.scope.violations
    yield from _section(
        "violations",
        violations,
        lambda found: line("  ", Span(found.rule, Tone.BAD), f": {harmless(found.text)}", cited(found.events)),
    )
    if any(found.rule in _LEAVING for found in violations):
        yield line(Span(f"  {_OF_THEIR_OWN_ACCORD}", Tone.FAINT))


def _open_effects(completion: Completion) -> Iterator[Line]:
    yield from _section(
        "open effects",
        completion.open_effects,
        lambda effect: line(
            f"  {effect.id} {effect.route}: {trim(harmless(effect.what), 2 * WIDTH)}",
            f": {effect.status}, {effect.handling}",
            f"; {harmless(effect.bearing)}" if effect.bearing else _could_affect(effect),
            cited(effect.events),
        ),
    )


def _could_affect(effect: OpenEffect) -> str:
    return f", could affect {' and '.join(effect.could_affect)}" if effect.could_affect else ""


def _own_files(completion: Completion) -> Iterator[Line]:
    """Files in places of the trial's own, and behind descriptors that it was given."""
    own = [file for file in completion.effects.files if is_own(file) and file.history]
    yield from _section("private places and inherited descriptors", own, _own_file)


def _own_file(file: FileSeen) -> Line:
    what = ", ".join(dict.fromkeys(file.history))
    given = "" if file.reachable else ", inherited"
    return line(f"  {what}: {shorten(safe(path_of(file)), WIDTH) or '(no name)'}{given}", cited(file.events))


def _network(completion: Completion) -> Iterator[Line]:
    yield from _section("network", completion.effects.network, _flow)


def _flow(flow: FlowSeen) -> Line:
    """Tell of bytes passed on and held back; of connections that were never seen ending nobody told how many."""
    unfinished = flow.unfinished or 0
    at_least = "at least " if unfinished else ""
    passed = flow.bytes_out or flow.bytes_in or (unfinished and flow.decision == "allowed")
    held = flow.kept_bytes or (unfinished and flow.decision != "allowed")
    return line(
        f"  {flow.decision}: {flow_words(flow)}",
        f", {at_least}{flow.bytes_out:,} bytes out, {flow.bytes_in:,} in" if passed else "",
        f", {at_least}{flow.kept_bytes:,} bytes held back" if held else "",
        f", {count(unfinished, 'connection')} never seen ending" if unfinished else "",
        ", after the endpoint" if flow.after_endpoint else "",
        cited(flow.events),
    )


def _requests(completion: Completion) -> Iterator[Line]:
    yield from _section("requests that were read", completion.effects.requests, _request)
    yield from _section(
        "connections that could not be read",
        completion.effects.unread,
        lambda one: line(f"  {safe(address(one.host, None, one.port))}: {harmless(one.reason)}", cited(one.events)),
    )


def _request(made: RequestMade) -> Line:
    what = f"{safe(made.method)} {safe(made.url or '')}" if made.method else safe(address(made.host, None, made.port))
    status = f", {made.status}" if made.status is not None else ""
    cut = "" if made.complete else ", not complete"
    return line(
        f"  {what}{status}, {made.bytes_out:,} bytes out, {made.bytes_in:,} in{cut}",
        cited(made.events),
    )


def _credentials(completion: Completion) -> Iterator[Line]:
    yield from _section(
        "credentials",
        completion.effects.credentials,
        lambda used: line(f"  {used.action}: {used.kind} {safe(_credential(used))}", cited(used.events)),
    )


def _credential(used: CredentialSeen) -> str:
    whose = f" of run {used.run}" if used.run else ""
    return f"{used.name}{whose}" + (f", {_WHERE.get(used.where, used.where)}" if used.where else "")


_WHERE = {
    "manifest": "on the command line",
    "kernel": "in what processes did",
    "records": "in what was said or sent",
}


def _contacts(completion: Completion) -> Iterator[Line]:
    yield from _section(
        "contacts outside the box",
        completion.effects.contacts,
        lambda contact: line(f"  {harmless(contact.what)}", cited(contact.events)),
    )


def _refusals(completion: Completion) -> Iterator[Line]:
    yield from _section(
        "calls that the box refuses",
        completion.effects.refusals,
        lambda refusal: line(f"  {harmless(refusal.what)}, {count(refusal.count, 'time')}", cited(refusal.events)),
    )


def _limits(completion: Completion) -> Iterator[Line]:
    yield from _section(
        "limits that were met",
        completion.effects.limits,
        lambda met: line(f"  {limit_of(met)}: {effect_of(met)}", cited(met.events)),
    )


def _gaps(completion: Completion) -> Iterator[Line]:
    gaps = [(entry.route, gap) for entry in completion.coverage for gap in entry.gaps]
    assumed = {text.partition(":")[0] for text in completion.separation.assumptions}
    unseen = [e.route for e in completion.coverage if not e.witnesses and e.route not in assumed]
    yield from _section(
        "gaps in the evidence",
        gaps,
        lambda entry: line(f"  {entry[0]}: {harmless(entry[1].text)}", cited(entry[1].events)),
    )
    if unseen:
        yield line()
        yield line(Span(f"witnessed by nobody: {', '.join(unseen)}", Tone.FAINT))


def _assumptions(completion: Completion) -> Iterator[Line]:
    yield from _section(
        "assumed, because nobody witnesses it",
        completion.separation.assumptions,
        lambda text: line(f"  {harmless(text)}"),
    )


def _log(completion: Completion, problem: str | None) -> Iterable[Line]:
    log = completion.log
    state = "sealed and verified" if problem is None and log.sealed else "not verified"
    lost = f", {log.lost:,} LOST" if log.lost else ", none lost"
    text = f"evidence: {count(log.events, 'event')}{lost}, the first {count(log.frames, 'frame')} of the log, {state}"
    root = f"its root: {log.root} (`supervise verify` tells that of the whole log, with this argument and the seal)"
    return (line(), line(Span(text, Tone.FAINT)), line(Span(root, Tone.FAINT)))


_SECTIONS = (
    _why,
    _violations,
    _open_effects,
    file_lines,
    _own_files,
    _network,
    _requests,
    _credentials,
    _contacts,
    _refusals,
    _limits,
    process_lines,
    _gaps,
    _assumptions,
)
