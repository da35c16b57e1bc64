"""Doctor tries the real things, and takes them away again."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.doctor import Answer, examine
from probes.doctor_box import examine_overlay
from probes.doctor_findings import next_or_key_error
from probes.doctor_kernel import hear_a_trial
from probes.doctor_preflight import find_cgroup2


@pytest.mark.kernel("witness", "cgroup")
def test_the_witness_hears_a_command() -> None:
    """The yes about the witness rests on records that the kernel gave about one command."""
    root = find_cgroup2()
    assert root is not None
    assert hear_a_trial(root) >= 2
    assert not list(root.glob("supervise/doctor-*"))


@pytest.mark.kernel("overlay")
def test_the_trial_overlay_leaves_nothing_in_the_state_directory(tmp_path: Path) -> None:
    """What is tried on the state's file system is gone afterwards, also after a refusal."""
    assert examine_overlay(tmp_path, "").answer is Answer.YES
    assert examine_overlay(tmp_path, ",no_such_option").answer is Answer.NO
    assert not list(tmp_path.iterdir())


@pytest.mark.kernel("root")
def test_an_examination_as_root_leaves_no_needed_question_open() -> None:
    """As root every needed thing is there or is not: nothing that the main job needs stays untested."""
    findings = examine().findings
    assert next_or_key_error("root", findings).answer is Answer.YES
    assert not [finding.name for finding in findings if finding.needed and finding.answer is Answer.UNTESTED]
