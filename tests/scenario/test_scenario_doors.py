"""Every door by which a file can change, in one trial: each is told with its history, its writer and its digests."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scenario_doors import DOORS, PROGRAM, furnish, stdin
from scenario_lab import Lab, Ran, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")


@dataclass(frozen=True, slots=True)
class Done:
    """The trial, what its program says of each door, and the digests of the workspace before and after."""

    ran: Ran
    answers: Mapping[str, Mapping[str, Any]]
    before: Mapping[str, str]
    after: Mapping[str, str]

    def refused(self, name: str) -> bool:
        """Tell whether the kernel refused the act, where it may."""
        error = self.answers[name]["error"]
        assert error is None or error in DOORS[name].may
        return error is not None

    def files(self, name: str) -> dict[str, dict[str, Any]]:
        """Give what was told of a door's directory, by path relative to it."""
        prefix = name + "/"
        return {path[len(prefix) :]: file for path, file in self.ran.files.items() if path.startswith(prefix)}


def digests(work: Path) -> dict[str, str]:
    """Digest every regular file and symlink below a directory."""
    found = {}
    for path in work.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[str(path.relative_to(work))] = hashlib.sha256(bytes(path.readlink())).hexdigest()
        elif stat.S_ISREG(mode):
            found[str(path.relative_to(work))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return {path: f"sha256:{digest}" for path, digest in found.items()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The one trial."""
    base = tmp_path_factory.mktemp("doors")
    lab = Lab(base / "home", base / "work")
    lab.home.mkdir(mode=0o700)
    lab.work.mkdir()
    furnish(lab.work)
    before = digests(lab.work)
    (base / "stdin").write_bytes(stdin())
    with (base / "stdin").open("rb") as acts:
        ran = lab.run("--", *python(PROGRAM), stdin=acts)
    assert ran.code == 0, ran.err
    return Done(ran, json.loads(ran.out), before, digests(lab.work))


@pytest.mark.parametrize("name", DOORS)
def test_a_door_is_told_with_its_history_and_its_effect(done: Done, name: str) -> None:
    """Each path has the words of what happened to it, its net effect, whether it was restored, its other name."""
    if done.refused(name):
        return
    files = done.files(name)
    told = {
        path: (tuple(f["history"]), f["net"], f["restored"], f.get("renamed_from"), f.get("renamed_to"))
        for path, f in files.items()
        if f["history"]
    }
    assert told == {
        path: (
            want.history,
            want.net,
            want.restored,
            want.renamed_from and f"{name}/{want.renamed_from}",
            want.renamed_to and f"{name}/{want.renamed_to}",
        )
        for path, want in DOORS[name].wants.items()
    }


@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.wants])
def test_a_door_is_attributed_to_who_opened_it(done: Done, name: str) -> None:
    """The one writer is the process that acted, and each change cites its events."""
    if done.refused(name):
        return
    (actor,) = (p["id"] for p in done.ran.report["effects"]["processes"] if p["pid"] == done.answers[name]["pid"])
    for path, file in done.files(name).items():
        if file["history"]:
            assert file["writers"] == [actor], path
            assert file["events"], path


@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.wants])
def test_a_door_is_told_with_the_digests_of_both_ends(done: Done, name: str) -> None:
    """``before`` and ``after`` are those of the files as they lie there."""
    for path, file in done.files(name).items():
        whole = f"{name}/{path}"
        assert (file["before"], file["after"]) == (done.before.get(whole), done.after.get(whole)), whole


@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.may])
def test_a_door_that_is_shut_is_told_as_an_attempt(done: Done, name: str) -> None:
    """What the kernel refused changed nothing, and the attempt is told with its error."""
    if not done.refused(name):
        assert done.files(name)
        return
    attempts = [a for file in done.files(name).values() for a in file.get("attempts", ())]
    assert attempts
    assert not any(file["history"] for file in done.files(name).values())


@pytest.mark.parametrize(
    ("name", "kept"), [("write-and-put-back", False), ("utimes-put-back", True), ("chmod-and-back", True)]
)
def test_the_time_of_modification_is_told_apart(done: Done, name: str, *, kept: bool) -> None:
    """A file is restored whatever its times are; whether the last modification shows is told beside that."""
    (file,) = done.files(name).values()
    assert file["restored"]
    assert file["mtime_kept"] is kept


def test_all_that_changed_is_explained(done: Done) -> None:
    """Log and disk agree about every path: the route of files has no gap, and the trial is clean."""
    (route,) = (entry for entry in done.ran.report["coverage"] if entry["route"] == "file")
    assert route["gaps"] == []
    assert route["complete"]
    assert (done.ran.finality, done.ran.scope) == ("final", "clean")
