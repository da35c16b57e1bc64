"""Whom an adapter asks, by what its policy says."""

from __future__ import annotations

import pytest

from policies.parse import parse_policy
from supervisor.verdict.runs.adapters import addresses, paths
from supervisor.verdict.runs.run_index import Server


def settle(text: str) -> tuple[list[str], list[tuple[bytes, str]]]:
    """Give the addresses and the paths of one adapter."""
    words = "" if 'kind = "beanstalk"' in text or 'kind = "command"' in text else ', committed = ["done"]'
    policy = parse_policy(f'schema = 1\n[[services]]\nname = "s"\nsettle = {{ {text}{words} }}\n', place="p.toml")
    (service,) = policy.services
    assert service.settle is not None
    return list(addresses(service)), list(paths(service.settle, "20261130-124148-k7s29w"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('kind = "redis", key = "k"', "127.0.0.1:6379"),
        ('kind = "redis", key = "k", url = "redis://db.test/1"', "db.test:6379"),
        ('kind = "redis", key = "k", url = "unix:///run/r.sock?db=1"', "unix:/run/r.sock"),
        ('kind = "postgres", query = "q", dsn = "host=/run/pg user=x"', "unix:/run/pg/.s.PGSQL.5432"),
        ('kind = "postgres", query = "q", dsn = "user=x"', "unix:/var/run/postgresql/.s.PGSQL.5432"),
        ('kind = "postgres", query = "q", dsn = "host=db.test port=6000"', "db.test:6000"),
        ('kind = "postgres", query = "q", dsn = "postgresql://x@db.test/app"', "db.test:5432"),
        ('kind = "postgres", query = "q", dsn = "postgresql://x:[redacted URL]**@db.test/app"', "db.test:5432"),
        ('kind = "redis", key = "k", url = "redis://:[redacted]@db.test:6380/1"', "db.test:6380"),
        ('kind = "http", url = "https://api.test/state"', "api.test:443"),
        ('kind = "http", url = "http://api.test:81/{run}"', "api.test:81"),
        ('kind = "http", url = "http://x/", socket = "/run/h.sock"', "unix:/run/h.sock"),
        ('kind = "beanstalk", address = "127.0.0.1:11300", tubes = ["t"]', "127.0.0.1:11300"),
        ('kind = "http", url = "http://{run}.test/"', None),
        ('kind = "command", command = ["true"]', None),
    ],
)
def test_an_adapter_asks_at_an_address(text: str, expected: str | None) -> None:
    """As `Server` spells it; one that has the run in it is not known to be anybody's."""
    assert settle(text) == ([] if expected is None else [expected], [])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/state", (b"/srv/state", "read")),
        ("/srv/{run}/state", (b"/srv/20261130-124148-k7s29w/state", "read")),
        ("/srv/done/{operation}.ok", (b"/srv/done", "listed")),
    ],
)
def test_an_adapter_reads_a_file(path: str, expected: tuple[bytes, str]) -> None:
    """Of a name that is not known, the directory is what was met."""
    assert settle(f'kind = "file", path = "{path}"') == ([], [expected])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1:80", "[::1]:80", True),
        ("127.0.0.2:80", "localhost:80", True),
        ("127.0.0.1:80", "127.0.0.1:81", False),
        ("192.0.2.1:80", "127.0.0.1:80", False),
        ("unix:/run/a", "unix:/run/b", False),
    ],
)
def test_this_machine_has_many_names(one: str, other: str, same: bool) -> None:  # noqa: FBT001
    """A server that listens on all of them is one server."""
    assert (not set(Server(one, None, None, 0, 0).keys).isdisjoint(Server(other, None, None, 0, 0).keys)) is same


def test_a_socket_is_known_by_what_it_is() -> None:
    """Two paths lead to it."""
    one, other = (Server(f"unix:/run/{name}", None, None, 0, 0, socket=(1, 2)) for name in "ab")
    assert not set(one.keys).isdisjoint(other.keys)
