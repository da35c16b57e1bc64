"""The Python interface: the keywords of `supervisor.run` → a `RunRequest`, and references → completion arguments.

The rule: a keyword of the wrong type is an error that names it. A text where a list is expected would be a list of
letters, among them ``*``, and a policy that allows everything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from policies.called import Caller, as_keyword
from policies.durations import format_duration
from policies.options import PolicyOptions, apply_options, set_environ
from policies.parse import load_policy
from policies.types import Policy
from supervisor.errors import LogError, UsageError
from supervisor.request import RunRequest, check_places, check_workspace, named_by_caller
from supervisor.streams import is_open

if TYPE_CHECKING:
    from supervisor.kept.separating import RunsSeparated
    from supervisor.launch.runs.state import Home
    from supervisor.verdict.completion import Completion

PathLike = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_LONGEST_S = 3.2e9
"""A century; what is longer is a mistake of the unit."""


def run_command(
    command: Sequence[PathLike], policy: str | os.PathLike[str] | Policy | None, options: Mapping[str, Any]
) -> Completion:
    """Do what `supervisor.run` says."""
    from supervisor.run import run  # noqa: PLC0415  (the machinery, which a mistake in the arguments does not need)
    from supervisor.streams import streams_held  # noqa: PLC0415

    request = make_request(command, policy, options)
    with streams_held() as closed:
        return run(request.with_closed(closed)).completion


def make_request(
    command: Sequence[PathLike], policy: str | os.PathLike[str] | Policy | None, options: Mapping[str, Any]
) -> RunRequest:
    """Make the request that the keywords of `supervisor.run` mean.

    Raises:
        UsageError: the command is empty or a string, or a keyword is not known or has a value of another type.
        PolicyError: the policy cannot be read.
    """
    words = _command(command)
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := sorted(set(options) - _READERS.keys() - _MODES.keys()):
        message = "unknown keyword"
        raise UsageError(message, place=unknown[0], hint=_suggestion(unknown[0]))
    read = {name: _READERS[name](value, name) for name, value in given.items() if name in _READERS}
    mode = _mode(read.pop("mode", None), given)
    of_the_policy = {name: value for name, value in read.items() if name in _OF_THE_POLICY}
    asked = PolicyOptions(mode=mode, **of_the_policy)
    file = _policy(policy)
    source = policy if isinstance(policy, str) else str(policy) if isinstance(policy, os.PathLike) else None
    given_by = {name: read.get(name) for name in _OF_THE_POLICY}
    caller = Caller(file=file, options=given_by, source=source, called=as_keyword)
    with named_by_caller(caller.place):
        whole = apply_options(file, asked, called=as_keyword)
    cwd = Path(read.get("cwd") or Path.cwd()).absolute()
    check_places(whole, place="checkpoint_to")
    check_workspace(whole, cwd, place="workspace" if "workspace" in read else "files.workspace")
    return RunRequest(
        argv=words,
        policy=whole,
        cwd=cwd,
        environ=set_environ(read.get("environ", dict(os.environ)), asked, called=as_keyword),
        quiet=True,
        place_of=caller.place,
        **{name: value for name, value in read.items() if name in _OF_THE_REQUEST},
    )


def read_reference(reference: str | os.PathLike[str], home: str | os.PathLike[str] | Home | None = None) -> Completion:
    """Do what `supervisor.read` says."""
    from supervisor.kept.reading import read_run  # noqa: PLC0415
    from supervisor.launch.runs.state import Home  # noqa: PLC0415

    where = Home.open(os.environ, uid=os.geteuid()) if home is None else _home(home, "home")
    reading = read_run(where.find(_path(reference, "reference")))
    if reading.problem is not None or reading.completion is None:
        message = f"expected a run whose log verifies, got: {reading.problem}"
        raise LogError(message, place=reading.run)
    return reading.completion


def separate_references(
    runs: Sequence[str | os.PathLike[str]], home: str | os.PathLike[str] | Home | None = None
) -> RunsSeparated:
    """Do what `supervisor.separate` says."""
    from supervisor.kept.separating import separate_runs  # noqa: PLC0415
    from supervisor.launch.runs.state import Home  # noqa: PLC0415

    if isinstance(runs, str) or not isinstance(runs, Sequence):
        _refuse("a list of runs", runs, "runs")
    where = Home.open(os.environ, uid=os.geteuid()) if home is None else _home(home, "home")
    return separate_runs(where, [str(_path(run, f"runs[{at}]")) for at, run in enumerate(runs)])


# -- what a value may be -----------------------------------------------------------------------------------------


def _refuse(expected: str, value: object, place: str, *, hint: str | None = None) -> NoReturn:
    message = f"expected {expected}, got {value!r}"
    raise UsageError(message, place=place, hint=hint)


def _command(command: object) -> tuple[bytes, ...]:
    if not isinstance(command, list | tuple) or not command:
        _refuse("a list of words", command, "command", hint='["sh", "-c", "…"] runs a shell')
    return tuple(os.fsencode(_path(word, f"command[{at}]", what="a text or bytes")) for at, word in enumerate(command))


def _text(value: object, place: str, what: str = "a text") -> str:
    """Read a text that the kernel can be given: no NUL in it, undecodable bytes as `os.fsdecode` gives them."""
    if not isinstance(value, str):
        _refuse(what, value, place)
    if "\0" in value:
        _refuse(f"{what} without NUL", value, place)
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        _refuse(f"{what} without lone surrogates", value, place)
    return value


def _path(value: object, place: str, what: str = "a path") -> str:
    if not isinstance(value, str | bytes | os.PathLike):
        _refuse(what, value, place)
    return _text(os.fsdecode(value), place, what)


def _texts(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        hint = f"{place}=[{value!r}] is a list of one" if isinstance(value, str) else None
        _refuse("a list of texts", value, place, hint=hint)
    return tuple(_text(item, f"{place}[{at}]") for at, item in enumerate(value))


def _paths(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        hint = f"{place}=[{value!r}] is a list of one" if isinstance(value, str) else None
        _refuse("a list of paths or globs", value, place, hint=hint)
    return tuple(_path(item, f"{place}[{at}]", "a path or a glob") for at, item in enumerate(value))


def _environment(value: object, place: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        _refuse("a mapping of texts to texts", value, place)
    environ = {_text(name, place): _text(text, f"{place}[{name!r}]") for name, text in value.items()}
    if wrong := [name for name in environ if not name or "=" in name]:
        _refuse("names of variables", wrong[0], place)
    return environ


def _duration(value: object, place: str) -> str:
    """Read a duration: a number of seconds, or a text as on the command line."""
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse("a number of seconds or a duration such as '10s'", value, place)
    if not 0 <= value <= _LONGEST_S:  # no number is neither
        _refuse("a number of seconds, 0 or more", value, place)
    return format_duration(float(value))


def _seconds(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_S:
        _refuse("a number of seconds, 0 or more", value, place)
    return float(value)


def _amount(value: object, place: str) -> str:
    """Read an amount: a number, or a text as on the command line (``"4GiB"``, ``"none"``)."""
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse("a number, or a text such as '4GiB' or 'none'", value, place)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _stream(value: object, place: str) -> int:
    """Read an open descriptor, or a file that has one; what such a file holds back of what was written is written."""
    number = value
    if not isinstance(value, int) and hasattr(value, "fileno"):
        try:
            if hasattr(value, "flush"):
                value.flush()
            number = value.fileno()
        except (OSError, ValueError) as err:
            message = f"expected a file with a descriptor, got {value!r}: {err}"
            raise UsageError(message, place=place, hint="a pipe or a temporary file has one") from err
    if not isinstance(number, int) or isinstance(number, bool) or number < 0 or not is_open(number):
        _refuse(
            "an open descriptor or file", value, place, hint="None is the caller's own; open os.devnull for nothing"
        )
    return number


def _file(value: object, place: str) -> Path:
    return Path(_path(value, place, "a file"))


def _home(value: object, place: str) -> Home:
    from supervisor.launch.runs.state import Home  # noqa: PLC0415

    if isinstance(value, Home):
        return value
    return Home.open({"SUPERVISE_HOME": _path(value, place, "a directory")}, uid=os.geteuid())


def _callable(value: object, place: str) -> Callable[..., object]:
    if not callable(value):
        _refuse("something that can be called", value, place)
    return value


_READERS: Mapping[str, Callable[[object, str], Any]] = {
    "workspace": _path,
    "mode": _text,
    "commit": _text,
    "write": _paths,
    "shared": _paths,
    "read_deny": _paths,
    "env": _texts,
    "allow": _texts,
    "map": _texts,
    "outcome": _path,
    "scope": _paths,
    "period": _text,
    "timeout": _duration,
    "limit_role": _text,
    "at_endpoint": _text,
    "settle": _duration,
    "grade": _text,
    "pids": _amount,
    "memory": _amount,
    "cpus": _amount,
    "validate": _text,
    "name": _text,
    "user": _text,
    "cwd": _path,
    "environ": _environment,
    "home": _home,
    "on_progress": _callable,
    "on_notice": _callable,
    "room_wait_s": _seconds,
    "signing_key": _file,
    "checkpoint_to": _paths,
    "stdin": _stream,
    "stdout": _stream,
    "stderr": _stream,
}
"""How each keyword is read; a test holds them equal to the fields of `PolicyOptions` and what a request takes."""

_OF_THE_POLICY = frozenset(field.name for field in fields(PolicyOptions)) - {"mode"}
_OF_THE_REQUEST = frozenset(
    {"name", "user", "home", "on_progress", "on_notice", "room_wait_s", "signing_key", "stdin", "stdout", "stderr"}
)
_MODES = {"stage": "staged", "direct": "direct"}


def _mode(mode: str | None, given: Mapping[str, Any]) -> str | None:
    """Read ``stage=True`` and ``direct=True``, which say what ``mode`` says; False is the same as not given."""
    for name in _MODES.keys() & given.keys():
        if not isinstance(given[name], bool):
            _refuse("True or False", given[name], name)
    named = {name: text for name, text in _MODES.items() if given.get(name)}
    if len(named) + (mode is not None) > 1:
        message = f"expected one of mode, stage and direct, got {', '.join([*named, *(['mode'] if mode else [])])}"
        raise UsageError(message, place=next(iter(named)))
    return next(iter(named.values()), mode)


def _policy(policy: object) -> Policy:
    match policy:
        case None:
            return Policy()
        case Policy():
            return policy
        case str():
            return load_policy(_text(policy, "policy"))
        case os.PathLike():
            return load_policy(str(Path(_path(policy, "policy")).absolute()))
        case _:
            _refuse("a name, a file or a policy", policy, "policy")


def _suggestion(name: str) -> str:
    import difflib  # noqa: PLC0415  (only an error needs it)

    known = sorted(_READERS.keys() | _MODES.keys())
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
