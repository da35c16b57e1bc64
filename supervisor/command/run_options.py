"""The options of ``run``: what each is called, takes and means. Reads nothing, prints nothing, starts nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``run``, by group."""
    policy = parser.add_argument_group("policy")
    _policy_arguments(policy)
    _verdict_arguments(policy)
    _claim_arguments(parser.add_argument_group("claim and stop rule"))
    files = parser.add_argument_group("files and environment")
    _files_arguments(files)
    files.add_argument(
        "--commit",
        metavar="WHEN",
        help="apply staged writes: always (default), never, or only if the verdicts are final, clean, or final,clean",
    )
    files.add_argument(
        "--validate",
        metavar="COMMAND",
        help="apply what was written, and send what was held, only if this shell command accepts all of it (exit 0)",
    )
    _network_arguments(parser.add_argument_group("network"))
    _limits_arguments(parser.add_argument_group("limits"))
    way = parser.add_argument_group("how it runs and what is told")
    _way_arguments(way)
    _result_arguments(way)
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")


def add_learn_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``learn``: those of ``run`` but for what is done with a verdict and with staged writes."""
    _policy_arguments(parser.add_argument_group("policy"))
    _claim_arguments(parser.add_argument_group("claim and stop rule"))
    _files_arguments(parser.add_argument_group("files and environment"))
    network = parser.add_argument_group("network")
    network.add_argument(
        "--network",
        metavar="WHAT",
        type=one_of("sinkhole", "allow"),
        default="sinkhole",
        help="what becomes of traffic: sinkhole (default) swallows it; allow lets it out, to see what comes next",
    )
    _network_arguments(network)
    _limits_arguments(parser.add_argument_group("limits"))
    _way_arguments(parser.add_argument_group("how it runs and what is told"))
    parser.set_defaults(require=(), commit=None, validate=None, json=False, dry_run=False, version=False)


def _policy_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-p", "--policy", metavar="NAME|FILE", help="what may happen and what is claimed (default: default)"
    )
    group.add_argument("--name", metavar="TEXT", help="what to call this run in lists and reports")


def _verdict_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--require",
        metavar="LIST",
        type=_requirements,
        default=(),
        help="exit with 120 unless all of it holds: final,separate,clean (the verdicts), success (the label), applied "
        "(all staged writes, as they were judged)",
    )


def _claim_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--outcome", metavar="PATH", help="the path that the label is about")
    group.add_argument(
        "--scope",
        metavar="GLOB",
        action="append",
        default=[],
        help="files that the claim is about (repeatable; default: the outcome)",
    )
    group.add_argument(
        "--period", metavar="P", help="how long it is judged: endpoint (default), within:D or eventually"
    )
    group.add_argument(
        "-t", "--timeout", metavar="D", help="end the trial after this time, such as 90s (default: never)"
    )
    group.add_argument(
        "--limit-role",
        metavar="ROLE",
        help="task (default): the limit is part of the task; observation: it only ends the watching of actions",
    )
    group.add_argument(
        "--at-endpoint",
        metavar="WHAT",
        help="what is done with what is still alive then: follow (default), cancel, freeze or isolate",
    )
    group.add_argument("--settle", metavar="D", help="how long it is followed after the endpoint (default: 2s)")
    group.add_argument(
        "--grade",
        metavar="COMMAND",
        help="shell command that gives the label, in a box of its own: 0 success, 1 failure, else none",
    )


def _files_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workspace",
        metavar="DIR",
        help="the directory to work in (default: the current one); CMD starts where you are, if that lies in it",
    )
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--stage", dest="mode", action="store_const", const="staged", help="stage writes to it (default)"
    )
    where.add_argument("--direct", dest="mode", action="store_const", const="direct", help="make writes to it in place")
    group.add_argument(
        "--write",
        metavar="GLOB",
        action="append",
        default=[],
        help="what may be written beside /tmp (repeatable; default: the workspace)",
    )
    for option, said in (
        ("--shared", "a place that is written in place and shared with other runs (repeatable)"),
        ("--read-deny", "what the trial must not see (repeatable)"),
    ):
        group.add_argument(option, metavar="PATH", action="append", default=[], help=said)
    group.add_argument(
        "--env",
        metavar="NAME[=V]",
        action="append",
        default=[],
        help="keep a name of the environment although it looks secret, or set it (repeatable)",
    )
    group.add_argument("--user", metavar="USER[:GROUP]", help="run as this user (default: the invoking one)")


def _network_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--allow",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="let the trial reach a host: a name, *.example.com, an address, a network, @BUNDLE (repeatable; port 443)",
    )
    group.add_argument(
        "--map",
        metavar="HOST:PORT=ADDR:PORT",
        action="append",
        default=[],
        help="where the gateway dials for an allowed host (repeatable)",
    )


def _limits_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--pids", metavar="N", help="processes and threads at any one time (default: 4096)")
    group.add_argument("--memory", metavar="SIZE", help="memory, such as 2GiB or 50%% of the machine's (default: 80%%)")
    group.add_argument("--cpus", metavar="X", help="processors' worth of time, such as 0.5 (default: none, no limit)")


def _way_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--backend", metavar="NAME", type=one_of("native"), default="native", help="what makes the box: native"
    )
    group.add_argument(
        "--status-fd", metavar="N", type=_descriptor, help="write one JSON object a line on progress to N"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="print no summary, only what was not applied")
    group.add_argument(
        "--key",
        metavar="FILE",
        help="sign the log with this key, Ed25519 in PEM (default: SUPERVISE_SIGNING_KEY, else `supervise key`)",
    )
    group.add_argument(
        "--checkpoint-to",
        metavar="PLACE",
        action="append",
        default=[],
        help="send every signed checkpoint of the log to a file, a directory or an https URL (repeatable)",
    )


def _result_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--json", action="store_true", help="print completion.json on stdout; the child's stdout goes to stderr"
    )
    group.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")


def _requirements(text: str) -> tuple[str, ...]:
    words, known = tuple(text.split(",")), ("final", "separate", "clean", "success", "applied")
    if wrong := [word for word in words if word not in known]:
        import difflib  # noqa: PLC0415  (only an error needs it)

        close = difflib.get_close_matches(wrong[0], known, n=1)
        message = f"expected {', '.join(known[:-1])} or {known[-1]}, got {wrong[0]!r}"
        raise argparse.ArgumentTypeError(f"{message}; did you mean {close[0]}?" if close else message)
    return words


def one_of(*words: str) -> Callable[[str], str]:
    """Give what reads one of some words, and nothing else."""

    def read(text: str) -> str:
        if text not in words:
            message = f"expected {' or '.join(words)}, got {text!r}"
            raise argparse.ArgumentTypeError(message)
        return text

    return read


def _descriptor(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 1):
        message = f"expected the number of an open descriptor above 1, got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)
