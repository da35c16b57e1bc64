"""What a trial met of the host outside its own places, from its events alone."""

from __future__ import annotations

import errno

import pytest
from transcript import WORK, Transcript, policy_for

from supervisor import events as ev
from supervisor.evidence.collect import collect

ELSEWHERE = b"/srv/other/x"


@pytest.mark.parametrize(
    ("kind", "path", "fields"),
    [
        (ev.FileCreated, ELSEWHERE, {"what": ev.Kind.DIRECTORY}),
        (ev.FileDeleted, ELSEWHERE, {"what": ev.Kind.DIRECTORY}),
        (ev.FileLinked, b"target", {"new_path": ELSEWHERE, "symbolic": True}),
        (ev.FileLinked, b"/etc/passwd", {"new_path": ELSEWHERE, "symbolic": False}),
        (ev.FileRenamed, b"/etc/passwd", {"new_path": ELSEWHERE}),
    ],
)
@pytest.mark.parametrize("error", [errno.EEXIST, None])
def test_what_could_not_be_made_was_looked_up(
    kind: type[ev.Event], path: bytes, fields: dict[str, object], error: int | None
) -> None:
    """That something is there already is learnt by a call that fails; one that works is a change instead."""
    trial = Transcript()
    trial.begin()
    trial.file(kind, path, error=error, **fields)
    trial.exit()
    trial.endpoint()
    trial.settled()
    trial.end()
    facts = collect(
        trial.events,
        policy=policy_for(),
        workspace=WORK,
        observe=trial.observe,
        changed=lambda: list(trial.stage),
        links=lambda _paths: {},
    )
    looked = {read.path for read in facts.reads if read.how == "looked"}
    assert looked == ({ELSEWHERE} if error else set())
