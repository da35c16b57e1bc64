"""The tables [[services]]: read whole, refused with their place, written back as they were."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from policies.canonical import policy_digest, policy_to_mapping, render_toml
from policies.parse import parse_policy, policy_from_mapping
from policies.schema import json_schema
from policies.services import KINDS, OptionShape, is_local
from policies.types import Policy, ServiceState, SettleKind
from supervisor.errors import PolicyError

GOOD: dict[SettleKind, dict[str, Any]] = {
    SettleKind.HTTP: {"url": "http://x/", "committed": ["done"]},
    SettleKind.REDIS: {"queue": ["q"]},
    SettleKind.POSTGRES: {"dsn": "host=/run", "locks": True},
    SettleKind.BEANSTALK: {"address": "127.0.0.1:11300", "tubes": ["t"]},
    SettleKind.RABBITMQ: {"url": "http://127.0.0.1:15672", "queues": ["q"]},
    SettleKind.COMMAND: {"command": ["true"]},
    SettleKind.FILE: {"path": "/srv/state", "committed": ["done"]},
    SettleKind.DOCKER: {"socket": "/run/docker.sock"},
    SettleKind.CGROUP: {"path": "/sys/fs/cgroup/system.slice/shop.service"},
}


def document(*services: dict[str, Any], **claim: Any) -> dict[str, Any]:
    """Give a policy as plain values."""
    return {"schema": 1, "services": list(services), "claim": claim}


def service(kind: SettleKind = SettleKind.HTTP, **changes: Any) -> dict[str, Any]:
    """Give one service; what is changed in ``settle`` to None is left out."""
    settle = {"kind": kind.value, **GOOD[kind], **changes}
    return {"name": "s", "settle": {name: value for name, value in settle.items() if value is not None}}


def refused(mapping: dict[str, Any]) -> PolicyError:
    """Give the error of a policy."""
    with pytest.raises(PolicyError) as raised:
        policy_from_mapping(mapping)
    return raised.value


@pytest.mark.parametrize("kind", list(SettleKind))
def test_every_kind_is_read_and_written_back(kind: SettleKind) -> None:
    """As plain values and as TOML, with the same digest."""
    policy = policy_from_mapping(document(service(kind), outcome="service:s"))
    assert policy.claim.service == "s"
    assert policy_from_mapping(policy_to_mapping(policy)) == policy
    again = parse_policy(render_toml(policy), place="x")
    assert again == policy
    assert policy_digest(again) == policy_digest(policy)


def test_a_policy_without_services_has_no_table_for_them() -> None:
    """So that policies from before there were any keep their digest."""
    assert "services" not in policy_to_mapping(Policy())


def test_what_is_not_said_is_the_careful_thing() -> None:
    """A service is shared unless somebody says otherwise, and without a settle nobody can ask it."""
    (found,) = policy_from_mapping(document({"name": "s", "at": "unix:/run/s.sock"})).services
    assert (found.state, found.settle, found.socket) == (ServiceState.SHARED, None, "/run/s.sock")


@pytest.mark.parametrize(
    ("mapping", "place"),
    [
        (document({"name": "s", "sett": {}}), "services[0].sett"),
        (document({"name": "a b"}), "services[0].name"),
        (document({}), "services[0].name"),
        (document({"name": "s"}, {"name": "s"}), "services[1].name"),
        (document({"name": "s", "at": "somewhere"}), "services[0].at"),
        (document({"name": "s", "state": "mine"}), "services[0].state"),
        (document({"name": "s", "settle": {"kind": "smtp"}}), "services[0].settle.kind"),
        (document(service(url=None)), "services[0].settle.url"),
        (document(service(committed=None)), "services[0].settle"),
        (document(service(committed="done")), "services[0].settle.committed"),
        (document(service(absent="gone")), "services[0].settle.absent"),
        (document(service(every="1ms")), "services[0].settle.every"),
        (document(service(deadline="2")), "services[0].settle.deadline"),
        (document(service(SettleKind.REDIS, queue=None)), "services[0].settle"),
        (document(service(SettleKind.REDIS, stream="s")), "services[0].settle"),
        (document(service(SettleKind.REDIS, tubes=["x"])), "services[0].settle.tubes"),
        (document(service(SettleKind.POSTGRES, locks=False)), "services[0].settle"),
        (document(service(SettleKind.POSTGRES, locks="yes")), "services[0].settle.locks"),
        (document(service(SettleKind.FILE, path="state")), "services[0].settle.path"),
        (document(service(SettleKind.COMMAND, command=[])), "services[0].settle.command"),
        (document(outcome="service:other"), "claim.outcome"),
        ({"schema": 1, "services": {"name": "s"}}, "services"),
        ({"schema": 1, "services": ["s"]}, "services[0]"),
    ],
)
def test_a_mistake_is_told_with_its_place(mapping: dict[str, Any], place: str) -> None:
    """A check that checks nothing is one: it would always be settled."""
    assert refused(mapping).place == place


def test_the_schema_knows_every_option_of_every_kind() -> None:
    """And refuses others."""
    (array,) = [json_schema()["properties"]["services"]]
    kinds = {one["properties"]["kind"]["const"]: one for one in array["items"]["properties"]["settle"]["oneOf"]}
    for kind, options in KINDS.items():
        assert set(kinds[kind]["properties"]) == {"kind", "every", "deadline", *(option.name for option in options)}
        assert kinds[kind]["additionalProperties"] is False


def test_no_option_holds_a_secret() -> None:
    """Passwords and tokens are named, never written: the policy is in the log."""
    names = {option.name for options in KINDS.values() for option in options if option.shape is OptionShape.TEXT}
    assert {name for name in names if "pass" in name or "token" in name} == {"password_env", "token_env"}


def test_the_example_of_the_manual_is_a_policy() -> None:
    """It is read as it stands there."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "services.md").read_text(encoding="utf-8")
    example = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert example is not None
    assert parse_policy(example[1], place="docs/services.md").claim.service == "orders"


@pytest.mark.parametrize("url", ["http://[bad/x", "http://h:99999/", "http://h:{run}x/"])
@pytest.mark.parametrize("name", ["url", "cancel"])
def test_an_address_that_nobody_can_ask_at_is_refused(url: str, name: str) -> None:
    """Before anything runs, with its place."""
    error = refused(document(service(**{name: url})))
    assert error.place == f"services[0].settle.{name}"


def test_who_asks_may_be_taken_out_of_an_address() -> None:
    """What is kept with a run has a word in brackets instead of a password."""
    kept = {"dsn": "postgresql://me:[redacted Basic Auth]***@db.test/x"}
    assert policy_from_mapping(document(service(SettleKind.POSTGRES, **kept))).services


@pytest.mark.parametrize(
    ("kind", "changes", "local"),
    [
        (SettleKind.HTTP, {"url": "http://shop.test/"}, False),
        (SettleKind.HTTP, {"url": "http://127.0.0.1:80/"}, True),
        (SettleKind.HTTP, {"socket": "/run/shop.sock"}, True),
        (SettleKind.REDIS, {"url": "redis://db.test:6379/0"}, False),
        (SettleKind.REDIS, {"url": "unix:///run/redis.sock"}, True),
        (SettleKind.POSTGRES, {"dsn": "host=db.test"}, False),
        (SettleKind.POSTGRES, {"dsn": "host=/run/postgresql"}, True),
        (SettleKind.DOCKER, {}, True),
        (SettleKind.CGROUP, {}, True),
        (SettleKind.FILE, {}, True),
        (SettleKind.COMMAND, {}, True),
    ],
)
def test_what_another_machine_would_answer_otherwise_is_local(
    kind: SettleKind,
    changes: dict[str, Any],
    local: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A run may be gone on with elsewhere; these questions are about the machine that they are asked on."""
    (found,) = policy_from_mapping(document(service(kind, **changes))).services
    assert found.settle is not None
    assert is_local(found.settle) is local
