"""Which of the two objects is for which kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.kernel.early import object_for


@pytest.mark.parametrize("release", ["6.1.0-18-amd64", "5.17.1", "6.1", "5.19-rc3"])
def test_a_kernel_without_casts_gets_the_object_that_reads_by_calls(release: str) -> None:
    """bpf_rdonly_cast came with Linux 6.2."""
    assert Path(object_for(release)).name == "witness_by_calls.bpf.o"


@pytest.mark.parametrize("release", ["6.2.0", "6.18.44-fc", "7.0-rc1", "10.1.2", "strange"])
def test_any_other_kernel_gets_the_object_that_loads_fields_directly(release: str) -> None:
    """One whose version says nothing is taken for new: what does not load is told as such."""
    assert Path(object_for(release)).name == "witness.bpf.o"
