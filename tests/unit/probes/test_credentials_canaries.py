"""Decoys: each run's are its own, look like the real thing, and are found again by whoever has the machine's key."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from policies.spotting import VALUE_MIN_BYTES, Spotter
from probes.credentials.canaries import Decoy, make_decoys
from probes.credentials.keeper import KNOWN_RUNS, Keeper
from probes.credentials.search import spotter_of
from supervisor.errors import MachineError


def decoys(keeper: Keeper, run: str) -> tuple[Decoy, ...]:
    """Make the decoys of a run."""
    return make_decoys(lambda form, size: keeper.derive(run, form, size))


def values(found: tuple[Decoy, ...]) -> set[bytes]:
    """Give everything that is looked for."""
    return {value for decoy in found for value in decoy.values}


def test_decoys_are_the_same_for_a_run_and_different_for_every_other(tmp_path: Path) -> None:
    """By the key and the run's name alone; another machine's are others."""
    keeper = Keeper.open(tmp_path)
    again = Keeper.open(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    other = Keeper.open(tmp_path / "elsewhere")
    assert decoys(keeper, "r1") == decoys(again, "r1")
    assert not values(decoys(keeper, "r1")) & values(decoys(keeper, "r2"))
    assert not values(decoys(keeper, "r1")) & values(decoys(other, "r1"))


def test_every_form_is_there_and_its_content_is_recognised(tmp_path: Path) -> None:
    """Each file, as it is and in base64, is known for what it is; so is each variable."""
    made = decoys(Keeper.open(tmp_path), "r1")
    assert {decoy.form for decoy in made} == {"aws", "ssh", "github", "dotenv", "netrc", "kube", "database"}
    assert all(len(value) >= VALUE_MIN_BYTES for value in values(made))
    for decoy in made:
        spotter = spotter_of(("r1", decoy.form, value) for value in decoy.values)
        assert isinstance(spotter, Spotter)
        whole = decoy.content or decoy.value.encode()
        for text in (whole, base64.encodebytes(whole), whole.hex().encode()):
            assert [sighting.name for sighting in spotter.spot(text)] == [f"r1 {decoy.form}"]


def test_the_private_key_has_the_form_of_one(tmp_path: Path) -> None:
    """Base64 between the usual lines, and inside the words of OpenSSH's format."""
    (key,) = (decoy for decoy in decoys(Keeper.open(tmp_path), "r1") if decoy.form == "ssh")
    first, *lines, last = key.content.decode().splitlines()
    assert (first, last) == ("-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----")
    body = base64.b64decode("".join(lines), validate=True)
    assert body.startswith(b"openssh-key-v1\0")
    assert body.count(b"ssh-ed25519") == 2


def test_the_key_is_private_and_stays(tmp_path: Path) -> None:
    """Mode 0600; a second opening gives the same fingerprints, another machine others."""
    keeper = Keeper.open(tmp_path)
    key = tmp_path / "credentials" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert Keeper.open(tmp_path).fingerprint(b"value") == keeper.fingerprint(b"value")
    assert keeper.fingerprint(b"value") != keeper.fingerprint(b"valve")
    assert sorted(path.name for path in key.parent.iterdir()) == ["key"]
    (tmp_path / "other").mkdir()
    assert Keeper.open(tmp_path / "other").fingerprint(b"value") != keeper.fingerprint(b"value")


def test_a_key_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    """A file of another length is no key: nothing is compared with it."""
    Keeper.open(tmp_path)
    (tmp_path / "credentials" / "key").write_bytes(b"short")
    with pytest.raises(MachineError, match="expected a key of 32 bytes, got 5"):
        Keeper.open(tmp_path)


def test_the_latest_runs_with_decoys_are_known(tmp_path: Path) -> None:
    """By their names alone, the newest first, and not more than the bound."""
    keeper = Keeper.open(tmp_path)
    assert keeper.known_runs() == ()
    for number in range(KNOWN_RUNS + 3):
        keeper.register(f"20261130-{number:06d}")
    known = keeper.known_runs()
    assert len(known) == KNOWN_RUNS
    assert known[0] == f"20261130-{KNOWN_RUNS + 2:06d}"
    assert all(path.stat().st_size == 0 for path in (tmp_path / "credentials" / "canaries").iterdir())
