"""The tables ``[[services]]`` of a policy: what they may hold, how they are read and written.

A service is somebody outside the box whom a trial may ask for something. ``settle`` says how the supervisor asks the
service itself what became of that. The rule is the parser's: nothing in a table is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from policies.durations import DURATION_PATTERN, format_duration, parse_duration
from policies.mistakes import Mistakes, read_each
from policies.types import Option, Service, ServiceState, ServiceStatus, Settle, SettleKind
from supervisor.errors import PolicyError
from supervisor.values import dataclass

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
AT_PATTERN = r"unix:/.+|[^\s:/]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}"
_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
_NO_TIME_S = 0.01


class OptionShape(StrEnum):
    """How an option of ``settle`` is written."""

    TEXT = "text"
    TEXTS = "texts"
    FLAG = "flag"
    STATUS = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleOption:
    """One option of one kind of ``settle``; ``about`` is one sentence for people."""

    name: str
    shape: OptionShape
    about: str
    required: bool = False


_T, _TS = OptionShape.TEXT, OptionShape.TEXTS

WORDS = tuple(
    SettleOption(name=status.value, shape=_TS, about=f"Answers that mean {meaning}.")
    for status, meaning in (
        (ServiceStatus.PENDING, "that it may still act"),
        (ServiceStatus.COMMITTED, "that it was done"),
        (ServiceStatus.FAILED, "that it was not done, and will not be"),
        (ServiceStatus.CANCELLED, "that it was called off"),
        (ServiceStatus.SETTLED, "that nothing is left to act, whatever came of it"),
    )
)
"""Options that say what an answer in words means; an answer that none of them has is unknown."""

_ABSENT = SettleOption(
    name="absent", shape=OptionShape.STATUS, about="What it means that nothing is there (default: unknown)."
)
_PASSWORD = SettleOption(
    name="password_env", shape=_T, about="Name of the variable of the supervisor's environment that has the password."
)

KINDS: Mapping[SettleKind, tuple[SettleOption, ...]] = {
    SettleKind.HTTP: (
        SettleOption(name="url", shape=_T, about="What is asked by GET; http or https.", required=True),
        SettleOption(name="socket", shape=_T, about="The unix socket that answers, instead of the URL's host."),
        SettleOption(name="about", shape=_T, about="JSON pointer to words for people, which are kept with the answer."),
        SettleOption(name="pointer", shape=_T, about="JSON pointer to the answer (default: the whole body)."),
        SettleOption(
            name="can_commit",
            shape=_T,
            about="JSON pointer to whether it can still be done; without it, called off is not enough.",
        ),
        SettleOption(
            name="token_env",
            shape=_T,
            about="Name of the supervisor's variable that has a bearer token.",
        ),
        SettleOption(name="cancel", shape=_T, about="What gets an empty POST to call it off (at_endpoint = cancel)."),
        _ABSENT,
        *WORDS,
    ),
    SettleKind.REDIS: (
        SettleOption(name="url", shape=_T, about="Such as redis://127.0.0.1:6379/0, or unix:///run/redis.sock."),
        _PASSWORD,
        SettleOption(name="queue", shape=_TS, about="Lists, sets, sorted sets or streams that must be empty."),
        SettleOption(name="stream", shape=_T, about="A stream of which a group must have taken and acknowledged all."),
        SettleOption(name="group", shape=_T, about="The consumer group of the stream."),
        SettleOption(name="key", shape=_T, about="A key whose value is the answer."),
        SettleOption(name="field", shape=_T, about="The field of it, when the key is a hash."),
        SettleOption(name="about", shape=_TS, about="Keys whose values are kept with the answer, for people."),
        SettleOption(name="expiring", shape=_TS, about="Keys that must have expired or gone."),
        _ABSENT,
        *WORDS,
    ),
    SettleKind.POSTGRES: (
        SettleOption(name="dsn", shape=_T, about="Connection string of libpq, without a password.", required=True),
        _PASSWORD,
        SettleOption(name="query", shape=_T, about="A query whose first column is the answer; rows must agree."),
        SettleOption(name="prepared", shape=_T, about="LIKE pattern of prepared transactions; none may be left."),
        SettleOption(name="user", shape=_T, about="A role that must have no transaction open."),
        SettleOption(name="locks", shape=OptionShape.FLAG, about="No advisory lock may be held in the database."),
        SettleOption(name="notify", shape=OptionShape.FLAG, about="The queue of NOTIFY must be empty."),
        _ABSENT,
        *WORDS,
    ),
    SettleKind.BEANSTALK: (
        SettleOption(name="address", shape=_T, about="HOST:PORT, or unix:PATH, of beanstalkd.", required=True),
        SettleOption(name="tubes", shape=_TS, about="Tubes without ready, reserved or delayed jobs.", required=True),
    ),
    SettleKind.RABBITMQ: (
        SettleOption(
            name="url", shape=_T, about="Of its management interface, such as http://127.0.0.1:15672.", required=True
        ),
        SettleOption(name="user", shape=_T, about="Who asks (default: guest)."),
        _PASSWORD,
        SettleOption(name="vhost", shape=_T, about="Where the queues are (default: /)."),
        SettleOption(name="queues", shape=_TS, about="Queues without ready or unacknowledged messages.", required=True),
        _ABSENT,
    ),
    SettleKind.COMMAND: (
        SettleOption(
            name="command",
            shape=_TS,
            about="Words of a program: exit 0 committed, 1 failed, 2 pending, 3 cancelled for good, 4 settled.",
            required=True,
        ),
        SettleOption(name="cancel", shape=_TS, about="Words of a program that calls it off (at_endpoint = cancel)."),
    ),
    SettleKind.FILE: (
        SettleOption(name="path", shape=_T, about="A file of the host; its text is the answer.", required=True),
        _ABSENT,
        *WORDS,
    ),
    SettleKind.DOCKER: (
        SettleOption(
            name="socket", shape=_T, about="The socket of dockerd: no container of the run may be left.", required=True
        ),
    ),
    SettleKind.CGROUP: (
        SettleOption(
            name="path", shape=_T, about="A cgroup of the host, of v2: no process may be left in it.", required=True
        ),
        _ABSENT,
    ),
}
"""What each kind takes beside ``kind``, ``every`` and ``deadline``."""

_COMMON = ("kind", "every", "deadline")
_KEYS = ("name", "at", "state", "settle")


_LOCAL = frozenset({SettleKind.COMMAND, SettleKind.FILE, SettleKind.DOCKER, SettleKind.CGROUP})


_HERE = ("unix:", "host=/", "localhost", "127.0.0.", "::1")
"""In an address: of this machine. A name may be so too, which nobody can tell."""


def is_local(settle: Settle) -> bool:
    """Tell whether a question is one to the machine that it is asked on, so that another one would answer otherwise."""
    texts = [text for _, value in settle.options for text in (value if isinstance(value, tuple) else (str(value),))]
    here = any(word in text for text in texts for word in _HERE)
    return settle.kind in _LOCAL or settle.text("socket") is not None or here


def parse_services(value: object, refuse_unknown: Callable[[str, Sequence[str], str], None]) -> tuple[Service, ...]:
    """Read the array of tables.

    Args:
        value: of the key ``services``.
        refuse_unknown: raises for a key that is none of those named; gets the prefix for the place.

    Raises:
        PolicyError: with the place, such as ``services[1].settle.url``.
    """
    if not isinstance(value, list | tuple):
        raise PolicyError("expected an array of tables ([[services]])", place="services")
    services = read_each(lambda at, table: _service(table, f"services[{at}]", refuse_unknown), value)
    names = [service.name for service in services]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise PolicyError(f"expected a name of its own, got {name!r} again", place=f"services[{at}].name")
    return services


def _service(table: object, place: str, refuse_unknown: Callable[[str, Sequence[str], str], None]) -> Service:
    if not isinstance(table, Mapping):
        raise PolicyError(f"expected a table, got {table!r}", place=place)
    mistakes, read = Mistakes(), dict[str, Any]()
    for key in table:
        with mistakes:
            refuse_unknown(key, _KEYS, f"{place}.")
    with mistakes:
        expects = "a name of letters, digits, _, . and -"
        read["name"] = _text(table.get("name"), f"{place}.name", NAME_PATTERN, expects)
    with mistakes:
        if (at := table.get("at")) is not None:
            read["at"] = _text(at, f"{place}.at", AT_PATTERN, "unix:/PATH or HOST:PORT")
    with mistakes:
        state = table.get("state", ServiceState.SHARED)
        read["state"] = ServiceState(_choice(state, f"{place}.state", [one.value for one in ServiceState]))
    with mistakes:
        if (settle := table.get("settle")) is not None:
            read["settle"] = _settle(settle, f"{place}.settle", refuse_unknown)
    mistakes.tell()
    return Service(**read)


def _settle(table: object, place: str, refuse_unknown: Callable[[str, Sequence[str], str], None]) -> Settle:
    if not isinstance(table, Mapping):
        raise PolicyError(f"expected a table, got {table!r}", place=place)
    kind = SettleKind(_choice(table.get("kind"), f"{place}.kind", [one.value for one in SettleKind]))
    known = {option.name: option for option in KINDS[kind]}
    mistakes, times, options = Mistakes(), dict[str, float](), dict[str, Option]()
    for key in table:
        with mistakes:
            refuse_unknown(key, (*_COMMON, *known), f"{place}.")
    for name, option in known.items():
        with mistakes:
            if name in table:
                options[name] = _option(option, table[name], f"{place}.{name}")
            elif option.required:
                raise PolicyError(f"expected {option.shape.value}, got nothing", place=f"{place}.{name}")
    for name, usual in (("every", "250ms"), ("deadline", "2s")):
        with mistakes:
            times[name] = _duration(table.get(name, usual), f"{place}.{name}")
    mistakes.tell()
    _check_together(kind, options, place)
    return Settle(
        kind=kind, every_s=times["every"], deadline_s=times["deadline"], options=tuple(sorted(options.items()))
    )


def _check_together(kind: SettleKind, options: Mapping[str, Option], place: str) -> None:
    """Refuse what each option allows but the whole does not: a check that checks nothing would always be settled."""
    asked = {
        SettleKind.REDIS: ("queue", "stream", "key", "expiring"),
        SettleKind.POSTGRES: ("query", "prepared", "user", "locks", "notify"),
    }.get(kind)
    if asked is not None and not any(options.get(name) for name in asked):
        raise PolicyError(f"expected one of {', '.join(asked)}, got none", place=place)
    if ("stream" in options) != ("group" in options):
        raise PolicyError("expected stream and group together", place=place)
    words = [word.name for word in WORDS]
    says = kind in {SettleKind.HTTP, SettleKind.FILE} or "key" in options or "query" in options
    if says and not any(options.get(word) for word in words):
        raise PolicyError(f"expected one of {', '.join(words)}, got none", place=place)
    for name in ("url", "cancel", "dsn"):
        if isinstance(text := options.get(name), str) and "://" in text:
            _check_url(text, f"{place}.{name}")
    for name in ("command", "tubes", "queues"):
        if name in options and not options[name]:
            raise PolicyError("expected at least one word, got none", place=f"{place}.{name}")
    for name in ("path",) if kind in {SettleKind.FILE, SettleKind.CGROUP} else ():
        if not str(options[name]).startswith("/"):
            raise PolicyError(f"expected an absolute path, got {options[name]!r}", place=f"{place}.{name}")


def _check_url(text: str, place: str) -> None:
    """Refuse an address that no adapter can ask at; who asks there is no part of it (`policies.redaction`)."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - hardly any run has such a service

    url = _USER.sub(r"\1", text.replace("{run}", "1").replace("{operation}", "1"))
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as err:
        raise PolicyError(f"expected a URL, got {text!r}: {err}", place=place) from err


def _option(option: SettleOption, value: object, place: str) -> Option:
    match option.shape:
        case OptionShape.TEXT:
            return _text(value, place)
        case OptionShape.TEXTS:
            if not isinstance(value, list | tuple):
                raise PolicyError(f"expected an array of strings, got {value!r}", place=place)
            return read_each(lambda at, item: _text(item, f"{place}[{at}]"), value)
        case OptionShape.FLAG:
            if not isinstance(value, bool):
                raise PolicyError(f"expected true or false, got {value!r}", place=place)
            return value
        case OptionShape.STATUS:
            return _choice(value, place, [one.value for one in ServiceStatus])


def _text(value: object, place: str, pattern: str | None = None, expects: str = "a string") -> str:
    if not isinstance(value, str) or not value or "\0" in value or (pattern and not re.fullmatch(pattern, value)):
        raise PolicyError(f"expected {expects}, got {'nothing' if value is None else repr(value)}", place=place)
    return value


def _choice(value: object, place: str, known: Sequence[str]) -> str:
    if value not in known:
        raise PolicyError(
            f"expected {' or '.join(known)}, got {'nothing' if value is None else repr(value)}", place=place
        )
    return str(value)


def _duration(value: object, place: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        message = f"expected a string, got {value!r}"
        raise PolicyError(message, place=place, hint=f'for seconds write "{value}s"')
    seconds = parse_duration(_text(value, place), place=place)
    if seconds < _NO_TIME_S:
        raise PolicyError(f"expected a duration of 10ms or more, got {value!r}", place=place)
    return seconds


def services_to_list(services: Sequence[Service]) -> list[dict[str, Any]]:
    """Give the tables as plain values, as `parse_services` reads them."""
    return [_to_table(service) for service in services]


def _to_table(service: Service) -> dict[str, Any]:
    table: dict[str, Any] = {"name": service.name, "state": service.state.value}
    if service.at is not None:
        table["at"] = service.at
    if service.settle is not None:
        options = {name: list(value) if isinstance(value, tuple) else value for name, value in service.settle.options}
        table["settle"] = {
            "kind": service.settle.kind.value,
            "every": format_duration(service.settle.every_s),
            "deadline": format_duration(service.settle.deadline_s),
            **options,
        }
    return table


def services_schema() -> dict[str, Any]:
    """Give the JSON Schema of the array."""
    return {
        "type": "array",
        "description": "Services outside the box that the trial may reach, and how they are asked what became of it.",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "pattern": f"^{NAME_PATTERN}$", "description": "What reports call it."},
                "at": {"type": "string", "pattern": f"^({AT_PATTERN})$", "description": ABOUT["at"]},
                "state": {"enum": [one.value for one in ServiceState], "description": ABOUT["state"]},
                "settle": {"oneOf": [_kind_schema(kind) for kind in KINDS]},
            },
        },
    }


ABOUT = {
    "name": "What reports call it, and what the claim names as `service:NAME`.",
    "at": "Where the trial reaches it: unix:/PATH (shown in the box), or HOST:PORT as it names it.",
    "state": "Who else meets what the trial leaves there: everybody, nobody (it is this run's own), or nothing stays.",
    "settle": "How the service itself is asked what became of it; without it, that is never known.",
}
"""One sentence for each key of a service, for people."""


def _kind_schema(kind: SettleKind) -> dict[str, Any]:
    duration = {"type": "string", "pattern": f"^{DURATION_PATTERN}$"}
    shapes: dict[OptionShape, dict[str, Any]] = {
        OptionShape.TEXT: {"type": "string", "minLength": 1},
        OptionShape.TEXTS: {"type": "array", "items": {"type": "string", "minLength": 1}},
        OptionShape.FLAG: {"type": "boolean"},
        OptionShape.STATUS: {"enum": [one.value for one in ServiceStatus]},
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["kind", *(option.name for option in KINDS[kind] if option.required)],
        "properties": {
            "kind": {"const": kind.value},
            "every": duration,
            "deadline": duration,
            **{option.name: {**shapes[option.shape], "description": option.about} for option in KINDS[kind]},
        },
    }
