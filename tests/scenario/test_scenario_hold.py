"""Trials of which nothing leaves and nothing is applied before a validator has accepted all of it."""

from __future__ import annotations

import base64
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from scenario_lab import Lab, Ran, python
from scenario_outside import Outside, outside

pytestmark = pytest.mark.kernel("trials")

VERIFIER = Path(__file__).parents[2] / "scripts" / "verify_log.py"
POLICY = 'schema = 1\nname = "held"\n[validate]\ncommand = "false"\n[network]\ndefault = "hold"\n'

SCRIPT = """
import socket, sys

def say(name, *parts):
    sock = socket.create_connection((name, 80), 20)
    for part in parts:
        sock.sendall(part)
    sock.shutdown(socket.SHUT_WR)
    try:
        return sock.recv(100)
    except OSError as error:
        return type(error).__name__

def post(path, body):
    head = f"POST {path} HTTP/1.1\\r\\nHost: api.test\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    return head.encode() + body

open("made.txt", "w").write(sys.argv[1])
print("both", say("api.test", post("/first", b"one") + post("/second", sys.argv[1].encode())))
print("raw", say("raw.test", b"\\x00\\x01 not http"))
if len(sys.argv) > 2:
    print("half", say("api.test", post("/half", b"cut")[:-1]))
    try:
        print("other", say("evil.test", b"x"))
    except OSError as error:
        print("other", type(error).__name__)
"""

ACCEPT = "cat > /dev/shm/told && grep -q accept made.txt && test ! -w made.txt && cat /dev/shm/told"


@dataclass
class Servers:
    """What two servers on loopback were sent: one of HTTP that closes after each answer, one that only reads."""

    ports: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    on_request: Callable[[], object] = lambda: None

    @property
    def options(self) -> tuple[str, ...]:
        """The options that lead to them by name."""
        pairs = [(f"{name}.test:80", port) for name, port in self.ports.items()]
        return tuple(word for name, port in pairs for word in ("--allow", name, "--map", f"{name}=127.0.0.1:{port}"))


@contextmanager
def serve() -> Iterator[Servers]:
    """Run both servers."""
    made = Servers()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.asked.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            made.on_request()
            self.send_response(201)
            self.end_headers()
            self.wfile.write(b"thanks")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    def read_all(listener: socket.socket) -> None:
        while True:
            try:
                sock = listener.accept()[0]
            except OSError:
                return
            with sock:
                text = b""
                while part := sock.recv(1000):
                    text += part
                made.raw.append(text)

    with (
        http.server.HTTPServer(("127.0.0.1", 0), Handler) as server,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        made.ports = {"api": server.server_address[1], "raw": listener.getsockname()[1]}
        threads = [
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}),
            threading.Thread(target=read_all, args=(listener,)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            listener.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def make_lab(base: Path, policy: str = POLICY) -> tuple[Lab, str]:
    """Make a lab, and a policy file beside it."""
    lab = Lab(base / "home", base / "work")
    lab.home.mkdir(mode=0o700)
    lab.work.mkdir()
    (base / "policy.toml").write_text(policy)
    return lab, str(base / "policy.toml")


@dataclass(frozen=True)
class Held:
    """One trial, and what its servers were sent."""

    lab: Lab
    ran: Ran
    servers: Servers


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """A trial that the validator accepts."""
    lab, policy = make_lab(tmp_path_factory.mktemp("accepted"))
    with serve() as servers:
        options = ("-p", policy, "--validate", ACCEPT, *servers.options)
        yield Held(lab, lab.run(*options, "--", *python(SCRIPT, "accept")), servers)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """A trial that the validator does not accept, with half a request and another host among what it sends."""
    lab, policy = make_lab(tmp_path_factory.mktemp("refused"))
    with serve() as servers:
        options = ("-p", policy, "--validate", ACCEPT, *servers.options)
        yield Held(lab, lab.run(*options, "--", *python(SCRIPT, "refuse", "more")), servers)


def kinds(lab: Lab) -> list[str]:
    """The kinds of what the log tells of holding and releasing, in order."""
    wanted = ("connection.held", "connection.released", "connection.discarded", "validation.", "stage.committed")
    return [event["kind"] for event in lab.events() if event["kind"].startswith(wanted)]


def test_what_was_accepted_is_applied_and_sent_in_order(accepted: Held) -> None:
    """The writes are on the host, and every server has what it was to get, request by request."""
    assert (accepted.lab.work / "made.txt").read_text() == "accept"
    assert accepted.servers.asked == [("/first", b"one"), ("/second", b"accept")]
    assert accepted.servers.raw == [b"\x00\x01 not http"]
    assert accepted.ran.scope == "clean"


def test_nobody_is_answered_before(accepted: Held) -> None:
    """The client sees its connection end, and never what the server says later."""
    assert accepted.ran.out == b"both b''\nraw b''\n"


def test_the_log_shows_both_in_order(accepted: Held) -> None:
    """Held, decided, applied, sent; a connection after the other."""
    held, decided = ["connection.held"] * 2, ["validation.started", "validation.finished"]
    assert kinds(accepted.lab) == [*held, *decided, "stage.committed", *["connection.released"] * 2]


def test_answers_are_evidence(accepted: Held) -> None:
    """What the servers answered is in the report, with the process that had asked."""
    effects = accepted.ran.report["effects"]
    assert [(one["url"], one["status"], one["bytes_in"]) for one in effects["requests"]] == [
        ("http://api.test/first", 201, 6),
        ("http://api.test/second", 201, 6),
    ]
    assert {one["process"] for one in effects["requests"]} <= {one["id"] for one in effects["processes"]}
    assert [one["decision"] for one in effects["network"]] == ["released", "released"]
    assert accepted.ran.report["validation"]["released"] == 2


def test_the_validator_is_told_of_everything(accepted: Held) -> None:
    """Files with digests, and held bytes whole."""
    (told,) = accepted.lab.events("validation.started")
    (said,) = accepted.lab.events("validation.finished")
    assert (told["files"], told["connections"]) == (1, 2)
    # the end of what it wrote, which is the end of what it was told: the last connection
    last = json.loads('{"connection"' + said["said"].rpartition('{"connection"')[2][:-2])
    assert base64.b64decode(last["content_b64"]) == b"\x00\x01 not http"
    assert (last["host"], last["port"], last["bytes"]) == ("raw.test", 80, 11)


def test_what_was_released_is_an_effect_that_others_meet(accepted: Held) -> None:
    """A request that was sent can be met by another run; it is over for this one."""
    sent = [one for one in accepted.ran.report["open_effects"] if one["route"] == "network"]
    assert [(one["status"], one["could_affect"]) for one in sent] == [("terminal", ["runs"])] * 2
    assert accepted.ran.separation == "unresolved"
    assert accepted.ran.finality == "final"


def verify_alone(run: Path) -> int:
    """Have the verifier that shares no code with us verify a run; gives its exit code."""
    return subprocess.run([sys.executable, VERIFIER, run], capture_output=True, check=False, timeout=60).returncode


def test_a_release_verifies_and_is_judged_again_from_its_log(accepted: Held) -> None:
    """The run's log and the validator's hold, and the verdicts follow from them."""
    verified = accepted.lab.call("verify", "last", "--rejudge")
    assert verified.returncode == 0, verified.stderr
    log = next((accepted.lab.home / "runs").glob("*/validator/0/log/*.seg"))
    assert verify_alone(log.parents[3]) == 0
    text = bytearray(log.read_bytes())
    text[len(text) // 2] ^= 1
    log.write_bytes(text)
    assert accepted.lab.call("verify", "last").returncode == 1
    assert verify_alone(log.parents[3]) == 1
    text[len(text) // 2] ^= 1
    log.write_bytes(text)


def test_what_was_refused_is_discarded_whole(refused: Held) -> None:
    """Nothing is on the host, nobody was sent anything, and the log says both."""
    assert list(refused.lab.work.iterdir()) == []
    assert (refused.servers.asked, refused.servers.raw) == ([], [])
    assert kinds(refused.lab)[-5:] == [
        "validation.started", "validation.finished", "stage.committed", *["connection.discarded"] * 2,
    ]  # fmt: skip
    assert refused.ran.report["stage"]["state"] == "discarded"
    assert refused.ran.report["validation"]["accepted"] is False
    assert refused.lab.call("commit", "last").returncode != 0


def test_what_was_discarded_leaves_no_route_open(refused: Held) -> None:
    """Nobody was reached: no other run can meet anything of it."""
    assert refused.ran.finality == "final"
    assert refused.ran.separation == "separate"
    assert [one["could_affect"] for one in refused.ran.report["open_effects"]] == [[], []]


def test_half_a_request_and_other_hosts_violate(refused: Held) -> None:
    """Only what is whole, and goes where a rule allows, is held."""
    rules = {one["rule"] for one in refused.ran.report["scope"]["violations"]}
    assert rules == {"blocked-connection", "forbidden-lookup"}
    assert b"half ConnectionResetError" in refused.ran.out
    assert refused.ran.scope == "violated"


def test_a_server_that_is_gone_lets_nothing_through(tmp_path: Path) -> None:
    """Accepted, but one of the servers is not there: nothing is applied, nothing is sent, the stage is kept."""
    lab, policy = make_lab(tmp_path)
    with serve() as servers:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            servers.ports["raw"] = closed.getsockname()[1]
        ran = lab.run("-p", policy, "--validate", "true", *servers.options, "--", *python(SCRIPT, "accept"))
    assert servers.asked == []
    assert not (lab.work / "made.txt").exists()
    assert ran.report["stage"]["state"] == "kept"
    assert "connection refused" in ran.report["stage"]["why"]
    assert ran.report["validation"]["discarded"] == 2


def test_only_a_final_outcome_is_asked_about(tmp_path: Path) -> None:
    """Where only final outcomes are applied, one that is not is not even shown: nothing is sent, the stage is kept."""
    lab, policy = make_lab(tmp_path)
    words = ("--validate", "true", "--commit", "final", "--period", "eventually", "--settle", "0s")
    with serve() as servers:
        script = f"{SCRIPT}\nimport subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)"
        ran = lab.run("-p", policy, *words, *servers.options, "--", *python(script, "accept"))
    assert (servers.asked, servers.raw) == ([], [])
    assert lab.events("validation.started") == []
    assert [one["reason"] for one in lab.events("connection.discarded")] == [
        "only a final outcome is released, and this one is not"
    ] * 2
    assert ran.report["stage"]["state"] == "kept"
    assert ran.finality == "unresolved"


def test_a_supervisor_that_dies_while_it_sends_leaves_what_it_had_decided(tmp_path: Path) -> None:
    """Killed at the first request: the acceptance is on record, no other connection is begun, and none said to be."""
    lab, policy = make_lab(tmp_path)
    with serve() as servers:
        options = ("-p", policy, "--validate", "true", *servers.options)
        with lab.start(*options, "--", *python(SCRIPT, "accept")) as process:
            servers.on_request = process.kill
            process.communicate(timeout=60)
    assert servers.asked[:1] == [("/first", b"one")]
    assert servers.raw in ([], [b""])  # it was dialled before, and sent nothing
    assert [event["accepted"] for event in lab.events("validation.finished")] == [True]
    assert lab.events("connection.released") == []
    assert lab.call("verify", "last").returncode != 0


def end_gateway(supervisor: int) -> None:
    """Kill the gateway's process of a supervisor."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            text = status.read_text()
            if "Name:\tsupervise-gate\n" in text and f"PPid:\t{supervisor}\n" in text:
                os.kill(int(status.parent.name), signal.SIGKILL)


def test_a_gateway_that_dies_while_it_sends_leaves_it_unknown(tmp_path: Path) -> None:
    """What may have been sent is no request that was discarded: its effect is open, and the rest is not sent."""
    lab, policy = make_lab(tmp_path)
    with serve() as servers:
        options = ("-p", policy, "--validate", "true", "--period", "eventually", *servers.options)
        with lab.start(*options, "--", *python(SCRIPT, "accept")) as process:
            servers.on_request = partial(end_gateway, process.pid)
            process.communicate(timeout=60)
    report = lab.report()
    first, second = (one for one in report["open_effects"] if one["route"] == "network")
    assert (first["status"], first["could_affect"]) == ("unknown", ["outcome", "runs"])
    assert second["handling"] == "blocked"
    assert "held-undecided" in {reason["rule"] for reason in report["finality"]["reasons"]}
    assert report["finality"]["verdict"] == "unresolved"


def test_a_validator_that_takes_too_long_refuses(tmp_path: Path) -> None:
    """No answer in time is no acceptance; without a network policy only the writes wait."""
    slow = 'schema = 1\n[validate]\ncommand = "sleep 600"\ntimeout = "300ms"\n'
    lab, policy = make_lab(tmp_path, slow)
    ran = lab.sh("echo x > made", "-p", policy)
    assert not (lab.work / "made").exists()
    assert ran.report["stage"]["state"] == "discarded"
    assert "did not end" in ran.report["validation"]["problem"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """A server of HTTPS."""
    with outside(tmp_path_factory.mktemp("outside")) as made:
        yield made


SECURE = """
import http.client
connection = http.client.HTTPSConnection("api.test", timeout=20)
connection.request("POST", "/in", body=b"secretly")
try:
    print(connection.getresponse().read())
except Exception as error:
    print(type(error).__name__)
"""


def test_what_is_said_inside_tls_is_held_as_text(tmp_path: Path, server: Outside) -> None:
    """With its TLS read a client goes on; what it says is held, and sent to a server that was verified."""
    lab, policy = make_lab(tmp_path, f'{POLICY}inspect = true\ntrust = ["{server.certificate}"]\n')
    ran = lab.run("-p", policy, "--validate", "grep -q https://api.test/in", *server.mapping, "--", *python(SECURE))
    assert ran.out == b"RemoteDisconnected\n"
    assert server.asked == [("POST /in HTTP/1.1", "api.test", b"secretly")]
    assert ran.report["effects"]["requests"][0]["url"] == "https://api.test/in"
    assert ran.scope == "clean"


def test_tls_that_is_not_read_cannot_be_held(tmp_path: Path, server: Outside) -> None:
    """A handshake is no message: it is blocked, and the report says what would help."""
    lab, policy = make_lab(tmp_path)
    before = list(server.asked)
    ran = lab.run("-p", policy, "--validate", "true", *server.mapping, "--", *python(SECURE))
    assert server.asked == before
    assert "network.inspect" in ran.report["scope"]["violations"][0]["text"]
    assert ran.scope == "violated"
