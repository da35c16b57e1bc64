"""The signer and its second places: every second a note and its event, and nobody waits for a place."""

from __future__ import annotations

import http.server
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from log_builders import RUN, begin, decode_opaque, make_signed_run, signing_key, slab_of, split_notes
from test_log_writer import full_at

from supervisor.errors import LogError, UsageError
from supervisor.events import CheckpointMissed, CheckpointSigned
from supervisor.log.notes import check_note, origin_of, parse_note, read_witnessed
from supervisor.log.places import Poster, SecondPlace, check_place
from supervisor.log.reader import read_events
from supervisor.log.signer import Signer
from supervisor.log.verify import verify_log

PUBLIC = signing_key()._key.public_key().public_bytes_raw()


def signed_events(run: Path) -> list[CheckpointSigned]:
    """The events that tell of checkpoints."""
    return [event for event in read_events(run / "log", decode_opaque) if isinstance(event, CheckpointSigned)]


def test_a_running_log_is_signed_all_the_time(tmp_path: Path) -> None:
    """While slabs are appended, notes come at the pace asked for, each told by its event, each signed."""
    run = tmp_path / "run"
    with begin(run) as log:
        signer = Signer(log, run / "log", signing_key(), run_id=RUN, every_s=0.05)
        signer.start()
        for _ in range(40):
            log.append_kernel(slab_of(3), 3)
            time.sleep(0.01)
        signer.stop()
        signer.stop()
        signer.abandon()
    notes = [parse_note(raw) for raw in split_notes(run)]
    told = signed_events(run)
    assert len(notes) == len(told) >= 6
    assert [note.digest() for note in notes] == [event.note for event in told]
    assert [note.size for note in notes] == sorted({note.size for note in notes})
    assert not any(check_note(note, origin=origin_of(RUN), public=PUBLIC) for note in notes)


def test_a_note_that_cannot_be_told_of_is_taken_back(tmp_path: Path) -> None:
    """On a full disk there is neither a note without its event nor an event without its note; later it goes on."""
    run = tmp_path / "run"
    with begin(run) as log:
        log.append_kernel(slab_of(3), 3)
        signer = Signer(log, run / "log", signing_key(), run_id=RUN)
        signer.sign()
        size = (run / "log" / "000000.seg").stat().st_size
        for limit in (100, size + 10):
            with full_at(limit), pytest.raises(LogError):
                signer.sign()
            assert len(split_notes(run)) == len(signed_events(run)) == signer.signed == 1
        signer.sign()
        signer.abandon()
    assert len(split_notes(run)) == len(signed_events(run)) == 2


def test_an_empty_log_is_not_signed(tmp_path: Path) -> None:
    """There is nothing to vouch for yet."""
    run = tmp_path / "run"
    with begin(run) as log:
        Signer(log, run / "log", signing_key(), run_id=RUN).sign()
        assert not (run / "log" / "checkpoints").exists()


def test_checkpoints_are_private(tmp_path: Path) -> None:
    """The file is for its owner alone."""
    run = make_signed_run(tmp_path / "run")
    assert (run / "log" / "checkpoints").stat().st_mode & 0o777 == 0o600


def place_of(place: str, tmp_path: Path) -> Path:
    """Sign a short log whose notes go to a place."""
    run = tmp_path / "run"
    with begin(run) as log:
        log.append_kernel(slab_of(3), 3)
        signer = Signer(log, run / "log", signing_key(), run_id=RUN, every_s=0.02, places=(place,))
        signer.start()
        time.sleep(0.2)
        signer.stop()
        signer.abandon()
    return run


@pytest.mark.parametrize("name", ["notes", "folder"])
def test_a_file_or_a_directory_gets_every_note(tmp_path: Path, name: str) -> None:
    """A file gets the notes of all runs, a directory a file for each."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes").write_text("what stood there before\n")
    run = place_of(str(tmp_path / name), tmp_path)
    kept = read_witnessed(tmp_path / name, origin=origin_of(RUN))
    assert [note.raw for note in kept] == split_notes(run)
    assert (tmp_path / "notes").read_text().startswith("what stood there before\n")


def test_what_was_witnessed_is_found_among_other_notes(tmp_path: Path) -> None:
    """Notes of other runs, other words, other witnesses' signatures and half a note do not matter."""
    note = split_notes(make_signed_run(tmp_path / "run"))[1]
    other = note.replace(RUN.encode(), b"other")
    cosigned = note + "\u2014 witness.example AAAA\n".encode()
    place = tmp_path / "place"
    place.write_bytes(b"x\n" + other + cosigned + b"\n" + note[:50] + b"\n" + note)
    assert [one.size for one in read_witnessed(place, origin=origin_of(RUN))] == [9, 9]
    assert verify_log(tmp_path / "run", witnessed=place).witnessed == 2


def test_a_place_that_fails_is_a_gap_and_no_error(tmp_path: Path) -> None:
    """A place that is not there (any more) costs an event that says which checkpoints it missed, and nothing else."""
    run = place_of(str(tmp_path / "missing" / "notes"), tmp_path)
    missed = [event for event in read_events(run / "log", decode_opaque) if isinstance(event, CheckpointMissed)]
    assert len(missed) in {1, 2}
    assert (missed[0].first, missed[-1].last) == (0, len(split_notes(run)) - 1)
    assert "No such file" in missed[0].problem


def test_a_stalled_place_stalls_nobody(tmp_path: Path) -> None:
    """However long a place takes, offering returns at once, the queue is bounded, and the end comes in time."""
    release = threading.Event()
    note = parse_note(split_notes(make_signed_run(tmp_path / "run"))[0])
    place = SecondPlace("slow", lambda _: release.wait(20) and None)
    began = time.monotonic()
    for number in range(200):
        place.offer(number, note)
    place.finish(0.2)
    assert time.monotonic() - began < 2
    missed = place.take_missed(final=True)
    assert missed is not None
    assert (missed.first, missed.last) == (0, 199)
    release.set()


def test_an_outage_is_told_at_once_and_then_seldom(tmp_path: Path) -> None:
    """The first miss is told, the next ones are gathered, and an outage after a recovery is told at once again."""
    broken = True
    note = parse_note(split_notes(make_signed_run(tmp_path / "run"))[0])

    def deliver(_: bytes) -> None:
        if broken:
            raise OSError(0, "broken")

    place = SecondPlace("place", deliver)
    told = []
    for number in range(4):
        broken = number != 2
        place.offer(number, note)
        place.flush(5)
        told.append(place.take_missed())
    assert [one and (one.first, one.last) for one in told] == [(0, 0), None, None, None]
    rest = place.take_missed(final=True)
    assert rest is not None
    assert (rest.first, rest.last) == (1, 3)
    place.finish(1)


@pytest.mark.parametrize(
    "place",
    ["http://x.example/", "ftp://x/", "https://", "https://u:p@x.example/", "https://x:port/", "/missing/dir/f"],
)
def test_a_mistake_in_a_place_is_found_before_anything_runs(place: str) -> None:
    """Plain HTTP, no host, a password, a directory that is not there."""
    with pytest.raises(UsageError) as caught:
        check_place(place, option="--checkpoint-to")
    assert caught.value.place == "--checkpoint-to"


def test_good_places_pass(tmp_path: Path) -> None:
    """A file to be made, a directory, an https URL with a path and a port."""
    for place in (str(tmp_path), str(tmp_path / "new"), "https://witness.example:8443/add?log=1"):
        check_place(place, option="--checkpoint-to")


class Witness(http.server.BaseHTTPRequestHandler):
    """Keeps what is posted to it; /busy is refused."""

    protocol_version = "HTTP/1.1"
    kept: list[tuple[str, bytes, int]]

    def do_POST(self) -> None:
        """Keep the body, the path and the connection it came over."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.kept.append((self.path, body, self.client_address[1]))
        self.send_response(503 if self.path == "/busy" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def certificate(place: Path) -> Path:
    """Make a certificate of 127.0.0.1 with its key."""
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "witness")])
    now = datetime.now(tz=UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    (place / "witness.pem").write_bytes(private + made.public_bytes(forms.Encoding.PEM))
    return place / "witness.pem"


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An https server on loopback whose certificate is trusted; gives its URL."""
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    Witness.kept = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Witness)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_url_gets_every_note_over_one_connection(witness: str) -> None:
    """Each note is one POST; the connection is kept."""
    post = Poster(f"{witness}/add?run=1")
    for number in range(3):
        post(b"note %d" % number)
    assert [(path, body) for path, body, _ in Witness.kept] == [("/add?run=1", b"note %d" % n) for n in range(3)]
    assert len({port for _, _, port in Witness.kept}) == 1
    post._close()


def test_an_answer_that_is_no_success_is_a_failure(witness: str) -> None:
    """A server that refuses has not kept the note."""
    with pytest.raises(OSError, match="HTTP status 503"):
        Poster(f"{witness}/busy")(b"note")


def test_a_server_that_is_not_trusted_is_a_failure(witness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody vouches for ends it before anything is posted."""
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    with pytest.raises(OSError, match="certificate verify failed"):
        Poster(witness)(b"note")
    assert Witness.kept == []
