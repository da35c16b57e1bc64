"""Pairs of runs: the table of separation, and that many runs are judged as few are."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.verdict.runs import pairs
from supervisor.verdict.runs.pairs import Separated, separate_pairs
from supervisor.verdict.runs.run_index import Contact, Lock, Mark, RunIndex, Secret, Server, Stream


def index(name: str, *contacts: Contact, start: int = 0, **fields: object) -> RunIndex:
    """Make the index of a run that lives from ``start`` for ten ticks."""
    times = {"released_ns": start, "ended_ns": start + 10}
    return RunIndex(run=name, **{**times, "contacts": contacts, **fields})  # type: ignore[arg-type]


def changed(path: str, at: int, before: str | None = None, after: str | None = None) -> Contact:
    """A change at one moment."""
    return Contact(path.encode(), "changed", at, at, (at,), None, before, after)


def given_to_write(path: str, at: int, before: str | None = None) -> Contact:
    """A standard stream that may have been written from then on."""
    return Contact(path.encode(), "changed", at, at + 5, (at,), None, before, given=True)


def met(path: str, at: int, how: str = "read", error: int | None = None, before: str | None = None) -> Contact:
    """A contact at one moment."""
    return Contact(path.encode(), how, at, at, (at,), error, before)


def separate(*indexes: RunIndex) -> Separated:
    """Judge them."""
    return separate_pairs(indexes, lambda: indexes)


def verdict(*indexes: RunIndex) -> str:
    """Give the verdict of the only pair; one that shares nothing is separate."""
    edges = separate(*indexes).edges
    return edges[0].verdict if edges else "separate"


@pytest.mark.parametrize(
    "contact",
    [
        met("/s/x", 20),
        met("/s/x", 20, "executed"),
        met("/s/x", 20, "looked", error=2),
        met("/s", 20, "listed"),
        met("/s/x/below", 20),
        changed("/s/x", 20),
    ],
)
def test_whoever_meets_a_change_is_connected(contact: Contact) -> None:
    """By reading, executing, looking in vain, listing, going below it, or changing it."""
    a, b = index("a", changed("/s/x", 5)), index("b", contact, start=15)
    (edge,) = separate(a, b).edges
    assert (edge.verdict, edge.reasons[0].rule) == ("connected", "met-a-change")
    assert "/s/x" in edge.reasons[0].text
    assert edge.reasons[0].events == ("a:5", "b:20")
    assert separate(a, b).units == [[0, 1]]


@pytest.mark.parametrize(
    "contact", [met("/s/y", 20), met("/other", 20, "listed"), met("/s/xx", 20), changed("/s/y", 20)]
)
def test_what_lies_beside_a_change_meets_nothing(contact: Contact) -> None:
    """Another name, another directory, a name that begins alike."""
    assert verdict(index("a", changed("/s/x", 5)), index("b", contact, start=15)) == "separate"


def test_the_same_input_is_no_edge() -> None:
    """Both read what neither changed."""
    assert separate(index("a", met("/usr/x", 5)), index("b", met("/usr/x", 20), start=15)).edges == []


def test_a_last_contact_before_the_first_change_is_separate() -> None:
    """It is told, with both moments."""
    (edge,) = separate(index("a", met("/s/x", 2)), index("b", changed("/s/x", 20), start=15)).edges
    assert (edge.verdict, edge.reasons[0].rule) == ("separate", "met-before-it-changed")
    assert edge.reasons[0].events == ("a:2", "b:20")


def test_a_checked_reset_parts_runs() -> None:
    """The later one found what the earlier one had found, after all of it had ended."""
    a = index("a", changed("/s/x", 5, before="one", after="two"))
    assert verdict(a, index("b", changed("/s/x", 20, before="one"), start=15)) == "separate"
    assert verdict(a, index("b", changed("/s/x", 20, before="two"), start=15)) == "connected"
    assert verdict(a, index("b", changed("/s/x", 9, before="one"), start=8)) == "connected"  # they overlap
    assert verdict(a, index("b", met("/s/x", 20), start=15)) == "connected"  # nobody checked what it found


def test_a_reused_workspace_is_unresolved_until_something_is_met() -> None:
    """Look-ups in it are not witnessed one by one; a read is."""
    a = index("a", changed("/w/d/x", 10), workspace=b"/w")
    b = index("b", met("/w/other", 20), start=15, workspace=b"/w")
    (edge,) = separate(a, b).edges
    assert (edge.verdict, edge.reasons[0].rule) == ("unresolved", "workspace-reused")
    assert verdict(a, index("b", met("/w/d/x", 20), start=15, workspace=b"/w/d")) == "connected"
    assert verdict(a, index("b", start=15, workspace=b"/v")) == "separate"
    assert verdict(a, index("b", start=-50, workspace=b"/w")) == "separate"  # it had ended before


def test_a_run_in_the_middle_is_named() -> None:
    """A and C share nothing, and are one unit."""
    a, b = index("a", changed("/s/x", 5)), index("b", met("/s/x", 20), changed("/s/y", 21), start=15)
    found = separate(a, b, index("c", met("/s/y", 40), start=35))
    (through,) = (edge for edge in found.edges if edge.runs == (0, 2))
    assert (through.verdict, through.via, found.units) == ("connected", (1,), [[0, 1, 2]])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, None, "unresolved"),
        ("stateless", None, "unresolved"),
        ("shared", "shared", "unresolved"),
        ("stateless", "stateless", "separate"),
        ("per-run", "per-run", "unresolved"),
    ],
)
def test_a_service_is_what_both_declare_it_to_be(one: str | None, other: str | None, expected: str) -> None:
    """One server for two runs: whatever is not declared away is unresolved."""
    a = index("a", servers=(Server("127.0.0.1:1", "api.test:80", one, 1, 2, (7,)),))
    b = index("b", start=15, servers=(Server("127.0.0.1:1", "api.test:80", other, 20, 21, (8,)),))
    (edge,) = separate(a, b).edges
    assert edge.verdict == expected
    assert bool(edge.assumptions) is (expected == "separate")
    assert edge.reasons[0].events == ("a:7", "b:8")


def test_two_servers_of_one_name_are_per_run_if_declared() -> None:
    """The declaration holds until one server is found behind both."""
    a = index("a", servers=(Server("127.0.0.1:1", "api.test:80", "per-run", 1, 2),))
    b = index("b", start=15, servers=(Server("127.0.0.1:2", "api.test:80", "per-run", 20, 21),))
    assert verdict(a, b) == "separate"


def test_a_credential_that_one_made_and_another_used_connects() -> None:
    """The same secret passed to both does not."""
    a = index("a", secrets=(Secret("f1", "token", "created", (3,)), Secret("f2", "KEY", "passed", (1,))))
    b = index("b", start=15, secrets=(Secret("f1", "token", "used", (4,)), Secret("f2", "KEY", "passed", (1,))))
    (edge,) = separate(a, b).edges
    assert [reason.rule for reason in edge.reasons] == ["credential-met"]
    assert verdict(index("a", secrets=a.secrets[1:]), index("b", secrets=b.secrets[1:], start=15)) == "separate"


def test_want_while_overlapping_is_unresolved() -> None:
    """A time-out of one may be the other's doing; one that came and went before may not."""
    want = (Mark("timeout", "its time ran out", (9,)),)
    assert verdict(index("a", contention=want), index("b", start=5)) == "unresolved"
    assert verdict(index("a", contention=want), index("b", start=15)) == "separate"


def test_a_run_without_proof_is_told_with_every_other() -> None:
    """It is never left out."""
    found = separate(index("a"), index("b", problem="it was never sealed"), index("c"))
    assert {edge.runs for edge in found.edges} >= {(0, 1), (1, 2)}
    assert (found.units, found.fewest, found.most) == ([[0, 1, 2]], 1, 3)


def test_a_gap_costs_where_it_may_hide_something() -> None:
    """Lost file events matter to who works in the same place; a process that left matters to all."""
    lost = (Mark("lost-events", "3 events are missing", (4,), "file"),)
    assert verdict(index("a", gaps=lost, workspace=b"/w"), index("b", start=15, workspace=b"/w/x")) == "unresolved"
    assert verdict(index("a", gaps=lost, workspace=b"/w"), index("b", start=15, workspace=b"/v")) == "separate"
    assert verdict(index("a", gaps=lost, workspace=b"/w"), index("b", met("/w/x", 20), start=15)) == "unresolved"
    assert verdict(index("a", gaps=lost, workspace=b"/w"), index("b", met("/wx", 20), start=15)) == "separate"
    left = (Mark("left-membership", "a process left", (4,), "process"),)
    assert verdict(index("a", gaps=left, workspace=b"/w"), index("b", start=15, workspace=b"/v")) == "unresolved"


def test_a_declared_stream_is_one_unit() -> None:
    """On the word of the policy."""
    assert verdict(index("a", unit="stream:s"), index("b", unit="stream:s", start=15)) == "connected"
    assert verdict(index("a", unit="stream:s"), index("b", unit="stream:t", start=15)) == "separate"


def test_what_acts_later_bears_on_who_ends_later() -> None:
    """A crontab that stays may change any later run."""
    later = (Mark("acts-later", "cron", (4,), "schedule"),)
    assert verdict(index("a", later=later), index("b", start=15)) == "unresolved"
    assert verdict(index("a", later=later, start=30), index("b", start=15)) == "separate"


@pytest.mark.parametrize("full", [2, 50])
def test_who_is_not_asked_about_joins_all_the_same(monkeypatch: pytest.MonkeyPatch, full: int) -> None:
    """A run in the middle is named, and no unit has it; also where it is one of many."""
    monkeypatch.setattr(pairs, "FULL", full)
    a, b = index("a", changed("/s/x", 5)), index("b", met("/s/y", 40), start=35)
    between = index("c", met("/s/x", 20), changed("/s/y", 21), start=15)
    runs = (a, b, between)
    found = separate_pairs(runs, lambda: runs, asked=2)
    assert (found.units, found.most) == ([[0, 1]], 1)
    (edge,) = found.edges
    assert (edge.runs, edge.verdict, edge.via) == ((0, 1), "connected", (2,))
    beside = (a, b, index("c", start=15))
    assert separate_pairs(beside, lambda: beside, asked=2).units == [[0], [1]]


PATHS = st.sampled_from(["/s", "/s/x", "/s/x/y", "/s/z", "/w/a", "/w/b"])
STATES = st.sampled_from([None, "one", "two"])
CONTACTS = st.one_of(
    st.builds(changed, PATHS, st.integers(0, 60), STATES),
    st.builds(met, PATHS, st.integers(0, 60), st.sampled_from(["read", "listed", "looked"])),
    st.builds(given_to_write, PATHS, st.integers(0, 60), STATES),
)
SERVERS = st.builds(
    Server,
    st.sampled_from(["1:1", "1:2"]),
    st.sampled_from([None, "api:1", "api:2"]),
    st.sampled_from([None, "shared", "stateless", "per-run"]),
    st.just(1),
    st.just(2),
)
SECRETS = st.builds(Secret, st.sampled_from("fg"), st.just("n"), st.sampled_from(["created", "used", "passed"]))
LOCKS = st.builds(
    Lock,
    st.just(b"/s/l"),
    st.just(1),
    st.sampled_from([1, 2]),
    st.sampled_from(["flock", "record"]),
    st.sampled_from(["held", "waited", "refused", "asked"]),
    st.integers(0, 30),
    st.integers(30, 60),
    own=st.booleans(),
    exact=st.booleans(),
)
STREAMS = st.builds(
    Stream,
    st.just(0),
    st.sampled_from(["file", "fifo", "socket"]),
    st.sampled_from([b"/s/x", b"/s/y"]),
    st.booleans(),
    st.just(1),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 5]),
    st.booleans(),
    st.booleans(),
    ended=st.booleans(),
    start=st.sampled_from([None, 0, 4]),
    reached=st.sampled_from([None, 4, 8]),
)
GAPS = st.builds(Mark, st.just("gap"), st.just("g"), st.just(()), st.sampled_from(["file", "network"]))
RUNS = st.builds(
    index,
    st.text("abc", min_size=1, max_size=3),
    start=st.integers(0, 50),
    contacts=st.lists(CONTACTS, max_size=4).map(tuple),
    workspace=st.sampled_from([b"", b"/w", b"/w/a", b"/v"]),
    servers=st.lists(SERVERS, max_size=1).map(tuple),
    secrets=st.lists(SECRETS, max_size=1).map(tuple),
    locks=st.lists(LOCKS, max_size=2).map(tuple),
    streams=st.lists(STREAMS, max_size=2).map(tuple),
    boot=st.sampled_from(["one", "one", "two"]),
    contention=st.sampled_from([(), (), (Mark("timeout", "t"),)]),
    gaps=st.lists(GAPS, max_size=1).map(tuple).flatmap(lambda gaps: st.sampled_from([(), (), (), gaps])),
    later=st.sampled_from([(), (), (), (Mark("acts-later", "cron"),)]),
    unit=st.sampled_from(["run", "run", "run", "stream:s"]),
    depends_on=st.sampled_from([(), (), (), ("a",), ("ab", "z")]),
)


@given(st.lists(RUNS, max_size=8))
def test_many_runs_make_the_units_that_few_runs_make(runs: list[RunIndex]) -> None:
    """The way that reads every group once joins neither more nor less than the way that looks at every pair."""
    material = pairs._read(runs, lambda: runs)
    every, spanning = pairs._every_pair(material), pairs._spanning(material)
    assert spanning.units == every.units
    assert (spanning.fewest, spanning.most) == (every.fewest, every.most)


@given(st.lists(RUNS, max_size=6), st.randoms())
def test_the_order_of_the_runs_does_not_matter(runs: list[RunIndex], random: object) -> None:
    """The same runs in another order make the same units."""
    order = list(range(len(runs)))
    random.shuffle(order)  # type: ignore[attr-defined]
    mixed = [runs[place] for place in order]
    units = {frozenset(order[run] for run in unit) for unit in separate(*mixed).units}
    assert units == {frozenset(unit) for unit in separate(*runs).units}
