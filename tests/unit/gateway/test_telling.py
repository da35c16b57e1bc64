"""What a gateway tells arrives in order and whole, however late it is made."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from probes.gateway.loop import Loop
from probes.gateway.telling import MOST, Teller
from probes.gateway.wire import read_batch
from supervisor.events import NameAsked

SOURCE = ("192.0.2.2", 5353)


def asked(name: str) -> NameAsked:
    """Give an event."""
    return NameAsked(n=-1, time_ns=1, name=name, record="A", decision="answered")


@contextmanager
def telling() -> Iterator[tuple[Loop, Teller, socket.socket]]:
    """Give a teller, its loop, and the supervisor's end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)  # noqa: FBT003 - the call's own form
    with ours, theirs:
        loop = Loop()
        yield loop, Teller(loop, theirs), ours


def heard(supervisor: socket.socket) -> list[str]:
    """Read all messages, and give the names in them."""
    names: list[str] = []
    while True:
        try:
            message = supervisor.recv(1 << 17)
        except BlockingIOError:
            return names
        for told in read_batch(message):
            assert isinstance(told.event, NameAsked)
            names.append(told.event.name)


def test_events_and_what_makes_them_keep_their_order() -> None:
    """What is made later is sent where it was told."""
    with telling() as (_, teller, supervisor):
        teller.tell(asked("one.test"), SOURCE)
        teller.tell(partial(asked, "two.test"), SOURCE)
        teller.tell(asked("three.test"), SOURCE)
        assert heard(supervisor) == []
        teller.flush()
        assert heard(supervisor) == ["one.test", "two.test", "three.test"]


def test_all_is_sent_without_being_asked_for() -> None:
    """Nobody has to flush: it goes when its time has come, the second as the first."""
    with telling() as (loop, teller, supervisor):
        for name in ("one.test", "two.test"):
            teller.tell(asked(name))
            while not (names := heard(supervisor)):
                loop.turn()
            assert names == [name]


def test_what_is_untold_is_bounded_while_nobody_is_idle() -> None:
    """More than is kept is written and sent at once, in order and whole."""
    with telling() as (_, teller, supervisor):
        told = [f"n{number}.test" for number in range(4 * MOST)]
        names: list[str] = []
        for name in told:
            teller.tell(partial(asked, name), SOURCE)
            names += heard(supervisor)
        assert len(names) >= 2 * MOST
        teller.flush()
        assert names + heard(supervisor) == told
