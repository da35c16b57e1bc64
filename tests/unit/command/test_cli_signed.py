"""Keys, proofs and signed runs at the command line: what is printed, and the exit codes."""

from __future__ import annotations

import json
import shutil
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.errors import UsageError
from supervisor.harness import make_request
from supervisor.log.keys import KeyStore, read_public

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "log-v1-signed"
KEY = str(json.loads((GOLDEN / "manifest.json").read_bytes())["key"])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, which the command finds by the environment."""
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("SUPERVISE_HOME", str(place))
    return place


def test_keys_are_shown_and_changed(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`show` makes the first key, `new` another one that signs; both stay listed."""
    assert main(["key", "show"]) == 0
    first = capfd.readouterr().out
    assert first.startswith("ed25519:")
    assert first.endswith(".pem  signs\n")
    assert main(["key", "new"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == len(list((home / "keys").glob("*.pem"))) == 2
    assert lines[0].endswith("signs")
    assert lines[1] == first.removesuffix("  signs\n")


def test_the_public_key_is_printed_as_key_takes_it(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What `key show --public` prints is a file for `--key`, also when older keys are kept; the whole list is none."""
    assert main(["key", "new"]) == main(["key", "new"]) == 0
    capfd.readouterr()
    assert main(["key", "show", "--public"]) == 0
    printed = capfd.readouterr().out
    (tmp_path / "signer.pub").write_text(printed)
    assert read_public(tmp_path / "signer.pub") == printed.strip() == KeyStore(home).current().public
    assert main(["key", "show"]) == 0
    (tmp_path / "list").write_text(capfd.readouterr().out)
    with pytest.raises(UsageError):
        read_public(tmp_path / "list")


def test_a_signed_run_of_others_is_said_to_be_theirs(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Frames, checkpoints, and whose key it is."""
    assert home.is_dir()
    assert main(["verify", str(GOLDEN)]) == 0
    out = capfd.readouterr().out
    assert "good: 15 frames, 23 events" in out
    assert f"5 checkpoints, key {KEY} (not of this home)" in out


def test_a_demanded_key_and_kept_checkpoints(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The right key and what was witnessed are good; another key is bad; a file without a key is a mistake."""
    key = home / "key"
    key.write_text(KEY)
    kept = str(GOLDEN / "log" / "checkpoints")
    assert main(["verify", str(GOLDEN), "--key", str(key), "--checkpoints", kept]) == 0
    assert "extends 5 witnessed checkpoints" in capfd.readouterr().out
    key.write_text("ed25519:" + "A" * 43 + "=")
    assert main(["verify", str(GOLDEN), "--key", str(key)]) == 1
    assert "expected the key ed25519:AAAA" in capfd.readouterr().err
    assert main(["verify", str(GOLDEN), "--key", kept]) == 125
    assert main(["verify", str(GOLDEN), "--checkpoints", "/dev/null"]) == 125


def test_a_missing_seal_is_explained(home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a log without a seal means is printed under the finding."""
    assert home.is_dir()
    run = Path(shutil.copytree(GOLDEN, tmp_path / "run"))
    segment = run / "log" / "000002.seg"
    segment.write_bytes(segment.read_bytes()[: segment.read_bytes().rfind(b"SVFR")])
    assert main(["verify", str(run)]) == 1
    err = capfd.readouterr().err
    assert "frame 14: expected a seal" in err
    assert "14 whole frames were found; signed checkpoints vouch for the first 12 of them" in err


def test_a_proof_is_written_and_checked(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a file or stdout, from a file or stdin; without the key it is not believed."""
    key, proof = home / "key", tmp_path / "proof"
    key.write_text(KEY)
    assert main(["prove", str(GOLDEN), "2", "-o", str(proof)]) == 0
    assert main(["prove", str(GOLDEN), "2"]) == 0
    assert capfd.readouterr().out.encode() == proof.read_bytes()
    assert main(["verify", "--proof", str(proof), "--key", str(key)]) == 0
    told, line = capfd.readouterr().out.splitlines()
    assert told.startswith("event 2 of 20261130-080642-k3f9 is in the log of 15 frames")
    assert json.loads(line)["kind"] == "trial.held"
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(proof.read_bytes())))
    assert main(["verify", "--proof", "-", "--key", str(key)]) == 0
    assert main(["verify", "--proof", str(proof)]) == 125
    assert "none of this home's" in capfd.readouterr().err
    proof.write_bytes(proof.read_bytes().replace(b'"event": 2', b'"event": 3'))
    assert main(["verify", "--proof", str(proof), "--key", str(key)]) == 1
    assert main(["prove", str(GOLDEN), "99"]) == 125
    assert "expected an event from 0 to 22" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["verify", "last", "--proof", "x"],
        ["verify", "--proof", "/missing"],
        ["prove", "last", "x"],
        ["key"],
        ["key", "old"],
        ["--checkpoint-to", "http://x.example/", "--", "true"],
        ["--checkpoint-to", "", "--", "true"],
    ],
)
def test_mistakes_are_told(home: Path, words: list[str]) -> None:
    """Neither runs nor a proof, both, a number that is none, a place that cannot be."""
    assert home.is_dir()
    assert main(words) == 125


def test_the_python_interface_takes_a_key_and_places(tmp_path: Path) -> None:
    """What the options say, keywords say."""
    request = make_request(["true"], None, {"checkpoint_to": ["/w"], "signing_key": tmp_path / "key"})
    assert request.policy.log.checkpoint_to == ("/w",)
    assert request.signing_key == tmp_path / "key"
    with pytest.raises(UsageError):
        make_request(["true"], None, {"checkpoint": "x"})
