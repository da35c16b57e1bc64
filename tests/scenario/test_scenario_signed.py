"""The log is signed while it runs, by a key that the trial does not see, and whoever kept checkpoints can tell."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest
from scenario_lab import Lab, wait_until

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

SECOND = Path(__file__).resolve().parents[2] / "scripts" / "verify_log.py"


def only_run(lab: Lab) -> Path:
    """The directory of the only run."""
    (run,) = (lab.home / "runs").iterdir()
    return run


def second_verifier(run: Path, *options: str) -> int:
    """Ask the stand-alone verifier, from somewhere else and without our packages in reach."""
    command = [sys.executable, "-I", str(SECOND), str(run), *options]
    return subprocess.run(command, capture_output=True, check=False, cwd="/").returncode


def new_key(path: Path) -> Path:
    """Make a key as a user would."""
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)], check=True)
    path.chmod(0o600)
    return path


def test_checkpoints_come_every_second_of_a_run(lab: Lab) -> None:
    """In three seconds there are at least three signatures before the seal's; both verifiers find them good."""
    ran = lab.sh("sleep 3; echo 1 > out", "--outcome", "out")
    run = only_run(lab)
    assert (run / "log" / "checkpoints").read_text(encoding="utf-8").count("\u2014 ") >= 5
    times = [event["t"] for event in lab.events("checkpoint.signed")]
    assert len(times) >= 4
    verified = lab.call("verify", "last")
    assert b"(ours)" in verified.stdout
    assert second_verifier(run) == 0
    assert ran.report["log"]["key"] == json.loads((run / "manifest.json").read_bytes())["key"]
    assert ran.finality == "final"


def test_the_statement_is_about_the_outcome(lab: Lab) -> None:
    """The signed statement names the file that the trial left, by its digest, and holds the completion argument."""
    ran = lab.sh("echo 1 > out; echo 2 > gone; rm gone", "--outcome", "out")
    envelope = json.loads((only_run(lab) / "completion.dsse.json").read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    digest = sha256(b"1\n").hexdigest()
    whole, *files = statement["subject"]
    assert files == [{"name": "out", "digest": {"sha256": digest}}]
    assert whole["digest"]["sha256"] == sha256(b"out\0" + digest.encode() + b"\n").hexdigest()
    assert statement["predicate"] == ran.report
    assert ran.finality == "final"


def test_the_trial_sees_no_key(lab: Lab, tmp_path: Path) -> None:
    """Neither a key file that was named, nor the variable, nor the home's keys can be read, though the user could."""
    key = new_key(tmp_path / "signing.pem")
    lab.environ["SUPERVISE_SIGNING_KEY"] = str(key)
    look = f"cat {key}; cat {lab.home}/keys/*; env | grep SIGNING; true"
    for options in ((), ("--key", str(key))):
        ran = lab.sh(look, *options)
        assert ran.out == b""
    assert b"PRIVATE" in key.read_bytes()
    assert lab.call("verify", "last", "--key", str(key)).returncode == 0
    assert not (lab.home / "keys").exists()


def test_a_key_that_cannot_be_read_stops_everything(lab: Lab, tmp_path: Path) -> None:
    """A mistake with keys is found before anything runs."""
    ended = lab.call("--key", str(tmp_path / "missing"), "--", "touch", "ran")
    assert ended.returncode == 125
    assert not list((lab.home / "runs").iterdir())


def test_a_second_place_tells_a_log_that_was_made_again(lab: Lab, tmp_path: Path) -> None:
    """Root can put another whole run in the place of one; what a second place kept does not fit it."""
    kept = tmp_path / "kept"
    key = new_key(tmp_path / "signing.pem")
    lab.sh("sleep 1; echo bad > out", "--checkpoint-to", str(kept), "--key", str(key))
    run = only_run(lab)
    assert lab.call("verify", "last", "--checkpoints", str(kept)).returncode == 0
    assert second_verifier(run, "--checkpoints", str(kept)) == 0
    segment = run / "log" / "000000.seg"
    segment.write_bytes(segment.read_bytes()[:-100])
    refused = lab.call("verify", "last", "--checkpoints", str(kept))
    assert refused.returncode == second_verifier(run, "--checkpoints", str(kept)) == 1


def test_a_place_that_is_down_stalls_nothing(lab: Lab) -> None:
    """Nobody listens: the trial ends as it would, the gap is in the log, and the verdict stays."""
    began = time.monotonic()
    ran = lab.sh("sleep 1; echo 1 > out", "--outcome", "out", "--checkpoint-to", "https://127.0.0.1:9/")
    assert time.monotonic() - began < 8
    missed = lab.events("checkpoint.missed")
    assert missed[0]["first"] == 0
    assert b"has not got the last checkpoint" in ran.err
    assert lab.call("verify", "last").returncode == 0
    assert ran.finality == "final"


def test_a_killed_supervisor_leaves_signed_frames_and_no_seal(lab: Lab) -> None:
    """After kill -9 the log is unsealed, whole, and vouched for up to the last second."""
    with lab.start("--", "sh", "-c", "echo 1 > out; sleep 60.7") as process:
        notes = lab.home / "runs"
        assert wait_until(lambda: any(len(path.read_bytes()) > 500 for path in notes.glob("*/log/checkpoints")))
        process.send_signal(signal.SIGKILL)
        process.wait()
    told = lab.call("verify", "last")
    assert told.returncode == second_verifier(only_run(lab)) == 1
    assert b"never sealed" in told.stderr
    assert b"signed checkpoints vouch for the first" in told.stderr


def test_an_event_is_proved_without_the_log(lab: Lab, tmp_path: Path) -> None:
    """The proof of a write convinces somebody who has only the public key."""
    lab.sh("echo 1 > out")
    written = lab.events("file.written")[0]
    proof = tmp_path / "proof.json"
    assert lab.call("prove", "last", str(written["n"]), "-o", str(proof)).returncode == 0
    public = tmp_path / "signer.pub"
    public.write_bytes(lab.call("key", "show").stdout.split()[0])
    elsewhere = Lab(tmp_path / "elsewhere", lab.work)
    elsewhere.home.mkdir(mode=0o700)
    checked = elsewhere.call("verify", "--proof", str(proof), "--key", str(public))
    assert checked.returncode == 0
    assert json.loads(checked.stdout.splitlines()[-1])["path"] == written["path"]
    assert elsewhere.call("verify", "--proof", str(proof)).returncode == 125
    proof.write_bytes(proof.read_bytes().replace(b'"position": 0', b'"position": 1', 1))
    data = json.loads(proof.read_bytes())
    proof.write_text(json.dumps(data | {"event": data["event"] + 100000}))
    assert elsewhere.call("verify", "--proof", str(proof), "--key", str(public)).returncode == 1
