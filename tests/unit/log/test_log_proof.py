"""A proof shows one event without the log, and nothing else passes for it."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from log_builders import decode_opaque, make_run, make_signed_run, put_frames, signing_key, split_frames
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from supervisor.errors import LogError, LogUnreadableError, UsageError
from supervisor.events import Event
from supervisor.log.envelope import PAYLOAD_TYPE, check_predicate, open_envelope, sign_envelope
from supervisor.log.keys import parse_public
from supervisor.log.proof import key_of, make_proof, verify_proof
from supervisor.log.reader import read_events, read_frame

KEY = signing_key().public


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run that nobody changes."""
    return make_signed_run(tmp_path_factory.mktemp("proofs") / "run", segment_bytes=900)


def proved(data: bytes) -> Event:
    """Check a proof and give its event."""
    found = verify_proof(data, key=KEY)
    return next(event for event in read_frame(found.frame, decode_opaque) if event.n == found.event)


def test_every_event_can_be_proved(run: Path) -> None:
    """The proof of each event gives that event, checked without the log."""
    for event in read_events(run / "log", decode_opaque):
        assert proved(make_proof(run, event.n)) == event


def test_a_running_log_proves_what_is_signed(tmp_path: Path) -> None:
    """Without a seal, events up to the last checkpoint can be proved, and those after it not yet."""
    unsealed = make_signed_run(tmp_path / "run", unsealed=True)
    assert proved(make_proof(unsealed, 10)).n == 10
    with pytest.raises(UsageError, match="expected an event from 0 to 19, which is signed, got 20"):
        make_proof(unsealed, 20)


def test_no_proof_of_what_is_not_there(run: Path, tmp_path: Path) -> None:
    """An event that does not exist, a run without signatures, a log that was changed."""
    with pytest.raises(UsageError, match="got 99"):
        make_proof(run, 99)
    with pytest.raises(LogError, match="got no file"):
        make_proof(make_run(tmp_path / "unsigned"), 1)
    cut = Path(shutil.copytree(run, tmp_path / "cut"))
    put_frames(cut, split_frames(run)[:-2])
    with pytest.raises(LogError, match="supervise verify says more"):
        make_proof(cut, 1)


def changed(data: bytes, **fields: Any) -> bytes:
    """Change fields of a proof."""
    proof = json.loads(data)
    for name, value in fields.items():
        outer, _, inner = name.partition("__")
        if inner:
            proof[outer][inner] = value
        else:
            proof[outer] = value
    return json.dumps(proof).encode()


def test_a_changed_proof_proves_nothing(run: Path) -> None:
    """Another event, frame, path, manifest, run or checkpoint: each is refused."""
    good, other = make_proof(run, 5), json.loads(make_proof(run, 21))
    manifest = base64.b64encode(b'{"run":"x"}').decode()
    for fields in (
        {"event": 6},
        {"position": 1},
        {"event": 21, "position": 1},
        {"holds__index": 4},
        {"holds__path": []},
        {"holds__path": other["holds"]["path"]},
        {"holds__frame": other["holds"]["frame"]},
        {"holds": other["begins"]},
        {"begins": other["holds"]},
        {"manifest": manifest},
        {"run": "other"},
        {"checkpoint": other["checkpoint"].replace("15", "16")},
        {"key": signing_key(b"o" * 32).public},
    ):
        with pytest.raises(LogError):
            verify_proof(changed(good, **fields), key=KEY)


def test_a_proof_of_another_signer_is_refused(tmp_path: Path) -> None:
    """A forger's proof is whole, but of another key."""
    forged = make_proof(make_signed_run(tmp_path / "run", seed=b"f" * 32), 5)
    assert key_of(forged) == signing_key(b"f" * 32).public
    with pytest.raises(LogError, match="expected the key"):
        verify_proof(forged, key=KEY)
    with pytest.raises(LogError, match="key id"):
        verify_proof(changed(forged, key=KEY), key=KEY)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"schema": 1}'])
def test_what_is_no_proof_is_unreadable(data: bytes) -> None:
    """Other JSON, or none."""
    with pytest.raises(LogUnreadableError, match="expected supervise-proof/1"):
        verify_proof(data, key=KEY)
    with pytest.raises(LogUnreadableError):
        key_of(data)


def test_a_proof_of_a_later_version_is_told(run: Path) -> None:
    """Another schema is named."""
    with pytest.raises(LogUnreadableError, match="supervise-proof/2"):
        verify_proof(changed(make_proof(run, 5), schema="supervise-proof/2"), key=KEY)


def library_key(public: str) -> SSlibKey:
    """Give a key to the library of the DSSE authors."""
    raw = parse_public(public).hex()
    return SSlibKey(public, "ed25519", "ed25519", {"public": raw})


def test_the_envelope_is_what_the_library_of_its_authors_verifies() -> None:
    """The library verifies what we sign, and refuses it when a byte is another one."""
    raw = sign_envelope(b'{"predicate": {"a": 1}}', signing_key())
    envelope = Envelope.from_dict(json.loads(raw))
    assert envelope.payload_type == PAYLOAD_TYPE
    assert list(envelope.verify([library_key(KEY)], 1)) == [KEY]
    envelope.payload += b" "
    with pytest.raises(VerificationError):
        envelope.verify([library_key(KEY)], 1)


def test_an_envelope_opens_for_its_signer_only() -> None:
    """The payload comes back; another key, type or form is refused; the predicate must be the argument's bytes."""
    raw, public = sign_envelope(b'{"predicate": {"a": 1}}', signing_key()), parse_public(KEY)
    payload = open_envelope(raw, public, place="p")
    check_predicate(payload, b'{"a": 1}\n', place="p")
    with pytest.raises(LogError, match=r"expected completion\.json"):
        check_predicate(payload, b'{"a": 2}', place="p")
    with pytest.raises(LogError, match="in-toto"):
        check_predicate(b"{}", b"", place="p")
    with pytest.raises(LogError, match="none that fits"):
        open_envelope(raw, parse_public(signing_key(b"o" * 32).public), place="p")
    with pytest.raises(LogError, match="payload of type"):
        open_envelope(raw.replace(b"in-toto", b"another"), public, place="p")
    with pytest.raises(LogError, match="signed statement"):
        open_envelope(b"{}", public, place="p")
