"""What was done with a run's staged writes after it was sealed, and what that makes of its report.

The sealed documents stay as they are; whoever reads them is told beside them what no longer holds.
"""

from __future__ import annotations

from supervisor.values import dataclass

_SEPARATE = "separate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """When (RFC 3339, UTC) staged writes were applied, all discarded, or what was left of them dropped; None for never.

    ``begun``: applying them was begun, and never finished.
    """

    applied_at: str | None = None
    discarded_at: str | None = None
    dropped_at: str | None = None
    begun: bool = False

    @property
    def reached_host(self) -> bool:
        """Whether something of them is, or may be, where other runs can meet it."""
        return self.applied_at is not None or self.begun

    def told(self) -> tuple[str, ...]:
        """Give a sentence for each thing that was done."""
        done = []
        if self.applied_at is not None:
            done.append(f"since then, at {self.applied_at}, its staged writes were applied")
        elif self.begun:
            done.append("since then its staged writes were begun to be applied, and that was not finished")
        if self.discarded_at is not None:
            done.append(f"since then, at {self.discarded_at}, its staged writes were discarded")
        if self.dropped_at is not None:
            done.append(f"since then, at {self.dropped_at}, what was not applied was dropped")
        return tuple(done)


def separation_since(verdict: str, since: Since) -> str:
    """Give what is left of a verdict: what is applied by hand connects as what is applied at the end does."""
    return "unresolved" if verdict == _SEPARATE and since.reached_host else verdict
