"""How much of its budgets a trial used. In: calls of tools, and notes of the trial; out: `Usage`.

The rule it keeps: what was counted outside the box and what the trial says of itself are never added up.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from supervisor.events import BudgetReached, Event, NoteReceived, ToolAnswered, ToolCalled
from supervisor.evidence.routes import Budget, Usage
from supervisor.values import dataclass, replace

MOST_IN_A_NOTE = 1_000_000_000
"""A note that claims more of anything is none."""

_KEPT = 100


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one note says was used."""

    tool_calls: int = 0
    tokens: int = 0


def parse_usage(note: str) -> Claimed | None:
    """Read a note such as ``{"tool_calls": 1, "tokens": 250}``; None for every other note."""
    if not note.startswith("{"):
        return None
    try:
        said = json.loads(note)
    except (ValueError, RecursionError):
        return None
    calls, tokens = said.get("tool_calls", 0), said.get("tokens", 0)
    if not all(type(one) is int and 0 <= one <= MOST_IN_A_NOTE for one in (calls, tokens)) or not calls + tokens:
        return None
    return Claimed(calls, tokens)


class UsageFold:
    """Adds up."""

    def __init__(self) -> None:
        """Begin with nothing used."""
        self._called: dict[int, ToolCalled] = {}
        self._answered: dict[str, list[tuple[int, bool]]] = {}
        self._usage = Usage()

    def handlers(self) -> dict[type[Event], Callable[[Event], object]]:
        """Give what to call for each class of event."""
        return {
            ToolCalled: self._call,
            ToolAnswered: self._answer,
            NoteReceived: self._note,
            BudgetReached: self._reached,
        }

    def _call(self, event: Event) -> None:
        if isinstance(event, ToolCalled):
            self._called[event.n] = event

    def _answer(self, event: Event) -> None:
        if isinstance(event, ToolAnswered):
            self._answered.setdefault(event.call, []).append((event.n, event.failed))

    def _note(self, event: Event) -> None:
        claimed = parse_usage(event.text) if isinstance(event, NoteReceived) else None
        if claimed is not None:
            self._usage = replace(
                self._usage,
                claimed_tool_calls=self._usage.claimed_tool_calls + claimed.tool_calls,
                claimed_tokens=self._usage.claimed_tokens + claimed.tokens,
            )

    def _reached(self, event: Event) -> None:
        if isinstance(event, BudgetReached):
            budget = Budget(
                name=event.budget, limit=event.limit, counted=event.counted, claimed=event.claimed, event=event.n
            )
            self._usage = replace(self._usage, reached=budget)

    def finish(self) -> Usage:
        """Say what was used, which calls were retries, and which had no answer."""
        calls = [self._called[n] for n in sorted(self._called)]
        passed = [call for call in calls if call.passed]
        seen: set[tuple[str, str]] = set()
        retries = 0
        for call in passed:
            retries += (call.tool, call.arguments) in seen
            seen.add((call.tool, call.arguments))
        open_calls = [one for one in passed if one.call and one.call not in self._answered]
        return replace(
            self._usage,
            tool_calls=len(passed),
            retries=retries,
            failed=sum(failed for answers in self._answered.values() for _, failed in answers),
            refused=len(calls) - len(passed),
            unanswered=tuple(f"{one.tool} ({one.call})" for one in open_calls[:_KEPT]),
            events=tuple(one.n for one in calls[:_KEPT]),
        )
