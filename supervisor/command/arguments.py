"""The words of the command line: argv → values. Reads nothing, prints nothing, starts nothing.

Laws:
    1. Everything after the first ``--`` is CMD, byte for byte; nothing before it ever is.
    2. A first word that names a command is that command; otherwise the command is ``run``.
    3. No option can be shortened: a new option never changes what an old script means.
    4. A mistake is a `UsageError` whose place is the option as it was typed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, NoReturn

from supervisor.command import route_arguments
from supervisor.command.run_options import add_learn_options, add_run_options, one_of
from supervisor.errors import UsageError

HELP_WIDTH = 100
"""Columns of every help text: fixed, so that the manual can quote it."""

EXIT_CODES = """\
exit codes:
  the child's; 128+n when it died of signal n; 124 when our time-out ended it; 125 when we failed;
  126 when CMD cannot run, 127 when it was not found; 120 when a --require was not met and the child exited 0
  verify, show: 0 good, 1 bad, 125 unreadable
"""


class Command(NamedTuple):
    """One command: how it is used, what it does, and what it takes."""

    name: str
    usage: str
    about: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


class Parsed(NamedTuple):
    """A command line that was understood.

    Attributes:
        command: name of the command.
        options: its options and arguments, by name; empty for ``run`` without a CMD (help was asked for).
        argv: CMD, for ``run``.
        help: the text to print instead of doing anything, or None.
    """

    command: str
    options: argparse.Namespace
    argv: tuple[str, ...] = ()
    help: str | None = None


class _Parser(argparse.ArgumentParser):
    """argparse that raises our errors and never prints or exits; ``words`` are what it reads."""

    words: Sequence[str] = ()
    color = property(lambda _self: False, lambda _self, _value: None)  # Python 3.14 would colour what the manual quotes

    def error(self, message: str) -> NoReturn:
        """Turn ``argument --x: message`` into a `UsageError` with the option as its place."""
        hint = f"see {self.prog} --help"
        if message.startswith("argument "):
            place, _, rest = message.removeprefix("argument ").partition(": ")
            spellings = place.split("/")
            if rest == "expected one argument" and (dashed := self._dashed_after(spellings)) is not None:
                told = f"expected a value, got the option {dashed!r}"
                hint = f"a value that begins with - is written {spellings[-1]}={dashed}"
                raise UsageError(told, place=place, hint=hint)
            raise UsageError(_in_our_words(rest), place=place, hint=hint)
        name = self.prog.removeprefix("supervise ")
        if missing := re.fullmatch(r"the following arguments are required: (.*)", message):
            raise UsageError(f"expected {missing[1]}, got nothing", place=name, hint=f"usage: {self.usage}")
        raise UsageError(message, place=name, hint=hint)

    def _dashed_after(self, spellings: Sequence[str]) -> str | None:
        """Give the word after an option that begins with a dash, which argparse takes for the next option."""
        pairs = pairwise(self.words)
        return next((after for word, after in pairs if word in spellings and after.startswith("-")), None)

    def nearest(self, word: str) -> str | None:
        """Give the option that is spelled most like a word that is none."""
        return _nearest(word, [spelling for spelling in self._option_string_actions if spelling.startswith("--")])


def _nearest(word: str, known: Iterable[str]) -> str | None:
    import difflib  # noqa: PLC0415  (only an error needs it)

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


_WORDINGS = (
    (r"expected one argument", "expected a value, got nothing"),
    (r"expected at least one argument", "expected at least one value, got nothing"),
    (r"not allowed with argument (.*)", r"expected one of the two, got it together with \1"),
    (r"ignored explicit argument (.*)", r"expected no value, got \1"),
)
"""The messages of argparse, and how we say them."""


def _in_our_words(message: str) -> str:
    return next((found.expand(ours) for theirs, ours in _WORDINGS if (found := re.fullmatch(theirs, message))), message)


def parse_arguments(words: Sequence[str]) -> Parsed:
    """Read a command line.

    Args:
        words: without the program's own name; undecodable bytes as surrogates, as Python gives them.

    Raises:
        UsageError: when a word is not understood.
    """
    if not words:
        return Parsed(command="run", options=argparse.Namespace(), help=help_text("run"))
    if words[0] == "help":
        return _parse_help(words[1:])
    name = words[0] if words[0] in COMMANDS else "run"
    rest = words[1:] if words[0] in COMMANDS else words
    return _parse_trial(name, rest) if name in TRIALS else _parse_other(name, rest)


def _parse_help(words: Sequence[str]) -> Parsed:
    """Read what comes after ``help``: the name of a command, or nothing."""
    name = words[0] if words else "run"
    if name not in COMMANDS or len(words) > 1:
        wrong = name if name not in COMMANDS else words[1]
        close = _nearest(wrong, COMMANDS) if wrong is name else None
        hint = f"did you mean {close}?" if close else "supervise help lists the commands"
        raise UsageError(f"expected the name of one command, got {wrong!r}", place="help", hint=hint)
    return Parsed(command=name, options=argparse.Namespace(), help=help_text(name))


def help_text(name: str) -> str:
    """Give what ``supervise NAME --help`` prints; ``run`` is also that of ``supervise --help``."""
    return _parser(COMMANDS[name]).format_help()


def split_command(words: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...] | None]:
    """Split at the first ``--``: our own words, and CMD with its arguments (None when there is no ``--``)."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], tuple(words[at + 1 :])


def _parse_trial(name: str, words: Sequence[str]) -> Parsed:
    ours, argv = split_command(words)
    options = _parse(COMMANDS[name], ours)
    if options.help or options.version:
        return Parsed(command=name, options=options, help=help_text(name) if options.help else None)
    if not argv:
        message = "expected -- and a command, got no --" if argv is None else "expected a command after --, got nothing"
        raise UsageError(message, place=name, hint=COMMANDS[name].usage)
    return Parsed(command=name, options=options, argv=argv)


def _parse_other(name: str, words: Sequence[str]) -> Parsed:
    if any(word in {"-h", "--help"} for word in split_command(words)[0]):
        return Parsed(command=name, options=argparse.Namespace(), help=help_text(name))
    return Parsed(command=name, options=_parse(COMMANDS[name], words))


def _parse(command: Command, words: Sequence[str]) -> argparse.Namespace:
    parser = _parser(command)
    parser.words = words
    options, unknown = parser.parse_known_args(list(words))
    if not unknown:
        return options
    word = unknown[0]
    if word.startswith("-"):
        message, option = "unknown option", word.partition("=")[0]
        close = parser.nearest(option)
        raise UsageError(
            message, place=option, hint=f"did you mean {close}?" if close else f"see supervise {command.name} --help"
        )
    of_run = command.name in TRIALS
    message = f"expected {'an option or --' if of_run else 'no more words'}, got {word!r}"
    called = "supervise" if command.name == "run" else f"supervise {command.name}"
    hint = f"{called} -- {word} … runs a command" if of_run else f"usage: {command.usage}"
    if command.name == "run" and (close := _nearest(word, COMMANDS)) is not None:
        hint = f"did you mean supervise {close}? {hint}"
    raise UsageError(message, place=command.name, hint=hint)


def _parser(command: Command) -> _Parser:
    parser = _Parser(
        prog=f"supervise {command.name}",
        usage=command.usage,
        description=command.about,
        epilog=_epilog() if command.name == "run" else None,
        formatter_class=_help_formatter,
        allow_abbrev=False,
        add_help=False,
    )
    command.add_arguments(parser)
    _add_help(parser)
    return parser


def _help_formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=HELP_WIDTH)


def _epilog() -> str:
    rows = [f"  {command.usage.removeprefix('supervise '):<44}{command.about}" for command in COMMANDS.values()]
    return "\n".join(
        [
            "commands:",
            *rows[1:],
            "",
            "RUN is an id, a unique beginning or the last part of one, `last`, or a directory.",
            "",
            EXIT_CODES,
        ]
    )


def _add_help(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-h", "--help", action="store_true", help="print this and exit")


def _word(name: str, about: str) -> Callable[[argparse.ArgumentParser], None]:
    return lambda parser: _add_positional(parser, name, about)


def _add_positional(parser: argparse.ArgumentParser, name: str, about: str) -> None:
    parser.add_argument(name.lower(), metavar=name, help=about)


def _json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    _add_positional(parser, "RUN", _RUN)
    parser.add_argument(
        "--format",
        metavar="text|json",
        type=one_of("text", "json"),
        default="text",
        help="how to print it (default: text)",
    )


def _why_arguments(parser: argparse.ArgumentParser) -> None:
    _add_positional(parser, "RUN", _RUN)
    about = (
        "event number (41), range (41-57), process id (412@8123456789), effect id (o1), path, "
        "or finality, separation, scope"
    )
    _add_positional(parser, "REF", about)


def _events_arguments(parser: argparse.ArgumentParser) -> None:
    _add_positional(parser, "RUN", _RUN)
    parser.add_argument("--kind", metavar="K", help="only this kind (file.opened), or all of a subject (file)")
    parser.add_argument(
        "--format",
        metavar="jsonl",
        type=one_of("jsonl"),
        default="jsonl",
        help="how to print them (default: jsonl)",
    )


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="*", help=f"{_RUN}; or `all`")
    parser.add_argument("--key", metavar="FILE", help="demand that this key signed: ed25519:…, or a key in PEM")
    parser.add_argument(
        "--checkpoints", metavar="FILE", help="what a second place kept: the log must extend every checkpoint in it"
    )
    parser.add_argument(
        "--proof", metavar="FILE", help="instead of runs: check what `supervise prove` wrote (- for stdin)"
    )
    parser.add_argument(
        "--rejudge",
        action="store_true",
        help="recompute every verdict from the log too, and compare",
    )


def _judge_arguments(parser: argparse.ArgumentParser) -> None:
    _add_positional(parser, "RUN", _RUN)
    parser.add_argument("--claim", metavar="FILE", help="policy whose claim, order and grader are taken")
    parser.add_argument("--grade", metavar="CMD", help="grade what was kept of the outcome with this command")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _prove_arguments(parser: argparse.ArgumentParser) -> None:
    _add_positional(parser, "RUN", _RUN)
    parser.add_argument("event", metavar="N", type=_number, help="number of the event")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write the proof (default: stdout)")


def _key_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="show|new",
        type=one_of("show", "new"),
        help="show the public keys, the one that signs first; or make a new one that signs from now on",
    )
    parser.add_argument(
        "--public", action="store_true", help="print the key that signs and nothing else, as `verify --key` takes it"
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        message = f"expected the number of an event, got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    _add_positional(parser, "RUN", _RUN)
    parser.add_argument("--stat", action="store_true", help="print one line a path")


def _commit_arguments(parser: argparse.ArgumentParser) -> None:
    _add_positional(parser, "RUN", _RUN)
    parser.add_argument("--force", action="store_true", help="overwrite what was changed on the host meanwhile")


def _separate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=f"{_RUN}; two or more, or `all`")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON")
    shown.add_argument("--dot", action="store_true", help="print the graph for Graphviz")
    parser.add_argument("--plot", metavar="FILE", help="draw the graph into an SVG file")


def _policy_command_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="check|show|schema",
        type=one_of("check", "show", "schema"),
        help="check a file, show a policy with all defaults and its digest, or print the JSON Schema",
    )
    parser.add_argument("policy", metavar="FILE|NAME", nargs="?", help="for check and show (default: default)")


_RUN = "id, its beginning or last part, `last` or a directory"
TRIALS = frozenset({"run", "learn", "tool"})
"""The commands that run a CMD."""


def _settle_arguments(parser: argparse.ArgumentParser) -> None:
    _add_positional(parser, "RUN", _RUN)
    route_arguments.add_settle(parser)


COMMANDS = {
    command.name: command
    for command in (
        Command(
            name="run",
            usage="supervise [run] [OPTIONS] -- CMD [ARG…]",
            about="Run one command in a box, watch it from outside, and judge it from the log alone.",
            add_arguments=add_run_options,
        ),
        Command(
            name="learn",
            usage="supervise learn [OPTIONS] -- CMD [ARG…]",
            about="Run one command and print the smallest policy that it needs.",
            add_arguments=add_learn_options,
        ),
        Command(
            name="doctor",
            usage="supervise doctor [--json]",
            about="Tell what this machine can witness and enforce.",
            add_arguments=_json_argument,
        ),
        Command(name="ls", usage="supervise ls [--json]", about="List the runs.", add_arguments=_json_argument),
        Command(
            name="show",
            usage="supervise show RUN [--format text|json]",
            about="Print the report of a run.",
            add_arguments=_show_arguments,
        ),
        Command(
            name="why",
            usage="supervise why RUN REF",
            about="Print the reasons for something, and the events they rest on.",
            add_arguments=_why_arguments,
        ),
        Command(
            name="events",
            usage="supervise events RUN [--kind K] [--format jsonl]",
            about="Print the events of a run.",
            add_arguments=_events_arguments,
        ),
        Command(
            name="verify",
            usage="supervise verify [OPTIONS] RUN… | --proof FILE",
            about="Check that logs are whole and unaltered.",
            add_arguments=_verify_arguments,
        ),
        Command(
            name="judge",
            usage="supervise judge RUN [OPTIONS]",
            about="Judge a run under another claim, or grade its outcome again.",
            add_arguments=_judge_arguments,
        ),
        Command(
            name="diff",
            usage="supervise diff RUN [--stat]",
            about="Show what a run has staged, or changed in place with `--direct`.",
            add_arguments=_diff_arguments,
        ),
        Command(
            name="prove",
            usage="supervise prove RUN N [-o FILE]",
            about="Write a proof that an event is in a log.",
            add_arguments=_prove_arguments,
        ),
        Command(
            name="key",
            usage="supervise key show|new [--public]",
            about="Show the keys that sign logs, or make a new one.",
            add_arguments=_key_arguments,
        ),
        Command(
            name="commit",
            usage="supervise commit RUN [--force]",
            about="Apply the staged writes of a run to its workspace.",
            add_arguments=_commit_arguments,
        ),
        Command(
            name="discard",
            usage="supervise discard RUN",
            about="Forget the staged writes of a run.",
            add_arguments=_word("RUN", _RUN),
        ),
        Command(
            name="tool",
            usage="supervise tool [OPTIONS] -- SERVER [ARG…]",
            about="Run a tool server (MCP, stdio) as a trial, and count its calls.",
            add_arguments=add_run_options,
        ),
        Command(
            name="settle",
            usage="supervise settle RUN [--for D]",
            about="Go on following what keeps a run open.",
            add_arguments=_settle_arguments,
        ),
        Command(
            name="replay",
            usage="supervise replay [OPTIONS]",
            about="Score the same orders at two moments, with shared and isolated state.",
            add_arguments=route_arguments.add_replay,
        ),
        Command(
            name="separate",
            usage="supervise separate RUN RUN… [OPTIONS]",
            about="Judge runs against each other: could one have changed another?",
            add_arguments=_separate_arguments,
        ),
        Command(
            name="policy",
            usage="supervise policy check|show|schema [FILE|NAME]",
            about="Check a policy, print it, or print the schema of policies.",
            add_arguments=_policy_command_arguments,
        ),
    )
}
"""Every command by name; ``run`` first, the rest in the order of the help text."""
