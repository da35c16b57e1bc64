"""What an address was an answer for, and the addresses that stand for names."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.gateway import answers as module
from probes.gateway.answers import Answers

FIRST, SECOND = ip_address("203.0.113.1"), ip_address("2001:db8::7")


def test_an_address_has_the_names_it_was_an_answer_for_latest_first() -> None:
    """Two names may share an address; one that was never an answer has none."""
    answers = Answers()
    answers.note("a.test", (FIRST, SECOND))
    answers.note("b.test", (FIRST,))
    assert answers.names_at(FIRST) == ("b.test", "a.test")
    assert answers.names_at(SECOND) == ("a.test",)
    assert answers.names_at(ip_address("203.0.113.2")) == ()


def test_an_ipv4_address_in_an_ipv6_form_is_the_same_answer() -> None:
    """Whoever connects to ``::ffff:203.0.113.1`` goes where the answer led."""
    answers = Answers()
    answers.note("a.test", (FIRST,))
    assert answers.names_at(ip_address("::ffff:203.0.113.1")) == ("a.test",)
    assert answers.names_at(ip_address("64:ff9b::203.0.113.1")) == ("a.test",)


@given(st.lists(st.sampled_from(["a.test", "b.test", "c.test", "d.test", "e.test"]), max_size=40))
def test_no_two_names_share_a_synthetic_address(names: list[str]) -> None:
    """Each name keeps its own two addresses, and is found by both."""
    answers = Answers()
    given_out = {name: answers.synthetic(name) for name in names}
    for name, (fourth, sixth) in given_out.items():
        assert answers.synthetic(name) == (fourth, sixth)
        assert answers.names_at(fourth) == answers.names_at(sixth) == (name,)
        assert answers.is_synthetic(fourth)
        assert answers.is_synthetic(sixth)
    assert len(set(given_out.values())) == len(given_out)


def test_addresses_that_stand_for_nothing_are_not_synthetic() -> None:
    """Only those that were given out are."""
    answers = Answers()
    fourth, _ = answers.synthetic("a.test")
    assert not answers.is_synthetic(fourth + 1)
    assert not answers.is_synthetic(FIRST)


def test_memory_is_bounded_and_a_forgotten_name_leaves_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name that was asked for longest ago is forgotten, and its address then stands for another one only."""
    monkeypatch.setattr(module, "MAX_NAMES", 3)
    answers = Answers()
    first = answers.synthetic("n0.test")
    for number in range(1, 4):
        answers.synthetic(f"n{number}.test")
    assert answers.names_at(first[0]) == ("n3.test",)
    assert answers.synthetic("n0.test") != first
