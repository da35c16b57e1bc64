"""What is said about two runs: findings, and the edge that they add up to."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.values import dataclass, field

_RANK = {"separate": 0, "unresolved": 1, "connected": 2}
_REASONS = 20
"""How many reasons of one verdict an edge tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one thing says about two runs.

    Attributes:
        runs: numbers; cause and effect, where there is such an order.
        verdict: ``separate``, ``unresolved`` or ``connected``.
        events: ``run:n``, of both sides.
        assumption: what a ``separate`` takes for granted on the word of a policy.
    """

    runs: tuple[int, int]
    verdict: str
    rule: str
    text: str
    events: tuple[str, ...] = ()
    assumption: str | None = None


@dataclass(slots=True)
class Edge:
    """Two runs and what bears on them. ``via`` are the runs in between, where nothing joins them directly."""

    runs: tuple[int, int]
    findings: list[Finding] = field(default_factory=list)
    via: tuple[int, ...] = ()

    @property
    def verdict(self) -> str:
        """The gravest of the findings."""
        return gravest(finding.verdict for finding in self.findings)

    @property
    def reasons(self) -> list[Finding]:
        """The findings that make the verdict, the first ones of many."""
        return [finding for finding in self.findings if finding.verdict == self.verdict][:_REASONS]

    @property
    def assumptions(self) -> list[str]:
        """What is taken for granted, once each."""
        return list(dict.fromkeys(f.assumption for f in self.findings if f.assumption is not None))


def gravest(verdicts: Iterable[str]) -> str:
    """Give the gravest verdict; none at all is ``separate``."""
    return max(verdicts, key=_RANK.__getitem__, default="separate")


def mildest(verdicts: Iterable[str]) -> str:
    """Give the mildest verdict; none at all is ``separate``."""
    return min(verdicts, key=_RANK.__getitem__, default="separate")
