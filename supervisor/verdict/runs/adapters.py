"""Whom a supervisor asked for its run: adapters of services read what other runs may have left there.

In: what a policy says of a service; out: addresses, spelled as in `supervisor.verdict.runs.run_index.Server`, and
paths. What stands in a text for the run or an operation is known only in part: then an address is nobody's, and of
a path the directory is what was met.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from policies.types import Service, Settle, SettleKind

_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379, "postgresql": 5432, "postgres": 5432}
_DSN = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)")
_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
"""Who asks: what stands for a password that was taken out is in brackets, as only an address of IPv6 may be."""
_POSTGRES_DIRECTORY = "/var/run/postgresql"
"""Where libpq of Debian looks for a server that is not named; elsewhere it is /tmp."""


def addresses(service: Service) -> Iterator[str]:
    """Give where the adapter of a service asks: ``HOST:PORT`` or ``unix:/PATH``; nothing where that is not known."""
    settle = service.settle
    if settle is None:
        return
    match settle.kind:
        case SettleKind.HTTP:
            found = _unix(settle.text("socket")) or _of_url(settle.text("url") or "")
        case SettleKind.REDIS:
            found = _of_url(settle.text("url") or "redis://127.0.0.1:6379")
        case SettleKind.POSTGRES:
            found = _of_dsn(settle.text("dsn") or "")
        case SettleKind.BEANSTALK:
            found = settle.text("address")
        case _:
            found = None
    if found and "{" not in found:
        yield found


def paths(settle: Settle, run: str) -> Iterator[tuple[bytes, str]]:
    """Give the paths that an adapter reads, and how: a directory where the name in it is not known."""
    if settle.kind is SettleKind.FILE and (path := settle.text("path")):
        path = path.replace("{run}", run)
        known, more, _ = path.partition("{")
        if known.startswith("/"):
            met = posixpath.dirname(known) if more else known
            yield posixpath.normpath(met).encode(errors="surrogateescape"), "listed" if more else "read"


def is_unwitnessed(settle: Settle) -> bool:
    """Tell whether what an adapter meets is not known: a program of the evaluator's, which may ask anybody."""
    return settle.kind is SettleKind.COMMAND


def _unix(path: str | None) -> str | None:
    return f"unix:{path}" if path else None


def _of_url(url: str) -> str | None:
    from urllib.parse import urlsplit  # noqa: PLC0415 - hardly any run has such a service

    try:
        parts = urlsplit(_USER.sub(r"\1", url))
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    if parts.scheme == "unix":
        return _unix(parts.path)
    return f"{parts.hostname or '127.0.0.1'}:{port}" if port else None


def _of_dsn(dsn: str) -> str | None:
    if "://" in dsn:
        return _of_url(dsn)
    said = {name: value.strip("'") for name, value in _DSN.findall(dsn)}
    host, port = said.get("hostaddr") or said.get("host") or _POSTGRES_DIRECTORY, said.get("port", "5432")
    return _unix(f"{host}/.s.PGSQL.{port}") if host.startswith("/") else f"{host}:{port}"
