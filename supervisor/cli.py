"""The command line: reads argv, runs a trial or another command, and gives the exit code.

With `supervisor.command.printing` and `supervisor.command.commands` it is the only one that reads argv and the
terminal, or prints.
What a command needs is imported inside its function, because `supervise -- true` must not pay for `supervise doctor`.

Laws:
    1. While CMD runs, stdout is CMD's alone, with ``--json`` completion.json's. All our words go to stderr.
    2. A mistake of the caller is found before anything runs, and exits with 125.
    3. Whatever goes wrong in here exits with 125, never with a code that CMD could have given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from supervisor.command.arguments import Parsed, parse_arguments
from supervisor.command.beginning import begin
from supervisor.command.printing import (
    complain,
    let_nothing_be_flushed,
    notice,
    print_text,
    tell,
    warn,
    write_bytes,
    writing,
)
from supervisor.errors import SuperviseError, UsageError, refused_by_machine

if TYPE_CHECKING:
    from supervisor.command.status import Paced
    from supervisor.request import Outcome, Progress, RunRequest

FAILED = 125
"""Our own failure."""

SIGINT_EXIT = 130
SIGPIPE_EXIT = 141


def main(argv: Sequence[str] | None = None, *, closed: frozenset[int] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the words after the program's name; None for those of this process.
        closed: the standard streams that the caller had closed, from `begin`; None when it was not called.

    Returns:
        The exit code.
    """
    words = sys.argv[1:] if argv is None else argv
    closed = begin(words) if closed is None else closed
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name must not stop a report
    try:
        code = _dispatch(words, closed)
        with writing():
            sys.stdout.flush()
    except SuperviseError as err:
        complain(err)
        return FAILED
    except BrokenPipeError:
        let_nothing_be_flushed()
        return SIGPIPE_EXIT
    except KeyboardInterrupt:
        return SIGINT_EXIT
    except Exception as err:  # noqa: BLE001  (law 3: Python's own exit code 1 could have been CMD's)
        return _crashed(err)
    return code


def _dispatch(words: Sequence[str], closed: frozenset[int]) -> int:
    parsed = parse_arguments(words)
    if parsed.help is None and parsed.command in {"run", "tool"} and not parsed.options.version:
        return _run(parsed, closed)
    if 1 in closed:
        message = "expected an open one to print on, got a closed one"
        raise UsageError(message, place="standard output")
    if parsed.help is not None:
        print_text(parsed.help, end="")
        return 0
    if parsed.command == "learn":
        return _learn(parsed, closed)
    return _version() if parsed.command in {"run", "tool"} else _other(parsed)


def _other(parsed: Parsed) -> int:
    from supervisor.command.commands import COMMANDS  # noqa: PLC0415

    return COMMANDS[parsed.command](parsed)


def _crashed(err: Exception) -> int:
    import traceback  # noqa: PLC0415

    if isinstance(err, OSError) and (refused := refused_by_machine(err)):
        complain(refused)
        return FAILED
    tell([traceback.format_exc(), "supervise: this is a bug of supervise; the trial is not judged"])
    return FAILED


# -- run ---------------------------------------------------------------------------------------------------------


def _run(parsed: Parsed, closed: frozenset[int]) -> int:
    from supervisor.command.asking import make_request, warnings  # noqa: PLC0415

    teller = _Teller(quiet=parsed.options.quiet, status_fd=parsed.options.status_fd)
    request = make_request(parsed, environ=os.environ, closed=closed, on_progress=teller, on_notice=notice)
    warn(warnings(parsed, request))
    if parsed.options.dry_run:
        return _dry_run(request)
    outcome = _start(_with_relay(request) if parsed.command == "tool" else request)
    code = _exit_code(outcome, request)
    if request.json:
        write_bytes([(outcome.directory / "completion.json").read_bytes()])
    else:
        tell(_not_applied(outcome) if request.quiet else _summary(outcome))
    tell(_unmet(outcome, request))
    tell(_unwitnessed(outcome))
    _send_done(outcome, request, code)
    return code


def _learn(parsed: Parsed, closed: frozenset[int]) -> int:
    """Print what a trial needed. Its own output goes to stderr; that it failed is no failure: nobody answered it."""
    from policies.types import NetworkDefault  # noqa: PLC0415
    from supervisor.command.asking import make_request, warnings  # noqa: PLC0415
    from supervisor.command.learning import learn_policy  # noqa: PLC0415
    from supervisor.values import replace  # noqa: PLC0415

    options = parsed.options
    teller = _Teller(quiet=options.quiet, status_fd=options.status_fd)
    request = make_request(parsed, environ=os.environ, closed=closed, on_progress=teller, on_notice=notice)
    warn(warnings(parsed, request))
    outcome, text = learn_policy(replace(request, json=True), default=NetworkDefault(options.network))
    if not options.quiet:
        shown = f"`supervise show {outcome.run}` has all that was seen"
        tell([f"supervise: learned from a command that exited with {_exit_code(outcome, request)}; {shown}"])
    tell(_unwitnessed(outcome))
    code = 0 if outcome.completion.endpoint.executed else _exit_code(outcome, request)
    _send_done(outcome, request, code)
    if code == 0:
        print_text(text, end="")
    return code


def _with_relay(request: RunRequest) -> RunRequest:
    """Put ourselves between the caller and what runs: what it reads and writes goes through us."""
    from dataclasses import replace  # noqa: PLC0415

    from supervisor.trial.tool_relay import ToolRelay  # noqa: PLC0415

    if request.json or {0, 1} & request.closed:
        message = "expected open standard streams for the tool's messages, and no --json"
        raise UsageError(message, place="tool")
    return replace(request, relay=ToolRelay())


def _start(request: RunRequest) -> Outcome:
    from supervisor.run import run  # noqa: PLC0415

    warn(_foreseen(request))
    return run(request)


def _foreseen(request: RunRequest) -> Iterable[str]:
    """Say what CMD will not find, where it will not be able to write, and that it may write everywhere."""
    from supervisor.command.everywhere import everywhere  # noqa: PLC0415
    from supervisor.command.unseen import unseen  # noqa: PLC0415
    from supervisor.command.unwritable import unwritable  # noqa: PLC0415

    return (*unseen(request), *unwritable(request), *everywhere(request))


def _dry_run(request: RunRequest) -> int:
    from supervisor.command.plan import plan_as_json, plan_as_text  # noqa: PLC0415

    if 1 in request.closed:
        message = "expected an open one to print the plan on, got a closed one"
        raise UsageError(message, place="standard output")
    warn(_foreseen(request))
    print_text(plan_as_json(request) if request.json else plan_as_text(request))
    return 0


def _version() -> int:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        print_text(f"supervise {version('supervise-eval')}")
    except PackageNotFoundError:
        print_text("supervise (not installed: run from its source)")
    return 0


def _exit_code(outcome: Outcome, request: RunRequest) -> int:
    from supervisor.command.exit_code import exit_code  # noqa: PLC0415

    return exit_code(outcome.completion, request.require)


def _summary(outcome: Outcome) -> Iterable[str]:
    from supervisor.report.summary import summary  # noqa: PLC0415

    return summary(outcome.completion)


def _not_applied(outcome: Outcome) -> Iterable[str]:
    from supervisor.report.summary import unasked_for  # noqa: PLC0415

    return unasked_for(outcome.completion)


def _unmet(outcome: Outcome, request: RunRequest) -> Iterable[str]:
    from supervisor.verdict.completion import unmet_requirements  # noqa: PLC0415

    unmet = unmet_requirements(outcome.completion, frozenset(request.require))
    return [f"supervise: --require {word}: not met" for word in unmet]


def _unwitnessed(outcome: Outcome) -> Iterable[str]:
    if not outcome.unwitnessed:
        return []
    from supervisor.report.safe import safe  # noqa: PLC0415

    return [
        f"supervise: {safe(place)} has not got the last checkpoint: {safe(why)}" for place, why in outcome.unwitnessed
    ]


def _send_done(outcome: Outcome, request: RunRequest, code: int) -> None:
    from supervisor.command.status import send_done  # noqa: PLC0415

    send_done(request.status_fd, outcome.completion, code)


class _Teller:
    """Passes progress on: as status lines, and as a live line on a terminal while the trial settles."""

    def __init__(self, *, quiet: bool, status_fd: int | None) -> None:
        self._status_fd = status_fd
        self._live = not quiet and sys.stderr.isatty()
        self._shown = False
        self._paced: Paced | None = None

    def __call__(self, progress: Progress) -> None:
        from supervisor.command.status import Paced, send_progress  # noqa: PLC0415
        from supervisor.report.live import live_line  # noqa: PLC0415

        self._paced = self._paced or Paced()
        if not self._paced.lets(progress):
            return
        send_progress(self._status_fd, progress)
        line = live_line(progress) if self._live else None
        if line is not None or self._shown:
            sys.stderr.write(f"\r\x1b[K{line or ''}")
            sys.stderr.flush()
        self._shown = line is not None
