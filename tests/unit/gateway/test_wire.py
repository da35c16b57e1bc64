"""What crosses between the gateway and the supervisor: one message, and many in one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.gateway.loop import Loop
from probes.gateway.wire import BATCH, TCP, Told, pack_batch, pack_told, read_batch, read_told
from supervisor.events import GatewayStarted, NameAsked, RequestSent

ASKED = NameAsked(n=-1, time_ns=1, name="api.test", record="A", decision="answered")
SENT = RequestSent(
    n=-1, time_ns=2, connection=1, request=0, host="api.test", port=443, method="GET", url="https://api.test/",
    size_bytes=0, digest="sha256:0",
)  # fmt: skip


def test_a_message_has_the_event_and_its_flow() -> None:
    """Addresses of both families arrive in one form."""
    assert read_told(pack_told(ASKED, ("192.0.2.2", 5353), TCP)) == Told(
        ASKED, TCP, bytes(10) + b"\xff\xff\xc0\x00\x02\x02", 5353
    )
    assert read_told(pack_told(SENT, ("2001:db8::2", 443), TCP)).ip == bytes.fromhex("20010db8" + "0" * 22 + "02")
    assert read_told(pack_told(GatewayStarted(n=-1, time_ns=0), None, 0)).protocol == 0


@given(st.lists(st.sampled_from([ASKED, SENT]), max_size=20))
def test_many_in_one_arrive_in_order(events: list[NameAsked | RequestSent]) -> None:
    """None is lost, none is added; the first byte tells a batch from a message."""
    batch = pack_batch([pack_told(event, ("192.0.2.2", 1), TCP) for event in events])
    assert batch.startswith(BATCH)
    assert [told.event for told in read_batch(batch)] == events
    assert not pack_told(ASKED, ("192.0.2.2", 1), TCP).startswith(BATCH)


def test_what_is_no_event_of_a_gateway_is_refused() -> None:
    """It reads bytes of the trial, so what it says is read as nothing else."""
    message = pack_told(ASKED, None, 0).replace(b"name.asked", b"trial.sealed")
    with pytest.raises(msgspec.ValidationError):
        read_told(message)


def test_what_can_wait_is_done_once_nobody_is_ready() -> None:
    """Once, and not again."""
    loop, done = Loop(), []
    loop.when_idle(lambda: done.append("told"))
    loop.turn()
    assert done == ["told"]
    loop.later(0, lambda: done.append("due"))
    loop.turn()
    assert done == ["told", "due"]
