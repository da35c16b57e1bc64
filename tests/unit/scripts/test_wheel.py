"""The wheel carries what is built once: the kernel witness and the box's init."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import build_native

ROOT = Path(__file__).resolve().parents[3]
ARTEFACTS = tuple(artefact.output for artefact in build_native.ARTEFACTS.values())


def run(*argv: str | Path, cwd: Path = ROOT) -> str:
    """Run a command that must work, and give what it printed."""
    done = subprocess.run([str(word) for word in argv], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of this tree: building in place would write into the folder under test."""
    source = tmp_path_factory.mktemp("source") / "tree"
    source.mkdir()
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in {*filter(None, listed), *ARTEFACTS}:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
            (source / name).chmod((ROOT / name).stat().st_mode)
    place = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", place, ".", cwd=source)
    (built,) = place.glob("*.whl")
    return built


def test_the_wheel_carries_both_artefacts_and_the_policies(wheel: Path) -> None:
    """What cannot be built on the target machine is inside, and the tag names the platform, not one Python."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {*ARTEFACTS, "policies/default.toml", "policies/credentials.toml", "supervisor/py.typed"} <= names
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    assert not [name for name in names if name.startswith(("tests/", "scripts/", "build/"))]


def test_an_installed_wheel_finds_its_artefacts_outside_the_tree(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment the installed package finds the witness and an init that can be executed."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=tmp_path
    )
    asked = "from probes.doctor_preflight import BOXINIT, WITNESS; import os; "
    told = run(
        python,
        "-E",
        "-c",
        asked + "print(WITNESS.stat().st_size > 0, os.access(BOXINIT, os.X_OK), WITNESS)",
        cwd=tmp_path,
    )
    assert told.startswith("True True ")
    assert str(environment) in told


def test_without_compiler_and_object_the_build_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither an object nor a way to build one: the error names both, and the packages."""
    (tmp_path / "probes/kernel").mkdir(parents=True)
    (tmp_path / "probes/kernel/witness.bpf.c").touch()
    monkeypatch.setattr(build_native, "ROOT", tmp_path)
    monkeypatch.setattr(build_native, "find_tool", lambda _: None)
    with pytest.raises(build_native.BuildError, match=r"witness\.bpf\.o is not there.*clang") as caught:
        build_native.ensure(build_native.WITNESS)
    assert "apt-get install clang" in str(caught.value)


def test_an_object_that_is_there_is_taken_where_nothing_can_be_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine without clang installs from a tree that carries the object, even one older than its source."""
    folder = tmp_path / "probes/kernel"
    folder.mkdir(parents=True)
    (folder / "witness.bpf.o").touch()
    (folder / "witness.bpf.c").touch()
    monkeypatch.setattr(build_native, "ROOT", tmp_path)
    monkeypatch.setattr(build_native, "find_tool", lambda _: None)
    assert build_native.ensure(build_native.WITNESS) in {"taken", "kept"}


def test_a_new_object_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is compiled twice: an object newer than its sources stays."""
    source = tmp_path / "supervisor/launch/boxinit.c"
    source.parent.mkdir(parents=True)
    source.touch()
    source.with_suffix("").touch()
    monkeypatch.setattr(build_native, "ROOT", tmp_path)
    assert build_native.ensure(build_native.BOXINIT) == "kept"
