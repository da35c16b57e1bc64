"""Services outside the box, reached by real trials and asked for real while those run and settle."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scenario_lab import Lab, Ran, python

import servers_started

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

ROOT = Path(__file__).resolve().parents[2]
ORDERS = """
import json, os, socket, sys
def order(path, name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(f"POST /orders/{name} HTTP/1.0\\r\\nContent-Length: 0\\r\\n\\r\\n".encode())
        while s.recv(65536): pass
def announce(name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(json.dumps({"service": "shop", "operation": name}).encode(), os.environ["SUPERVISE_NOTIFY"])
announce(sys.argv[2]); order(*sys.argv[1:3])
"""
POLICY = """
schema = 1
[claim]
outcome = "{outcome}"
period = "{period}"
[stop]
settle = "{settle}"
[files]
commit = "never"
[[services]]
name = "shop"
at = "unix:{socket}"
state = "shared"
settle = {{ kind = "http", url = "{url}", socket = "{socket}", pointer = "/status", deadline = "{deadline}", \
pending = ["pending"], committed = ["committed"], failed = ["failed"], absent = "pending" }}
"""


@contextmanager
def shop(delay_ms: int) -> Iterator[Path]:
    """Start the shop of the replay."""
    with servers_started.place() as place:
        path = place / "shop.sock"
        words = [sys.executable, "-m", "supervisor.replay.shop", str(path), str(place / "shop.db"), str(delay_ms)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with servers_started.started(words, path.is_socket, env=environ, stdin=-1):
            yield path


def trial(places: pytest.TempPathFactory, path: Path, *command: str, **changes: str) -> tuple[Lab, Ran]:
    """Run a trial that orders something of the shop and announces it."""
    home, work = places.mktemp("home"), places.mktemp("work")
    home.chmod(0o700)
    lab = Lab(home, work)
    words = {
        "outcome": "service:shop",
        "period": "eventually",
        "settle": "60s",
        "deadline": "20s",
        "url": "http://shop/orders/{operation}",
        **changes,
    }
    (home / "policy.toml").write_text(POLICY.format(socket=path, **words))
    return lab, lab.run("-p", str(home / "policy.toml"), "--", *(command or python(ORDERS, str(path), "order-1")))


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Ran]:
    """Run a trial whose order is carried out a little later."""
    with shop(300) as path:
        return trial(tmp_path_factory, path)


def test_an_order_is_followed_until_the_shop_has_carried_it_out(followed: tuple[Lab, Ran]) -> None:
    """CMD was gone long before; the label is what the shop says."""
    _, ran = followed
    assert ran.reasons("finality")[0] == "service-settled"
    assert ran.report["finality"]["label"] == "success"
    assert ran.report["result"]["passed"] is True
    assert (ran.finality, ran.scope, ran.separation) == ("final", "clean", "unresolved")


def test_what_the_trial_announced_was_asked_about(followed: tuple[Lab, Ran]) -> None:
    """The note is the trial's, the answers are the service's; before the release there was nothing to ask about."""
    told = followed[0].events("service.answered")
    assert {one["origin"] for one in told} == {"service"}
    assert [one["status"] for one in told if one["moment"] == "start"] == ["unknown"]
    assert next(one["operations"] for one in told if one["moment"] != "start") == ["order-1"]
    assert [note["origin"] for note in followed[0].events("note.received")] == ["trial"]


def test_the_order_is_listed_with_its_proof(followed: tuple[Lab, Ran]) -> None:
    """It is settled, and what it left at the shop can be met by other runs."""
    (effect,) = [one for one in followed[1].report["open_effects"] if one["route"] == "service"]
    assert (effect["status"], effect["settled"], effect["could_affect"]) == ("persistent", True, ["runs"])
    assert effect["proof"]["checked"]
    assert effect["handling"] == "observed"


SPELLINGS = """
import os, socket, sys
path = sys.argv[1]
os.symlink(path, "/tmp/link")
os.chdir(os.path.dirname(path))
for name in ("/tmp/link", os.path.basename(path), "/tmp/.." + path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(name)
"""


def test_a_service_is_known_by_its_socket_and_not_by_what_the_caller_calls_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A link, a relative path, one with dots: the kernel knows which file the other side listens at."""
    with shop(0) as path:
        command = python(SPELLINGS, str(path))
        _, ran = trial(tmp_path_factory, path, *command, outcome="out", settle="0s", url="http://shop/orders/none")
    assert [one["route"] for one in ran.report["open_effects"]] == ["service"]
    assert ran.scope == "clean"


def test_an_order_that_is_pending_when_the_period_ends_has_failed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Within half a second it was not done; that is known, and final."""
    with shop(3_600_000) as path:
        lab, ran = trial(tmp_path_factory, path, period="within:500ms", settle="0s")
    assert [one["status"] for one in lab.events("service.answered") if one["moment"] == "deadline"] == ["pending"]
    assert ran.report["finality"]["label"] == "failure"
    assert ran.finality == "final"


def test_a_service_that_never_answers_is_unknown(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It takes connections and says nothing: no answer is not an end."""
    with servers_started.place() as place, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place / "x.sock"))
        silent.listen(64)
        path = place / "x.sock"
        lab, ran = trial(tmp_path_factory, path, "true", settle="0s", deadline="100ms", url="http://shop/")
    assert {one["status"] for one in lab.events("service.answered")} == {"unknown"}
    assert ran.reasons("finality")[:2] == ("no-label", "service-open")
    assert (ran.finality, ran.report["finality"]["label"]) == ("unresolved", None)


def test_a_socket_that_is_none_is_refused_before_anything_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The mistake names the service."""
    home, work = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work")
    home.chmod(0o700)
    (home / "policy.toml").write_text(
        POLICY.format(outcome="out", period="endpoint", settle="0s", deadline="1s", url="http://x/", socket="/no/such")
    )
    ended = Lab(home, work).call("-p", str(home / "policy.toml"), "--", "touch", "ran")
    assert ended.returncode == 125
    assert b"services[0].at" in ended.stderr
    assert not (work / "ran").exists()


THROUGH_THE_GATEWAY = """
schema = 1
[claim]
outcome = "service:desk"
period = "eventually"
[stop]
settle = "60s"
at_endpoint = "{at_endpoint}"
[files]
commit = "never"
[network]
allow = ["desk.test:80"]
map = {{ "desk.test:80" = "127.0.0.1:{port}" }}
[[services]]
name = "desk"
at = "desk.test:80"
state = "per-run"
settle = {{ kind = "http", url = "http://127.0.0.1:{port}/", every = "20ms", deadline = "20s", pointer = "/status", \
pending = ["queued"], committed = ["done"], cancelled = ["cancelled"], can_commit = "/open", \
cancel = "http://127.0.0.1:{port}/cancel" }}
"""
FILE_IT = """
import socket
with socket.create_connection(("desk.test", 80)) as s:
    s.sendall(b"POST / HTTP/1.1\\r\\nHost: desk.test\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    while s.recv(65536): pass
"""


class _Desk(BaseHTTPRequestHandler):
    """Is done with what was filed after it was asked three times about it."""

    asked: ClassVar[int] = -1000
    cancelled: ClassVar[bool] = False

    def do_POST(self) -> None:
        if self.path == "/cancel":
            type(self).cancelled = True
        else:
            type(self).asked, type(self).cancelled = 0, False
        self._answer(b"{}")

    def do_GET(self) -> None:
        if self.cancelled:
            self._answer(b'{"status": "cancelled", "open": false}')
            return
        type(self).asked += 1
        self._answer(b'{"status": "done"}' if self.asked > 3 else b'{"status": "queued"}')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def at_the_desk(lab: Lab, at_endpoint: str) -> Ran:
    """File something at a desk that is reached by its name, through the gateway."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Desk) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        policy = lab.home / "policy.toml"
        policy.write_text(THROUGH_THE_GATEWAY.format(port=server.server_address[1], at_endpoint=at_endpoint))
        ran = lab.run("-p", str(policy), "--", *python(FILE_IT))
        server.shutdown()
        thread.join()
    return ran


def test_a_service_that_is_reached_by_name_is_asked_at_its_own_address(lab: Lab) -> None:
    """The trial goes through the gateway, the supervisor does not: both are in the log, and the label is the desk's."""
    ran = at_the_desk(lab, "follow")
    assert [one["what"] for one in ran.report["open_effects"]] == ["service desk at desk.test:80"]
    assert ran.report["finality"]["label"] == "success"
    assert (ran.finality, ran.scope, ran.separation) == ("final", "clean", "separate")


def test_a_service_calls_off_what_was_declared_to_be_cancelled(lab: Lab) -> None:
    """It was asked to, and says that it is called off and can no longer be done: final, an intervention."""
    ran = at_the_desk(lab, "cancel")
    (effect,) = [one for one in ran.report["open_effects"] if one["route"] == "service"]
    assert (effect["handling"], effect["settled"]) == ("cancelled", True)
    assert [event["kind"] for event in lab.events("service.cancelled")] == ["service.cancelled"]
    assert ran.report["finality"]["label"] == "failure"
    assert ran.report["finality"]["intervened"] is True
    assert ran.finality == "final"
