"""What services answered. In: their answers in any order; out: one `ServiceSeen` a service, answers in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from supervisor.events import Event, ServiceAnswered, ServiceCancelled
from supervisor.evidence.routes import ServiceAnswer, ServiceSeen


class ServiceFold:
    """Collects answers: there are few, for only those that differ are told."""

    def __init__(self) -> None:
        """Begin with none."""
        self._answers: defaultdict[str, list[ServiceAnswer]] = defaultdict(list)
        self._cancelled: defaultdict[str, list[int]] = defaultdict(list)

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {ServiceAnswered: self._add, ServiceCancelled: self._cancel}

    def _add(self, event: Event) -> None:
        if isinstance(event, ServiceAnswered):
            self._answers[event.service].append(to_answer(event))

    def _cancel(self, event: Event) -> None:
        if isinstance(event, ServiceCancelled) and event.problem is None:
            self._cancelled[event.service].append(event.n)

    def finish(self) -> tuple[ServiceSeen, ...]:
        """Build what was seen of each service, by name."""
        return tuple(
            ServiceSeen(
                name=name,
                answers=tuple(sorted(self._answers[name], key=lambda one: (one.at_ns, one.event))),
                cancelled=tuple(sorted(self._cancelled[name])),
            )
            for name in sorted(self._answers)
        )


def to_answer(event: ServiceAnswered) -> ServiceAnswer:
    """Give an answer as a fact."""
    return ServiceAnswer(
        moment=event.moment,
        status=event.status,
        detail=event.detail,
        asked_ns=event.asked_ns,
        at_ns=event.time_ns,
        event=event.n,
    )
