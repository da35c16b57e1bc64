"""What is left in a Redis: lengths of queues, what a consumer group has not acknowledged, keys, expiries.

Each thing that the policy asks about must be gone or say a word with a meaning; one that is not keeps the whole open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.types import ServiceStatus, Settle
from probes.services.answers import Answer, Question, bounded, read_absence, read_count, read_word, together, unknown

_LENGTHS = {b"list": "llen", b"set": "scard", b"zset": "zcard", b"stream": "xlen", b"hash": "hlen"}
_NONE = b"none"
_FOREVER = -1


def ask(settle: Settle, question: Question) -> Answer:
    """Ask once.

    Raises:
        OSError: nobody answered, or not in time.
        LookupError: the password is not there.
    """
    import redis  # noqa: PLC0415 - 100 ms that only a policy with such a service needs
    from redis.backoff import NoBackoff  # noqa: PLC0415
    from redis.retry import Retry  # noqa: PLC0415

    client = redis.Redis.from_url(
        question.fill(settle.text("url") or "redis://127.0.0.1:6379/0"),
        password=question.secret(settle, "password_env"),
        socket_timeout=question.left_s(),
        socket_connect_timeout=question.left_s(),
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    try:
        answer = together(_parts(client, settle, question))
        told = [f"{name}: {_shown(client.get(name))}" for name in map(question.fill, settle.texts("about"))]
        return Answer(status=answer.status, detail=bounded("; ".join([answer.detail, *told])))
    except redis.RedisError as err:
        return unknown(f"{type(err).__name__}: {err}")
    finally:
        client.close()


def _parts(client: Any, settle: Settle, question: Question) -> Iterator[Answer]:  # noqa: ANN401 - untyped answers
    for name in settle.texts("queue"):
        yield _length(client, question.fill(name))
    for name in settle.texts("expiring"):
        yield _expiry(client, question.fill(name))
    stream, group = settle.text("stream"), settle.text("group")
    if stream and group:
        yield _group(client, question.fill(stream), question.fill(group))
    if key := settle.text("key"):
        yield _value(client, settle, question.fill(key), settle.text("field"))


def _shown(value: Any) -> str:  # noqa: ANN401 - as above
    return "not there" if value is None else value.decode("utf-8", "replace")


def _length(client: Any, name: str) -> Answer:  # noqa: ANN401
    kind = client.type(name)
    if kind == _NONE:
        return read_count(0, f"queue {name}")
    if kind not in _LENGTHS:
        return unknown(f"queue {name}: it is a {kind.decode('ascii', 'replace')}")
    return read_count(int(getattr(client, _LENGTHS[kind])(name)), f"queue {name}")


def _expiry(client: Any, name: str) -> Answer:  # noqa: ANN401
    left_s = int(client.ttl(name))
    if left_s < _FOREVER:
        return Answer(status=ServiceStatus.SETTLED, detail=bounded(f"{name}: gone"))
    wait = "for ever" if left_s == _FOREVER else f"for another {left_s} s"
    return Answer(status=ServiceStatus.PENDING, detail=bounded(f"{name}: there {wait}"))


def _group(client: Any, stream: str, group: str) -> Answer:  # noqa: ANN401
    """Read how many entries a group took and did not acknowledge, and how many it did not take yet."""
    about = f"group {group} of {stream}"
    if client.type(stream) == _NONE:
        return read_count(0, about)
    found = next((one for one in client.xinfo_groups(stream) if one["name"] == group.encode()), None)
    if found is None:
        return unknown(f"{about}: there is no such group")
    pending, lag = int(found["pending"]), found.get("lag")
    if lag is None:
        # Redis cannot tell after some deletions (XINFO GROUPS); what was never delivered can be listed.
        last = found["last-delivered-id"]
        lag = len(client.xrange(stream, min=b"(" + last, count=1))
    return read_count(pending + int(lag), f"{about}: taken and not acknowledged {pending}, not taken {lag}; left")


def _value(client: Any, settle: Settle, key: str, field: str | None) -> Answer:  # noqa: ANN401
    value = client.hget(key, field) if field else client.get(key)
    about = f"{key} {field}" if field else key
    return read_absence(settle, about) if value is None else read_word(settle, value.decode("utf-8", "replace"), about)
