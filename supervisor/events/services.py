"""What services outside the box said when the supervisor asked them. They are asked by us, never by the trial."""

from __future__ import annotations

from supervisor.events.base import Event


class ServiceAnswered(Event, frozen=True, kw_only=True):
    """A service was asked what became of what it was asked for; told when the answer differs, and at every boundary.

    Attributes:
        service: its name in the policy.
        moment: why it was asked then: ``start``, ``endpoint``, ``settling``, ``deadline``, ``last`` or ``resumed``.
        status: ``pending``, ``committed``, ``failed``, ``cancelled``, ``settled`` or ``unknown`` (it erred, or gave no
            answer in time).
        detail: what it said, or why nothing is known; bounded.
        asked_ns: when the question was sent, CLOCK_BOOTTIME.
        operations: what the trial had announced, where that was what was asked about.
    """

    service: str
    moment: str
    status: str
    detail: str
    asked_ns: int
    operations: tuple[str, ...] = ()


class ServiceShown(Event, frozen=True, kw_only=True):
    """The socket of a service is in the box at its own path; ``device`` and ``inode`` are of the file."""

    service: str
    path: bytes
    device: int
    inode: int


class ServiceCancelled(Event, frozen=True, kw_only=True):
    """A service was asked to call off what it was asked for, as declared. What came of that is for it to say.

    ``problem`` is why it could not be asked, None when it took the request.
    """

    service: str
    problem: str | None
