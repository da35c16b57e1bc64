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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.arguments import Parsed, parse_arguments
from supervisor.errors import SuperviseError, UsageError, refused_by_machine

if TYPE_CHECKING:
    from policies.options import PolicyOptions
    from policies.types import Policy
    from supervisor.checking import Answer
    from supervisor.launch.state import Home
    from supervisor.report.lines import Line
    from supervisor.request import Outcome, Phase, Progress, RunRequest

FAILED = 125
"""Our own failure."""

TELL_EVERY_S = 0.2
"""How often progress within one phase is passed on."""

SIGINT_EXIT = 130
SIGPIPE_EXIT = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the words after the program's name; None for those of this process.

    Returns:
        The exit code.
    """
    _open_streams()
    try:
        code = _dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except SuperviseError as err:
        _complain(err)
        return FAILED
    except BrokenPipeError:
        return _reader_left()
    except KeyboardInterrupt:
        return SIGINT_EXIT
    except Exception as err:  # noqa: BLE001  (law 3: Python's own exit code 1 could have been CMD's)
        return _crashed(err)
    return code


def _open_streams() -> None:
    """Give ourselves the streams that we were started without, before anything else takes their numbers."""
    from supervisor.launch.streams import hold_closed  # noqa: PLC0415

    hold_closed()
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - as long as we live
    sys.stderr = sys.stderr or sys.stdout
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name must not stop a report


def _dispatch(words: Sequence[str]) -> int:
    parsed = parse_arguments(words)
    if parsed.help is not None:
        print(parsed.help, end="")
        return 0
    return _COMMANDS[parsed.command](parsed)


def _complain(err: SuperviseError) -> None:
    from supervisor.report.safe import safe  # noqa: PLC0415

    lines = [f"supervise: {safe(str(err))}", *([f"  {safe(err.hint)}"] if err.hint else [])]
    _tell(lines)


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


def _reader_left() -> int:
    """Whoever read our stdout has gone: end quietly, and let nothing be flushed into the closed pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return SIGPIPE_EXIT


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


def _run(parsed: Parsed) -> int:
    if parsed.options.version:
        return _version()
    request = _request(parsed)
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
    _send_status(request.status_fd, {"phase": "done", "run": outcome.run, "exit_code": code})
    return code


def _start(request: RunRequest) -> Outcome:
    from probes.kernel.pins import begin_loading  # noqa: PLC0415

    begin_loading()  # the kernel verifies our programs while the rest of us is imported
    from supervisor.run import run  # noqa: PLC0415

    return run(request)


def _request(parsed: Parsed) -> RunRequest:
    from policies.options import set_environ  # noqa: PLC0415
    from supervisor.request import Requirement, RunRequest  # noqa: PLC0415

    options, given = parsed.options, _policy_options(parsed)
    _check_descriptor(options.status_fd)
    return RunRequest(
        argv=tuple(os.fsencode(word) for word in parsed.argv),
        policy=_policy(options.policy, given),
        name=options.name,
        environ=set_environ(dict(os.environ), given),
        cwd=_cwd(),
        user=options.user,
        quiet=options.quiet,
        json=options.json,
        status_fd=options.status_fd,
        require=frozenset(Requirement(word) for word in options.require),
        signing_key=Path(options.key) if options.key else None,
        on_progress=_Teller(quiet=options.quiet, status_fd=options.status_fd),
        on_notice=_notice,
    )


def _cwd() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as err:
        message = "the current directory does not exist any more"
        raise UsageError(message, hint="change to a directory that does") from err


def _policy_options(parsed: Parsed) -> PolicyOptions:
    from policies.options import PolicyOptions  # noqa: PLC0415

    options = parsed.options
    return PolicyOptions(
        workspace=options.workspace,
        mode=options.mode,
        commit=options.commit,
        write=tuple(options.write),
        env=tuple(options.env),
        outcome=options.outcome,
        scope=tuple(options.scope),
        period=options.period,
        timeout=options.timeout,
        limit_role=options.limit_role,
        at_endpoint=options.at_endpoint,
        settle=options.settle,
        checkpoint_to=tuple(options.checkpoint_to),
        pids=options.pids,
        memory=options.memory,
        cpus=options.cpus,
    )


def _policy(name: str | None, given: PolicyOptions) -> Policy:
    from policies.options import apply_options  # noqa: PLC0415
    from policies.types import Policy  # noqa: PLC0415

    if name is None:  # what default.toml says (a test holds them equal), without reading it
        return _checked(apply_options(Policy(), given))
    from policies.parse import load_policy  # noqa: PLC0415

    return _checked(apply_options(load_policy(name), given))


def _checked(policy: Policy) -> Policy:
    if policy.log.checkpoint_to:
        from supervisor.log.places import check_place  # noqa: PLC0415

        for place in policy.log.checkpoint_to:
            check_place(place, option="--checkpoint-to")
    workspace = policy.files.workspace
    if workspace is not None and not Path(workspace).is_dir():
        message = f"expected a directory, got {workspace!r}"
        raise UsageError(message, place="--workspace")
    return policy


def _check_descriptor(number: int | None) -> None:
    if number is None:
        return
    try:
        os.fstat(number)
    except OSError as err:
        message = f"expected the number of an open descriptor, got {number}: {err.strerror}"
        raise UsageError(message, place="--status-fd") from err


def _dry_run(request: RunRequest) -> int:
    from supervisor.plan import plan_as_json, plan_as_text  # noqa: PLC0415

    print(plan_as_json(request) if request.json else plan_as_text(request))
    return 0


def _version() -> int:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        print(f"supervise {version('supervise-eval')}")
    except PackageNotFoundError:
        print("supervise (not installed: run from its source)")
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


def _send_status(descriptor: int | None, record: dict[str, object]) -> None:
    """Write one status line, or none at all: a reader that is slow or gone must not hold or end a trial."""
    if descriptor is None:
        return
    import json  # noqa: PLC0415
    import select  # noqa: PLC0415

    # A pipe that is ready has room for PIPE_BUF bytes, more than a line has: the write is whole and does not block.
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    try:
        if any(ready & select.POLLOUT for _, ready in poll.poll(0)):
            os.write(descriptor, json.dumps(record).encode() + b"\n")
    except OSError:
        return


class _Teller:
    """Passes progress on: as status lines, and as a live line on a terminal while the trial settles."""

    def __init__(self, *, quiet: bool, status_fd: int | None) -> None:
        self._status_fd = status_fd
        self._live = not quiet and sys.stderr.isatty()
        self._shown = False
        self._last: tuple[Phase | None, float] = (None, 0.0)

    def __call__(self, progress: Progress) -> None:
        from supervisor.report.live import live_line, progress_record  # noqa: PLC0415

        phase, elapsed_s = self._last
        if progress.phase is phase and progress.elapsed_s < elapsed_s + TELL_EVERY_S:
            return
        self._last = (progress.phase, progress.elapsed_s)
        _send_status(self._status_fd, progress_record(progress))
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
    from supervisor.reading import read_run  # noqa: PLC0415
    from supervisor.report.text import report_lines  # noqa: PLC0415

    reading = read_run(_home().find(parsed.options.run))
    if parsed.options.format == "json":
        _write_bytes([reading.completion_bytes()])
    else:
        _print_lines(report_lines(reading.completion, run=reading.run, problem=reading.problem))
    if reading.problem is not None and not reading.unsealed:
        _tell([f"supervise: {reading.run} does not verify: {reading.problem}"])
        return FAILED
    return 0


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

    _tell([f"supervise: {commit_staged(_home().find(parsed.options.run))}"])
    return 0


def _discard(parsed: Parsed) -> int:
    from supervisor.staged import discard_staged  # noqa: PLC0415

    _tell([f"supervise: {discard_staged(_home().find(parsed.options.run))}"])
    return 0


# -- the machine and policies ------------------------------------------------------------------------------------


def _doctor(parsed: Parsed) -> int:
    from probes.doctor import examine, render_text, to_json  # noqa: PLC0415

    examination = examine()
    if parsed.options.json:
        import json  # noqa: PLC0415

        print(json.dumps(to_json(examination), indent=1))
    else:
        print(render_text(examination, colour=_coloured()), end="")
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

    print(json.dumps(json_schema(), indent=1))
    return 0


def _policy_check(name: str) -> int:
    from policies.canonical import policy_digest  # noqa: PLC0415
    from policies.parse import load_policy  # noqa: PLC0415

    policy = load_policy(name)
    print(f"{name}: good: policy {policy.name}, {policy_digest(policy)}")
    return 0


def _policy_show(name: str) -> int:
    from policies.canonical import policy_digest, render_toml  # noqa: PLC0415
    from policies.parse import load_policy  # noqa: PLC0415

    policy = load_policy(name)
    print(f"# {policy_digest(policy)}\n{render_toml(policy)}", end="")
    return 0


# -- printing ----------------------------------------------------------------------------------------------------


def _coloured() -> bool:
    """Tell whether stdout takes colour: a terminal that is not dumb, and no NO_COLOR (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _print_lines(lines: Iterable[Line]) -> None:
    from supervisor.report.lines import plain  # noqa: PLC0415

    if not _coloured():
        print(plain(lines), end="")
        return
    from supervisor.report.colour import print_coloured  # noqa: PLC0415

    print_coloured(lines, sys.stdout)


def _write_bytes(chunks: Iterable[bytes]) -> None:
    sys.stdout.flush()
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


_COMMANDS: dict[str, Callable[[Parsed], int]] = {
    "run": _run,
    "doctor": _doctor,
    "ls": _ls,
    "show": _show,
    "why": _why,
    "events": _events,
    "verify": _verify,
    "prove": _prove,
    "key": _key,
    "commit": _commit,
    "discard": _discard,
    "policy": _policy_command,
}
