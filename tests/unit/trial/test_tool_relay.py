"""Messages between a client and a tool server: what is passed on, what is counted, and what is not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from supervisor.trial.tool_relay import ToolRelay


@dataclass
class Bench:
    """A relay with both of its neighbours played by the test."""

    allowed: int = 1000
    called: list[dict[str, Any]] = field(default_factory=list)
    answered: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start it between pipes."""
        client_in, self.client_writes = os.pipe()
        self.client_reads, client_out = os.pipe()
        self.relay = ToolRelay(client_in, client_out)
        self.server_reads, self.server_writes = os.dup(self.relay.stdin), os.dup(self.relay.stdout)
        self._ours = [client_in, client_out]
        self.relay.start(
            called=lambda **fields: self.called.append(fields),
            answered=lambda **fields: self.answered.append(fields),
            allows=self._allows,
        )

    def _allows(self) -> bool:
        self.allowed -= 1
        return self.allowed >= 0

    def say(self, *messages: object) -> None:
        """Say something as the client, then end."""
        for message in messages:
            os.write(
                self.client_writes, message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            )
        os.close(self.client_writes)
        self.client_writes = -1

    def server_got(self) -> list[Any]:
        """Give what the server got, up to the end."""
        with os.fdopen(self.server_reads, "rb") as file:
            self.server_reads = -1
            return [json.loads(line) for line in file]

    def client_got(self, *answers: object) -> list[Any]:
        """Answer as the server, end, and give what the client got."""
        for answer in answers:
            os.write(self.server_writes, json.dumps(answer).encode() + b"\n")
        os.close(self.server_writes)
        self.server_writes = -1
        self.relay.finish()
        os.close(self._ours.pop())
        with os.fdopen(self.client_reads, "rb") as file:
            self.client_reads = -1
            return [json.loads(line) for line in file]

    def close(self) -> None:
        """Close what is left."""
        for descriptor in (self.client_writes, self.client_reads, self.server_reads, self.server_writes, *self._ours):
            if descriptor >= 0:
                os.close(descriptor)
        self.relay.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Give a relay."""
    found = Bench()
    yield found
    found.close()


def call(name: object, tool: str = "search", **arguments: object) -> dict[str, Any]:
    """Make a call."""
    return {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def test_a_call_and_its_answer_are_told_and_passed_on(bench: Bench) -> None:
    """Everything else is passed on as well, and told by nobody."""
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
    bench.say(hello, call(1, q="x"))
    assert bench.server_got() == [hello, call(1, q="x")]
    answers = [{"id": 0, "result": {}}, {"id": 1, "result": {"isError": True}}]
    assert bench.client_got(*answers) == answers
    assert [(one["tool"], one["call"], one["passed"]) for one in bench.called] == [("search", "1", True)]
    assert bench.answered == [{"call": "1", "failed": True}]


def test_the_same_arguments_have_the_same_digest_in_any_order(bench: Bench) -> None:
    """So that a retry is known."""
    bench.say(call(1, a=1, b=2), call(2, b=2, a=1), call(3, a=2))
    bench.server_got()
    first, second, third = (one["arguments"] for one in bench.called)
    assert first == second != third


def test_a_call_above_the_budget_is_answered_by_us(bench: Bench) -> None:
    """The server never sees it."""
    bench.allowed = 1
    bench.say(call(1), call("two"))
    assert bench.server_got() == [call(1)]
    (refused,) = bench.client_got()
    assert refused["id"] == "two"
    assert "budget" in refused["error"]["message"]
    assert [one["passed"] for one in bench.called] == [True, False]


def test_a_batch_is_passed_on_whole_or_not_at_all(bench: Bench) -> None:
    """Each of its calls is told."""
    bench.allowed = 3
    bench.say([call(1), call(2)], [call(3), call(4)])
    assert bench.server_got() == [[call(1), call(2)]]
    assert [one["passed"] for one in bench.called] == [True, True, False, False]
    assert {one["id"] for one in bench.client_got()} == {3, 4}


def test_no_server_reads_another_call_than_the_one_that_was_counted(bench: Bench) -> None:
    """A key twice, an escape in the method: what is passed on is what was understood."""
    twice = b'{"id":1,"method":"tools/call","method":"ping","params":{"name":"a"}}\n'
    escaped = b'{"id":2,"method":"tools\\/c\\u0061ll","params":{"name":"b"}}\n'
    bench.say(twice, escaped)
    assert [one["method"] for one in bench.server_got()] == ["ping", "tools/call"]
    assert [one["tool"] for one in bench.called] == ["b"]


@pytest.mark.parametrize("line", [b"nonsense\n", b"\xff\xfe\n", b'{"id":1,\n', b"[" * 100_000 + b"\n"])
def test_what_cannot_be_read_is_answered_and_not_passed_on(bench: Bench, line: bytes) -> None:
    """The client is told, the server is spared."""
    bench.say(line, call(1))
    assert bench.server_got() == [call(1)]
    (told,) = bench.client_got()
    assert told["error"]["code"] == -32700


@pytest.mark.parametrize(
    "message", [1, "x", None, [], [1], {"method": "tools/call"}, {"method": "tools/call", "params": 3}]
)
def test_odd_messages_do_no_harm(bench: Bench, message: object) -> None:
    """They are passed on, and counted when they are calls."""
    bench.say(message)
    assert bench.server_got() == ([] if message is None else [message])
    assert len(bench.called) == (isinstance(message, dict))


def test_an_answer_to_what_nobody_asked_is_no_answer(bench: Bench) -> None:
    """Nor is a request of the server that has the same id."""
    bench.say(call(1))
    bench.server_got()
    bench.client_got({"id": 7, "result": {}}, {"id": 1, "method": "sampling/createMessage"})
    assert bench.answered == []
