"""The command line: the only module that reads argv and the terminal, prints, and gives exit codes.

It is a thin layer: every command is one call into the rooms and one way of printing what comes back. What a command
needs is imported inside its function, because `supervise -- true` must not pay for `supervise doctor`.

Laws:
    1. While CMD runs, stdout is CMD's alone, with ``--json`` completion.json's. All our words go to stderr.
    2. A mistake of the caller is found before anything runs, and exits with 125.
    3. Whatever goes wrong in here exits with 125, never with a code that CMD could have given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from supervisor.arguments import Parsed, parse_arguments
from supervisor.errors import LogError, MachineError, PolicyError, SuperviseError, UsageError, refused_by_machine
from supervisor.streams import hold_streams, replace_missing

if TYPE_CHECKING:
    from supervisor.checking import Answer
    from supervisor.launch.state import Home
    from supervisor.report.lines import Line
    from supervisor.request import Outcome, Progress, RunRequest
    from supervisor.status import Paced

FAILED = 125
"""Our own failure."""

SWITCH_S = 0.0005
"""After how long a thread lets another one in: Python's 5 ms would make the loader and the consumer wait for us."""

SIGINT_EXIT = 130
SIGPIPE_EXIT = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the words after the program's name; None for those of this process.

    Returns:
        The exit code.
    """
    closed = hold_streams()
    replace_missing()
    words = sys.argv[1:] if argv is None else argv
    if "--" in words:
        _begin_loading()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name must not stop a report
    try:
        code = _dispatch(words, closed)
        with _writing():
            sys.stdout.flush()
    except SuperviseError as err:
        _complain(err)
        return FAILED
    except BrokenPipeError:
        _let_nothing_be_flushed()
        return SIGPIPE_EXIT
    except KeyboardInterrupt:
        return SIGINT_EXIT
    except Exception as err:  # noqa: BLE001  (law 3: Python's own exit code 1 could have been CMD's)
        return _crashed(err)
    return code


def _dispatch(words: Sequence[str], closed: frozenset[int]) -> int:
    parsed = parse_arguments(words)
    if parsed.help is None and parsed.command == "run" and not parsed.options.version:
        return _run(parsed, closed)
    if 1 in closed:
        message = "expected an open one to print on, got a closed one"
        raise UsageError(message, place="standard output")
    if parsed.help is not None:
        _print(parsed.help, end="")
        return 0
    return _version() if parsed.command == "run" else _COMMANDS[parsed.command](parsed)


def _complain(err: SuperviseError) -> None:
    from supervisor.report.safe import safe  # noqa: PLC0415

    errors = (err, *err.others) if isinstance(err, PolicyError) else (err,)
    for one in errors:
        _tell([f"supervise: {safe(str(one))}", *([f"  {safe(one.hint)}"] if one.hint else [])])


def _tell(lines: Iterable[str]) -> None:
    """Write to stderr, in one go so that lines of the child do not get between."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return  # nobody listens; the exit code still tells


def _notice(lines: Sequence[str]) -> None:
    """Tell what cannot wait. CMD's terminal may be raw, where a line feed alone is no new line."""
    from supervisor.report.safe import safe  # noqa: PLC0415

    _tell(f"{safe(one)}\r" if sys.stderr.isatty() else safe(one) for one in lines)


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        from supervisor.report.safe import harmless  # noqa: PLC0415  (a run that warns of nothing needs none of it)

        _tell([f"supervise: {harmless(sentence)}"])


def _let_nothing_be_flushed() -> None:
    """Keep Python from writing at exit to where nothing can be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _crashed(err: Exception) -> int:
    import traceback  # noqa: PLC0415

    if isinstance(err, OSError) and (refused := refused_by_machine(err)):
        _complain(refused)
        return FAILED
    _tell([traceback.format_exc(), "supervise: this is a bug of supervise; the trial is not judged"])
    return FAILED


def _home() -> Home:
    from supervisor.launch.state import Home  # noqa: PLC0415

    return Home.open(os.environ, uid=os.geteuid())


# -- run ---------------------------------------------------------------------------------------------------------


def _run(parsed: Parsed, closed: frozenset[int]) -> int:
    from supervisor.asking import make_request, warnings  # noqa: PLC0415

    teller = _Teller(quiet=parsed.options.quiet, status_fd=parsed.options.status_fd)
    request = make_request(parsed, environ=os.environ, closed=closed, on_progress=teller, on_notice=_notice)
    _warn(warnings(parsed, request))
    if parsed.options.dry_run:
        return _dry_run(request)
    outcome = _start(request)
    code = _exit_code(outcome, request)
    if request.json:
        _write_bytes([(outcome.directory / "completion.json").read_bytes()])
    elif not request.quiet:
        _tell(_summary(outcome))
    _tell(_unmet(outcome, request))
    _tell(_unwitnessed(outcome))
    _send_done(outcome, request, code)
    return code


def _begin_loading() -> None:
    """Let the kernel verify our programs while the rest of us is imported: both take about as long."""
    from probes.kernel.pins import begin_loading  # noqa: PLC0415

    sys.setswitchinterval(SWITCH_S)
    begin_loading()


def _start(request: RunRequest) -> Outcome:
    from supervisor.run import run  # noqa: PLC0415
    from supervisor.unseen import unseen  # noqa: PLC0415

    _warn(unseen(request))
    return run(request)


def _dry_run(request: RunRequest) -> int:
    from supervisor.plan import plan_as_json, plan_as_text  # noqa: PLC0415
    from supervisor.unseen import unseen  # noqa: PLC0415

    if 1 in request.closed:
        message = "expected an open one to print the plan on, got a closed one"
        raise UsageError(message, place="standard output")
    _warn(unseen(request))
    _print(plan_as_json(request) if request.json else plan_as_text(request))
    return 0


def _version() -> int:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        _print(f"supervise {version('supervise-eval')}")
    except PackageNotFoundError:
        _print("supervise (not installed: run from its source)")
    return 0


def _exit_code(outcome: Outcome, request: RunRequest) -> int:
    from supervisor.exit_code import exit_code  # noqa: PLC0415

    return exit_code(outcome.completion, request.require)


def _summary(outcome: Outcome) -> Iterable[str]:
    from supervisor.report.summary import summary  # noqa: PLC0415

    return summary(outcome.completion)


def _unmet(outcome: Outcome, request: RunRequest) -> Iterable[str]:
    from supervisor.verdict.completion import unmet_requirements  # noqa: PLC0415

    unmet = unmet_requirements(outcome.completion, frozenset(request.require))
    return [f"supervise: --require {word}: not met" for word in unmet]


def _unwitnessed(outcome: Outcome) -> Iterable[str]:
    from supervisor.report.safe import safe  # noqa: PLC0415

    return [
        f"supervise: {safe(place)} has not got the last checkpoint: {safe(why)}" for place, why in outcome.unwitnessed
    ]


def _send_done(outcome: Outcome, request: RunRequest, code: int) -> None:
    from supervisor.status import send_done  # noqa: PLC0415

    send_done(request.status_fd, outcome.completion, code)


class _Teller:
    """Passes progress on: as status lines, and as a live line on a terminal while the trial settles."""

    def __init__(self, *, quiet: bool, status_fd: int | None) -> None:
        self._status_fd = status_fd
        self._live = not quiet and sys.stderr.isatty()
        self._shown = False
        self._paced: Paced | None = None

    def __call__(self, progress: Progress) -> None:
        from supervisor.report.live import live_line  # noqa: PLC0415
        from supervisor.status import Paced, send_progress  # noqa: PLC0415

        self._paced = self._paced or Paced()
        if not self._paced.lets(progress):
            return
        send_progress(self._status_fd, progress)
        line = live_line(progress) if self._live else None
        if line is not None or self._shown:
            sys.stderr.write(f"\r\x1b[K{line or ''}")
            sys.stderr.flush()
        self._shown = line is not None


# -- reading -----------------------------------------------------------------------------------------------------


def _ls(_parsed: Parsed) -> int:
    from supervisor.reading import list_runs  # noqa: PLC0415
    from supervisor.report.listing import listing  # noqa: PLC0415

    _print_lines(listing(list_runs(_home())))
    return 0


def _show(parsed: Parsed) -> int:
    from supervisor.reading import read_run, since_then  # noqa: PLC0415
    from supervisor.report.text import report_lines  # noqa: PLC0415

    run = _home().find(parsed.options.run)
    reading = read_run(run)
    if parsed.options.format == "json":
        try:
            _write_bytes([reading.completion_bytes()])
        except LogError as err:
            _complain(err)
            return reading.exit_code or FAILED
    else:
        _print_lines(report_lines(reading.completion, run=reading.run, problem=reading.problem))
    _warn(since_then(run))
    if reading.problem is not None and not reading.unsealed:
        _warn([f"{reading.run} does not verify: {reading.problem}"])
    return reading.exit_code


def _why(parsed: Parsed) -> int:
    from supervisor.reading import explain  # noqa: PLC0415

    _print_lines(explain(_home().find(parsed.options.run), parsed.options.ref))
    return 0


def _events(parsed: Parsed) -> int:
    from supervisor.reading import event_lines  # noqa: PLC0415

    _write_bytes(event_lines(_home().find(parsed.options.run), kind=parsed.options.kind))
    return 0


def _verify(parsed: Parsed) -> int:
    from supervisor.checking import verify_proof_file, verify_runs  # noqa: PLC0415

    options, home = parsed.options, _home()
    if bool(options.runs) == (options.proof is not None):
        raise UsageError("expected either runs or --proof FILE", place="verify")
    if options.proof is not None:
        return _answer(verify_proof_file(home, options.proof, sys.stdin.buffer, key_file=options.key))
    return _answer(verify_runs(home, options.runs, key_file=options.key, witnessed=options.checkpoints))


def _answer(answer: Answer) -> int:
    _tell(answer.err)
    _write_bytes(f"{line}\n".encode() for line in answer.out)
    return answer.code


def _diff(parsed: Parsed) -> int:
    from supervisor.differing import diff_lines, stat_line, total_line  # noqa: PLC0415
    from supervisor.staged import diff_staged  # noqa: PLC0415

    files = added = removed = 0
    for diff in diff_staged(_home().find(parsed.options.run)):
        files, added, removed = files + 1, added + diff.added, removed + diff.removed
        _print(stat_line(diff) if parsed.options.stat else "\n".join(diff_lines(diff)))
    if parsed.options.stat or not files:
        _print(total_line(files, added, removed))
    return 0


def _prove(parsed: Parsed) -> int:
    from supervisor.checking import prove_event  # noqa: PLC0415

    proof = prove_event(_home(), parsed.options.run, parsed.options.event, output=parsed.options.output)
    _write_bytes([proof] if proof else [])
    return 0


def _key(parsed: Parsed) -> int:
    from supervisor.checking import keys  # noqa: PLC0415

    return _answer(keys(_home(), new=parsed.options.action == "new"))


def _commit(parsed: Parsed) -> int:
    from supervisor.staged import commit_staged  # noqa: PLC0415

    _warn([commit_staged(_home().find(parsed.options.run), force=parsed.options.force)])
    return 0


def _discard(parsed: Parsed) -> int:
    from supervisor.staged import discard_staged  # noqa: PLC0415

    _warn([discard_staged(_home().find(parsed.options.run))])
    return 0


# -- the machine and policies ------------------------------------------------------------------------------------


def _doctor(parsed: Parsed) -> int:
    from probes.doctor import examine, render_text, to_json  # noqa: PLC0415

    examination = examine()
    if parsed.options.json:
        import json  # noqa: PLC0415

        _print(json.dumps(to_json(examination), indent=1))
    else:
        _print(render_text(examination, colour=_coloured()), end="")
    return examination.exit_code


def _policy_command(parsed: Parsed) -> int:
    name = parsed.options.policy or "default"
    match parsed.options.action:
        case "schema":
            return _policy_schema()
        case "check":
            return _policy_check(name)
        case _:
            return _policy_show(name)


def _policy_schema() -> int:
    import json  # noqa: PLC0415

    from policies.schema import json_schema  # noqa: PLC0415

    _print(json.dumps(json_schema(), indent=1))
    return 0


def _policy_check(name: str) -> int:
    from policies.canonical import policy_digest  # noqa: PLC0415
    from policies.doubts import doubts  # noqa: PLC0415
    from policies.parse import load_policy  # noqa: PLC0415

    policy = load_policy(name)
    _warn(f"{name}: {doubt}" for doubt in doubts(policy))
    _print(f"{name}: good: policy {policy.name}, {policy_digest(policy)}")
    return 0


def _policy_show(name: str) -> int:
    from policies.canonical import policy_digest, render_whole  # noqa: PLC0415
    from policies.parse import load_policy  # noqa: PLC0415

    policy = load_policy(name)
    _print(f"# {policy_digest(policy)}\n{render_whole(policy)}", end="")
    return 0


# -- printing ----------------------------------------------------------------------------------------------------


def _coloured() -> bool:
    """Tell whether stdout takes colour: a terminal that is not dumb, and no NO_COLOR (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _print_lines(lines: Iterable[Line]) -> None:
    from supervisor.report.lines import plain  # noqa: PLC0415

    if not _coloured():
        _print(plain(lines), end="")
        return
    from supervisor.report.colour import print_coloured  # noqa: PLC0415

    with _writing():
        print_coloured(lines, sys.stdout)


def _print(text: str, end: str = "\n") -> None:
    with _writing():
        print(text, end=end)


def _write_bytes(chunks: Iterable[bytes]) -> None:
    with _writing():
        sys.stdout.flush()
    for chunk in chunks:
        with _writing():
            sys.stdout.buffer.write(chunk)
    with _writing():
        sys.stdout.buffer.flush()


@contextmanager
def _writing() -> Iterator[None]:
    """Tell a full disk as what it is; that a reader has gone is told by no word."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as err:
        _let_nothing_be_flushed()
        message = f"cannot be written: {err.strerror}"
        raise MachineError(message, place="standard output") from err


_COMMANDS: dict[str, Callable[[Parsed], int]] = {
    "doctor": _doctor,
    "ls": _ls,
    "show": _show,
    "why": _why,
    "events": _events,
    "verify": _verify,
    "diff": _diff,
    "prove": _prove,
    "key": _key,
    "commit": _commit,
    "discard": _discard,
    "policy": _policy_command,
}
