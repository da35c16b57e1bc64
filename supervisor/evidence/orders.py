"""Events that a policy names by patterns: the one that decides a claim, and those that must come in an order.

A pattern is a kind and what fields must be: ``file.written path=notes/*.md``. ``path`` is a glob as in the policy,
relative to the workspace; ``argv`` is the words with spaces between; other fields are compared as text, with ``*`` and
``?``. A field that is not named may be anything, but for ``error``: what failed is only meant where that is named.

The laws:

1. Only events of trusted origin count; what the trial says of itself (``note.received``) never does.
2. What the box did before the trial was released is no event of the trial. What the supervisor, a gateway or a service
   tells counts whoever it is about.
3. The order is the kernel's clock, then the number in the log.
4. Beside it stands when what was told was done: a gateway may tell after the endpoint of what was done before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from policies.globs import Globs, compile_globs
from policies.types import Policy
from policies.wildcards import matches
from supervisor.events import Event, Origin, ProcessKey
from supervisor.events.kinds import kinds
from supervisor.evidence.acts import when_acted
from supervisor.evidence.places import Places
from supervisor.evidence.processes import Cast
from supervisor.evidence.said import EventMatch, OrderKept
from supervisor.values import dataclass


class _Found(NamedTuple):
    """One event that a pattern means: what orders it, when it was done, and whose it is."""

    at_ns: int
    event: int
    since_ns: int
    until_ns: int
    process: ProcessKey | None
    origin: Origin

    def match(self) -> EventMatch:
        return EventMatch(at_ns=self.at_ns, event=self.event, since_ns=self.since_ns, until_ns=self.until_ns)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One parsed pattern."""

    kind: str
    wanted: tuple[tuple[str, str], ...]
    path: Globs | None

    @classmethod
    def parse(cls, text: str, workspace: bytes) -> _Pattern:
        kind, *fields = text.split(" ")
        pairs = tuple((name, value) for name, _, value in (field.partition("=") for field in fields if field))
        paths = [value for name, value in pairs if name == "path"]
        globs = compile_globs(paths, workspace=workspace.rstrip(b"/")) if paths else None
        return cls(kind, tuple(pair for pair in pairs if pair[0] != "path"), globs)

    def matches(self, event: Event, places: Places) -> bool:
        """Tell whether an event is one that is meant."""
        if event.origin is Origin.TRIAL:
            return False
        named = {name for name, _ in self.wanted}
        if "error" not in named and getattr(event, "error", None):
            return False
        if self.path is not None:
            path = getattr(event, "path", None)
            if not isinstance(path, bytes) or not path or not self.path.match(places.locate(path).shown):
                return False
        return all(matches(_text(getattr(event, name, None)), value) for name, value in self.wanted)


def _text(value: object) -> str:
    match value:
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case tuple():
            return " ".join(_text(item) for item in value)
        case bool():
            return str(value).lower()
        case None:
            return ""
    return str(value)


class OrderFold:
    """Collects the events that the patterns of a policy mean."""

    def __init__(self, policy: Policy, workspace: bytes) -> None:
        """Parse the patterns; a policy without any costs nothing."""
        rules = policy.order
        texts = [text for rule in rules for text in (rule.first, rule.then)]
        texts += [policy.claim.event] if policy.claim.event is not None else []
        self._rules, self._decider = rules, policy.claim.event
        self._places = Places(policy, workspace) if texts else None
        self._patterns = {text: _Pattern.parse(text, workspace) for text in dict.fromkeys(texts)}
        self._found: dict[str, list[_Found]] = {text: [] for text in self._patterns}

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        if not self._patterns:
            return {}
        known = kinds()
        wanted = {pattern.kind for pattern in self._patterns.values()}
        return {known[kind]: self._take for kind in wanted if kind in known}

    def _take(self, event: Event) -> None:
        assert self._places is not None  # noqa: S101 - no handler without a pattern
        for text, pattern in self._patterns.items():
            if pattern.kind == event.kind and pattern.matches(event, self._places):
                found = _Found(event.time_ns, event.n, *when_acted(event), event.process, event.origin)
                self._found[text].append(found)

    def _matches(self, text: str, cast: Cast) -> list[_Found]:
        meant = [
            one
            for one in self._found[text]
            if one.origin is not Origin.KERNEL or not cast.ignores(one.process, one.at_ns)
        ]
        return sorted(meant, key=lambda one: one[:2])

    def orders(self, cast: Cast) -> tuple[OrderKept, ...]:
        """Tell of each rule whether it was kept."""
        return tuple(self._orders(cast))

    def _orders(self, cast: Cast) -> Iterator[OrderKept]:
        for rule in self._rules:
            first, then = self._matches(rule.first, cast)[:1], self._matches(rule.then, cast)
            early = [found for found in then if not first or found[:2] < first[0][:2]]
            yield OrderKept(
                first=rule.first,
                then=rule.then,
                first_event=first[0].event if first else None,
                early=tuple(found.match() for found in early),
                then_events=tuple(found.event for found in then),
            )

    def decider(self, cast: Cast) -> tuple[EventMatch, ...]:
        """Give the events that the claim is decided by, in order."""
        if self._decider is None:
            return ()
        return tuple(found.match() for found in self._matches(self._decider, cast))
