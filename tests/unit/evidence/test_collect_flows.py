"""Connections and look-ups, added up to flows; the gateway's account against the kernel's; what scope makes of both."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from transcript import MAIN, MS, Transcript, policy_for

from supervisor import events as ev
from supervisor.evidence.facts import Facts, Flow
from supervisor.verdict.argue import argue
from supervisor.verdict.completion import LogFigures
from supervisor.verdict.judge import judge

API: dict[str, Any] = {"ip": "203.0.113.7", "port": 443, "host": "api.test"}


class Served(Transcript):
    """A trial that a gateway serves: told to `finish`, which adds its account and the kernel's."""

    def __init__(self) -> None:
        """Begin it."""
        super().__init__()
        self.begin()
        self.add(ev.GatewayStarted, process=None)

    def connect(self, number: int, *, out: int = 0, back: int = 0, closes: bool = True, **more: Any) -> None:
        """Tell of one allowed connection."""
        self.add(ev.ConnectionAllowed, connection=number, **{**API, **more})
        if closes:
            self.close(number, out=out, back=back, **more)

    def close(self, number: int, *, out: int = 0, back: int = 0, **more: Any) -> None:
        """Tell of its end."""
        self.add(
            ev.ConnectionClosed, connection=number, decision="allowed", bytes_out=out, bytes_in=back,
            opened_ns=self.now_ns, **{**API, **more},
        )  # fmt: skip

    def finish(
        self,
        *,
        connections: int = 0,
        received: int = 0,
        starts: int | None = None,
        counted: int | None = None,
        lost: int = 0,
    ) -> Facts:
        """End the trial; ``connections`` and ``received`` are the gateway's words, the others the kernel's."""
        self.exit()
        self.endpoint()
        self.settled()
        self.end()
        self.add(
            ev.GatewayStopped, process=None, connections=connections, questions=0, received_bytes=received, lost=lost
        )  # fmt: skip
        self.events = [event for event in self.events if not isinstance(event, ev.TrialCounted)]
        self.events = [replace(event, n=n) for n, event in enumerate(self.events)]
        self.add(
            ev.TrialCounted, process=None, egress_packets=0, egress_bytes=0,
            gateway_starts=connections if starts is None else starts,
            gateway_bytes=received if counted is None else counted,
        )  # fmt: skip
        return self.facts()


def test_connections_to_one_host_are_one_flow_with_their_bytes() -> None:
    """Opened and closed are joined by the connection's number; further ones to the same host are added."""
    trial = Served()
    trial.connect(1, out=10, back=20)
    trial.connect(2, out=1, back=2)
    facts = trial.finish(connections=2, received=11)
    (flow,) = facts.flows
    assert (flow.host, flow.decision, flow.connections) == ("api.test", "allowed", 2)
    assert (flow.bytes_out, flow.bytes_in, flow.unfinished) == (11, 22, 0)
    assert facts.gaps == ()
    assert judge(facts, policy_for()).scope.verdict == "clean"


@given(st.randoms(use_true_random=False))
def test_the_order_of_delivery_changes_nothing(chance: random.Random) -> None:
    """Kernel and gateway tell of one thing in either order, and closed may come before opened."""
    trial = Served()
    for number in range(1, 9):
        trial.connect(number, out=number)
    whole = trial.finish(connections=8, received=36)
    shuffled = list(trial.events)
    chance.shuffle(shuffled)
    assert trial.facts(events=shuffled).flows == whole.flows


def test_what_was_refused_violates_and_says_what_would_allow_it() -> None:
    """The text names the host, the address, why, and the option."""
    trial = Served()
    trial.add(
        ev.ConnectionBlocked, origin=ev.Origin.GATEWAY, transport="tcp", connection=1, host="evil.test",
        ip="203.0.113.9", port=443, rule="names", reason="no rule allows it", would_allow="--allow evil.test:443",
    )  # fmt: skip
    scope = judge(trial.finish(connections=1), policy_for()).scope
    (violation,) = scope.violations
    assert violation.rule == "blocked-connection"
    for word in ("evil.test:443", "203.0.113.9", "no rule allows it", "--allow evil.test:443 would allow it"):
        assert word in violation.text


def test_a_look_up_of_a_forbidden_name_violates_by_itself() -> None:
    """A name that is asked for can carry what must not leave; one that is answered is no flow."""
    trial = Served()
    for record in ("A", "AAAA"):
        trial.add(ev.NameAsked, name="c2VjcmV0.evil.test", record=record, decision="refused", reason="no rule")
    trial.add(ev.NameAsked, name="api.test", record="A", decision="answered", answers=("203.0.113.7",))
    trial.add(ev.NameAsked, name="trial", record="A", decision="local")
    facts = trial.finish()
    (flow,) = facts.flows
    assert (flow.protocol, flow.host, flow.decision, len(flow.events)) == ("dns", "c2VjcmV0.evil.test", "blocked", 2)
    (violation,) = judge(facts, policy_for()).scope.violations
    assert violation.rule == "forbidden-lookup"


@pytest.mark.parametrize(
    ("asked", "ip", "server", "said"),
    [
        ({"ip": "203.0.113.5"}, None, "203.0.113.5:53", "the name evil.test, asked of 203.0.113.5:53, got no answer"),
        ({"ip": "2001:db8::5"}, None, "[2001:db8::5]:53", "evil.test, asked of [2001:db8::5]:53, got no answer"),
        ({"ip": "127.0.0.1"}, None, "127.0.0.1:53", "the name evil.test, asked of 127.0.0.1:53, got no answer"),
        ({"ip": "192.0.2.53"}, None, None, "the name evil.test got no answer: no rule"),
        ({"ip": None, "port": None}, None, None, "the name evil.test got no answer: no rule"),
        (
            {"ip": "203.0.113.5", "decision": "malformed", "name": ""}, "203.0.113.5", "203.0.113.5:53",
            "a datagram to 203.0.113.5:53 that is no DNS question got no answer,",
        ),
        (
            {"ip": "2001:db8::5", "decision": "malformed", "name": "", "transport": "tcp"}, "2001:db8::5",
            "[2001:db8::5]:53", "what was sent over TCP to [2001:db8::5]:53 that is no DNS question got no answer,",
        ),
        (
            {"ip": "192.0.2.53", "decision": "malformed"}, "192.0.2.53", "192.0.2.53:53",
            "a datagram to 192.0.2.53:53 that is no DNS question, with the name evil.test, got no answer,",
        ),
        (
            {"ip": None, "port": None, "decision": "malformed", "name": ""}, None, None,
            "a datagram to port 53 that is no DNS question got no answer,",
        ),
    ],
)  # fmt: skip
def test_whom_a_question_was_asked_of_is_told(
    asked: dict[str, Any], ip: str | None, server: str | None, said: str
) -> None:
    """Who asks the box's own resolver chose nobody; what is no question went to the address that it was sent to."""
    trial = Served()
    trial.add(
        ev.NameAsked,
        **{"name": "evil.test", "record": "A", "decision": "refused", "reason": "no rule", "port": 53} | asked,
    )
    facts = trial.finish()
    (flow,) = facts.flows
    assert (flow.protocol, flow.ip, flow.port, flow.server) == ("dns", ip, 53, server)
    assert flow.unread == (asked.get("transport", "udp") if asked.get("decision") == "malformed" else None)
    (violation,) = judge(facts, policy_for()).scope.violations
    assert violation.rule == "forbidden-lookup"
    assert said in violation.text


def test_one_name_asked_of_two_servers_is_two_flows() -> None:
    """And asked twice of one it is one."""
    trial = Served()
    for ip in ("203.0.113.5", "203.0.113.6", "203.0.113.5"):
        trial.add(ev.NameAsked, name="evil.test", record="A", decision="refused", ip=ip, port=53)
    assert [(flow.server, len(flow.events)) for flow in trial.finish().flows] == [
        ("203.0.113.5:53", 2),
        ("203.0.113.6:53", 1),
    ]


def test_a_swallowed_connection_violates() -> None:
    """It was meant to leave, whoever accepted it."""
    trial = Served()
    trial.add(ev.ConnectionSinkholed, connection=1, **API)
    trial.add(ev.ConnectionClosed, connection=1, decision="sinkholed", kept_bytes=13, data_out=b"TOP-SECRET-91", **API)
    facts = trial.finish(connections=1, received=13)
    (flow,) = facts.flows
    assert (flow.decision, flow.bytes_out, flow.kept_bytes) == ("sinkholed", 0, 13)
    assert [one.rule for one in judge(facts, policy_for()).scope.violations] == ["sinkholed-connection"]


def test_the_test_of_the_box_is_no_flow_of_the_trial() -> None:
    """What CMD's process did before its release, and what nobody can be named for, is not CMD's."""
    trial = Transcript()
    trial.add(ev.ConnectionBlocked, transport="tcp", ip="192.0.2.1", port=9, rule="canary")
    trial.add(ev.ConnectionBlocked, process=None, transport="tcp", ip="192.0.2.1", port=9, rule="canary")
    trial.begin()
    assert trial.facts().flows == ()


def test_a_flow_of_a_process_that_is_not_known_is_kept() -> None:
    """Missing attribution hides no transmission."""
    trial = Served()
    trial.connect(1, out=5, process=None)
    (flow,) = trial.finish(connections=1, received=5).flows
    assert flow.process is None


def late(*, blocked: bool = False, passed: int | None = None, **acts: int | None) -> tuple[Flow, str]:
    """Tell, after the endpoint, of one connection; gives its flow and what the open effect says of it.

    Args:
        blocked: it was refused, else let through and closed.
        passed: when the last of it was passed on, in ms after the endpoint.
        acts: the kernel's times, in ms after the endpoint: ``attempted``, ``said``, ``left``.
    """
    trial = Served()
    trial.exit()
    ended_ns = trial.now_ns
    trial.endpoint()
    trial.now_ns += 20 * MS
    times = {f"{name}_ns": None if at is None else ended_ns + at * MS for name, at in acts.items()}
    if blocked:
        trial.add(ev.ConnectionBlocked, origin=ev.Origin.GATEWAY, transport="tcp", connection=1, **API, **times)
    else:
        passed_ns = None if passed is None else ended_ns + passed * MS
        begun = {**times, "left_ns": None}
        trial.add(ev.ConnectionAllowed, connection=1, **API, **begun)
        trial.close(1, out=3, passed_ns=passed_ns, **times)
    trial.settled()
    trial.end()
    facts = trial.facts()
    (flow,) = facts.flows
    effects = [one.what for one in judge(facts, policy_for()).open_effects if one.route == "network"]
    return flow, " ".join(effects)


@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.parametrize(
    ("acts", "after"),
    [
        ({"attempted": -3}, False),
        ({"attempted": -3, "said": -2, "left": -1}, False),
        ({"attempted": -3, "said": -2, "left": 0}, False),
        ({"attempted": -3, "said": 2, "left": 3}, True),
        ({"attempted": 1}, True),
        ({"attempted": None}, False),
        ({}, False),
    ],
)
def test_what_a_trial_did_before_the_endpoint_is_not_after_it_whenever_it_was_told(
    acts: dict[str, int | None],
    after: bool,  # noqa: FBT001 - as the next one
    blocked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The kernel's time of the attempt and of what was said decides; where it is not known nothing is said."""
    flow, _ = late(blocked=blocked, **acts)
    assert flow.after_endpoint is after


@pytest.mark.parametrize(
    ("acts", "open_then"),
    [
        ({"attempted": -3, "left": -1}, 0),
        ({"attempted": -3, "left": 0}, 0),  # it ended with CMD
        ({"attempted": -3, "left": 1}, 1),
        ({"attempted": 1, "left": 2}, 0),
        ({"attempted": -3}, 1),  # a process held it still when the other side ended it
        ({}, 0),  # the gateway accepted it afterwards
    ],
)
def test_a_connection_is_open_at_the_endpoint_as_long_as_the_trial_holds_it(
    acts: dict[str, int | None], open_then: int
) -> None:
    """Not as long as the gateway takes to say that it was closed."""
    flow, what = late(**acts)
    assert (flow.open_at_endpoint, flow.under_way_at_endpoint, flow.unfinished) == (open_then, 0, 0)
    assert ("1 of them open at the endpoint" in what) is bool(open_then)


@pytest.mark.parametrize(("passed", "under_way"), [(-1, 0), (0, 0), (4, 1), (None, 0)])
def test_what_was_still_to_be_passed_on_at_the_endpoint_is_told(passed: int | None, under_way: int) -> None:
    """A client that had left may have said what arrives only afterwards."""
    flow, what = late(attempted=-3, said=-2, left=-1, passed=passed)
    assert (flow.open_at_endpoint, flow.under_way_at_endpoint, flow.after_endpoint) == (0, under_way, False)
    assert ("left by then and still being passed on" in what) is bool(under_way)


def test_without_the_kernels_word_a_connection_lasted_as_long_as_was_told() -> None:
    """Logs from before it was noted, and a port that was used for another connection meanwhile."""
    for times in ({}, {"attempted_ns": 5, "left_ns": 7}):
        trial = Served()
        trial.add(ev.ConnectionAllowed, connection=1, **API, **({"attempted_ns": 3} if times else {}))
        trial.exit()
        trial.endpoint()
        trial.add(ev.ConnectionClosed, connection=1, decision="allowed", bytes_out=3, opened_ns=9, **API, **times)
        trial.settled()
        trial.end()
        (flow,) = trial.facts().flows
        assert (flow.open_at_endpoint, flow.after_endpoint) == (1, False)


@pytest.mark.parametrize(
    ("transport", "said", "after"),
    [
        ("udp", -1, False),
        ("udp", 1, True),
        ("udp", None, False),
        ("tcp", -1, False),
        ("tcp", 1, True),
        ("tcp", 90, False),
    ],
)
def test_a_name_was_asked_for_when_the_question_was_sent(
    transport: str,
    said: int | None,
    after: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Over a connection that may be a later question than the one that is told: then it is not known."""
    trial = Served()
    trial.exit()
    ended_ns = trial.now_ns
    trial.endpoint()
    trial.now_ns += 20 * MS
    said_ns = None if said is None else ended_ns + said * MS
    trial.add(ev.NameAsked, name="evil.test", record="A", decision="refused", transport=transport, said_ns=said_ns)
    (flow,) = trial.facts().flows
    assert flow.after_endpoint is after


def test_what_was_leaving_still_when_its_last_holder_ended_was_said_before() -> None:
    """The gateway tells that it lets a connection through while its client ends; that it was closed comes later."""
    trial = Served()
    trial.exit()
    ended_ns = trial.now_ns
    trial.endpoint()
    times = {"attempted_ns": ended_ns - MS}
    trial.add(ev.ConnectionAllowed, connection=1, **API, **times, said_ns=ended_ns + 1)
    trial.close(1, out=3, **times, said_ns=ended_ns, left_ns=ended_ns)
    trial.end()
    (flow,) = trial.facts().flows
    assert (flow.after_endpoint, flow.open_at_endpoint) == (False, 0)


@given(
    st.lists(
        st.tuples(st.integers(-50, 50), st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)), max_size=6
    ),
    st.randoms(use_true_random=False),
)
def test_when_it_was_told_and_in_which_order_changes_nothing(
    acts: list[tuple[int, int, int, int]], chance: random.Random
) -> None:
    """Attempted, said, left, and told some time after that: what the trial did decides alone."""
    trial = Served()
    trial.now_ns += 100 * MS
    trial.exit()
    ended_ns = trial.now_ns
    trial.endpoint()
    trial.end()
    spans = []
    for number, (begun, until_said, until_left, until_told) in enumerate(acts, start=1):
        said, left = begun + until_said, begun + until_said + until_left
        spans.append((begun, said, left))
        times = {"attempted_ns": ended_ns + begun * MS, "said_ns": ended_ns + said * MS}
        trial.now_ns = ended_ns + (left + until_told) * MS
        trial.add(ev.ConnectionAllowed, connection=number, **API, **times)
        trial.close(number, left_ns=ended_ns + left * MS, **times)
    told = list(trial.events)
    chance.shuffle(told)
    flows = trial.facts(events=told).flows
    assert [flow.after_endpoint for flow in flows] == ([any(said > 0 for _, said, _ in spans)] if spans else [])
    assert sum(flow.open_at_endpoint for flow in flows) == sum(begun <= 0 < left for begun, _, left in spans)
    assert trial.facts().flows == flows


@pytest.mark.parametrize("closes", [True, False])
def test_bytes_of_a_connection_that_was_never_seen_ending_are_a_minimum(*, closes: bool) -> None:
    """How many went on is told at its end: without one the argument says so, in words and by a number."""
    trial = Served()
    trial.connect(1, out=10)
    trial.connect(2, out=5, closes=closes)
    facts = trial.finish(connections=2, received=15)
    policy = policy_for()
    log = LogFigures(frames=1, events=9, lost=0, root="sha256:r", sealed=True)
    argument = argue(facts, policy, judge(facts, policy), run="r", command=(b"x",), log=log, policy_digest="sha256:p")
    (flow,) = argument.effects.network
    (effect,) = [one for one in argument.open_effects if one.route == "network"]
    if closes:
        assert flow.unfinished is UNSET
        assert effect.what.startswith("15 bytes sent to api.test:443 over 2 connections")
    else:
        assert (flow.bytes_out, flow.unfinished) == (10, 1)
        assert effect.what.startswith("at least 10 bytes sent to api.test:443 over 2 connections")
        assert effect.what.endswith("1 never seen ending")


def test_a_host_that_was_sent_something_is_an_open_route_to_other_runs_only() -> None:
    """Finality and scope stand; another run can meet what it left there."""
    trial = Served()
    trial.connect(1, out=10)
    facts = trial.finish(connections=1, received=10)
    judged = judge(facts, policy_for())
    assert (judged.finality.verdict, judged.scope.verdict) == ("final", "clean")
    assert judged.separation.verdict == "unresolved"
    assert [route.route for route in judged.separation.routes] == ["network"]


@pytest.mark.parametrize(
    ("account", "rule"),
    [
        ({"connections": 1, "starts": 2}, "unexplained-connections"),
        ({"connections": 2, "starts": 1}, "unexplained-connections"),
        ({"connections": 1, "received": 10, "counted": 9}, "unexplained-bytes"),
        ({"connections": 1, "received": 4}, "unexplained-bytes"),
        ({"connections": 1, "lost": 1}, "lost-questions"),
    ],
)
def test_an_account_that_does_not_agree_is_a_gap(account: dict[str, int], rule: str) -> None:
    """What the gateway says it took, passed on and accepted is held against the kernel's counters."""
    trial = Served()
    trial.connect(1, out=5)
    facts = trial.finish(**{"received": 5, **account})
    assert rule in {gap.rule for gap in facts.gaps}
    assert judge(facts, policy_for()).scope.verdict == "unresolved"


def test_a_gateway_that_died_leaves_everything_unresolved() -> None:
    """Refused unseen is not the same as not tried."""
    trial = Served()
    trial.add(ev.GatewayDied, process=None, problem="its process ended")
    trial.exit()
    trial.endpoint()
    trial.settled()
    trial.end()
    facts = trial.facts()
    judged = judge(facts, policy_for())
    assert [gap.rule for gap in facts.gaps] == ["gateway-died"]
    verdicts = (judged.finality.verdict, judged.separation.verdict, judged.scope.verdict)
    assert verdicts == ("unresolved", "unresolved", "unresolved")


def test_a_gateway_that_gave_no_account_is_a_gap() -> None:
    """Started, and never heard of again."""
    trial = Served()
    trial.end()
    assert "gateway-unaccounted" in {gap.rule for gap in trial.facts().gaps}


def test_a_trial_without_a_gateway_owes_no_account() -> None:
    """Logs from before there was one read as they did."""
    trial = Transcript()
    trial.begin()
    trial.exit()
    trial.endpoint()
    trial.settled()
    trial.end()
    assert trial.facts().gaps == ()
    assert MAIN in {process.key for process in trial.facts().processes}
