"""The completion argument as a document."""

from __future__ import annotations

import json

import pytest
from transcript import Transcript, ordinary, policy_for, state, without_commit

from supervisor import events as ev
from supervisor.verdict.argue import argue
from supervisor.verdict.completion import (
    Completion,
    LogFigures,
    from_json,
    to_json,
    unmet_requirements,
    without_seal,
)
from supervisor.verdict.judge import Grade, judge
from supervisor.verdict.naming import moment

FIGURES = LogFigures(frames=3, events=20, lost=0, root="sha256:r", sealed=True)


def argument(trial: Transcript, *, grade: Grade | None = None) -> Completion:
    """Judge a transcript and put its argument together."""
    policy = without_commit(policy_for())
    facts = trial.facts(policy)
    return argue(
        facts,
        policy,
        judge(facts, policy, grade=grade),
        run="r1",
        command=(b"sh", b"-c", b"echo"),
        log=FIGURES,
        policy_digest="sha256:p",
    )


def test_the_json_has_the_fields_of_the_contract() -> None:
    """Top-level names in the order of the schema, and it reads back as it was."""
    completion = argument(ordinary())
    raw = json.loads(to_json(completion))
    assert list(raw) == [
        "schema", "run", "command", "policy", "claim", "stop_rule", "endpoint", "coverage", "effects", "open_effects",
        "finality", "separation", "scope", "result", "log", "stage", "usage", "validation", "name",
    ]  # fmt: skip
    assert raw["schema"] == "completion-argument/1"
    assert raw["endpoint"]["exit_code"] == 0
    assert raw["effects"]["files"][0]["path"] == "out"
    assert raw["effects"]["processes"][0]["argv"] == ["sh", "-c", "echo hi > out"]
    assert from_json(to_json(completion)) == completion


def test_what_is_no_utf8_stands_in_base64() -> None:
    """The plain field is left out then."""
    trial = ordinary()
    trial.create(b"\xffbad")
    trial.found(b"\xffbad", None, state())
    trial.add(ev.ProcessExecuted, exe=b"/x", argv=(b"\xfe",))
    raw = json.loads(to_json(argument(trial)))
    odd = next(file for file in raw["effects"]["files"] if "path_b64" in file)
    assert "path" not in odd
    process = raw["effects"]["processes"][0]
    assert "argv" not in process
    assert process["argv_b64"] == ["/g=="]


def test_moments_are_utc_with_nanoseconds() -> None:
    """Boot time plus the offset that was recorded with the trial."""
    assert moment(1, 1_700_000_000_000_000_000) == "2023-11-14T22:13:20.000000001Z"


def test_without_a_seal_nothing_good_is_left() -> None:
    """A reader that finds no seal shows every verdict open; a violation stays one."""
    bare = without_seal(argument(ordinary(), grade=Grade(label="success", at_ns=1)))
    assert (bare.finality.verdict, bare.finality.label) == ("unresolved", None)
    assert (bare.separation.verdict, bare.scope.verdict) == ("unresolved", "unresolved")
    assert bare.result.passed is None
    assert not bare.log.sealed
    trial = ordinary()
    trial.add(ev.ConnectionBlocked, transport="tcp", ip="203.0.113.7", port=443)
    violated = without_seal(argument(trial))
    assert (violated.scope.verdict, violated.result.passed) == ("violated", False)


@pytest.mark.parametrize(
    ("required", "unmet"), [({"final", "separate", "clean"}, ("clean",)), ({"final"}, ()), (set(), ())]
)
def test_unmet_requirements_are_named(required: set[str], unmet: tuple[str, ...]) -> None:
    """In the order final, separate, clean."""
    trial = ordinary()
    trial.add(ev.DatagramBlocked, transport="udp", ip="203.0.113.7", port=53)
    assert unmet_requirements(argument(trial), frozenset(required)) == unmet
