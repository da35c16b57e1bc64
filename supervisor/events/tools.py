"""Calls of tools through ``supervise tool``, and budgets that were used up."""

from __future__ import annotations

from supervisor.events.base import Event


class ToolCalled(Event, frozen=True, kw_only=True):
    """A tool was called through ``supervise tool``: a request ``tools/call`` of the Model Context Protocol.

    Attributes:
        tool: its name, bounded.
        call: the request's own id, as JSON; None for a notification, which gets no answer.
        arguments: digest of the arguments, ``sha256:…``: the same call again has the same.
        passed: it was passed on to the server; one above the budget is not.
    """

    tool: str
    call: str | None
    arguments: str
    passed: bool = True


class ToolAnswered(Event, frozen=True, kw_only=True):
    """The server answered a call; ``failed`` when it said that it was an error."""

    call: str
    failed: bool


class BudgetReached(Event, frozen=True, kw_only=True):
    """A budget of the stop rule was used up, which is why the trial ended.

    Attributes:
        budget: ``tool_calls`` or ``tokens``.
        limit: as the policy has it.
        counted: how many there were.
        claimed: the count is what the trial said of itself; else it was counted outside the box.
    """

    budget: str
    limit: int
    counted: int
    claimed: bool
