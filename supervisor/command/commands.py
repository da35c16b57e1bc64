"""The commands beside ``run``: each is one call into the rooms and one way of printing what comes back.

What a command needs is imported inside its function, because `supervise -- true` must not pay for `supervise doctor`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from supervisor.command.arguments import Parsed
from supervisor.command.printing import coloured, complain, print_lines, print_text, tell, warn, write_bytes, write_file
from supervisor.errors import LogError, UsageError

if TYPE_CHECKING:
    from supervisor.command.checking import Answer
    from supervisor.launch.runs.state import Home

_FAILED = 125
"""Our own failure; `supervisor.command.exit_code` has it too, with all that a trial needs."""


def open_home() -> Home:
    """Open the directory that runs are kept in."""
    from supervisor.launch.runs.state import Home  # noqa: PLC0415

    return Home.open(os.environ, uid=os.geteuid())


# -- reading -----------------------------------------------------------------------------------------------------


def _ls(parsed: Parsed) -> int:
    from supervisor.kept.listed import list_runs, missed_runs  # noqa: PLC0415
    from supervisor.report.listing import listing, listing_json  # noqa: PLC0415

    home = open_home()
    runs, missed = list_runs(home), missed_runs(home)
    if parsed.options.json:
        import json  # noqa: PLC0415

        registry = {"missing": missed.missing, "problems": missed.problems}
        print_text(json.dumps({"runs": listing_json(runs), "registry": registry}, indent=1))
    else:
        print_lines(listing(runs))
    warn(missed.warnings())
    return 0


def _show(parsed: Parsed) -> int:
    from supervisor.kept.reading import read_run  # noqa: PLC0415
    from supervisor.kept.since import followed_since, read_since  # noqa: PLC0415
    from supervisor.report.text import report_lines  # noqa: PLC0415

    run = open_home().find(parsed.options.run)
    reading = read_run(run)
    stage = reading.completion.stage if reading.completion is not None else None
    since = read_since(run, stage.state if stage is not None else None)
    if parsed.options.format == "json":
        try:
            write_bytes([reading.completion_bytes()])
        except LogError as err:
            complain(err)
            return reading.exit_code or _FAILED
        warn(since.told())
    else:
        told = report_lines(
            reading.completion, run=reading.run, problem=reading.problem, unread=reading.unread, since=since
        )
        print_lines(told)
    warn(followed_since(run))
    if reading.problem is not None and not reading.unsealed:
        warn([f"{reading.run} does not verify: {reading.problem}"])
    return reading.exit_code


def _why(parsed: Parsed) -> int:
    from supervisor.kept.reading import explain  # noqa: PLC0415

    print_lines(explain(open_home().find(parsed.options.run), parsed.options.ref))
    return 0


def _events(parsed: Parsed) -> int:
    from supervisor.kept.reading import event_lines  # noqa: PLC0415

    write_bytes(event_lines(open_home().find(parsed.options.run), kind=parsed.options.kind))
    return 0


def _verify(parsed: Parsed) -> int:
    from supervisor.command.checking import verify_proof_file, verify_runs  # noqa: PLC0415

    options, home = parsed.options, open_home()
    if bool(options.runs) == (options.proof is not None):
        raise UsageError("expected either runs or --proof FILE", place="verify")
    if options.proof is not None:
        return _answer(verify_proof_file(home, options.proof, sys.stdin.buffer, key_file=options.key))
    answers = verify_runs(
        home, options.runs, key_file=options.key, witnessed=options.checkpoints, again=options.rejudge
    )
    return max(map(_answer, answers))


def _judge(parsed: Parsed) -> int:
    from supervisor.kept.judging import judge_run  # noqa: PLC0415
    from supervisor.report.judged import judged_lines  # noqa: PLC0415

    options, home = parsed.options, open_home()
    if options.claim is None and options.grade is None:
        raise UsageError("expected --claim FILE or --grade COMMAND", place="judge")
    run = home.find(options.run)
    judged = judge_run(home, run, claim=options.claim, grade=options.grade, environ=os.environ)
    if options.json:
        write_bytes([judged.document])
    else:
        print_lines(
            judged_lines(judged.completion, judged.declared, before=judged.declared_before, kept_in=judged.directory)
        )
    return 0


def _answer(answer: Answer) -> int:
    tell(answer.err)
    write_bytes(f"{line}\n".encode() for line in answer.out)
    return answer.code


def _diff(parsed: Parsed) -> int:
    from supervisor.conclude.differing import diff_lines, stat_line, total_line  # noqa: PLC0415
    from supervisor.kept.staged import applied_whole, diff_staged  # noqa: PLC0415

    run = open_home().find(parsed.options.run)
    if (told := applied_whole(run)) is not None:
        warn([told])
        return 0
    files = added = removed = 0
    for diff in diff_staged(run):
        files, added, removed = files + 1, added + diff.added, removed + diff.removed
        print_text(stat_line(diff) if parsed.options.stat else "\n".join(diff_lines(diff)))
    if parsed.options.stat or not files:
        print_text(total_line(files, added, removed))
    return 0


def _separate(parsed: Parsed) -> int:
    from supervisor.kept.separating import everything, separate_runs, warnings  # noqa: PLC0415
    from supervisor.report import separation  # noqa: PLC0415

    home, options = open_home(), parsed.options
    answer = separate_runs(home, everything(home) if options.runs == ["all"] else options.runs)
    if options.plot is not None:
        write_file(options.plot, separation.separation_svg(answer.names, answer.found).encode())
    if options.json:
        import json  # noqa: PLC0415

        print_text(json.dumps(answer.to_json(), indent=1))
    elif options.dot:
        print_text(separation.separation_dot(answer.names, answer.found), end="")
    else:
        print_lines(separation.separation_lines(answer.names, answer.found))
    warn(warnings(answer))
    return 0


def _prove(parsed: Parsed) -> int:
    from supervisor.command.checking import prove_event  # noqa: PLC0415

    proof = prove_event(open_home(), parsed.options.run, parsed.options.event, output=parsed.options.output)
    write_bytes([proof] if proof else [])
    return 0


def _key(parsed: Parsed) -> int:
    from supervisor.command.checking import keys  # noqa: PLC0415

    options = parsed.options
    return _answer(keys(open_home(), new=options.action == "new", bare=options.public))


def _commit(parsed: Parsed) -> int:
    from supervisor.kept.staged import commit_staged  # noqa: PLC0415

    warn([commit_staged(open_home().find(parsed.options.run), force=parsed.options.force)])
    return 0


def _discard(parsed: Parsed) -> int:
    from supervisor.kept.staged import discard_staged  # noqa: PLC0415

    warn([discard_staged(open_home().find(parsed.options.run))])
    return 0


def _settle(parsed: Parsed) -> int:
    from policies.durations import parse_duration  # noqa: PLC0415
    from supervisor.settle.settling import settle_run, told  # noqa: PLC0415

    options, home = parsed.options, open_home()
    for_s = None if options.for_s is None else parse_duration(options.for_s, place="--for")
    settled = settle_run(home, options.run, dict(os.environ), for_s=for_s)
    print_text("\n".join(told(settled.completion.run, settled)))
    return 0


def _replay(parsed: Parsed) -> int:
    from supervisor.replay.replaying import replay, table, to_json  # noqa: PLC0415

    options = parsed.options
    rows = replay(open_home(), dict(os.environ), service=options.service)
    if options.plot is not None:
        from supervisor.replay.plot import write_plot  # noqa: PLC0415

        write_plot(options.plot, rows)
    if options.json:
        import json  # noqa: PLC0415

        print_text(json.dumps(to_json(rows), indent=1))
    else:
        print_text("\n".join(table(rows)))
    return 0


# -- the machine and policies ------------------------------------------------------------------------------------


def _doctor(parsed: Parsed) -> int:
    from probes.doctor import examine, render_text, to_json  # noqa: PLC0415

    examination = examine()
    if parsed.options.json:
        import json  # noqa: PLC0415

        print_text(json.dumps(to_json(examination), indent=1))
    else:
        print_text(render_text(examination, colour=coloured()), end="")
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

    print_text(json.dumps(json_schema(), indent=1))
    return 0


def _policy_check(name: str) -> int:
    from policies.canonical import policy_digest  # noqa: PLC0415
    from policies.doubts import doubts  # noqa: PLC0415
    from policies.parse import load_policy  # noqa: PLC0415

    policy = load_policy(name)
    workspace = policy.files.workspace
    known = workspace if workspace is not None and workspace.startswith("/") else None
    warn(f"{name}: {doubt}" for doubt in doubts(policy, workspace=known))
    print_text(f"{name}: good: policy {policy.name}, {policy_digest(policy)}")
    return 0


def _policy_show(name: str) -> int:
    from policies.canonical import policy_digest, render_whole  # noqa: PLC0415
    from policies.parse import load_policy  # noqa: PLC0415

    policy = load_policy(name)
    print_text(f"# {policy_digest(policy)}\n{render_whole(policy)}", end="")
    return 0


COMMANDS: dict[str, Callable[[Parsed], int]] = {
    "doctor": _doctor,
    "ls": _ls,
    "show": _show,
    "why": _why,
    "events": _events,
    "verify": _verify,
    "judge": _judge,
    "diff": _diff,
    "separate": _separate,
    "prove": _prove,
    "key": _key,
    "commit": _commit,
    "discard": _discard,
    "settle": _settle,
    "replay": _replay,
    "policy": _policy_command,
}
"""The commands, by name."""
