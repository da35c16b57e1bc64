"""The rules that hold for every test.

1. A test marked ``kernel(capability)`` is skipped where `doctor` says that this machine lacks the capability, and the
   reason names it. Without root all of them are. Any other skip is a failure: a test that does not run proves nothing.
2. The tests leave the machine as they found it. Set ``SUPERVISE_TESTS_SHARED_MACHINE=1`` where others start trials at
   the same time: their things are then told, not failed for.
3. No property is timed: a loaded machine is no counterexample. Where ``CI`` is set the examples are the same each time,
   so that what fails there fails here too; elsewhere each session looks for new ones.
"""

from __future__ import annotations

import functools
import os
import signal
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

import machine_state

LACKING = pytest.StashKey[bool]()

os.environ[machine_state.MARKER] = uuid.uuid4().hex

# Whoever starts the tests in the background of a shell leaves SIGINT ignored, and what is ignored stays so in children.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("ours", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("ours")


@functools.cache
def lacking_capabilities() -> dict[str, str]:
    """Ask doctor once: what is missing here, with its own words."""
    from probes.doctor import Answer, examine  # noqa: PLC0415 -- sessions without kernel tests do not need it

    return {finding.name: finding.detail for finding in examine().findings if finding.answer is Answer.NO}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a kernel test for a capability that doctor reports missing, and for nothing else."""
    for mark in item.iter_markers("kernel"):
        for capability in ("root", *mark.args):
            if capability in lacking_capabilities():
                item.stash[LACKING] = True
                pytest.skip(f"doctor: no {capability} here: {lacking_capabilities()[capability]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn every other skip into a failure."""
    report = yield
    skipped = call.excinfo is not None and call.excinfo.errisinstance(pytest.skip.Exception)
    if skipped and not item.stash.get(LACKING, False):
        report.outcome = "failed"
        report.longrepr = f"skipped without a capability that doctor reports missing: {call.excinfo.value}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module into a failure too."""
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: skipped whole; mark its tests kernel(capability) instead"
    return report


@pytest.fixture(scope="session", autouse=True)
def _same_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """The machine after the tests is the machine before them."""
    before = machine_state.read_machine()
    yield
    found = machine_state.differences(before)
    if found and os.environ.get("SUPERVISE_TESTS_SHARED_MACHINE"):
        reporter = request.config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line("\nchanged on a shared machine: " + "; ".join(found))
        return
    assert not found, "the tests changed the machine:\n" + "\n".join(found)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own, named by ``SUPERVISE_HOME``."""
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("SUPERVISE_HOME", str(path))
    return path
