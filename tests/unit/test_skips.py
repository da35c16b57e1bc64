"""The rule about skips, tried on small sessions of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

LACKING = "import conftest, pytest\nconftest.lacking_capabilities = lambda: {'warp': 'no drive'}\n"


def session(tmp_path: Path, text: str) -> tuple[int, str]:
    """Run one test file under our rules: its exit code, and what pytest said."""
    (tmp_path / "test_small.py").write_text(LACKING + text, encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "conftest", "-p", "no:cacheprovider"]
    options = ["-c", os.devnull, "--rootdir", str(tmp_path), "-o", "markers=kernel(capability)", str(tmp_path)]
    path = os.pathsep.join((str(TESTS), str(TESTS.parent)))
    # The session around this one compares the machine; the small ones must not wait for what it has started.
    environ = {**os.environ, "PYTHONPATH": path, "SUPERVISE_TESTS_SHARED_MACHINE": "1"}
    done = subprocess.run([*argv, *options], env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_capability_that_doctor_misses_skips_and_is_named(tmp_path: Path) -> None:
    """A kernel test is skipped for what is missing, with doctor's words."""
    code, said = session(tmp_path, "@pytest.mark.kernel('warp')\ndef test_it():\n    assert False\n")
    assert code == 0, said
    assert "doctor: no warp here: no drive" in said


def test_a_capability_that_is_there_does_not_skip(tmp_path: Path) -> None:
    """A kernel test whose capability is not missing runs."""
    code, said = session(tmp_path, "@pytest.mark.kernel('gravity')\ndef test_it():\n    pass\n")
    assert code == 0, said
    assert "1 passed" in said


def test_any_other_skip_fails(tmp_path: Path) -> None:
    """A test that skips itself has failed, by mark or by call."""
    code, said = session(tmp_path, "def test_it():\n    pytest.skip('not today')\n")
    assert code == 1, said
    assert "1 failed" in said
    code, said = session(tmp_path, "@pytest.mark.skip(reason='never')\ndef test_it():\n    pass\n")
    assert code == 1, said


def test_a_module_that_skips_itself_fails(tmp_path: Path) -> None:
    """Neither may a whole module leave."""
    code, said = session(tmp_path, "pytest.importorskip('no_such_module')\ndef test_it():\n    pass\n")
    assert code != 0, said
    assert "skipped whole" in said
