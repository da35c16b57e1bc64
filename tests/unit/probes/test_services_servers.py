"""Services asked for real: Redis, PostgreSQL, beanstalkd, RabbitMQ, dockerd and a cgroup, each the test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

import servers_started
from amqp_client import AmqpClient
from policies.types import Option, ServiceStatus, Settle, SettleKind
from probes.services.answers import Answer, Question
from probes.services.asking import adapter
from supervisor.launch.cgroup import find_root

WORDS: dict[str, Option] = {"pending": ("queued",), "committed": ("done",), "failed": ("refused",)}
PENDING, COMMITTED, SETTLED, UNKNOWN = (
    ServiceStatus.PENDING,
    ServiceStatus.COMMITTED,
    ServiceStatus.SETTLED,
    ServiceStatus.UNKNOWN,
)


def ask(kind: SettleKind, options: Mapping[str, Option], *, operation: str | None = None, **environ: str) -> Answer:
    """Ask once, with patience for a busy machine."""
    settle = Settle(kind=kind, options=tuple(options.items()))
    question = Question(run="r1", operation=operation, environ=environ, until_s=time.monotonic() + 30)
    return adapter(kind)(settle, question)


# -- Redis -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis_socket() -> Iterator[Path]:
    """Start one for all tests."""
    with servers_started.redis_server() as path:
        yield path


@pytest.fixture
def store(redis_socket: Path) -> Iterator[Any]:
    """Give a client of it, and an empty database."""
    client = redis.Redis(unix_socket_path=str(redis_socket))
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def of_redis(redis_socket: Path) -> Callable[..., Answer]:
    """Ask it."""

    def asked(operation: str | None = None, **options: Option) -> Answer:
        return ask(SettleKind.REDIS, {"url": f"unix://{redis_socket}", **options}, operation=operation)

    return asked


def test_a_queue_in_redis_is_pending_while_something_is_in_it(store: Any, of_redis: Callable[..., Answer]) -> None:
    """Whatever kind of queue it is; empty and gone are the same."""
    for add in (
        lambda: store.rpush("q", "x"),
        lambda: store.sadd("q", "x"),
        lambda: store.zadd("q", {"x": 1}),
        lambda: store.xadd("q", {"x": 1}),
    ):
        assert of_redis(queue=("q",)).status is SETTLED
        add()
        assert of_redis(queue=("other", "q")).status is PENDING
        store.delete("q")
    store.set("q", "x")
    assert of_redis(queue=("q",)).status is UNKNOWN


def test_a_consumer_group_is_done_when_it_acknowledged_all(store: Any, of_redis: Callable[..., Answer]) -> None:
    """Not taken, taken and not acknowledged, acknowledged: only the last is the end of it."""
    store.xgroup_create("s", "workers", id="0", mkstream=True)
    number = store.xadd("s", {"order": "1"})
    assert of_redis(stream="s", group="workers").status is PENDING
    store.xreadgroup("workers", "w1", {"s": ">"})
    assert of_redis(stream="s", group="workers").status is PENDING
    store.xack("s", "workers", number)
    assert of_redis(stream="s", group="workers").status is SETTLED
    assert of_redis(stream="s", group="others").status is UNKNOWN
    gone = store.xadd("s", {"order": "2"})
    store.xadd("s", {"order": "3"})
    store.xdel("s", gone)
    assert of_redis(stream="s", group="workers").status is PENDING


def test_a_key_says_a_word_that_the_policy_gives_a_meaning(store: Any, of_redis: Callable[..., Answer]) -> None:
    """By operation, as a text or as a field; another word is unknown, and so is none unless the policy says."""
    assert of_redis("7", key="order:{operation}", **WORDS).status is UNKNOWN
    assert of_redis("7", key="order:{operation}", absent="failed", **WORDS).status is ServiceStatus.FAILED
    for word, status in (("queued", PENDING), ("done", COMMITTED), ("lost", UNKNOWN)):
        store.set("order:7", word)
        assert of_redis("7", key="order:{operation}", **WORDS).status is status
    store.delete("order:7")
    store.hset("order:7", "state", "done")
    assert of_redis("7", key="order:{operation}", field="state", **WORDS).status is COMMITTED
    assert of_redis("7", key="order:{operation}", **WORDS).status is UNKNOWN  # it is no text


def test_a_key_that_expires_is_waited_for(store: Any, of_redis: Callable[..., Answer]) -> None:
    """As long as it lives it may be acted on; one without an end as well."""
    store.set("lease", "x", ex=1000)
    assert of_redis(expiring=("lease",)).status is PENDING
    store.persist("lease")
    assert "for ever" in of_redis(expiring=("lease",)).detail
    store.delete("lease")
    assert of_redis(expiring=("lease",)).status is SETTLED


def test_one_thing_that_is_left_keeps_the_whole_open(store: Any, of_redis: Callable[..., Answer]) -> None:
    """A word for done does not speak for the queue; what is told for people is kept beside it."""
    store.set("order", "done")
    store.set("stock", "1")
    store.rpush("q", "x")
    answer = of_redis(queue=("q",), key="order", about=("stock",), **WORDS)
    assert answer.status is PENDING
    assert "stock: 1" in answer.detail
    store.delete("q")
    assert of_redis(queue=("q",), key="order", **WORDS).status is COMMITTED


def test_a_redis_that_wants_a_password_gets_it_from_our_environment(
    store: Any, redis_socket: Path, of_redis: Callable[..., Answer]
) -> None:
    """By the name of a variable; without it nothing is known, and the value is in no answer."""
    store.config_set("requirepass", "hunter2")
    try:
        assert of_redis(queue=("q",)).status is UNKNOWN
        options: dict[str, Option] = {"url": f"unix://{redis_socket}", "queue": ("q",), "password_env": "REDIS_PASS"}
        answer = ask(SettleKind.REDIS, options, REDIS_PASS="hunter2")  # noqa: S106 - a test's
        assert answer.status is SETTLED
        with pytest.raises(LookupError, match="REDIS_PASS"):
            ask(SettleKind.REDIS, options)
    finally:
        store.config_set("requirepass", "")


def test_the_worker_of_the_replay_carries_out_what_is_in_its_list(store: Any, redis_socket: Path) -> None:
    """Two orders for one piece: the first is committed, the second fails."""
    words = [sys.executable, "-m", "supervisor.replay.worker", str(redis_socket), "50"]
    store.rpush("orders", "a", "b")
    with subprocess.Popen(words, stdin=subprocess.PIPE) as worker:
        until_s = time.monotonic() + 60
        while store.get("shop") != b"orders: 0 pending, 1 committed, 1 failed" and time.monotonic() < until_s:
            time.sleep(0.02)
        worker.terminate()
    assert (store.get("status:a"), store.get("status:b"), store.get("stock")) == (b"committed", b"failed", b"0")


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Start one for all tests, with a table of orders and a role."""
    with servers_started.postgres() as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE orders (id text, state text)")
            connection.execute("CREATE ROLE trial LOGIN")
            connection.execute("GRANT ALL ON orders TO trial")
        yield dsn


def of_postgres(dsn: str, operation: str | None = None, **options: Option) -> Answer:
    """Ask it."""
    return ask(SettleKind.POSTGRES, {"dsn": dsn, **options}, operation=operation)


def test_a_row_says_what_became_of_an_order(database: str) -> None:
    """The operation is a parameter, whatever is in it; several rows must agree."""
    query: dict[str, Option] = {"query": "SELECT state FROM orders WHERE id = {operation}", **WORDS}
    assert of_postgres(database, "1", **query).status is UNKNOWN
    assert of_postgres(database, "1", absent="pending", **query).status is PENDING
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO orders VALUES ('1', 'done'), ('2', 'done'), ('2', 'queued')")
    assert of_postgres(database, "1", **query).status is COMMITTED
    assert of_postgres(database, "2", **query).status is PENDING
    assert of_postgres(database, "1'; DROP TABLE orders; --", **query).status is UNKNOWN
    assert of_postgres(database, "1", **query).status is COMMITTED


def test_a_question_cannot_change_anything(database: str) -> None:
    """It is read-only, so that asking is no effect."""
    query: dict[str, Option] = {"query": "DELETE FROM orders RETURNING state", **WORDS}
    assert of_postgres(database, **query).status is UNKNOWN


def test_a_transaction_that_is_open_or_prepared_may_still_be_committed(database: str) -> None:
    """An open one of the role, also when it is idle; a prepared one outlives its client."""
    as_trial = database.replace("user=tester", "user=trial")
    assert of_postgres(database, user="trial", prepared="%").status is SETTLED
    with psycopg.connect(as_trial) as client:
        client.execute("INSERT INTO orders VALUES ('9', 'queued')")
        assert of_postgres(database, user="trial").status is PENDING
        client.rollback()
    with psycopg.connect(as_trial) as client:
        transaction = client.xid(1, "order-9", "b")
        client.tpc_begin(transaction)
        client.execute("INSERT INTO orders VALUES ('9', 'done')")
        client.tpc_prepare()
        assert of_postgres(database, prepared="%").status is PENDING
        assert of_postgres(database, prepared="other%").status is SETTLED
        client.tpc_rollback()
    assert of_postgres(database, prepared="%").status is SETTLED


def test_an_advisory_lock_that_is_held_is_a_client_at_work(database: str) -> None:
    """And the queue of NOTIFY is empty when everybody has listened."""
    with psycopg.connect(database, autocommit=True) as client:
        client.execute("SELECT pg_advisory_lock(7)")
        assert of_postgres(database, locks=True).status is PENDING
        client.execute("SELECT pg_advisory_unlock(7)")
    assert of_postgres(database, locks=True, notify=True).status is SETTLED


def test_a_notification_that_nobody_took_is_pending(database: str) -> None:
    """A listener in the middle of a transaction keeps it in the queue."""
    with psycopg.connect(database) as listener, psycopg.connect(database, autocommit=True) as sender:
        listener.execute("LISTEN orders")
        listener.commit()
        listener.execute("SELECT 1")
        # The queue's usage is told in pages: one small notification is less than one.
        for number in range(40):
            sender.execute("SELECT pg_notify('orders', %s)", (str(number) * 3000,))
        assert of_postgres(database, notify=True).status is PENDING
        listener.commit()
        listener.execute("SELECT 1")
        listener.commit()


def test_a_query_that_takes_too_long_is_unknown(database: str) -> None:
    """The server itself ends it."""
    settle = Settle(
        kind=SettleKind.POSTGRES,
        options=(("dsn", database), ("query", "SELECT pg_sleep(600)"), ("committed", ("",))),
    )
    question = Question(run="r1", environ={}, until_s=time.monotonic() + 1)
    answer = adapter(SettleKind.POSTGRES)(settle, question)
    assert answer.status is UNKNOWN
    assert "QueryCanceled" in answer.detail


# -- beanstalkd ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tubes() -> Iterator[Path]:
    """Start one for all tests."""
    with servers_started.beanstalkd() as path:
        yield path


def talk(path: Path, *lines: bytes) -> list[bytes]:
    """Say lines and give the first line of each answer; the connection stays open until the end of the process."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(str(path))
    _OPEN.append(client)
    answers = []
    for line in lines:
        client.sendall(line)
        answers.append(client.recv(4096).splitlines()[0])
    return answers


_OPEN: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def of_beanstalk(path: Path, tube: str) -> Answer:
    """Ask it."""
    return ask(SettleKind.BEANSTALK, {"address": f"unix:{path}", "tubes": (tube,)})


def test_a_job_is_pending_until_a_worker_has_deleted_it(tubes: Path) -> None:
    """Ready, reserved by a worker, and only then gone. A tube that nobody used has none."""
    assert of_beanstalk(tubes, "one").status is SETTLED
    (_, put) = talk(tubes, b"use one\r\n", b"put 0 0 60 1\r\nx\r\n")
    assert of_beanstalk(tubes, "one").status is PENDING
    talk(tubes, b"watch one\r\n", b"reserve\r\n")
    answer = of_beanstalk(tubes, "one")
    assert answer.status is PENDING
    assert "reserved 1" in answer.detail
    _OPEN[-1].sendall(b"delete %b\r\n" % put.split()[1])
    assert _OPEN[-1].recv(100) == b"DELETED\r\n"
    assert of_beanstalk(tubes, "one").status is SETTLED


def test_a_delayed_job_is_pending_and_a_buried_one_is_told(tubes: Path) -> None:
    """A delay is a schedule; burying gives up, and nothing takes it up by itself."""
    talk(tubes, b"use two\r\n", b"put 0 1000 60 1\r\nx\r\n")
    assert "delayed 1" in of_beanstalk(tubes, "two").detail
    assert of_beanstalk(tubes, "two").status is PENDING
    _, _, _, reserved = talk(tubes, b"use three\r\n", b"put 0 0 60 1\r\nx\r\n", b"watch three\r\n", b"reserve\r\n")
    _OPEN[-1].sendall(b"bury %b 0\r\n" % reserved.split()[1])
    assert _OPEN[-1].recv(100) == b"BURIED\r\n"
    answer = of_beanstalk(tubes, "three")
    assert answer.status is SETTLED
    assert "buried 1" in answer.detail


# -- RabbitMQ --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[servers_started.RabbitMq]:
    """Start one for all tests."""
    with servers_started.rabbitmq() as found:
        yield found


def of_rabbitmq(broker: servers_started.RabbitMq, queue: str, **options: Option) -> Answer:
    """Ask it."""
    return ask(SettleKind.RABBITMQ, {"url": broker.url, "queues": (queue,), **options})


def test_a_message_is_pending_until_a_consumer_has_acknowledged_it(broker: servers_started.RabbitMq) -> None:
    """Ready, taken and not acknowledged, and only then gone; told at once, whenever the server collects its counts."""
    with AmqpClient(broker.amqp) as client:
        for _ in range(5):
            client.declare(b"one")
            assert of_rabbitmq(broker, "one").status is SETTLED
            client.publish(b"one", b"x")
            client.declare(b"one")  # answered when what came before it on this channel was done
            answer = of_rabbitmq(broker, "one")
            assert (answer.status, answer.detail) == (PENDING, "queue one: ready 1, unacknowledged 0")
            tag = client.get(b"one")
            assert of_rabbitmq(broker, "one").detail == "queue one: ready 0, unacknowledged 1"
            client.acknowledge(tag)
            client.declare(b"one")
            assert of_rabbitmq(broker, "one").status is SETTLED


def test_a_message_of_a_consumer_that_died_is_pending_again(broker: servers_started.RabbitMq) -> None:
    """It is given to the next one, so that it may still be carried out."""
    with AmqpClient(broker.amqp) as client:
        client.declare(b"two")
        client.publish(b"two", b"x")
        client.declare(b"two")
        with AmqpClient(broker.amqp) as other:
            other.get(b"two")
        until_s = time.monotonic() + 30
        while (answer := of_rabbitmq(broker, "two")).detail != "queue two: ready 1, unacknowledged 0":
            assert answer.status is PENDING
            assert time.monotonic() < until_s


def test_what_rabbitmq_refuses_or_does_not_have_is_unknown(broker: servers_started.RabbitMq) -> None:
    """A wrong password, and a queue that nobody made, unless the policy says what that means."""
    named: dict[str, Option] = {"url": broker.url, "queues": ("q",), "password_env": "THEIRS"}
    refused = ask(SettleKind.RABBITMQ, named, THEIRS="wrong")
    assert (refused.status, "401" in refused.detail) == (UNKNOWN, True)
    assert of_rabbitmq(broker, "never").status is UNKNOWN
    assert of_rabbitmq(broker, "never", absent="settled").status is SETTLED
    assert of_rabbitmq(broker, "q", vhost="none").status is UNKNOWN


# -- dockerd ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon() -> Iterator[Path]:
    """Start one for all tests."""
    with servers_started.dockerd() as path:
        yield path


def of_docker(path: Path, since_s: float) -> Answer:
    """Ask it about what came to be since."""
    settle = Settle(kind=SettleKind.DOCKER, options=(("socket", str(path)),))
    question = Question(run="r1", until_s=time.monotonic() + 30, since_s=since_s)
    return adapter(SettleKind.DOCKER)(settle, question)


@pytest.mark.kernel("root")
def test_containers_since_the_run_began_are_pending_until_they_have_ended(daemon: Path) -> None:
    """Running, paused, made and about to be started, and restarting by itself; one from before is none of them."""
    began_s = time.time()
    assert of_docker(daemon, began_s).status is SETTLED
    run = ("run", "-d", "--network", "none", "--name", "one", "busybox", "sleep", "600")
    assert servers_started.docker(daemon, *run).returncode == 0
    assert "one is running" in of_docker(daemon, began_s).detail
    assert of_docker(daemon, time.time() + 5).status is SETTLED
    servers_started.docker(daemon, "pause", "one")
    assert "one is paused" in of_docker(daemon, began_s).detail
    servers_started.docker(daemon, "unpause", "one")
    assert servers_started.docker(daemon, "kill", "one").returncode == 0
    answer = of_docker(daemon, began_s)
    assert (answer.status, "containers of the run: 1" in answer.detail) == (SETTLED, True)
    servers_started.docker(daemon, "update", "--restart", "always", "one")
    assert "starts again (always)" in of_docker(daemon, began_s).detail
    servers_started.docker(daemon, "rm", "-f", "one")
    servers_started.docker(daemon, "create", "--name", "two", "busybox", "true")
    assert "two is created" in of_docker(daemon, began_s).detail
    servers_started.docker(daemon, "rm", "two")
    assert of_docker(daemon, began_s).status is SETTLED


@pytest.mark.kernel("root")
def test_a_command_in_a_container_of_somebody_else_is_pending(daemon: Path) -> None:
    """The container was there before; what was started in it since may be the trial's."""
    run = ("run", "-d", "--network", "none", "--name", "old", "busybox", "sleep", "600")
    assert servers_started.docker(daemon, *run).returncode == 0
    later_s = time.time() + 5
    assert of_docker(daemon, later_s).status is SETTLED
    assert servers_started.docker(daemon, "exec", "-d", "old", "sleep", "600").returncode == 0
    assert "old runs a command" in of_docker(daemon, later_s).detail
    assert servers_started.docker(daemon, "rm", "-f", "old").returncode == 0
    assert of_docker(daemon, later_s).status is SETTLED


# -- cgroups ---------------------------------------------------------------------------------------------------------


@pytest.mark.kernel("cgroup")
def test_a_cgroup_is_pending_while_a_process_is_in_it_or_below() -> None:
    """The kernel's word; what was never there is unknown, unless the policy says what that means."""
    group = find_root() / f"sv-test-{os.getpid()}"
    below = group / "below"
    below.mkdir(parents=True)
    try:
        assert ask(SettleKind.CGROUP, {"path": str(group)}).status is SETTLED
        with subprocess.Popen(["sleep", "600"]) as process:
            (below / "cgroup.procs").write_text(str(process.pid))
            assert ask(SettleKind.CGROUP, {"path": str(group)}).status is PENDING
            process.kill()
        assert ask(SettleKind.CGROUP, {"path": str(group)}).status is SETTLED
    finally:
        below.rmdir()
        group.rmdir()
    assert ask(SettleKind.CGROUP, {"path": str(group)}).status is UNKNOWN
    assert ask(SettleKind.CGROUP, {"path": str(group), "absent": "settled"}).status is SETTLED
    assert ask(SettleKind.CGROUP, {"path": "/proc", "absent": "settled"}).status is UNKNOWN
