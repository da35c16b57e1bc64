"""The words of the command line: argv verbatim, nothing shortened, every mistake with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.command.arguments import COMMANDS, help_text, parse_arguments, split_command
from supervisor.errors import UsageError

AWKWARD = ("a b", "c'd", 'e"f', "g\nh", "", "--", "-x", "*", "é", "\udcff", "--json", "ls")


@given(st.lists(st.text(), min_size=1))
def test_everything_after_the_first_dashes_is_the_command(words: list[str]) -> None:
    """No word of CMD is read, changed, joined or lost, whatever it looks like."""
    assert parse_arguments(["--", *words]).argv == tuple(words)
    assert parse_arguments(["run", "-q", "--", *words]).argv == tuple(words)


def test_awkward_words_are_verbatim() -> None:
    """Spaces, quotes, line ends, empty words, our own options, bad bytes and further dashes."""
    parsed = parse_arguments(["-q", "--", *AWKWARD])
    assert parsed.argv == AWKWARD
    assert parsed.options.quiet
    assert not parsed.options.json


def test_a_command_of_ours_after_the_dashes_is_a_program() -> None:
    """`supervise -- ls` runs ls."""
    assert parse_arguments(["--", "ls"]).command == "run"
    assert parse_arguments(["ls"]).command == "ls"
    assert parse_arguments(["run", "--", "run"]).argv == ("run",)


def test_the_dashes_are_not_the_value_of_an_option() -> None:
    """An option that lacks its value does not swallow the boundary."""
    with pytest.raises(UsageError) as caught:
        parse_arguments(["--settle", "--", "true"])
    assert caught.value.place == "--settle"


def test_the_first_dashes_split() -> None:
    """What comes before is ours; without dashes there is no command."""
    assert split_command(["-q", "--", "a", "--", "b"]) == (["-q"], ("a", "--", "b"))
    assert split_command(["-q"]) == (["-q"], None)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--no-such-option", "--", "touch", "ran"], "--no-such-option"),
        (["--no-such=1", "--", "true"], "--no-such"),
        (["--time", "1s", "--", "true"], "--time"),
        (["--deny", "x", "--", "true"], "--deny"),
        (["-Z", "--", "true"], "-Z"),
        (["true"], "run"),
        (["run", "true"], "run"),
        (["-q"], "run"),
        (["-q", "--"], "run"),
        (["--require", "final,good", "--", "true"], "--require"),
        (["--status-fd", "1", "--", "true"], "--status-fd"),
        (["--status-fd", "x", "--", "true"], "--status-fd"),
        (["--backend", "docker", "--", "true"], "--backend"),
        (["--stage", "--direct", "--", "true"], "--direct"),
        (["show", "last", "--format", "html"], "--format"),
        (["ls", "last"], "ls"),
        (["policy", "burn"], "check|show|schema"),
    ],
)
def test_a_mistake_is_named_with_its_option(words: list[str], place: str) -> None:
    """Unknown, shortened, later and contradicting options are all refused."""
    with pytest.raises(UsageError) as caught:
        parse_arguments(words)
    assert caught.value.place == place


def test_a_missing_run_is_a_usage_error() -> None:
    """Commands that need a RUN say so."""
    with pytest.raises(UsageError, match="RUN"):
        parse_arguments(["show"])


def test_a_program_without_dashes_is_answered_with_how_to_run_it() -> None:
    """The most likely mistake has a hint."""
    with pytest.raises(UsageError) as caught:
        parse_arguments(["make"])
    assert caught.value.hint == "supervise -- make … runs a command"


def test_options_that_repeat_are_all_kept() -> None:
    """`--write`, `--scope` and `--env` add up, in order."""
    words = ["--write", "a", "--write", "b", "--scope", "s", "--env", "A", "--env", "B=1", "--", "true"]
    options = parse_arguments(words).options
    assert (options.write, options.scope, options.env) == (["a", "b"], ["s"], ["A", "B=1"])


def test_repeating_does_not_leak_from_one_parse_to_the_next() -> None:
    """Lists are made anew for each command line."""
    parse_arguments(["--write", "a", "--", "true"])
    assert parse_arguments(["--", "true"]).options.write == []


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["run", "--help"], ["-q", "-h", "--", "x"]])
def test_help_is_one_text_for_run_and_for_nothing(words: list[str]) -> None:
    """`supervise` alone helps."""
    assert parse_arguments(words).help == help_text("run")


def test_help_of_cmd_is_cmds() -> None:
    """`--help` after the dashes is a word of CMD."""
    assert parse_arguments(["--", "--help"]).help is None


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_begins_with_its_usage(name: str) -> None:
    """Help is one fixed text, without trailing spaces and without colour."""
    text = help_text(name)
    assert text.startswith(f"usage: {COMMANDS[name].usage}\n")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_main_help_lists_every_command() -> None:
    """What dispatches is what is listed."""
    text = help_text("run")
    for command in list(COMMANDS.values())[1:]:
        assert f"  {command.usage.removeprefix('supervise ')} " in text


def test_learn_takes_a_command_as_run_does() -> None:
    """CMD is verbatim, and what becomes of traffic is said by its own option."""
    parsed = parse_arguments(["learn", "--network", "allow", "--allow", "api.test", "--", "cmd", "--json"])
    assert (parsed.command, parsed.argv) == ("learn", ("cmd", "--json"))
    assert (parsed.options.network, parsed.options.allow) == ("allow", ["api.test"])


@pytest.mark.parametrize("words", [["--json"], ["--commit", "never"], ["--require", "clean"], ["--dry-run"], []])
def test_learn_has_no_verdict_and_no_writes_to_speak_of(words: list[str]) -> None:
    """Options about what it does not do are unknown to it, and it needs a command."""
    with pytest.raises(UsageError):
        parse_arguments(["learn", *words] if not words else ["learn", *words, "--", "true"])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--setle", "1s", "--", "true"], "did you mean --settle?"),
        (["--require-all", "--", "true"], "did you mean --require?"),
        (["--zzzz", "--", "true"], "see supervise run --help"),
        (["verify", "--rejuge", "last"], "did you mean --rejudge?"),
        (["shwo", "last"], "did you mean supervise show? supervise -- shwo … runs a command"),
        (["help", "evnts"], "did you mean events?"),
        (["help", "x"], "supervise help lists the commands"),
        (["show"], "usage: supervise show RUN [--format text|json]"),
    ],
)
def test_a_word_that_is_nearly_right_is_answered_with_the_right_one(words: list[str], hint: str) -> None:
    """Options and commands; what is like none is answered with where all of them stand."""
    with pytest.raises(UsageError) as caught:
        parse_arguments(words)
    assert caught.value.hint == hint


@pytest.mark.parametrize(("word", "close"), [("clen", "clean"), ("sucess", "success"), ("xyz", None)])
def test_a_requirement_that_is_nearly_right_is_answered_with_the_right_one(word: str, close: str | None) -> None:
    """All words are listed in any case."""
    with pytest.raises(UsageError) as caught:
        parse_arguments(["--require", f"final,{word}", "--", "true"])
    told = f"expected final, separate, clean, success or applied, got {word!r}"
    assert caught.value.message == (f"{told}; did you mean {close}?" if close else told)


@pytest.mark.parametrize("option", ["-t", "--timeout"])
def test_a_value_that_begins_with_a_dash_is_told_from_none(option: str) -> None:
    """`-t -3s` reads as two options; the hint says how to write it. Without a word after it there is nothing."""
    with pytest.raises(UsageError, match="got the option '-3s'") as caught:
        parse_arguments([option, "-3s", "--", "true"])
    assert caught.value.hint == "a value that begins with - is written --timeout=-3s"
    with pytest.raises(UsageError, match="expected a value, got nothing"):
        parse_arguments([option, "--", "true"])
    assert parse_arguments([f"{option}=-3s", "--", "true"]).options.timeout in {"-3s", "=-3s"}


def test_a_missing_word_is_told_with_the_commands_name_once() -> None:
    """`supervise` is said by whoever prints it."""
    with pytest.raises(UsageError) as caught:
        parse_arguments(["why", "last"])
    assert str(caught.value) == "why: expected REF, got nothing"


@pytest.mark.parametrize(("words", "name"), [(["help"], "run"), (["help", "show"], "show"), (["help", "run"], "run")])
def test_help_is_a_command_too(words: list[str], name: str) -> None:
    """Of one command, or of all."""
    assert parse_arguments(words).help == help_text(name)


def test_the_version_has_a_short_option() -> None:
    """As nearly every program has one."""
    assert parse_arguments(["-V"]).options.version
    assert not parse_arguments(["--", "-V"]).options.version
