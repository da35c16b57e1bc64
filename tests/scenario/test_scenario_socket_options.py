"""Options of sockets that would sign, repair or route a connection: refused and recorded, or of no consequence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scenario_network import Acted, Outside, act, options, serving, web
from test_scenario_network import make_lab

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup", "gateway")

TRYING = """
def optional(number, level, option, value, bound=None):
    sock = socket.socket()
    sock.settimeout(20)
    try:
        sock.setsockopt(level, option, value)
        said = "set"
    except OSError as error:
        said = type(error).__name__
    if bound:
        sock.bind((bound, 0))
    def go(host, port):
        sock.connect((host, port))
        sock.sendall(request("api.test", "/ok"))
        return whole(sock)
    act(f"{number} set", lambda: said)
    act(f"{number} sent", lambda: go("203.0.113.30", 1000 + number))
def allowed(number, level, option, value):
    sock = socket.socket()
    sock.settimeout(20)
    sock.setsockopt(level, option, value)
    sock.connect((socket.gethostbyname("api.test"), 80))
    sock.sendall(request("api.test", "/ok"))
    act(f"{number} allowed", lambda: whole(sock))
key = struct.pack("HH4s120xBBHi80s", 2, 0, socket.inet_aton("203.0.113.30"), 0, 0, 4, 0, b"key!")
long_key = key[:128] + struct.pack("64siIHBBBBBB80s", b"hmac(sha1)", 0, 0, 0, 32, 1, 1, 0, 0, 4, b"key!")
source_route = bytes([0x83, 7, 4]) + socket.inet_aton("192.0.2.77") + bytes(1)
record_route = bytes([7, 7, 4]) + bytes(5)
optional(1, 6, 14, key)                # TCP_MD5SIG
optional(2, 6, 32, key)                # TCP_MD5SIG_EXT
optional(3, 6, 38, long_key)           # TCP_AO_ADD_KEY
optional(4, 6, 19, 1)                  # TCP_REPAIR
optional(5, 6, 31, b"tls")             # TCP_ULP
optional(6, 0, 19, 1)                  # IP_TRANSPARENT
optional(7, 1, 36, 7)                  # SO_MARK
optional(8, 0, 4, source_route)        # IP_OPTIONS
optional(9, 0, 15, 1, "198.51.100.9")  # IP_FREEBIND
optional(10, 1, 25, b"lo\\0")           # SO_BINDTODEVICE
optional(11, 0, 4, record_route)       # IP_OPTIONS
optional(12, 1, 5, 1)                  # SO_DONTROUTE
for number, level, option, value in ((20, 1, 25, b"lo\\0"), (21, 0, 4, record_route), (22, 1, 5, 1), (23, 0, 15, 1)):
    allowed(number, level, option, value)
"""
REFUSED = {1: (6, 14), 2: (6, 32), 3: (6, 38), 4: (6, 19), 5: (6, 31), 6: (0, 19), 7: (1, 36), 8: (0, 4)}
SET = (9, 10, 11, 12)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Acted, Outside]]:
    """One trial that sets all of them, with one host allowed."""
    lab = make_lab(tmp_path_factory.mktemp("options"))
    with serving(web) as api:
        yield act(lab, TRYING, *options(api_80=api)), api


@pytest.mark.parametrize("number", REFUSED)
def test_what_hides_or_routes_a_connection_is_refused_and_recorded(tried: tuple[Acted, Outside], number: int) -> None:
    """The call fails, and level and option are on record with the process."""
    acted = tried[0]
    assert acted.results[f"{number} set"] == "PermissionError"
    found = [event for event in acted.events["syscall.refused"] if event["arguments"] == list(REFUSED[number])]
    assert [event["name"] for event in found] == ["setsockopt"]
    assert all(event["process"] for event in found)


@pytest.mark.parametrize("number", [*REFUSED, *SET])
def test_the_connection_goes_where_it_would_have_gone(tried: tuple[Acted, Outside], number: int) -> None:
    """Refused or set: it is decided by where it was to go, and is a flow of its process."""
    acted = tried[0]
    assert acted.results.get(f"{number} set") == ("set" if number in SET else "PermissionError")
    assert acted.results[f"{number} sent"] == "ConnectionResetError"
    (flow,) = acted.flows(ip="203.0.113.30", port=1000 + number)
    assert (flow["decision"], flow["bytes_out"]) == ("blocked", 0)
    assert flow["process"]


@pytest.mark.parametrize("number", [20, 21, 22, 23])
def test_what_changes_nothing_is_let_through(tried: tuple[Acted, Outside], number: int) -> None:
    """A connection to an allowed host is passed on whatever of it is set."""
    assert "200" in tried[0].results[f"{number} allowed"]


def test_both_accounts_agree(tried: tuple[Acted, Outside]) -> None:
    """The kernel's counters have no connection that the gateway has not; finality: final, scope: violated."""
    acted, api = tried
    assert len(api.told) == 4
    assert acted.ran.report["finality"]["verdict"] == "final"
    assert acted.ran.report["scope"]["verdict"] == "violated"
