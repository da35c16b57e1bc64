"""What a claim about a captured state means for what lies in the stage, or on the host, when the trial is over.

Laws:
    * What changed after it was captured is not what the verdict is about, unless it was compared and is so again.
    * Where a claim names what it is about, the stage is not applied while it has something else there; where it names
      nothing, that is so only if nothing but a final outcome is to be applied.
"""

from __future__ import annotations

from policies.types import Commit, DecidedBy, PeriodKind
from supervisor.evidence.captured import captured_in
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import FileHistory
from supervisor.evidence.naming import listed, show
from supervisor.verdict.situation import Captured, Situation


def differing(facts: Facts, captured: Captured | None) -> tuple[FileHistory, ...]:
    """Give what the claim is about that is, at the end, not known to be what was captured."""
    if captured is None or captured.snapshot is None or not captured.changed_since:
        return ()
    compared = captured_in(facts, captured.snapshot.kept_in)
    return tuple(
        history
        for history in captured.changed_since
        if (found := compared.get(history.path)) is None or not found.again
    )


def withheld(situation: Situation) -> str | None:
    """Say why what is staged is not applied although it may be: the verdict is about another state. Else None."""
    claim, commit = situation.policy.claim, situation.policy.files.commit
    named = claim.outcome is not None or bool(claim.scope)
    if claim.decided_by is not DecidedBy.STATE or not (named or commit is Commit.FINAL):
        return None
    found = differing(situation.facts, situation.claimed)
    if not found:
        return None
    names = listed([show(history.path) for history in found])
    after = "after the endpoint" if claim.period.kind is PeriodKind.ENDPOINT else "after it was captured"
    return f"the verdict is about another state: changed {after}: {names}"
