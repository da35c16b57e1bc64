"""A run judged again from what was kept: the log, the manifest and the states that were found on disk.

The rule it keeps: nothing of the machine is looked at. The same log under the same claim gives the same argument, byte
for byte; under another claim it gives another one, which says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace as with_fields

from policies.canonical import policy_digest
from policies.types import Policy
from supervisor.conclude.recorded import NAME, Recorded
from supervisor.errors import LogUnreadableError
from supervisor.events import Event, GradeFinished, GradeStarted, StatesRecorded
from supervisor.evidence.collect import collect
from supervisor.evidence.facts import Facts
from supervisor.kept.reading import events_of, read_completion, verify_run
from supervisor.launch.runs.state import RunDir
from supervisor.prepare.manifest import Manifest, read_manifest
from supervisor.values import dataclass
from supervisor.verdict.argue import argue
from supervisor.verdict.completion import Completion, to_json
from supervisor.verdict.judge import judge
from supervisor.version import VERSION

COMPARED = (
    "finality", "separation", "scope", "result", "open_effects", "coverage", "effects", "stage", "endpoint", "claim",
)  # fmt: skip
"""The parts of an argument that are told by name when they differ, the verdicts first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Everything of a sealed run that judging needs.

    Attributes:
        engine: the version of supervise that judged it.
        states: that were found on disk.
        completion: what was concluded.
        stage: digest of what was staged when the run was sealed.
    """

    run: RunDir
    manifest: Manifest
    document: dict[str, Any]
    engine: str
    states: Recorded
    completion: Completion
    stage: str

    def facts(self, policy: Policy, *, grades: Iterable[Event] | None = None) -> Facts:
        """Collect the facts again.

        Args:
            policy: that they are read with.
            grades: events of graders that take the place of the run's own.
        """
        events: Iterable[Event] = events_of(self.run)
        if grades is not None:
            events = _with_grades(events, grades)
        return collect(
            events,
            policy=policy,
            workspace=self.manifest.workspace,
            observe=self.states.observe,
            changed=self.states.changed,
            aliases=self.states.aliases,
            beginning=self.states.beginning,
            links=self.states.links,
        )

    def digest(self, policy: Policy) -> str:
        """Give the digest of a policy; of the run's own, that of the policy as it was declared."""
        own = self.manifest.digest
        return own if own is not None and policy == self.manifest.policy else policy_digest(policy)

    def argue(self, facts: Facts, policy: Policy) -> Completion:
        """Judge facts and put the argument together; what it says of the log is what the run's own says."""
        return argue(
            facts,
            policy,
            judge(facts, policy),
            run=self.run.id,
            command=self.manifest.command,
            log=with_fields(self.completion.log, lost=facts.lost),
            policy_digest=self.digest(policy),
            name=self.manifest.name,
        )


def _with_grades(events: Iterable[Event], grades: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        if not isinstance(event, GradeStarted | GradeFinished):
            yield event
    yield from grades


def open_kept(run: RunDir) -> Kept:
    """Verify a run and open what was kept of it.

    Raises:
        LogError: it does not verify, or was never sealed.
        LogUnreadableError: it is from before states were kept.
    """
    verified = verify_run(run)
    document = run.read_manifest()
    states = next((event for event in events_of(run) if isinstance(event, StatesRecorded)), None)
    if states is None:
        message = "expected the states that were found on disk, got a run that kept none"
        raise LogUnreadableError(message, place=run.id, hint="runs of older versions cannot be judged again")
    versions = document.get("versions")
    return Kept(
        run=run,
        manifest=read_manifest(document, place=str(run.manifest)),
        document=document,
        engine=str(versions.get("supervise", "unknown")) if isinstance(versions, dict) else "unknown",
        states=Recorded.read(run.path / NAME, digest=states.digest),
        completion=read_completion(run),
        stage=verified.stage,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """What came of judging a run again under its own claim: ``differing`` names the parts that are not the same."""

    run: str
    engine: str
    differing: tuple[str, ...]

    def told(self) -> str:
        """Say it in one sentence."""
        by = f"judged by {self.engine}" + ("" if self.engine == VERSION else f", again by {VERSION}")
        if self.differing:
            return f"{self.run}: its log gives another {', '.join(self.differing)} than was concluded ({by})"
        return f"{self.run}: every verdict follows from its log ({by})"


def rejudge(run: RunDir) -> Rejudged:
    """Recompute every verdict of a run from its log, and compare.

    Raises:
        LogError: as `open_kept`.
    """
    kept = open_kept(run)
    again = kept.argue(kept.facts(kept.manifest.policy), kept.manifest.policy)
    if to_json(again) == run.completion.read_bytes():
        return Rejudged(run=run.id, engine=kept.engine, differing=())
    parts = tuple(name for name in COMPARED if getattr(again, name) != getattr(kept.completion, name))
    return Rejudged(run=run.id, engine=kept.engine, differing=parts or ("argument",))
