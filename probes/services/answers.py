"""What adapters have in common: the question, the answer, and what a word means.

The rules: an answer that the policy gives no meaning is unknown, never settled; what the trial announced is an id in
what is asked, and never part of an address, a path or a command by itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping

from policies.types import ServiceStatus, Settle
from supervisor.values import dataclass, field

DETAIL_CHARS = 200
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@~-]*")

_WORST_FIRST = (
    ServiceStatus.UNKNOWN,
    ServiceStatus.PENDING,
    ServiceStatus.FAILED,
    ServiceStatus.CANCELLED,
    ServiceStatus.COMMITTED,
    ServiceStatus.SETTLED,
)
"""Of several answers the first of these that is among them counts: one that may still act keeps the whole open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and with what.

    Attributes:
        run: id of the run.
        operation: what the trial announced, or None.
        environ: of the supervisor: credentials are taken from it by name, and never written anywhere.
        until_s: CLOCK_MONOTONIC after which an answer counts no more.
        since_s: when the run began, CLOCK_REALTIME.
    """

    run: str
    operation: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    until_s: float
    since_s: float = 0.0

    def left_s(self) -> float:
        """Give the seconds that are left.

        Raises:
            TimeoutError: none are.
        """
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            message = "no answer in time"
            raise TimeoutError(message)
        return left_s

    def fill(self, text: str) -> str:
        """Put the run and the operation into a text that has ``{run}`` or ``{operation}`` in it.

        The trial chose the operation: in an address, a path or a command only a plain id is not more than that.

        Raises:
            LookupError: the operation is no plain id.
        """
        if "{operation}" in text and self.operation and not _PLAIN.fullmatch(self.operation):
            message = f"expected letters, digits and . _ : @ ~ - after a letter or a digit, got {self.operation!r}"
            raise LookupError(message)
        return text.replace("{run}", self.run).replace("{operation}", self.operation or "")

    def secret(self, settle: Settle, option: str) -> str | None:
        """Give the value of the variable that an option names; None when the option is not there.

        Raises:
            LookupError: the supervisor has no such variable.
        """
        name = settle.text(option)
        if name is None:
            return None
        if name not in self.environ:
            message = f"{option}: the supervisor's environment has no {name}"
            raise LookupError(message)
        return self.environ[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a service said.

    Attributes:
        status: what it means.
        detail: in its own words, bounded, or why nothing is known.
        wait_s: how long the service wants to be left alone, None when it did not say.
    """

    status: ServiceStatus
    detail: str
    wait_s: float | None = None


def unknown(detail: str) -> Answer:
    """Give the answer that says nothing."""
    return Answer(status=ServiceStatus.UNKNOWN, detail=bounded(detail))


def bounded(text: str) -> str:
    """Cut a text that somebody else made, and put it on one line; halves of characters are none."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return line if len(line) <= DETAIL_CHARS else line[: DETAIL_CHARS - 1] + "…"


def read_word(settle: Settle, word: str, about: str) -> Answer:
    """Give what a word means.

    Args:
        settle: has the words.
        word: as the service said it.
        about: what was asked for.
    """
    for status in ServiceStatus:
        if word in settle.texts(status.value):
            return Answer(status=status, detail=bounded(f"{about}: {word}"))
    return unknown(f"{about}: {word}, which means nothing here")


def read_absence(settle: Settle, about: str) -> Answer:
    """Give what it means that nothing is there."""
    return Answer(
        status=ServiceStatus(settle.text("absent") or ServiceStatus.UNKNOWN), detail=bounded(f"{about}: not there")
    )


def read_count(number: int, about: str) -> Answer:
    """Give what it means that so many are left: one is enough to keep it open."""
    return Answer(
        status=ServiceStatus.PENDING if number else ServiceStatus.SETTLED, detail=bounded(f"{about}: {number}")
    )


def together(answers: Iterable[Answer]) -> Answer:
    """Give one answer for several; of none, the one that says nothing."""
    found = list(answers)
    if not found:
        return unknown("nothing was asked")
    worst = min(found, key=lambda one: _WORST_FIRST.index(one.status))
    waits = [one.wait_s for one in found if one.wait_s is not None]
    detail = bounded("; ".join(dict.fromkeys(one.detail for one in found)))
    return Answer(status=worst.status, detail=detail, wait_s=max(waits, default=None))
